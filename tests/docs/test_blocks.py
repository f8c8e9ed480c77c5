"""Every block of code in README and docs/ runs, or is checked against what it names, or has the reason why not."""

import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from warnings import catch_warnings

import pytest
from _pytest.mark import ParameterSet

from mpibow.config import load, load_mapping
from mpibow.config.listing import rows
from mpibow.config.schema import Config
from mpibow.config.yaml_text import parse
from mpibow.system.command import COMMANDS
from tests.docs.blocks import PAGES, ROOT, Block, blocks, commands

BEFORE = Path(__file__).parent / "before"
ALL = [block for page in PAGES for block in blocks(page)]
CHECKED = [block for block in ALL if block.reason is None]
LANGUAGES = {"bash", "python", "yaml", "text", "{toctree}"}
# Programs of others, whose arguments are not checked.
SHELL = {".", "cd", "true", "eval", "export", "git", "kill", "mkdir", "module", "python3", "tensorboard"}
COMMANDS_OF_SEVERAL = {"bench", "convert", "records"}  # whose first word has a help of its own


def test_all_code_is_in_fences_with_a_language():
    wrong = [str(block) for block in ALL if block.language not in LANGUAGES]
    indented = [
        f"{page.name}: {line}"
        for page in PAGES
        for line in re.findall(r"(?<=\n\n)    \S.*", re.sub(r"```.*?```", "", page.read_text(), flags=re.S))
    ]
    assert wrong + indented == []


def programs() -> Iterator[ParameterSet]:
    """A page is one program, as a notebook is; each block that needs other packages is one by itself."""
    for page in PAGES:
        found = [b for b in CHECKED if b.language == "python" and b.page == str(page.relative_to(ROOT))]
        if together := [b.text for b in found if not b.needs]:
            yield pytest.param(page.stem, "\n".join(together), (), id=page.stem)
        for alone in (b for b in found if b.needs):
            marks = [pytest.mark.torch] * ("torch" in alone.needs)
            yield pytest.param(page.stem, alone.text, alone.needs, id=str(alone), marks=marks)


@pytest.mark.parametrize(("page", "text", "needs"), [*programs()])
def test_python_runs(page, text, needs: Sequence[str], tmp_path):
    """After before/PAGE.py, which makes the data that it speaks of."""
    if missing := [package for package in needs if find_spec(package) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    before, program = BEFORE / f"{page}.py", tmp_path / "page.py"
    program.write_text(f"{before.read_text() if before.exists() else ''}\n{text}")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=840, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("block", [b for b in CHECKED if b.language == "yaml"], ids=str)
def test_yaml_is_of_settings(block: Block):
    """The block alone, or over a model and data where it has only some settings."""
    settings = parse(block.text, str(block))
    load_mapping({"model": {"name": "lenet"}, "data": {"train": "data/mnist/train"}} | settings)


@pytest.mark.parametrize("block", [b for b in CHECKED if b.language == "bash"], ids=str)
def test_commands_have_these_options(block: Block):
    for command in commands(block.text):
        check(shlex.split(command))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_within_sentences_have_these_options(page: Path):
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for command in re.findall(r"`((?:mpibow|mpirun -np|make|python -m) [^`]+)`", prose):
        check(shlex.split(re.sub(r"\s+", " ", command)))


def check(words: list[str]) -> None:
    """Raises where a program, a file, an option or a setting is not there."""
    program, *rest = words
    program = program.removeprefix(".venv/bin/")
    if program == "mpirun":
        assert rest[0] == "-np", words
        check(rest[2:] or ["true"])
    elif program == "srun":
        check(rest[2:])
    elif program == "make":
        makefile = (ROOT / "Makefile").read_text()
        target = next(word for word in rest if not word.startswith("-") and "=" not in word)
        assert re.search(rf"^{re.sub(r'test-[0-9]+', 'test-%', target)}:", makefile, re.M), words
    elif program == "pip":
        check_extras(rest[-1])
    elif program == "mpibow":
        if rest != ["--version"]:
            assert rest[0] in COMMANDS, words
            check_module(rest[0], rest[1:])
    elif program == "python" and rest[:1] == ["-m"]:
        package, _, name = rest[1].partition(".")
        assert package in ("benchmarks", "mpibow"), words
        if package == "benchmarks":
            check_options(help_of("-m", rest[1]), rest[2:])
        else:
            check_module(name, rest[2:])
    elif program == "python":
        check_script(rest[0], rest[1:])
    elif program in ("sbatch", "qsub", "bsub", "docker", "apptainer", "kubectl"):
        files = re.findall(r"\blaunch/[\w./-]+", " ".join(rest))
        assert files, words
        assert [file for file in files if not (ROOT / file).exists()] == []
    else:
        assert program in SHELL, words


def check_extras(what: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for names in re.findall(r"\[(.*)\]", what):
        assert set(names.split(",")) <= set(extras), what


def check_module(name: str, rest: list[str]) -> None:
    module = ["mpibow", name] if name in COMMANDS else [f"mpibow.{name}"]
    told = help_of("-m", *module, *rest[: name in COMMANDS_OF_SEVERAL])
    check_options(told, rest)
    pairs = [word for word in rest if re.match(r"[a-z_.]+=", word)]
    files = [word for word in rest if word.endswith(".yaml") and "/" in word]
    if name == "train" and not any("{" in pair and "..." in pair for pair in pairs):
        load(ROOT / (files[0] if files else "launch/digits.yaml"), pairs)
    known = {row[0] for row in rows(Config)}
    for pair in pairs if name == "sweep" else []:
        key = pair.partition("=")[0]
        assert any(key == path or path.startswith(f"{key}.") for path in known), pair


def check_script(file: str, rest: list[str]) -> None:
    if "/" not in file:
        return  # a program of the reader's own
    assert (ROOT / file).exists(), file
    if not file.startswith("examples/"):
        check_options(help_of(file), rest)


def check_options(told: str, rest: list[str]) -> None:
    for option in (word.partition("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)):
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", told), f"{option} in {rest}"


@cache
def help_of(*program: str) -> str:
    """What `python program... --help` prints: in this process, as starting one a program would take a minute."""
    by_name = program[0] == "-m"
    with redirect_stdout(StringIO()) as out, pytest.MonkeyPatch.context() as patch, catch_warnings(action="ignore"):
        patch.setattr(sys, "argv", [*program[by_name:], "--help"])  # runpy warns of modules that are imported already
        with pytest.raises(SystemExit) as ended:
            (runpy.run_module if by_name else runpy.run_path)(program[by_name], run_name="__main__")
    assert not ended.value.code, program
    return out.getvalue()
