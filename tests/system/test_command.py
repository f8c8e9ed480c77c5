"""Integer options: digits alone, within bounds; and their types load no converter."""

import argparse
import re
import subprocess
import sys

import pytest

from mpibow.system.command import integer, natural, positive
from tests.launching import LIMIT, ROOT


@pytest.mark.parametrize("text", ["1_0", " 3", "+3", "3\n", "²", "３", "1e3", "1.0", "0x1", "-", ""])
def test_other_forms_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(f"must be an integer, got {text!r}")):
        natural(text)


def test_bounds():
    five = integer(2, 5000)
    assert [five("2"), five("0005"), five("5000")] == [2, 5, 5000]
    with pytest.raises(argparse.ArgumentTypeError, match=r"^must be at least 2, got 1$"):
        five("1")
    with pytest.raises(argparse.ArgumentTypeError, match=r"^must be at most 5,000, got 5001$"):
        five("5001")
    assert (natural("0"), natural(str(2**64 - 1)), positive("1")) == (0, 2**64 - 1, 1)
    for kind, text in ((natural, "-1"), (natural, str(2**64)), (positive, "0"), (positive, str(2**63))):
        with pytest.raises(argparse.ArgumentTypeError):
            kind(text)


@pytest.mark.parametrize("module", ["mpibow.plot", "mpibow.evaluate", "mpibow.generate"])
def test_commands_that_convert_nothing_load_no_converter(module):
    script = f"import sys, {module}; print([name for name in sys.modules if name.startswith('mpibow.convert')])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT,
                          check=True)  # fmt: skip
    assert done.stdout == "[]\n"
