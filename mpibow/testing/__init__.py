"""Checks for a script's own parts: `check_update` of an optimiser, `check_rule` of a rule, `check_operator`.

from mpibow.testing import check_operator, check_rule, check_update

def test_my_step():
    check_update(MyStep(lr=0.1))

def test_my_rule():
    check_rule(MyRule(period=4))

def test_my_operator():
    check_operator(swish, (4, 3))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .operator import check_operator as check_operator
    from .rule import check_rule as check_rule
    from .update import check_update as check_update, hard as hard

__all__ = ["check_operator", "check_rule", "check_update", "hard"]

_FOUND = {"check_operator": "operator", "check_rule": "rule", "check_update": "update", "hard": "update"}


def __getattr__(name: str) -> Any:
    """Imports a check at its first use, with its dependencies."""
    if name not in _FOUND:
        raise AttributeError(f"module 'mpibow.testing' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_FOUND[name]}"), name)
