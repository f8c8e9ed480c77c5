"""ATen's operators by name, each with the function that adds it to a graph; programs of them become nets.

PyTorch itself is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping

from mpibow.aten import arithmetic, layers, shapes, windows
from mpibow.aten.site import Function, Site, of_operands, of_tensors

OF_FLOATS = arithmetic.OF_FLOATS | windows.OF_FLOATS
OF_ANY = arithmetic.OF_ANY | layers.OF_ANY | shapes.OF_ANY
PYTHON: Mapping[str, Function] = {"getitem": shapes.item}  # for calls that return several values
OPERATORS: Mapping[str, Function] = {
    **{name: of_operands(function) for name, function in arithmetic.OF_OPERANDS.items()},
    **{name: of_tensors(Site.floats, function) for name, function in OF_FLOATS.items()},
    **{name: of_tensors(Site.tensor, function) for name, function in shapes.OF_TENSORS.items()},
    **OF_ANY,
    **PYTHON,
}
