"""ATen's operators by name, each with the function that adds it to a graph; programs of them become nets.

`mpibow.pytorch` imports the modules that read programs, such as `reader`, when it is called: these import PyTorch.
"""

from collections.abc import Mapping

from mpibow.aten import activations, arithmetic, indexing, layers, order, recurrent, reductions, shapes, windows

from .site import Function

MODULES = (activations, arithmetic, indexing, layers, order, recurrent, reductions, shapes, windows)
OPERATORS: Mapping[str, Function] = {
    name: function for module in MODULES for name, function in module.OPERATORS.items()
}
