"""ATen's operators by name, each with the function that adds it to a graph; programs of them become nets.

PyTorch itself is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping

from mpibow.aten import arithmetic, indexing, integers, layers, order, recurrent, shapes, volumes, windows
from mpibow.aten.site import BySample, Function, Site, of_operands, of_tensors

MODULES = (arithmetic, indexing, integers, layers, order, recurrent, shapes, volumes, windows)
OF_FLOATS = arithmetic.OF_FLOATS | volumes.OF_FLOATS | windows.OF_FLOATS
OF_ANY = {name: function for module in MODULES for name, function in module.OF_ANY.items()}
# Calls that are none of ATen's: for those that return several values, and for numbers of samples.
PYTHON: Mapping[str, Function] = {
    "by_sample": lambda site, first, step, axis, size: BySample(first, step, axis, tuple(size)),
    "getitem": shapes.item,
}
OPERATORS: Mapping[str, Function] = {
    **{name: of_operands(function) for name, function in arithmetic.OF_OPERANDS.items()},
    **{name: of_tensors(Site.floats, function) for name, function in OF_FLOATS.items()},
    **{name: of_tensors(Site.tensor, function) for name, function in shapes.OF_TENSORS.items()},
    **OF_ANY,
    **PYTHON,
}
