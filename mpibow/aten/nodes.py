"""Facts about the nodes of torch.export's graphs, their targets and their tensors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mpibow.aten.program import SourcePlace
from mpibow.graph.graph import FLOAT, Array

if TYPE_CHECKING:
    from torch import Tensor, dtype
    from torch.fx import Node


def one_memory(one: Tensor, other: Tensor) -> bool:
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


def name_of(target: object) -> str:
    """conv2d of aten.conv2d.default."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        space, name = str(schema.name).split("::")
        return name if space == "aten" else f"{space}.{name}"
    return str(getattr(target, "__name__", target))


def writes(name: str) -> bool:
    """Whether an operator writes into its first argument."""
    return name.endswith("_") and not name.startswith("_")


def dtype_name(kind: dtype) -> str:
    name = str(kind).removeprefix("torch.")
    return "bool" if name == "bool" else FLOAT if "float" in name else "int32" if "int" in name else name


def array_of(tensor: Tensor) -> Array:
    """A copy; NumPy lacks bfloat16."""
    known = tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor
    return np.array(known.detach().cpu().numpy())


def place_of(node: Node, kind: str) -> SourcePlace:
    """The part of the module that a node belongs to, and its line in the module's source."""
    stack = [*(node.meta.get("nn_module_stack") or {}).values()]
    part, made = stack[-1] if stack else ("", kind)
    lines = (node.meta.get("stack_trace") or "").splitlines()
    frames = [
        (lines[i].strip(), lines[i + 1].strip() if i + 1 < len(lines) else "")
        for i in range(len(lines))
        if lines[i].strip().startswith("File ")
    ]
    own = [frame for frame in frames if f"{Path('site-packages') / 'torch'}" not in frame[0]] or frames
    if not own:
        return SourcePlace(part, str(made).rpartition(".")[2], "", "")
    where, line = own[-1]
    pieces = where.split('"')
    number = where.partition("line ")[2].split(",")[0]
    return SourcePlace(part, str(made).rpartition(".")[2], f"{pieces[1]}:{number}", line)
