"""What some tests need and `make test` does not install: PyTorch, to compare with, and NVIDIA DALI."""

import re
from types import ModuleType

import pytest

from mpibow.data import dali
from mpibow.errors import install

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


def without_dali() -> str:
    """Why the tests that are marked `dali` are skipped, '' where they are not."""
    missing = dali.available()
    return missing and missing.replace(install("dali"), "make test-dali")


def asked_for(mark: str, expression: str) -> bool:
    """Whether pytest's -m wants the tests that are marked so, not just any or all others."""
    return re.search(rf"(?<!not )\b{mark}\b", re.sub(r"not \([^()]*\)", "", expression)) is not None
