"""A part of ONNX's own test cases: none is wrong; and the page lists every operator that is read."""

import re
from collections import Counter

import pytest

from mpibow.kernels import find_kernels
from mpibow.onnx.translations import TRANSLATIONS
from tests.launching import ROOT
from tests.onnx_models.suite import cases, outcome

pytest.importorskip("numba", reason="numba is not installed: pip install 'mpibow[cpu]'")
LEAST = {"pytorch-converted": 75, "pytorch-operator": 29, "light": 1}  # of 82, 35, and of the smallest


@pytest.mark.parametrize("kind", LEAST)
@pytest.mark.parametrize("kernels", ["numpy", "onednn"])
def test_cases_pass_or_are_refused(kind, kernels):
    parts = ["squeezenet"] if kind == "light" else []
    found = {case.name: outcome(case, find_kernels(kernels, "auto", None)[0]) for case in cases([kind], parts)}
    assert not [f"{name}: {each.text}" for name, each in found.items() if each.kind == "wrong"]
    assert Counter(each.kind for each in found.values())["passed"] >= LEAST[kind]


def test_the_page_lists_every_operator():
    page = (ROOT / "docs/onnx.md").read_text()
    table = page.split("| group | operators |\n| --- | --- |\n")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) == set(TRANSLATIONS)
