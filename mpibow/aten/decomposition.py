"""Operators that PyTorch itself takes apart: into others, and resizing into a matrix for each axis."""

from collections.abc import Callable, Container, Mapping
from functools import cache

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from .nodes import CHECKS, array_of, is_random, name_of, writes
from .program import Argument


def anew(target: OpOverload) -> OpOverload:
    """`relu` for `relu_`, an operator that writes in place; its arguments may have other names."""
    packet = getattr(torch.ops.aten, name_of(target).rstrip("_"), None) if writes(name_of(target)) else None
    other = getattr(packet, target._overloadname, target)
    return other if len(other._schema.arguments) == len(target._schema.arguments) else target


@cache
def decompositions() -> Mapping[OpOverload, Callable[..., object]]:
    """PyTorch's own, and that of an operator which is core to it."""
    sampled = torch.ops.aten.grid_sampler_2d.default
    return {**core_aten_decompositions(), sampled: decomposition_table[sampled]}


def parts_of(node: Node, known: Container[str]) -> Graph | None:
    """An operator without a counterpart as a graph of operators that are `known`; None where there is none."""

    def apply(*leaves: object) -> object:
        args, settings = pytree.tree_unflatten(leaves, spec)
        return anew(node.target)(*args, **settings)

    try:
        values = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
        flat, spec = pytree.tree_flatten(values)
        with next(each for each in flat if isinstance(each, Tensor)).fake_mode:
            graph = make_fx(apply, decomposition_table=decompositions())(*flat).graph
    except Exception:  # no decomposition: the caller names the operator as lacking
        return None
    dependent = set[Node]()  # on a tensor
    for each in graph.nodes:
        name = name_of(each.target)
        if name.startswith("bernoulli"):  # such as alpha_dropout, of which evaluation is another formula
            return None
        value = each.meta.get("val")
        if isinstance(value, torch.SymInt | int | float):
            continue
        if (each.op == "placeholder" and isinstance(value, Tensor)) or dependent.intersection(each.all_input_nodes):
            dependent.add(each)
        there = name.rstrip("_") in known or name in known or name.startswith(CHECKS)
        if each.op == "call_function" and not there and (each in dependent or is_random(each)):
            return None
    return graph


def matrices_of(node: Node) -> list[Argument]:
    """The matrix by which each axis is resized, old times new: PyTorch's own result for unit vectors along it."""
    x, *others = node.args
    settings = dict(zip([each.name for each in node.target._schema.arguments][1:], others, strict=False)) | node.kwargs
    made = list[Argument]()
    extents = [int(extent) for extent in x.meta["val"].shape[2:]]
    for axis, n in enumerate(extents):
        alone = dict(settings)
        for key, least in (("output_size", 2), ("scale_factors", 1.0)):  # of the other axes, of extent 2
            if alone.get(key) is not None:
                alone[key] = [each if i == axis else least for i, each in enumerate(alone[key])]
        unit = torch.eye(n, dtype=torch.float64).reshape(1, n, *(n if i == axis else 1 for i in range(len(extents))))
        wide = unit.expand(1, n, *(n if i == axis else 2 for i in range(len(extents))))  # 1 fails with antialiasing
        lines = node.target(wide.contiguous(), **alone)[0].movedim(1 + axis, 1)
        made.append(array_of(lines.reshape(*lines.shape[:2], -1)[:, :, 0].contiguous()))
    return made
