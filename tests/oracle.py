"""PyTorch, where tests compare with it: an oracle, no part of mpibow."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

MISSING = "PyTorch is not installed: make test-torch"


def pytorch() -> ModuleType:
    """The module torch, for a module of tests that is marked so; without it all of that module's tests are skipped."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":  # it is there, and lacks something
            raise
        pytest.skip(MISSING, allow_module_level=True)
    return torch


def asked_for(expression: str) -> bool:
    """Whether pytest's -m wants these tests, not just any or all others."""
    return re.search(r"(?<!not )\btorch\b", expression) is not None
