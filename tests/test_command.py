"""The command `mpibow`: its table, its help, its errors, and the files that come with it."""

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import mpibow
from mpibow import launch_files
from mpibow.__main__ import main
from mpibow.completion import SHELLS, script
from mpibow.config.yaml_text import parse, read
from mpibow.convert.__main__ import main as convert
from mpibow.data import open_records
from mpibow.system import command as shipped
from mpibow.system.command import COMMANDS, module_of, prog
from tests.data.photos import encode, picture
from tests.launching import run, well
from tests.refusals import exits, refuses

ROOT = Path(__file__).parents[1]


def test_every_module_that_is_a_command_is_in_the_table():
    package = ROOT / "mpibow"
    runs = {
        path for path in package.glob("**/*.py") if re.search(r'^if __name__ == "__main__":', path.read_text(), re.M)
    }
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in runs if "datasets" not in path.parts}
    of_programs = {"mpibow.__main__", "mpibow.cuda.exchange.probe", "mpibow.again"}  # which no person types
    assert modules - of_programs == {module_of(name).__name__ for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_parser_of_its_name(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/mpibow"])
    assert module_of(name).parser().prog == f"mpibow {name}"


@pytest.mark.parametrize("name", shipped.converters())
def test_every_converter_has_one(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/mpibow"])
    module = import_module(f"mpibow.datasets.{name}")
    assert module.parser().prog == f"mpibow convert {name}"
    assert Path(str(module.__file__)).samefile(ROOT / "datasets" / f"{name}.py")


@pytest.mark.parametrize(
    ("started", "shown"),
    [
        ("/env/bin/mpibow", "mpibow train"),
        ("/env/lib/mpibow/__main__.py", "python -m mpibow train"),
        ("/env/lib/mpibow/train.py", "python -m mpibow.train"),
        ("/env/lib/mpibow/sweep/__main__.py", "python -m mpibow.train"),
    ],
)
def test_usage_shows_how_it_was_started(started, shown, monkeypatch):
    monkeypatch.setattr(sys, "argv", [started])
    assert prog("train") == shown


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"]])
def test_help_lists_all_commands(arguments, capsys):
    assert main(arguments) == 0
    listed = re.findall(r"^  (\w+) ", capsys.readouterr().out, re.M)
    assert listed == list(COMMANDS)


def test_no_command_is_an_error_with_the_same_list(capsys):
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("usage: mpibow COMMAND")


def test_help_of_a_command(capsys):
    with exits(0):
        main(["help", "plot"])
    assert "--smooth" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "remedy"), [("trian", "did you mean 'train'?"), ("xyz", "mpibow --help lists the commands")]
)
def test_an_unknown_command(word, remedy, capsys):
    assert main([word, "--fast"]) == 2
    assert capsys.readouterr().err == f"error: '{word}': is not a command of mpibow; {remedy}\n"


def test_version(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(rf"mpibow {re.escape(mpibow.__version__)}, Python 3\.\d+\.\S+\n", capsys.readouterr().out)


def test_python_m_mpibow_is_the_same(tmp_path):
    """And a converter's processes, which import the main module again, do nothing but their work."""
    for name in ("a", "b"):
        (tmp_path / "from" / name).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "from" / name / f"{number}.jpg").write_bytes(encode(picture(20, 30, seed=number)))
    options = ["--source", "from", "--test-fraction", "0.25", "--workers", "2", "--output", "data"]
    done = well(run([sys.executable, "-m", "mpibow", "convert", "folder", *options], cwd=tmp_path))
    assert done.stdout.count("verified") == 2
    assert [open_records(tmp_path / "data" / part).count for part in ("train", "test")] == [6, 2]
    shown = run([sys.executable, "-m", "mpibow", "convert", "folder", "--help"], cwd=tmp_path).stdout
    assert shown.startswith("usage: python -m mpibow convert folder ")


def test_converters_are_listed_and_found(capsys):
    with exits(0):
        convert(["--help"])
    shown = capsys.readouterr().out
    assert all(re.search(rf"^  {name} +Writes \S", shown, re.M) for name in shipped.converters())
    with pytest.raises(SystemExit):
        convert(["numpy-arrays", "--help"])
    assert "convert numpy_arrays" in capsys.readouterr().out
    assert convert(["mnits"]) == 2
    assert capsys.readouterr().err == "error: convert: 'mnits' is not a converter; did you mean 'mnist'?\n"
    with exits(2):
        convert([])


# Launch files


def launch(*arguments: str) -> int:
    return launch_files.main(list(arguments))


def test_launch_lists_every_file_of_the_folder(capsys):
    assert launch("--list") == 0
    listed = {line.split()[0]: line.split(None, 1)[1] for line in capsys.readouterr().out.splitlines()}
    tracked = {path.relative_to(ROOT / "launch").as_posix() for path in (ROOT / "launch").rglob("*.*")}
    assert tracked <= set(listed)
    assert listed["lenet-mnist.yaml"] == "lenet on data/mnist, batch 8"
    assert listed["slurm.sbatch"].startswith("Trains on Slurm")


@pytest.mark.parametrize("name", ["digits", "digits.yaml", "launch/digits.yaml"])
def test_launch_shows_a_file(name, capsys):
    assert launch("--show", name) == 0
    assert capsys.readouterr().out == (ROOT / "launch/digits.yaml").read_text()


def test_launch_copies_to_the_path_that_its_comments_name(here: Path, capsys):
    assert launch("--copy", "slurm") == 0
    assert launch("--copy", "crossbow/lenet-mnist", "mine") == 0
    assert capsys.readouterr().out.split() == ["launch/slurm.sbatch", "mine/crossbow/lenet-mnist.yaml"]
    assert Path("launch/slurm.sbatch").stat().st_mode & 0o111  # a script is still one
    Path("launch/slurm.sbatch").write_text("edited")
    assert launch("--copy", "slurm") == 9
    assert capsys.readouterr().err == "error: launch/slurm.sbatch: exists already; pass --overwrite, or another DIR\n"
    assert Path("launch/slurm.sbatch").read_text() == "edited"
    assert launch("--copy", "slurm", "--overwrite") == 0
    assert Path("launch/slurm.sbatch").read_text() == (ROOT / "launch/slurm.sbatch").read_text()
    capsys.readouterr()
    assert launch("--copy", "digits", "mine/crossbow/lenet-mnist.yaml") == 9
    assert re.fullmatch(r"error: mine/.*: cannot be written: (not a directory|file exists)\n", capsys.readouterr().err)


def test_a_launch_file_that_is_not_there(capsys):
    assert launch("--show", "lenet-mnits") == 2
    assert capsys.readouterr().err == "error: 'lenet-mnits': is not a launch file; did you mean 'lenet-mnist'?\n"
    with exits(2):
        launch("--copy", "a", "b", "c")


def test_a_config_that_mpibow_has_is_offered(tmp_path):
    told = "cannot be read: no such file or directory; mpibow launch --copy digits writes launch/digits.yaml"
    with refuses(f"{tmp_path}/digits.yaml: {told}"):
        read(tmp_path / "digits.yaml")
    assert shipped.launch_file("digits") == "digits.yaml"
    assert isinstance(parse((shipped.LAUNCH / "digits.yaml").read_text(), "digits"), dict)


# Completion


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_command(shell):
    made = script(shell)
    assert [name for name in (*COMMANDS, *shipped.converters(), "--resume", "--first-label") if name not in made] == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["mpibow", "ev"], ["evaluate"]),
        (["mpibow", "convert", "c"], ["cifar", "crossbow"]),
        (["mpibow", "convert", "mnist", "--fir"], ["--first-label"]),
        (["mpibow", "records", "ins"], ["inspect"]),
        (["mpibow", "train", "--res"], ["--resume"]),
    ],
)
def test_completion_in_bash(typed, offered, tmp_path):
    bash = shutil.which("bash")
    (tmp_path / "mpibow.bash").write_text(script("bash"))
    words = " ".join(f"'{word}'" for word in typed)
    program = (
        f"source {tmp_path}/mpibow.bash; COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _shtab_mpibow; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "-c", program], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == offered
