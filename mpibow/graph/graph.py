"""The graph: operators and named tensors, which describe the computation. It holds no arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np

from mpibow.errors import ShapeError
from mpibow.formulas import Array as Array, Arrays as Arrays, ArraysByName as ArraysByName

from .infix import Infix

_PREFIX = ContextVar("prefix", default="")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Nodes and weights made inside are called `name.conv1`, `name.conv1.weight` ...; scopes may be nested.

    Unnamed nodes are numbered within their scope, so a net's other parts do not change the numbers.
    """
    if not _NAME.fullmatch(name):
        raise ShapeError(f"scope {name!r}: a name begins with a letter, then letters, digits, _, - and . follow")
    token = _PREFIX.set(f"{prefix()}{name}.")
    try:
        yield
    finally:
        _PREFIX.reset(token)


def prefix() -> str:
    """The prefix of names in the current scope."""
    return _PREFIX.get()


Shape = tuple[int, ...]
DType = np.dtype[Any]
Initialiser = Callable[[np.random.Generator, Shape, int, int], Array]  # (generator, shape, fan in, fan out)

OUTPUT = -1
Places = Container[int]  # numbers of inputs
InputNumbers = tuple[int, ...]
EVERY = range(1 << 16)
FLOAT = "float"  # a tensor of the plan's own precision; any other dtype is given by its NumPy name


@dataclass(frozen=True)
class Weight:
    """An array that a node owns: its shape and initial value, whether it decays and whether it is trained."""

    shape: Shape
    initial: Initialiser
    fan_in: int
    fan_out: int
    decay: bool = True
    trained: bool = True

    def __post_init__(self) -> None:
        if not callable(self.initial):
            raise ShapeError(
                f"initial: must be a function, such as mb.Constant({self.initial!r}), got {self.initial!r}"
            )


Weights = Mapping[str, Weight]  # a node's, by key


@dataclass(frozen=True)
class Buffer:
    """An array that a net keeps beside its weights, for PyTorch; a `persistent` one is in the module's state_dict."""

    array: Array
    persistent: bool = True


@dataclass_transform(frozen_default=True)
class Op:
    """A frozen description of one tensor function: all its subclasses are frozen dataclasses. Here are their defaults.

    `infer` returns the output's shape, here the first input's, or raises ShapeError with the broken rule; `outputs`
    returns those of several outputs, infer's first. `weights` names the arrays that a node owns, `statistics` those
    that its forward updates in training. `reads` lists which of x (inputs), y (outputs) and w (weights) its backward
    reads; it is empty if backward reads only buffers that its kernel saved. `differentiable` lists the inputs with a
    gradient, None for an operator without backward, and `flat` those whose gradient is 0 by definition, as of a
    condition. `shares` is the gradient that input i reuses: OUTPUT the output's, j input j's, None its own.
    `is_view`: the output is the input (without inputs, the weight) under another shape, and forward runs no kernel.
    `dtype` is the outputs' for given input dtypes; `untrained` is the operator to use if all its weights are frozen.
    `integers` are the inputs that may be of other types than FLOAT. Operators that are not `fusible` stay alone.
    """

    kind: ClassVar[str]
    reads: ClassVar[str] = ""
    integers: ClassVar[Places] = ()
    flat: ClassVar[Places] = ()
    fusible: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    def __call__(self, *inputs: Tensor, name: str | None = None) -> Tensor:
        """Adds it to the graph of its inputs, without inputs to the current one; returns its first output."""
        graph = inputs[0].graph if inputs and isinstance(inputs[0], Tensor) else current()
        return graph.add_all(self, *inputs, name=name)[0]

    @property
    def differentiable(self) -> InputNumbers | None:
        return (0,)

    def infer(self, *shapes: Any, **_: Any) -> Shape:
        found: Shape = shapes[0]
        return found

    def outputs(self, *shapes: Any, **_: Any) -> tuple[Shape, ...]:
        return (self.infer(*shapes),)

    def dtype(self, *dtypes: str) -> str:
        return FLOAT

    def weights(self, *shapes: Any, **_: Any) -> Weights:
        return {}

    def statistics(self, *shapes: Any, **_: Any) -> Weights:
        return {}

    def shares(self, i: int) -> int | None:
        return None

    def is_view(self, training: bool) -> bool:
        return False

    def untrained(self) -> Self:
        return self


