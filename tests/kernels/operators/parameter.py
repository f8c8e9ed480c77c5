"""A weight by itself."""

from __future__ import annotations

from mpibow import ops
from tests.kernels.cases import INITIAL, Case
from tests.kernels.checked import Checked

CHECKED = (
    Checked(op=ops.Parameter, cases=[Case(ops.Parameter((3, 4), INITIAL, True), ())], lacking=("onednn", "cuda")),
)
