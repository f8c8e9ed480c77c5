"""The plan: a graph turned into a flat list of kernels, to be bound to preallocated arrays."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mpibow.errors import CheckpointError, ShapeError

from .arrange import Arrangement, arrange
from .bound import SILENT, BoundPlan, Signals, bytes_of, extents_of, extra_buffers, format_of
from .formats import Reorder, canonical
from .graph import Array, ArraysByName, Graph, Node
from .kernel import ALONE, Buffers, Formats, Kernels, Peers, Shapes
from .layout import ALIGNMENT, NONE, Layout, initial_weights, plan_layout, plan_statistics
from .memory import Block, lifetimes, peak, place
from .rewrite import mixed
from .steps import Program, Step, Value, compile_steps, widened


@dataclass(frozen=True)
class Plan:
    """Steps, buffers and offsets of one graph under one kernel set; immutable. `bind` gives it arrays.

    `shorter` are plans of the same weights for batches of shorter sequences, by their length.
    """

    graph: Graph
    layout: Layout
    statistics: Layout
    kernels: Kernels
    dtype: str
    training: bool
    program: Program
    shapes: Mapping[str, Shapes]  # by node
    buffers: Mapping[str, Buffers]  # by node
    blocks: tuple[Block, ...]
    offsets: Mapping[str, int]
    arena_bytes: int
    shorter: Mapping[int, "Plan"] = field(default_factory=dict)

    def bind(
        self,
        weights: Array,
        gradients: Array | None = None,
        statistics: Array | None = None,
        inputs: ArraysByName | None = None,
        peers: Peers = ALONE,
        signals: Signals = SILENT,
    ) -> BoundPlan:
        """Allocates an arena and binds every step to it and to the flat arrays weights and gradients (layout.size,).

        `statistics` (statistics.size,) starts as the operators declare unless given. `inputs` are arrays to be filled,
        by name; missing ones are allocated. `peers` are the learners that run this plan at the same time. `signals` are
        words that it sets and waits for.
        """
        arena = self.kernels.zeros(self.arena_bytes, "uint8")
        if statistics is None:
            statistics = self.kernels.zeros(self.statistics.size, self.weight_dtype)
            self.kernels.put(statistics, initial_weights(self.statistics, 0, self.weight_dtype))
        return BoundPlan(self, arena, weights, gradients, statistics, inputs or {}, peers, signals)

    def unpacked(self, centre: Array, statistics: Array) -> dict[str, Array]:
        """The flat arrays centre (layout.size,) and statistics (statistics.size,) by name, in their own shapes."""
        return self.layout.unpacked(centre) | self.statistics.unpacked(statistics)

    def packed(self, arrays: ArraysByName, source: str) -> tuple[Array, Array]:
        """The inverse of `unpacked`. Raises CheckpointError, about `source`, where names or shapes are others."""
        shapes = {span.name: span.shape for layout in (self.layout, self.statistics) for span in layout.spans}
        if {name: array.shape for name, array in arrays.items()} != shapes:
            raise CheckpointError(f"{source}: holds the weights of another model")
        for name, array in arrays.items():
            if array.dtype.kind != "f":
                raise CheckpointError(f"{source}: {name}: must be floating point, got {array.dtype}")
        return self.layout.packed(arrays, self.weight_dtype), self.statistics.packed(arrays, self.weight_dtype)

    @property
    def weight_dtype(self) -> str:
        """The dtype of weights, gradients and statistics: float32 if `dtype` has 16 bits."""
        return "float64" if self.dtype == "float64" else "float32"

    @property
    def reorders(self) -> list[Step]:
        """The steps that only change a layout."""
        return [step for step in self.program.steps if isinstance(step.node.op, Reorder)]

    @property
    def slow(self) -> dict[str, Sequence[str]]:
        """The parts of each node for which the kernels' library has only reference code."""
        nodes = {step.node.name: step.node.op for step in self.program.steps}
        found = {name: self.kernels.operators[type(op)].slow(op, self.shapes[name]) for name, op in nodes.items()}
        return {name: parts for name, parts in found.items() if parts}

    @property
    def reference(self) -> list[str]:
        """The operators that NumPy computes because the kernel set has nothing faster, without views."""
        ops = [step.node.op for step in self.program.steps if not step.node.op.is_view(self.training)]
        return sorted({op.kind for op in ops if self.kernels.operators[type(op)].reference})

    def __str__(self) -> str:
        """A line a step with the values it writes, their places, and the values it reads; then memory."""
        lines = []
        for i, step in enumerate(self.program.steps):
            writes = ", ".join(_where(self, name) for name in step.writes) or "weights only"
            reads = ", ".join(step.reads)
            lines.append(f"{i:4d} {step.kind:8} {step.node.op.kind:22} {writes} <- {reads}")
        total = sum(block.size for block in self.blocks)
        reorders = Counter("of weights" if step.kind == "reorder" else step.kind for step in self.reorders)
        if reorders:
            lines.append("reorders: " + ", ".join(f"{count} {kind}" for kind, count in reorders.items()))
        lines.append(
            f"{self.layout.size:,} weights as {self.dtype}; arena {self.arena_bytes:,} bytes, "
            f"largest sum alive {peak(self.blocks):,}, all values {total:,}"
        )
        return "\n".join(lines)


