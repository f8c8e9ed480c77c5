"""Facts about the nodes of torch.export's graphs, their targets and their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibow.aten.program import SourcePlace
from mpibow.errors import ConfigError
from mpibow.graph.graph import FLOAT, Array

if TYPE_CHECKING:
    from torch import Tensor, dtype
    from torch.export.graph_signature import InputSpec
    from torch.fx import Graph, Node


CHECKS = ("_assert", "sym_constrain", "_local_scalar", "sym_size")  # prefixes of calls that compute nothing


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


def elements_of(tensor: Tensor) -> tuple[object, ...]:
    """The elements of its memory that a tensor has."""
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def check_buffers(torch: ModuleType, kind: str, graph: Graph, specs: Mapping[str, InputSpec]) -> None:
    """Raises ConfigError where the module reads a buffer that its forward writes: here buffers stay as they are."""
    tensors = [node for node in graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    for buffer in tensors:
        if buffer.op != "placeholder" or specs[buffer.name].kind.name != "BUFFER":
            continue
        alike = [node for node in tensors if one_memory(node.meta["val"], buffer.meta["val"])]
        writers = [user for node in alike for user in node.users if writes(name_of(user.target))]
        readers = {user for node in alike for user in node.users} - {*alike, *writers}
        if readers and any(user.args[0] in alike for user in writers):
            raise ConfigError(
                f"from_torch: {name_of(writers[0].target)} in {place_of(writers[0], kind)}: writes into the "
                f"buffer {specs[buffer.name].target}, which forward reads; the buffers of a net are constants"
            )


def widened(torch: ModuleType, values: Any) -> Any:
    """Constants in float64, as the net may be computed in it."""

    def wide(value: object) -> object:
        if isinstance(value, torch.dtype):
            return torch.float64 if value.is_floating_point else value
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    return torch.utils._pytree.tree_map(wide, values)
