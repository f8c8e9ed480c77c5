"""Tests beside PyTorch and with DALI: without it they are skipped and say how to have them, unless asked for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.oracle import asked_for

TESTS = Path(__file__).parent
WITHOUT = (
    "import sys; sys.modules['torch'] = sys.modules['nvidia.dali'] = None; "
    "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
)
MODULES = sorted(
    path for path in TESTS.rglob("test_*.py") if re.search(r"^torch\b.* = pytorch\(\)$", path.read_text(), re.M)
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """pytest where neither can be imported."""
    command = [sys.executable, "-c", WITHOUT, "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, timeout=720, check=False)


def test_they_are_skipped_with_the_remedy():
    done = run("-rs", *map(str, MODULES))
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    reasons = re.findall(r"^SKIPPED \[(\d+)\] \S+: (.*)$", done.stdout, re.MULTILINE)
    assert sum(int(count) for count, _ in reasons) == len(MODULES)
    assert len(MODULES) >= 10
    assert {reason for _, reason in reasons} == {"PyTorch is not installed: make test-torch"}


def test_they_are_not_skipped_where_they_are_asked_for():
    done = run("-m", "torch", *map(str, MODULES))
    assert (done.returncode, done.stderr) == (4, "ERROR: PyTorch is not installed: make test-torch\n\n")


def test_those_with_dali_are_skipped_or_refused_likewise():
    one = "tests/data/test_dali.py::test_a_slot_larger_than_a_run_should_be"
    done = run("-rs", one)
    assert done.returncode == pytest.ExitCode.OK
    assert "NVIDIA DALI is not installed: make test-dali\n1 skipped" in done.stdout
    done = run("-m", "dali", one)
    assert (done.returncode, done.stderr) == (4, "ERROR: NVIDIA DALI is not installed: make test-dali\n\n")


@pytest.mark.parametrize(
    ("expression", "asked"),
    [
        *(("torch", True), ("torch and not slow", True), ("slow or torch", True), ("not torch", False), ("", False)),
        *(("not slow and not torch", False), ("gpu", False), ("torches", False)),
        *(("not (slow or gpu or torch)", False), ("not (slow or gpu) and torch", True)),
    ],
)
def test_what_asks_for_them(expression, asked):
    assert asked_for("torch", expression) == asked
    assert asked_for("dali", expression.replace("torch", "dali")) == asked


def test_every_module_that_takes_pytorch_is_marked():
    """`make test-torch` would pass over one that is not."""
    for path in MODULES:
        assert re.search(r"^pytestmark = \[?pytest\.mark\.torch\b", path.read_text(), re.M), path
    others = {path for path in TESTS.rglob("*.py") if re.search(r"^ *(import|from) torch\b", path.read_text(), re.M)}
    assert {str(path.relative_to(TESTS)) for path in others} == {
        "oracle.py",
        "examples/torch_nets.py",
        "models/torch_nets.py",
        "models/torchvision_nets.py",
        "run/test_alike.py",
        "torch_in/direct.py",
        "torch_in/modules.py",
        "torch_in/op_db.py",
        "torch_in/random_modules.py",
        "torch_in/read.py",
        "torch_in/refused.py",
        "torch_in/same.py",
    }
