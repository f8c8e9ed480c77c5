"""The operators' tests by operator: a module for each of mpibow.ops, and the tables that are made of them."""

from importlib import import_module

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, Looser
from tests.kernels.draw import Cases

WITHOUT = ("initialisers",)  # an operator
CHECKED: dict[type, Checked] = {
    checked.op: checked
    for name in ops.MODULES
    if name not in WITHOUT
    for checked in import_module(f"{__name__}.{name}").CHECKED
}
CASES: list[Case] = [case for checked in CHECKED.values() for case in checked.cases]
LARGE: list[Case] = [case for checked in CHECKED.values() for case in checked.large]
RANDOM: dict[type, Cases] = {op: checked.random for op, checked in CHECKED.items() if checked.random is not None}
LOOSER: dict[str, Looser] = {op.kind: each.looser for op, each in CHECKED.items() if each.looser is not None}
