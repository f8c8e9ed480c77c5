"""What README and docs say is what happens: programs, export lines, YAML, files, exit codes."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import mpibow
from mpibow import errors, train
from mpibow.config import load_mapping
from mpibow.config.yaml_text import parse
from mpibow.errors import EXIT_CODES
from tests.launching import mpirun, needs_mpi

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
ALL = "\n".join([README, *PAGES.values()])


def block(language: str, page: str = README) -> str:
    """The first one of the page."""
    return str(re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)[0])


@needs_mpi
def test_the_program_is_short_and_runs_on_two_ranks(tmp_path):
    program = tmp_path / "mine.py"
    program.write_text(block("python"))
    assert len(block("python").strip().splitlines()) < 25
    done = mpirun(2, str(program), cwd=tmp_path, timeout=720)
    assert done.returncode == 0, done.stderr
    (told,) = done.stdout.splitlines()  # by rank 0 alone
    assert float(told.split()[0]) > 0.9  # chance is 0.1


def test_the_export_lines_are_those_of_the_makefile():
    made = subprocess.run(["make", "-s", "settings"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    makefile = dict(re.findall(r"^export (\w+)=(\S+)$", made, re.MULTILINE))
    readme = dict(
        re.findall(
            r"\b([A-Z_a-z]+_\w+)=(\S+)", PAGES["install.md"].partition("```bash\nexport ")[2].partition("```")[0]
        )
    )
    assert len(readme) >= 5
    assert {name: makefile.get(name) for name in readme} == readme


def test_the_yaml_is_a_config():
    assert load_mapping(parse(block("yaml", PAGES["settings.md"]), "settings.md")).stop.accuracy == 0.99


def test_every_file_that_it_names_is_there():
    names = set(re.findall(r"`((?:mpibow|launch|benchmarks|datasets|docs)/[\w./-]+)`", ALL))
    names |= set(re.findall(r"mpibow[. ]train (?!CONFIG)([\w/.-]+\.yaml)", ALL))
    assert {"launch/lenet-mnist.yaml", "launch/resnet50-imagenet.yaml"} <= names
    missing = [name for name in names if not os.path.exists(ROOT / name)]
    assert not missing


def test_its_tables_of_measurements_are_those_of_the_pages():
    """Whoever measures again copies the page's table."""
    tables = re.findall(r"(?:^\|.*\n)+", PAGES["benchmarks.md"], re.MULTILINE)
    pages = [page.read_text() for page in sorted((ROOT / "benchmarks/results").glob("*.md"))]
    assert tables
    assert [table for table in tables if not any(table in page for page in pages)] == []
    rows = re.findall(r"^\| (\w+) \| (AVX-512|AVX2) (\|.*\n)", README, re.MULTILINE)
    assert {kernels for _, kernels, _ in rows} == {"AVX-512", "AVX2"}
    speed = {
        isa: (ROOT / f"benchmarks/results/{name}.md").read_text()
        for name, isa in (("cpu", "AVX-512"), ("cpu-avx2", "AVX2"))
    }
    assert [row for row in rows if f"| {row[0]} {row[2]}" not in speed[row[1]]] == []
    buy = PAGES["evidence.md"].partition("\n## Accuracy with more learners\n")[2].partition("\n## ")[0]
    bought = re.findall(r"(?:^\|.*\n)+", buy, re.MULTILINE)
    page = (ROOT / "benchmarks/results/sma.md").read_text()
    assert bought
    assert [table for table in bought if table not in page] == []


def test_extras_are_installed_from_the_folder():
    """No index has mpibow, so that only a path brings it."""
    extras = {extra for line in re.findall(r"pip install(?: -e)? '([^'\n]+)'", ALL) for extra in parts(line)}
    known = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = set(re.findall(r"`\.\[(\w+)\]`", ALL))
    assert {"demo", "cpu", "cuda", "dali", "plot"} <= extras | named <= known


def parts(line: str) -> list[str]:
    place, _, names = line.rstrip("]").partition("[")
    assert place == ".", line
    return names.split(",")


def test_every_exit_code_has_its_word():
    table = dict(re.findall(r"^\| (\d+) \| (.+) \|$", PAGES["runs.md"].partition("## Exit codes")[2], re.MULTILINE))
    assert table == {str(code): meaning for code, meaning in EXIT_CODES.items()}
    shown = train.parser().format_help()
    assert all(re.search(rf"^ +{code}  {meaning}$", shown, re.MULTILINE) for code, meaning in EXIT_CODES.items())
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")]
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_") and isinstance(value, int)}
    assert {kind.code for kind in kinds} | codes == {*EXIT_CODES}


def test_links_lead_somewhere():
    """Those to files; a page's are relative to it."""
    for folder, page in [(ROOT, README), *((ROOT / "docs", text) for text in PAGES.values())]:
        for link in re.findall(r"\]\(([^)#]+)", page):
            assert link.startswith("https://") or (folder / link).exists(), link


def test_the_citation_is_of_this_version():
    cited = parse((ROOT / "CITATION.cff").read_text(), "CITATION.cff")
    assert (cited["title"], str(cited["version"]), cited["license"]) == ("mpibow", mpibow.__version__, "Apache-2.0")
    assert {"cff-version", "message", "authors", "references"} <= set(cited)