class Moving(Op):
    """An operator whose output consists of elements of its inputs, of any type."""

    integers = EVERY

    def dtype(self, *dtypes: str) -> str:
        return dtypes[0]


@dataclass(frozen=True, eq=False)
class Tensor(Infix):
    """A named value of a graph; operators are functions from tensors to tensors."""

    graph: Graph = field(repr=False)
    name: str
    shape: Shape
    dtype: str = FLOAT

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.shape)


@dataclass(frozen=True)
class Node:
    """An operator with the tensors that it reads; its output carries the node's name.

    The second of several `outputs` is called `name.1`, the third `name.2`. `names` are the full names by key of weights
    and statistics that are not this node's own, as several nodes of the user's graph are fused into it.
    """

    name: str
    op: Op
    inputs: tuple[str, ...]
    weights: Weights = field(default_factory=dict)
    statistics: Weights = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    outputs: int = 1

    @property
    def made(self) -> tuple[str, ...]:
        """The names of its outputs."""
        return self.name, *(f"{self.name}.{i}" for i in range(1, self.outputs))

    def full(self, key: str) -> str:
        """The name of the weight or statistic `key` in a replica: conv1.weight."""
        return self.names.get(key, f"{self.name}.{key}")


_CURRENT: ContextVar[Graph | None] = ContextVar("current", default=None)


def current() -> Graph:
    """The graph that was made last; a net's function adds to it."""
    found = _CURRENT.get()
    if found is None:
        raise ShapeError(
            "there is no graph yet: parameters belong to a net, so make them in the function that builds it"
        )
    return found


