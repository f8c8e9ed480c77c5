"""docs/pytorch.md lists the operators that there are."""

import re

from mpibow.aten import OPERATORS
from tests.launching import ROOT


def test_the_page_lists_every_operator():
    page = (ROOT / "docs/pytorch.md").read_text()
    table = page.split("| --- | --- |\n")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) == set(OPERATORS) - {
        "by_sample",
        "getitem",
    }  # calls of Python, not of ATen
