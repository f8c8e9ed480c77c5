"""A plan bound to arrays: a learner or an evaluation runs it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mpibow.errors import ShapeError

from .formats import canonical, physical
from .graph import FLOAT, Array, ArraysByName, DType, Node, Shape
from .kernel import Buffers, Call, Peers, Run
from .steps import Step, Value, gradient, weight
from .wide import plain


def extra_buffers(step: Step, buffers: Buffers) -> dict[str, tuple[Shape, str]]:
    """The saved and scratch buffers that a step touches, by their names in the arena."""
    scratch = buffers.backward if step.kind == "backward" else buffers.forward
    return {saved_name(step.node, key): spec for key, spec in buffers.saved.items()} | {
        scratch_name(step, key): spec for key, spec in scratch.items()
    }


def saved_name(node: Node, key: str) -> str:
    return f"{node.name}.saved.{key}"


def scratch_name(step: Step, key: str) -> str:
    return f"{step.node.name}.{step.kind}.{key}"


def format_of(value: Value) -> str:
    return value.format or canonical(value.shape)


def extents_of(value: Value) -> Shape:
    """The shape of a value's array."""
    return physical(format_of(value), value.shape)


def dtype_of(dtype: str, precision: str) -> DType:
    return np.dtype(precision if dtype == FLOAT else dtype)


def bytes_of(shape: Shape, dtype: str, precision: str) -> int:
    return int(np.prod(shape)) * dtype_of(dtype, precision).itemsize


if TYPE_CHECKING:
    from .plan import Plan


@dataclass(frozen=True)
class Signals:
    """Words (1,) int64 that a plan and other threads show each other, by numbers of steps.

    `behind` a step its word becomes the number; `before` a step it waits until each word is at least the goal's, and
    adds its pauses to the third word.
    """

    behind: Mapping[int, tuple[Array, int]] = field(default_factory=dict)
    before: Mapping[int, Sequence[tuple[Array, Array, Array]]] = field(default_factory=dict)


SILENT = Signals()


class BoundPlan:
    """A plan with arrays: fill `inputs`, call `run`, read `outputs`. Owned by one thread at a time.

    `run` calls the `runs` one after the other: the steps' own, or fewer where the kernel set joins them.
    """

    def __init__(
        self,
        plan: "Plan",
        arena: Array,
        weights: Array,
        gradients: Array | None,
        statistics: Array,
        inputs: ArraysByName,
        peers: Peers,
        signals: Signals,
    ):
        self.plan = plan
        self._peers = peers
        self.arena = arena
        tensors = plan.graph.tensors
        zeros = plan.kernels.zeros
        self.inputs = dict[str, Array]()
        for n in plan.graph.inputs:
            given = inputs.get(n)
            dtype = dtype_of(tensors[n].dtype, plan.dtype)
            fits = given is not None and (given.shape, given.dtype) == (tensors[n].shape, dtype)
            self.inputs[n] = given if given is not None and fits else zeros(tensors[n].shape, dtype.name)
        self.constants = dict[str, Array]()
        self._weights = plan.layout.views(weights)
        self._gradients = {} if gradients is None else plan.layout.views(gradients)
        self._statistics = plan.statistics.views(statistics)
        self.outputs = {key: self._value(name) for key, name in plan.graph.outputs.items()}
        self.square = np.zeros(1)  # of gradients, but for factors, in all passes since it was set to 0
        checks = defaultdict(list)
        if gradients is not None and plan.kernels.square:
            last = plan.program.last()
            for span in plan.layout.spans:
                name = gradient(weight(span.name))
                if name in last and not span.rank and plan.program.values[name].place:
                    checks[last[name]].append(plan.kernels.square(self._gradients[span.name], self.square))
        runs = []
        for i, step in enumerate(plan.program.steps):
            runs += [plan.kernels.wait(*words) for words in signals.before.get(i, ())]
            runs += [self._bind(step), *checks[i]]
            if i in signals.behind:
                runs.append(plan.kernels.signal(*signals.behind[i]))
        self.runs = plan.kernels.join(runs)
        self.commands = plan.kernels.batch is not None and len(self.runs) == 1 < len(runs)  # joined

    def run(self) -> None:
        for run in self.runs:
            run()

    def _bind(self, step: Step) -> Run:
        node = step.node
        kernel = self.plan.kernels.operators[type(node.op)]
        buffers = self.plan.buffers[node.name]
        backward = step.kind == "backward"
        scratch = buffers.backward if backward else buffers.forward
        wanted = dict(zip(step.wanted, step.writes, strict=True)) if backward else {}
        call = Call(
            name=plain(node.name),
            op=node.op,
            x=tuple(map(self._value, node.inputs)),
            y=self._value(step.writes[0] if step.kind == "reorder" else node.name),
            ys=tuple(map(self._value, node.made)) if node.outputs > 1 else (),
            w={key: self._value(name) for key, name in step.weights.items()},
            statistics={key: self._statistics[node.full(key)] for key in node.statistics},
            saved={key: self._buffer(saved_name(node, key), *spec) for key, spec in buffers.saved.items()},
            scratch={key: self._buffer(scratch_name(step, key), *spec) for key, spec in scratch.items()},
            dy=self._value(gradient(node.name)) if backward else np.empty(0),
            dys=tuple(self._value(gradient(name)) for name in node.made) if backward and node.outputs > 1 else (),
            dx=tuple(self._value(wanted[i]) if i in wanted else None for i in range(backward * len(node.inputs))),
            dw={key: self._value(name) for key, name in step.gradients.items()},
            shapes=self.plan.shapes[node.name],
            peers=self._peers,
        )
        if not backward:
            return kernel.forward(call)
        if kernel.backward is None:
            raise ShapeError(f"{node.name}: {node.op.kind} has no gradient in this kernel set")
        return kernel.backward(call)

    def _value(self, name: str) -> Array:
        value = self.plan.program.values[name]
        root = self.plan.program.root(name)
        owner = self.plan.program.values[root]
        shape = extents_of(value)
        if owner.place:
            views = self._weights if owner.place == "weights" else self._gradients
            whole = views[root.removeprefix("weight ").removeprefix("d weight ")]
            return whole if name == root else whole.reshape(shape)
        if root in self.inputs:
            return self.inputs[root].reshape(shape)
        if owner.constant is not None:
            if root not in self.constants:
                dtype = dtype_of(owner.dtype, self.plan.dtype)
                self.constants[root] = self.plan.kernels.zeros(shape, dtype.name)
                self.plan.kernels.put(self.constants[root], np.full(shape, owner.constant, dtype))
            return self.constants[root].reshape(shape)
        if root not in self.plan.offsets:  # a value that no step of this plan touches
            return np.empty(0)
        return self._buffer(root, shape, owner.dtype)

    def _buffer(self, name: str, shape: Shape, dtype: str) -> Array:
        size = bytes_of(shape, dtype, self.plan.dtype)
        offset = self.plan.offsets[name]
        return self.arena[offset : offset + size].view(dtype_of(dtype, self.plan.dtype)).reshape(shape)
