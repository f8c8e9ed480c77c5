"""Outputs and gradients of a net by mpibow, and their differences from PyTorch's."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import mpibow as mb
from mpibow.aten.agreement import largest, run_plan
from mpibow.graph import FLOAT, Array, Graph, choose_layout, compile_plan
from mpibow.graph.steps import trained_values
from mpibow.kernels import find_kernels

TOLERANCE = {torch.float64: 1e-5, torch.float32: 2e-3}  # of the largest number of an array
NOTHING = {torch.float64: 1e-6, torch.float32: 1e-1}  # of the largest output: the same where all gradients are 0
SMALL = 1e-2  # of the largest gradient of a sample: below, an array is compared with this


@dataclass
class Found:
    """The results of one operator by kind, and an example of each that is not equal."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    slowest: float = 0.0


def tensors_of(made) -> list[Any]:
    """The floats; indices beside them are left out."""
    tensors = [each for each in pytree.tree_leaves(made) if isinstance(each, torch.Tensor)]
    return [each for each in tensors if each.is_floating_point()] or tensors


def computed(build: Callable[[Graph], Any], inputs: Mapping[str, Any], dtype) -> tuple[list[Array], Any, Graph]:
    """The outputs of a net, and the gradients of the sum of their squares by weights' names."""
    name = str(dtype).removeprefix("torch.")
    kernels, _ = find_kernels("numpy" if dtype is torch.float64 else "onednn", name, None)
    graph = Graph()
    made = build(graph)
    outputs = list(made.values()) if isinstance(made, dict) else [*made] if isinstance(made, tuple | list) else [made]
    trained = trained_values(graph)
    parts = [mb.reshape(y * y, (1, -1)) for y in outputs if y.name in trained and y.dtype == FLOAT]
    for n, y in enumerate(outputs):
        graph.output(f"output {n}", y)
    if parts:
        graph.output("loss", mb.sum(mb.concat(*parts, axis=1) if len(parts) > 1 else parts[0]))
    layout = choose_layout(graph, kernels, training=bool(parts))
    plan = compile_plan(graph, layout, kernels, kernels.dtype(name), training=bool(parts))
    gradients = np.zeros(plan.layout.size, plan.weight_dtype)
    found, _ = run_plan(plan, {key: x.numpy() for key, x in inputs.items()}, gradients)
    return [found[f"output {n}"] for n in range(len(outputs))], plan.layout.unpacked(gradients), graph


def differ(ours: Array, theirs: Array, tolerance: float, least: float = 0.0) -> bool:
    x, y = np.asarray(ours, float), np.asarray(theirs, float)
    if x.shape != y.shape:
        return True
    with np.errstate(all="ignore"):
        gap = np.abs(np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, x - y)).max(initial=0.0)
    return not gap <= tolerance * max(largest(y), least, 1e-30)


def off(ours: Sequence[Array], gradients: Mapping[str, Array], theirs: Sequence[Any], weights: Mapping[str, Any],
        dtype) -> str:  # fmt: skip
    """The first difference of outputs and of the gradients of the sum of their squares, '' for none."""
    for n, (x, y) in enumerate(zip(ours, theirs, strict=True)):
        if differ(x, y.detach().double().numpy(), TOLERANCE[dtype]):
            return f"output {n}: {x.reshape(-1)[:4]} not {y.detach().double().numpy().reshape(-1)[:4]}"
    parts = [(y * y).sum() for y in theirs if y.requires_grad]
    found = torch.autograd.grad(sum(parts), [*weights.values()], allow_unused=True) if parts and weights else ()
    wanted = {name: dy.numpy() for name, dy in zip(weights, found, strict=False) if dy is not None}
    top = largest(*wanted.values())
    least = max(SMALL * top, NOTHING[dtype] * max((max(y, y * y) for y in map(largest, ours)), default=0.0))
    for name, y in wanted.items():
        x = gradients.get(name, np.zeros_like(y)).reshape(y.shape)
        if differ(x, y, TOLERANCE[dtype], least):
            return f"gradient of {name}: {x.reshape(-1)[:4]} not {y.reshape(-1)[:4]}"
    return ""
