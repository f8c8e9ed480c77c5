"""The contract of plans and kernel sets: the buffers a kernel requests, the arrays it is bound to, its return value."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import getfullargspec, signature
from queue import SimpleQueue
from typing import Any, Protocol, cast

import numpy as np

from .formats import canonical
from .graph import Array, Arrays, ArraysByName, Graph, InputNumbers, Op, Shape
from .memory import zeros
from .rewrite import NO_WIDTHS, Widths


class Peers(Protocol):
    def show(self, key: str, array: Array) -> Callable[[], Sequence[Array]]:
        """Shares `array` with the peers as `key`, for good: it must not lie in an arena, which others write.

        The returned function waits until every peer has called its own, and returns all their arrays in the learners'
        order. A learner writes its own array before that call, once a pass.
        """


class NoPeers:
    """A learner without peers."""

    def show(self, key: str, array: Array) -> Callable[[], Sequence[Array]]:
        own = (array,)
        return lambda: own


ALONE: Peers = NoPeers()


Run = Callable[[], object]  # computes; allocates nothing, asks nothing, decides nothing, and nothing reads its result
Spec = tuple[Shape, str]  # shape and dtype; FLOAT is the plan's precision
Specs = dict[str, Spec]  # by name
Tags = tuple[str, ...]  # layouts (see mpibow.graph.formats)


@dataclass(frozen=True)
class Buffers:
    """`saved` lives from forward to backward, in evaluation during forward; `forward` and `backward` are scratch during
    that call."""

    saved: Mapping[str, Spec] = field(default_factory=dict)
    forward: Mapping[str, Spec] = field(default_factory=dict)
    backward: Mapping[str, Spec] = field(default_factory=dict)


@dataclass(frozen=True)
class Formats:
    """The layouts (see mpibow.graph.formats) of a node's arrays; a gradient has the layout of what it belongs to.

    Weights: `w` as forward reads them, `back` as backward does, `dw` as backward writes their gradients; absent
    from w: canonical, absent from back or dw: as in w. `factors` are the ranks of those gradients that backward can
    write as factors (mpibow.graph.layout.Span); a plan keeps only those that its layout requests.
    """

    x: Tags
    y: str
    w: Mapping[str, str] = field(default_factory=dict)
    back: Mapping[str, str] = field(default_factory=dict)
    dw: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Shapes:
    """A kernel's view of a node before there are arrays. Shapes are logical, `wanted` are the inputs that need a
    gradient, and `formats` are the kernel's own request. `ys` are the shapes of all outputs, y the first."""

    x: tuple[Shape, ...]
    y: Shape
    training: bool
    wanted: InputNumbers = ()
    formats: Formats = Formats((), "")
    ys: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class Call:
    """The arrays of one node, in the layouts that its kernel requested.

    In a forward call `dy`, `dx` and `dw` are empty; dx[i] is None if not wanted. `ys` and `dys` belong to all outputs,
    always canonical after the first; the gradient of an output that nothing reads is 0. `peers` are the learners of
    the rank, for an operator that they compute together.
    """

    name: str
    op: Any
    x: Arrays
    y: Array
    w: ArraysByName
    saved: ArraysByName
    scratch: ArraysByName
    dy: Array
    dx: tuple[Array | None, ...] = ()
    dw: ArraysByName = field(default_factory=dict)
    statistics: ArraysByName = field(default_factory=dict)
    shapes: Shapes = Shapes((), (), False)
    ys: Arrays = ()
    dys: Arrays = ()
    peers: Peers = ALONE

    @property
    def x0(self) -> Array:
        return self.x[0]

    @property
    def dx0(self) -> Array:
        """dx[0] where input 0 alone has a gradient: it is wanted, or backward would not run."""
        dx = self.dx[0]
        assert dx is not None
        return dx

    def buffers(self, *names: str) -> list[Array]:
        """Saved arrays and scratch by name."""
        return [self.saved[name] if name in self.saved else self.scratch[name] for name in names]

    @property
    def arrays(self) -> dict[str, Array | None]:
        """All arrays by name: x, x1, ..., y, y1, ..., weights, and d before their names; statistics; buffers.

        Inputs are there also by the names that the operator's `infer` has for them. A buffer stands for a weight of its
        name, which it has in another layout, and for what it is to replace.
        """
        names = getfullargspec(self.op.infer).args[1:]
        inputs = {f"x{i or ''}": x for i, x in enumerate(self.x)} | dict(zip(names, self.x, strict=False))
        gradients = {f"dx{i or ''}": dx for i, dx in enumerate(self.dx)}
        weights = {**self.w, **{f"d{key}": dw for key, dw in self.dw.items()}, **self.statistics}
        outputs = {f"y{i or ''}": y for i, y in enumerate(self.ys or (self.y,))}
        outputs |= {f"dy{i or ''}": dy for i, dy in enumerate(self.dys or (self.dy,))}
        return {**outputs, **inputs, **gradients, **weights, **self.saved, **self.scratch}

    @property
    def named(self) -> dict[str, Any]:
        """The call itself, its operator, the operator's settings, and all arrays."""
        return {"call": self, "op": self.op, **vars(self.op), **self.arrays}


