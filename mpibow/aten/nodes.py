"""Facts about the nodes of torch.export's graphs, their targets and their tensors."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export.graph_signature import InputSpec
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from mpibow.errors import ConfigError
from mpibow.graph import FLOAT, Array

from .program import SourcePlace

CHECKS = ("_assert", "sym_constrain", "_local_scalar", "sym_size")  # prefixes of calls that compute nothing
WRAPPERS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")  # calls of a graph within the graph
FRAME = re.compile(r'File "(.*)", line (\d+).*\n\s*(.*)')


def one_memory(one: Tensor, other: Tensor) -> bool:
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


def elements_of(node: Node) -> tuple[object, ...]:
    """The elements of its memory that a tensor has."""
    tensor = node.meta["val"]
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


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


def is_random(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def dtype_name(kind: torch.dtype) -> str:
    name = str(kind).removeprefix("torch.")
    return FLOAT if "float" in name else "int32" if "int" in name else name


def array_of(tensor: Tensor) -> Array:
    """A copy; NumPy lacks bfloat16."""
    known = tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor
    return np.array(known.detach().cpu().numpy())


def place_of(node: Node, around: SourcePlace) -> SourcePlace:
    """The part of the module that a node belongs to, and its line in the module's source; else the place `around`."""
    if not (stack := node.meta.get("nn_module_stack")):
        return around
    part, kind = [*stack.values()][-1]
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if f"{Path('site-packages') / 'torch'}" not in frame[0]] or frames
    file, number, line = own[-1] if own else ("", "", "")
    return SourcePlace(part, str(kind).rpartition(".")[2], file and f"{file}:{number}", line)


def check_buffers(graph: Graph, specs: Mapping[str, InputSpec], around: SourcePlace) -> None:
    """Raises ConfigError where the module reads a buffer or a weight that its forward writes: here both stay."""
    graphs = [part.graph for part in graph.owning_module.modules() if hasattr(part, "graph")]  # and those within it
    tensors = [node for each in graphs for node in each.nodes if isinstance(node.meta.get("val"), Tensor)]
    for buffer in graph.find_nodes(op="placeholder"):
        if specs[buffer.name].kind.name not in ("BUFFER", "PARAMETER"):
            continue
        alike = [node for node in tensors if one_memory(node.meta["val"], buffer.meta["val"])]
        writers = [user for node in alike for user in node.users if writes(name_of(user.target))]
        users = {user for node in alike for user in node.users if name_of(user.target) not in WRAPPERS}
        if users - {*alike, *writers} and any(user.args[0] in alike for user in writers):
            raise ConfigError(
                f"from_torch: {name_of(writers[0].target)} in {place_of(writers[0], around)}: writes into the "
                f"{specs[buffer.name].kind.name.lower()} {specs[buffer.name].target}, which forward reads; here "
                "forward changes nothing"
            )


def widened(values: Any) -> Any:
    """Constants in float64, as the net may be computed in it."""

    def wide(value: object) -> object:
        if isinstance(value, torch.dtype):
            return torch.float64 if value.is_floating_point else value
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    return pytree.tree_map(wide, values)