def choose_layout(
    graph: Graph,
    kernels: Kernels,
    decay_biases: bool = False,
    *,
    training: bool = True,
    factors: bool = False,
    parts: Mapping[str, int] = NONE,
    aligned: int = ALIGNMENT,
) -> Layout:
    """The replica layout that a plan's kernels request for `graph`; with `factors`, gradients as factors if they can.

    Code that reads gradients element by element cannot use factors. `parts` and `aligned` are those of plan_layout.
    """
    arrangement = arrange(kernels.fuse(graph, training), kernels.operators, training, kernels.lacks)
    ranks = arrangement.ranks() if factors else NONE
    return plan_layout(graph, decay_biases, arrangement.weight_formats(), ranks, parts, aligned)


def compile_plan(graph: Graph, layout: Layout, kernels: Kernels, dtype: str, *, training: bool) -> Plan:
    """graph -> fused nodes -> layouts and reorders -> steps -> lifetimes -> offsets in one arena.

    Weights lie as in `layout`, and are reordered where the kernels request another one. Raises ShapeError if the kernel
    set lacks an operator or refuses its shapes.
    """
    statistics = plan_statistics(graph)
    narrow = np.dtype(dtype).itemsize < 4
    if narrow:
        graph = mixed(graph, kernels.widths, training)
    arrangement = arrange(kernels.fuse(graph, training), kernels.operators, training, kernels.lacks)
    graph = arrangement.graph
    shapes = _kept_as_factors(arrangement, layout, training)
    table = kernels.operators
    program = compile_steps(graph, training, arrangement.formats, lambda op: table[type(op)].inputs_alone)
    if narrow:
        program = widened(program, kernels.widths)
    program = _reorder_weights(program, layout, shapes)
    buffers = {}
    for step in program.steps:
        node = step.node
        if node.name not in shapes:  # a sum of gradients
            formats = tuple(format_of(program.values[name]) for name in node.inputs)
            x = tuple(program.values[name].shape for name in node.inputs)
            shapes[node.name] = Shapes(x, x[0], training, (), Formats(formats, formats[0]))
        if node.name not in buffers:
            try:
                buffers[node.name] = table[type(node.op)].buffers(node.op, shapes[node.name])
            except ShapeError as error:
                raise ShapeError(f"{node.name} ({node.op.kind}): {error}") from None
    sizes = dict[str, int]()
    uses = []
    outside = {name for name, value in program.values.items() if value.place or value.constant is not None}
    outside |= set(graph.inputs)
    for step in program.steps:
        names = [name for name in map(program.root, step.touches) if name not in outside]
        extra = extra_buffers(step, buffers[step.node.name])
        sizes |= {name: bytes_of(*spec, dtype) for name, spec in extra.items()}
        sizes |= {name: bytes_of(extents_of(program.values[name]), program.values[name].dtype, dtype) for name in names}
        uses.append([*names, *extra])
    spans = lifetimes(uses, [program.root(name) for name in graph.outputs.values()])
    blocks = tuple(Block(name, sizes[name], first, last) for name, (first, last) in spans.items())
    offsets, arena_bytes = place(blocks)
    return Plan(
        graph, layout, statistics, kernels, dtype, training, program, shapes, buffers, blocks, offsets, arena_bytes
    )