Binding = Callable[[Call], Run]


def _on(call: Call, function: Callable[..., Any]) -> Callable[[], Any]:
    known = call.named
    parameters = signature(function)
    arguments = parameters.bind(**{name: known[name] for name in parameters.parameters if name in known})
    arguments.apply_defaults()
    return partial(function, *arguments.args)


def runs(function: Callable[..., object]) -> Binding:
    """Decorates a kernel's half, a function of a call's arrays and its operator's settings by name (Call.named)."""
    return lambda call: _on(call, function)


def binds(function: Callable[..., Run]) -> Binding:
    """`runs`, of a function that is called once, and returns the run."""
    return lambda call: cast(Run, _on(call, function)())


def canonical_formats(op: Op, shapes: Shapes, given: Tags) -> Formats:
    """The layouts of a kernel that supports one layout only."""
    return Formats(tuple(map(canonical, shapes.x)), canonical(shapes.y))


def as_given(op: Op, shapes: Shapes, given: Tags) -> Formats:
    """Everything in the first input's layout: for kernels that take any, and leave padding 0."""
    return Formats((given[0],) * len(given), given[0])


@dataclass(frozen=True)
class Kernel:
    """One library's implementation of one operator: binds arrays to runs.

    `backward` overwrites dx and dw, it never adds; None for an operator without gradients. `formats` gives the layouts
    that it requests for inputs in the layouts `given`. `slow` names the parts with only reference code in the library;
    `reference` marks NumPy's kernel in the table of another set. `inputs_alone`: if `dw` is empty, backward computes
    the gradients of inputs alone, as those of frozen weights are not needed.
    """

    forward: Binding
    backward: Binding | None = None
    buffers: Callable[[Any, Shapes], Buffers] = lambda op, shapes: Buffers()
    formats: Callable[[Any, Shapes, Tags], Formats] = canonical_formats
    slow: Callable[[Any, Shapes], Sequence[str]] = lambda op, shapes: ()
    reference: bool = False
    inputs_alone: bool = False


KernelTable = Mapping[type, Kernel]
LACKS = "the kernel set has no kernel for {}"


def one_by_one(runs: Sequence[Run]) -> Sequence[Run]:
    return runs


PAUSE = 5e-5  # seconds of one


def signalling(word: Array, number: int) -> Run:
    """A run that sets the word (1,) int64 to `number`."""
    return partial(word.__setitem__, 0, number)


def waiting(word: Array, goal: Array, pauses: Array) -> Run:
    """A run that pauses until the word is at least the goal, both (1,) int64, and counts its pauses."""

    def wait() -> None:
        while word[0] < goal[0]:
            pauses[0] += 1
            time.sleep(PAUSE)

    return wait


Rows = tuple[int, int]  # the address and the number of a library's commands


class Handoff:
    """Work for a thread that waits for it, given by one other: of Python, and in a library's own as commands.

    `often`: both have cores of their own, and may look for each other's news for a while before they sleep.
    """

    def __init__(self) -> None:
        self._given = SimpleQueue[None]()
        self._done = SimpleQueue[None]()

    def give(self, rows: Rows | None, often: bool) -> bool:
        """There is work: commands, or work of Python. False where Python is to do the work of the commands, too."""
        self._given.put(None)
        return False

    def take(self, done: bool) -> None:
        """By the thread: the work before is `done`. Returns when there is work of Python.

        Raises RuntimeError where commands fail.
        """
        if done:
            self._done.put(None)
        self._given.get()

    def wait(self) -> None:
        """Returns when the work that was given is done."""
        self._done.get()


@dataclass(frozen=True)
class Posted:
    """A task that may run without Python: `begin` gives its commands, None where it can't; `end` has its result."""

    task: Callable[[], object]
    begin: Callable[[], Rows | None]
    end: Callable[[], object] = lambda: None

    def __call__(self) -> object:
        return self.task()


@dataclass(frozen=True)
class Kernels:
    """A library's kernels, as a plan uses them.

    `fuse` replaces nodes of a graph by the library's fused ones; `join` turns runs into fewer that do the same.
    `zeros` makes arrays, and `put` copies host arrays into them. `widths` lists the operators that use 16 bits.
    `signal` and `wait` make runs that set a word in memory for other threads, and wait for one of theirs.
    `handoff` gives work to a thread. `batch` makes commands of a plan that `join` has made one run, where it is given.
    With it, `square` makes a run that adds an array's squares to a number (1,), for gradients that are still near.
    `lacks` is the error for operators that are not in the table; {} stands for their names.
    """

    operators: KernelTable
    fuse: Callable[[Graph, bool], Graph] = lambda graph, training: graph
    join: Callable[[Sequence[Run]], Sequence[Run]] = one_by_one
    zeros: Callable[..., Any] = zeros
    put: Callable[[Any, Array], None] = np.copyto
    signal: Callable[[Array, int], Run] = signalling
    wait: Callable[[Array, Array, Array], Run] = waiting
    handoff: Callable[[], Handoff] = Handoff
    batch: Callable[..., Any] | None = None
    square: Callable[[Array, Array], Run] | None = None
    widths: Widths = NO_WIDTHS
    lacks: str = LACKS
