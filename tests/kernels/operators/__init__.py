"""The operators' tests by operator, and the tables that are made of them."""

from importlib import import_module
from pkgutil import iter_modules

from tests.kernels.cases import Case
from tests.kernels.checked import Checked, Looser
from tests.kernels.draw import Cases

CHECKED: dict[type, Checked] = {
    checked.op: checked
    for module in iter_modules(__path__)
    for checked in import_module(f"{__name__}.{module.name}").CHECKED
}
CASES: list[Case] = [case for checked in CHECKED.values() for case in checked.cases]
LARGE: list[Case] = [case for checked in CHECKED.values() for case in checked.large]
RANDOM: dict[type, Cases] = {op: checked.random for op, checked in CHECKED.items() if checked.random is not None}
LOOSER: dict[str, Looser] = {op.kind: each.looser for op, each in CHECKED.items() if each.looser is not None}