def _kept_as_factors(arrangement: Arrangement, layout: Layout, training: bool) -> dict[str, Shapes]:
    """The `Shapes` of each node; its `factors` are the gradients that `layout` keeps as factors."""
    wanted = {span.name: span.rank for span in layout.spans if span.rank}
    offers = arrangement.ranks()
    for name, rank in wanted.items():
        if training and offers.get(name) != rank:  # readers of the gradient would take it for factors
            raise ShapeError(
                f"{name}: the layout has its gradient as factors of rank {rank}, this plan's kernels do not"
            )
    shapes = dict(arrangement.shapes)
    for node in arrangement.graph.nodes:
        mine = shapes[node.name]
        if offered := mine.formats.factors:
            kept = {key: rank for key, rank in offered.items() if wanted.get(node.full(key)) == rank}
            shapes[node.name] = replace(mine, formats=replace(mine.formats, factors=kept))
    return shapes


def _reorder_weights(program: Program, layout: Layout, shapes: dict[str, Shapes]) -> Program:
    """Reorders weights for kernels that request another layout than the replica's, and their gradients back."""
    lies = {span.name: span.format for span in layout.spans}
    values = dict(program.values)
    steps = []

    def copied(name: str, lie: str, tag: str, beside: list[Step], end: str = "") -> str:
        """The value's copy in the layout `tag`; `beside` gets the step that reorders it, or without `end` reorders it
        back."""
        shape = values[name].shape
        copy = f"{name} as {tag}{end}"
        values[name] = replace(values[name], format=lie)
        if tag == lie:
            return name
        values[copy] = Value(copy, shape, values[name].dtype, format=tag)
        source, target, *tags = (name, copy, lie, tag) if end else (copy, name, tag, lie)
        shapes[f"reorder of {copy}"] = Shapes((shape,), shape, False, (), Formats((tags[0],), tags[1]))
        reorder = Node(f"reorder of {copy}", Reorder(*tags), (source,))
        beside.append(Step("reorder", reorder, (source,), (target,)))
        return copy

    for step in program.steps:
        if step.kind == "sum":
            steps.append(step)
            continue
        node = step.node
        formats = shapes[node.name].formats
        before = list[Step]()
        after = list[Step]()

        weights = dict(step.weights)
        gradients = dict(step.gradients)
        for key, name in step.weights.items():
            lie = lies[node.full(key)]
            tag = formats.w.get(key, canonical(values[name].shape))
            if step.kind == "backward":
                tag = formats.back.get(key, tag) if "w" in node.op.reads else lie
            weights[key] = copied(name, lie, tag, before, f" {step.kind}")
        for key, name in step.gradients.items():
            tag = formats.dw.get(key, formats.w.get(key, canonical(values[name].shape)))
            # nothing reads a frozen weight's, which has no place
            gradients[key] = copied(name, lies[node.full(key)] if values[name].place else tag, tag, after)
        steps += [*before, replace(step, weights=weights, gradients=gradients), *after]
    return Program(tuple(steps), values)


def _where(plan: Plan, name: str) -> str:
    value = plan.program.values[name]
    root = plan.program.root(name)
    place_ = f"@{plan.offsets[root]:#x}" if root in plan.offsets else ""
    return f"{name}{list(value.shape)}{value.format if format_of(value) != canonical(value.shape) else ''}{place_}"
