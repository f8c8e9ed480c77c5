"""The plan: a graph turned into a flat list of kernels bound to preallocated arrays; how it is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Array, Graph, Node, Shape
from mpibow.graph.kernel import Buffers, Call, KernelTable, Run, Shapes
from mpibow.graph.layout import Layout, initial_weights, plan_statistics
from mpibow.graph.memory import Block, lifetimes, peak, place
from mpibow.graph.steps import Program, Step, compile_steps, gradient


@dataclass(frozen=True)
class Plan:
    """Steps, buffers and offsets of one graph under one kernel set; `bind` gives it arrays. Nothing here changes."""

    graph: Graph
    layout: Layout
    statistics: Layout
    kernels: KernelTable
    dtype: str
    training: bool
    program: Program
    buffers: Mapping[str, Buffers]  # by node
    blocks: tuple[Block, ...]
    offsets: Mapping[str, int]
    arena_bytes: int

    def bind(self, weights: Array, gradients: Array | None = None, statistics: Array | None = None) -> BoundPlan:
        """Allocates an arena and binds every step to it and to the flat arrays weights and gradients (layout.size,).

        `statistics` (statistics.size,) starts as the operators say unless given.
        """
        arena = np.zeros(self.arena_bytes + 64, np.uint8)
        shift = -arena.ctypes.data % 64  # arena offsets are aligned, so make its start so
        if statistics is None:
            statistics = initial_weights(self.statistics, 0, self.dtype)
        return BoundPlan(self, arena[shift : shift + self.arena_bytes], weights, gradients, statistics)

    def __str__(self) -> str:
        return describe(self)


def compile_plan(graph: Graph, layout: Layout, kernels: KernelTable, dtype: str, *, training: bool) -> Plan:
    """graph -> steps -> lifetimes -> offsets in one arena. Raises ShapeError where the kernel set lacks an operator."""
    program = compile_steps(graph, training)
    missing = sorted({step.node.op.kind for step in program.steps if type(step.node.op) not in kernels})
    if missing:
        raise ShapeError(f"the kernel set has no kernel for {', '.join(missing)}")
    buffers: dict[str, Buffers] = {}
    sizes: dict[str, int] = {}
    for step in program.steps:
        node = step.node
        if step.kind != "backward":
            shapes = Shapes(
                tuple(program.values[name].shape for name in node.inputs), program.values[node.name].shape, training
            )
            try:
                buffers[node.name] = kernels[type(node.op)].buffers(node.op, shapes)
            except ShapeError as error:
                raise ShapeError(f"{node.name} ({node.op.kind}): {error}") from None
    uses: list[list[str]] = []
    outside = set(graph.inputs)
    for step in program.steps:
        names = [program.root(name) for name in (*step.reads, *step.writes)]
        names = [n for n in names if n not in outside and program.values[n].constant is None]
        extra = _extra(step, buffers[step.node.name])
        for name, (shape, dtype_) in extra.items():
            sizes[name] = _bytes(shape, dtype_, dtype)
        uses.append([*names, *extra])
        for name in names:
            value = program.values[name]
            sizes[name] = _bytes(value.shape, value.dtype, dtype)
    shown = [program.root(name) for name in graph.outputs.values()]
    spans = lifetimes(uses, shown)
    blocks = tuple(Block(name, sizes[name], first, last) for name, (first, last) in spans.items())
    offsets, arena_bytes = place(blocks)
    return Plan(
        graph, layout, plan_statistics(graph), kernels, dtype, training, program, buffers, blocks, offsets, arena_bytes
    )


class BoundPlan:
    """A plan with arrays: fill `inputs`, call `run`, read `outputs`. Owned by one thread at a time."""

    def __init__(self, plan: Plan, arena: Array, weights: Array, gradients: Array | None, statistics: Array) -> None:
        self.plan = plan
        self._arena = arena
        tensors = plan.graph.tensors
        self.inputs = {n: np.zeros(tensors[n].shape, _dtype(tensors[n].dtype, plan.dtype)) for n in plan.graph.inputs}
        self._constants: dict[str, Array] = {}
        self._weights = plan.layout.views(weights)
        self._gradients = {} if gradients is None else plan.layout.views(gradients)
        self._statistics = plan.statistics.views(statistics)
        self.outputs = {key: self._value(name) for key, name in plan.graph.outputs.items()}
        self._runs: list[Run] = [self._bind(step) for step in plan.program.steps]

    def run(self) -> None:
        for run in self._runs:
            run()

    def _bind(self, step: Step) -> Run:
        node, kernel = step.node, self.plan.kernels[type(step.node.op)]
        buffers = self.plan.buffers[node.name]
        backward = step.kind == "backward"
        scratch = buffers.backward if backward else buffers.forward
        call = Call(
            name=node.name,
            op=node.op,
            x=tuple(self._value(name) for name in node.inputs),
            y=self._value(node.name),
            w=self._owned(node.name, node.weights, self._weights),
            statistics=self._owned(node.name, node.statistics, self._statistics),
            saved={key: self._buffer(_saved(node, key), *spec) for key, spec in buffers.saved.items()},
            scratch={key: self._buffer(_scratch(step, key), *spec) for key, spec in scratch.items()},
            dy=self._value(gradient(node.name)) if backward else np.empty(0),
            dx=self._dx(step) if backward else (),
            dw=self._owned(node.name, node.weights, self._gradients) if backward else {},
        )
        if not backward:
            return kernel.forward(call)
        if kernel.backward is None:
            raise ShapeError(f"{node.name}: {node.op.kind} has no gradient in this kernel set")
        return kernel.backward(call)

    def _dx(self, step: Step) -> tuple[Array | None, ...]:
        wanted = dict(zip(step.wanted, step.writes, strict=True))
        return tuple(self._value(wanted[i]) if i in wanted else None for i in range(len(step.node.inputs)))

    def _owned(self, node: str, keys: Iterable[str], views: Mapping[str, Array]) -> dict[str, Array]:
        return {key: views[f"{node}.{key}"] for key in keys}

    def _value(self, name: str) -> Array:
        value, root = self.plan.program.values[name], self.plan.program.root(name)
        if root in self.inputs:
            return self.inputs[root].reshape(value.shape)
        constant = self.plan.program.values[root].constant
        if constant is not None:
            array = self._constants.setdefault(root, np.full(value.shape, constant, self.plan.dtype))
            return array.reshape(value.shape)
        if root not in self.plan.offsets:  # a value that no step of this plan touches
            return np.empty(0)
        return self._buffer(root, value.shape, value.dtype)

    def _buffer(self, name: str, shape: Shape, dtype: str) -> Array:
        size = _bytes(shape, dtype, self.plan.dtype)
        offset = self.plan.offsets[name]
        return self._arena[offset : offset + size].view(_dtype(dtype, self.plan.dtype)).reshape(shape)


def describe(plan: Plan) -> str:
    """The plan as text: a line a step with the values it writes, where they lie, and what it reads; then the memory."""
    lines = []
    for i, step in enumerate(plan.program.steps):
        writes = ", ".join(_where(plan, name) for name in step.writes) or "weights only"
        reads = ", ".join(step.reads)
        lines.append(f"{i:4d} {step.kind:8} {step.node.op.kind:22} {writes} <- {reads}")
    total = sum(block.size for block in plan.blocks)
    lines.append(
        f"{plan.layout.size:,} weights as {plan.dtype}; arena {plan.arena_bytes:,} bytes, "
        f"largest sum alive {peak(plan.blocks):,}, all values {total:,}"
    )
    return "\n".join(lines)


def _where(plan: Plan, name: str) -> str:
    value, root = plan.program.values[name], plan.program.root(name)
    place_ = f"@{plan.offsets[root]:#x}" if root in plan.offsets else ""
    return f"{name}{list(value.shape)}{place_}"


def _extra(step: Step, buffers: Buffers) -> dict[str, tuple[Shape, str]]:
    """The saved and scratch buffers that a step touches, by their names in the arena."""
    scratch = buffers.backward if step.kind == "backward" else buffers.forward
    return {_saved(step.node, key): spec for key, spec in buffers.saved.items()} | {
        _scratch(step, key): spec for key, spec in scratch.items()
    }


def _saved(node: Node, key: str) -> str:
    return f"{node.name}.saved.{key}"


def _scratch(step: Step, key: str) -> str:
    return f"{step.node.name}.{step.kind}.{key}"


def _dtype(dtype: str, precision: str) -> np.dtype[np.generic]:
    return np.dtype(precision if dtype == FLOAT else dtype)


def _bytes(shape: Shape, dtype: str, precision: str) -> int:
    return int(np.prod(shape)) * _dtype(dtype, precision).itemsize
