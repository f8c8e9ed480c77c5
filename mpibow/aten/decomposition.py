"""Operators that PyTorch itself takes apart: into others, and resizing into a matrix for each axis."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from mpibow.aten.nodes import CHECKS, array_of, name_of, writes
from mpibow.aten.program import Argument

if TYPE_CHECKING:
    from torch import Tensor
    from torch._ops import OpOverload
    from torch.fx import Graph, Node


def anew(torch: ModuleType, target: OpOverload) -> OpOverload:
    """`relu` for `relu_`, an operator that writes in place; its arguments may have other names."""
    packet = getattr(torch.ops.aten, name_of(target).rstrip("_"), None) if writes(name_of(target)) else None
    other = getattr(packet, target._overloadname, target)
    return other if len(other._schema.arguments) == len(target._schema.arguments) else target


def parts_of(torch: ModuleType, node: Node, known: Callable[[str], bool]) -> Graph | None:
    """An operator without a counterpart as a graph of operators that have one; None where there is none."""
    seeded = torch.Tag.nondeterministic_seeded
    if not hasattr(node.target, "_schema"):
        return None
    pytree = torch.utils._pytree
    found = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    flat, spec = pytree.tree_flatten(found)
    places = [i for i, each in enumerate(flat) if isinstance(each, torch.Tensor)]

    def apply(*tensors: Tensor) -> object:
        values = dict(zip(places, tensors, strict=True))
        args, settings = pytree.tree_unflatten([values.get(i, each) for i, each in enumerate(flat)], spec)
        return anew(torch, node.target)(*args, **settings)

    table = dict(torch._decomp.core_aten_decompositions())
    sampled = torch.ops.aten.grid_sampler_2d.default  # which is core to PyTorch
    table[sampled] = torch._decomp.decomposition_table[sampled]
    try:
        with flat[places[0]].fake_mode:
            graph = torch.fx.experimental.proxy_tensor.make_fx(apply, decomposition_table=table)(
                *[flat[i] for i in places]
            ).graph
    except Exception:  # no decomposition: the caller names the operator as lacking
        return None
    given: set[Node] = set()  # that depend on a tensor
    for each in graph.nodes:
        name, value = name_of(each.target), each.meta.get("val")
        there = known(name.rstrip("_")) or known(name) or name.startswith(CHECKS)
        size = isinstance(value, torch.SymInt | int | float)
        if not size and (each.op == "placeholder" or given.intersection(each.all_input_nodes)):
            given.add(each)
        random = seeded in getattr(each.target, "tags", ())
        if name.startswith("bernoulli"):  # such as alpha_dropout, of which evaluation is another formula
            return None
        if each.op == "call_function" and not there and not size and (each in given or random):
            return None
    return graph


def matrices_of(torch: ModuleType, node: Node) -> list[Argument]:
    """The matrix by which each axis is resized: PyTorch's own result for unit vectors along it."""
    x, *others = node.args
    settings = dict(zip([each.name for each in node.target._schema.arguments][1:], others, strict=False))
    settings |= node.kwargs
    made, extents = list[Argument](), x.meta["val"].shape[2:]
    for axis, extent in enumerate(extents):
        alone = dict(settings)
        if alone.get("output_size") is not None:
            alone["output_size"] = [n if i == axis else 2 for i, n in enumerate(alone["output_size"])]
        if alone.get("scale_factors") is not None:
            alone["scale_factors"] = [n if i == axis else 1.0 for i, n in enumerate(alone["scale_factors"])]
        scales = [key for key in alone if key.startswith("scales")]
        alone |= {key: alone[key] if i == axis else None for i, key in enumerate(scales)}
        n = int(extent)
        unit = torch.eye(n, dtype=torch.float64).reshape(1, n, *(n if i == axis else 1 for i in range(len(extents))))
        wide = unit.expand(1, n, *(n if i == axis else 2 for i in range(len(extents))))  # 1 fails with antialiasing
        lines = node.target(wide.contiguous(), **alone).movedim(2 + axis, 2).reshape(n, -1, 2 ** (len(extents) - 1))
        made.append(array_of(lines[:, :, 0].T.contiguous()))
    return made