class Graph:
    """Grows by `input` and by operator functions; `output` names the tensors that a plan returns to its caller.

    Only a `training` one changes samples at random. A net that was read from a PyTorch module has `buffers`, the arrays
    by name that no plan changes, and `frozen`, the weights that are not trained.
    """

    def __init__(self, training: bool = True):
        self.training = training
        self.tensors = dict[str, Tensor]()
        self.inputs = list[str]()
        self.nodes = list[Node]()
        self.outputs = dict[str, str]()
        self.buffers = dict[str, Buffer]()
        self.frozen = list[str]()
        self._counts = dict[str, int]()
        _CURRENT.set(self)

    def input(self, name: str, shape: Shape, dtype: str = FLOAT) -> Tensor:
        """A tensor that the caller fills before each run; a second call for the same input returns the same tensor."""
        tensor = self.tensors.get(name)
        if tensor is None:
            tensor = self._tensor(name, shape, dtype)
            self.inputs.append(name)
        elif (tensor.shape, tensor.dtype) != (shape, dtype) or name not in self.inputs:
            raise ShapeError(f"input {name}: is already a tensor of {tensor.shape} {tensor.dtype}, got {shape} {dtype}")
        return tensor

    def next_name(self, kind: str) -> str:
        """The name within the scope of the next node of `kind` that has no name of its own."""
        key = f"{prefix()}{kind}"
        while True:
            self._counts[key] = self._counts.get(key, 0) + 1
            if f"{key}{self._counts[key]}" not in self.tensors:
                return f"{kind}{self._counts[key]}"

    def add_all(
        self,
        op: Op,
        *inputs: Tensor,
        name: str | None = None,
        names: Mapping[str, str] | None = None,
        initial: Mapping[str, Initialiser] | None = None,
    ) -> tuple[Tensor, ...]:
        """All outputs of `op` applied to `inputs`. `names` are the weights' names, if not name.key.

        Weights and statistics start from `initial` by their keys, else as the operator declares. Raises ShapeError
        naming node, rule and shapes.
        """
        name = f"{prefix()}{self.next_name(op.kind) if name is None else name}"
        full = {key: f"{prefix()}{each}" for key, each in (names or {}).items()}
        for each in inputs:
            if not isinstance(each, Tensor):
                raise ShapeError(f"{name}: takes tensors, got {each!r}; mb.constant makes one of numbers")
        shapes = [tensor.shape for tensor in inputs]
        sources = ", ".join(f"{tensor.name} {tensor.shape}" for tensor in inputs)
        for tensor in inputs:
            if tensor.graph is not self:
                raise ShapeError(f"{name}: {tensor.name} belongs to another graph")
        try:
            made = op.outputs(*shapes)
        except ShapeError as error:
            raise ShapeError(f"{name} ({op.kind} of {sources}): {error}") from None
        for i, tensor in enumerate(inputs):
            if tensor.dtype != FLOAT and i not in op.integers:
                raise ShapeError(
                    f"{name} ({op.kind} of {sources}): takes floats, {tensor.name} is of {tensor.dtype}; "
                    f"mb.cast({tensor.name}) makes them"
                )
        read = tuple(tensor.name for tensor in inputs)
        weights, statistics = (
            {key: replace(each, initial=(initial or {}).get(key, each.initial)) for key, each in held.items()}
            for held in (op.weights(*shapes), op.statistics(*shapes))
        )
        return self.append(Node(name, op, read, weights, statistics, full, outputs=len(made)), *made)

    def append(self, node: Node, *shapes: Shape) -> tuple[Tensor, ...]:
        """Adds a node unchanged, as in rewriting a graph; returns its outputs (shapes)."""
        dtype = node.op.dtype(*(self.tensors[name].dtype for name in node.inputs))
        outputs = [self._tensor(name, shape, dtype) for name, shape in zip(node.made, shapes, strict=True)]
        self.nodes.append(node)
        return tuple(outputs)

    def made(self, node: Node) -> tuple[Shape, ...]:
        """The shapes of its outputs."""
        return tuple(self.tensors[name].shape for name in node.made)

    def output(self, name: str, tensor: Tensor) -> Tensor:
        """Returns `tensor` to the plan's caller as `name`. A training plan differentiates the mean of 'loss'."""
        if name in self.outputs:
            raise ShapeError(f"output {name}: is already {self.outputs[name]}")
        if not isinstance(tensor, Tensor):  # of a net of the user's own
            raise ShapeError(f"output {name}: must be a tensor, got {type(tensor).__name__}")
        self.outputs[name] = tensor.name
        return tensor

    def behind(self, tensors: Iterable[str], *, flat: bool = True) -> set[str]:
        """These tensors and all that they depend on; without `flat`, only as far as they have gradients."""
        found = set(tensors)
        for node in reversed(self.nodes):
            if not found.isdisjoint(node.made):
                found.update(name for i, name in enumerate(node.inputs) if flat or i not in node.op.flat)
        return found

    def _tensor(self, name: str, shape: Shape, dtype: str) -> Tensor:
        if name in self.tensors:
            what = "an input" if name in self.inputs else "a tensor"
            raise ShapeError(f"{name}: this graph already has {what} of that name; give this one another name=")
        if any(not isinstance(n, int) or not 0 < n < 1 << 31 for n in shape):  # oneDNN ends the process beyond
            raise ShapeError(f"{name}: every extent must be an integer of at least 1 and below 2**31, got {shape}")
        self.tensors[name] = Tensor(self, name, shape, dtype)
        return self.tensors[name]

    @property
    def weight_names(self) -> list[str]:
        return [node.full(key) for node in self.nodes for key in node.weights]

    @property
    def weight_count(self) -> int:
        """The number of trained parameters."""
        return sum(int(np.prod(weight.shape)) for node in self.nodes for weight in node.weights.values())
