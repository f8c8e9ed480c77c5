"""One or more small cases for every operator: what the gradient check and every kernel set's comparison run on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from mpibow import ops
from mpibow.graph import FLOAT, Array, Call, Kernel, Op, Shape, Shapes, Weight
from mpibow.graph.formats import canonical, pack, physical, unpack
from mpibow.ops.fused import ConvNormAddRelu

INITIAL = ops.Constant(0.0)


@dataclass(frozen=True)
class Case:
    op: Op
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...] = (FLOAT,)
    integers_below: int = 4  # for integer inputs
    id: str = field(default="")
    positive: bool = False  # numbers of 0.1 and above

    @property
    def kinds(self) -> tuple[str, ...]:
        """The dtype of each input."""
        return self.dtypes * len(self.shapes) if len(self.dtypes) == 1 else self.dtypes

    @property
    def able(self) -> tuple[int, ...]:
        """The inputs that can have a gradient."""
        return tuple(
            i for i in self.op.differentiable or () if i < len(self.kinds) and self.kinds[i].startswith("float")
        )


def _normal(generator: np.random.Generator, shape: tuple[int, ...], positive: bool) -> Array:
    array = generator.standard_normal(shape)
    return np.abs(array) + 0.1 if positive else array


def name(case: Case) -> str:
    return f"{case.op.kind} {case.id}".strip()


class Alone(ConvNormAddRelu):
    """The fused operator outside a graph: it says itself which weights it has."""

    def weights(self, *shapes: Shape) -> dict[str, Weight]:
        return {**self.conv.weights(shapes[0]), **_behind(self.norm.weights(self.infer(*shapes)))}

    def statistics(self, *shapes: Shape) -> dict[str, Weight]:
        return _behind(self.norm.statistics(self.infer(*shapes)))


def _behind(weights: Mapping[str, Weight]) -> dict[str, Weight]:
    return {f"batch_norm.{key}": weight for key, weight in weights.items()}


def kind_of(op) -> type:
    """The operator's key in a kernel table."""
    return ConvNormAddRelu if isinstance(op, Alone) else type(op)


class Bench:
    """The arrays of one case bound to one kernel, all poisoned with NaN until written.

    They are canonical. The kernel is asked for its layouts as if inputs came in the layouts `given`; it gets copies in
    these (the arrays themselves where it wants them canonical), and what it writes is copied back. `wanted` are the
    inputs that need a gradient, all that can have one unless given.
    """

    def __init__(
        self,
        case: Case,
        kernel: Kernel,
        dtype: str,
        seed: int = 0,
        training: bool = True,
        given: tuple[str, ...] | None = None,
        wanted: tuple[int, ...] | None = None,
    ) -> None:
        generator = np.random.default_rng(seed)
        self.case, self.kernel, self.dtype = case, kernel, dtype
        dtypes = case.kinds
        self.x = tuple(
            _normal(generator, shape, case.positive).astype(dtype)
            if kind == FLOAT
            else generator.integers(case.integers_below, size=shape).astype(kind)
            for shape, kind in zip(case.shapes, dtypes, strict=True)
        )
        self.shape = case.op.infer(*case.shapes)
        self.w = {k: generator.standard_normal(v.shape).astype(dtype) for k, v in case.op.weights(*case.shapes).items()}
        self.statistics = {
            k: generator.uniform(0.5, 2.0, v.shape).astype(dtype) for k, v in case.op.statistics(*case.shapes).items()
        }
        self.dw = {k: np.full_like(v, np.nan) for k, v in self.w.items()}
        made = case.op.dtype(*dtypes)
        self.y = poisoned(self.shape, dtype if made == FLOAT else made)
        self.dy = generator.standard_normal(self.shape).astype(dtype)
        behind = case.op.outputs(*case.shapes)[1:]  # of several outputs; nothing reads these unless a test says so
        self.more = [poisoned(shape, dtype) for shape in behind]
        self.dmore = [np.zeros(shape, dtype) for shape in behind]
        gradients = case.able if wanted is None else wanted
        self.dx = tuple(poisoned(x.shape, x.dtype.name) if i in gradients else None for i, x in enumerate(self.x))
        wants = tuple(gradients) if training else ()
        shapes = Shapes(case.shapes, self.shape, training, wants, ys=(self.shape, *behind))
        asked = kernel.formats(case.op, shapes, given or tuple(canonical(shape) for shape in case.shapes))
        asked = replace(asked, factors={})  # gradients whole, as a plan has them whose layout wants none as factors
        floating = [
            tag if kind == FLOAT else canonical(x) for tag, kind, x in zip(asked.x, dtypes, case.shapes, strict=True)
        ]
        self.shapes = replace(shapes, formats=replace(asked, x=tuple(floating)))
        self.buffers = kernel.buffers(case.op, self.shapes)
        self.saved = self._arrays(self.buffers.saved)

    def _arrays(self, specs: Mapping) -> dict:
        return {key: poisoned(shape, self.dtype if kind == FLOAT else kind) for key, (shape, kind) in specs.items()}

    def _weight_tags(self, backward: bool) -> tuple[dict[str, str], dict[str, str]]:
        """The layouts of weights as the call reads them, and of their gradients."""
        formats = self.shapes.formats
        w = {key: formats.w.get(key, canonical(array.shape)) for key, array in self.w.items()}
        return {key: formats.back.get(key, tag) if backward else tag for key, tag in w.items()}, {
            key: formats.dw.get(key, tag) for key, tag in w.items()
        }

    def call(self, backward: bool) -> Call:
        formats, (read, written) = self.shapes.formats, self._weight_tags(backward)
        gradients = zip(self.dx, formats.x, strict=True)
        return Call(
            "node",
            self.case.op,
            tuple(_inward(x, tag) for x, tag in zip(self.x, formats.x, strict=True)),
            _inward(self.y, formats.y) if backward else _outward(self.y, formats.y),
            {key: _inward(array, read[key]) for key, array in self.w.items()},
            self.saved,
            self._arrays(self.buffers.backward if backward else self.buffers.forward),
            _inward(self.dy, formats.y),
            tuple(None if dx is None else _outward(dx, tag) for dx, tag in gradients),
            {key: _outward(array, written[key]) for key, array in self.dw.items()},
            self.statistics,
            self.shapes,
            (self.y, *self.more) if self.more else (),
            (self.dy, *self.dmore) if self.more else (),
        )

    def forward(self) -> np.ndarray:
        call = self.call(backward=False)
        self.kernel.forward(call)()
        _take(self.y, call.y, self.shapes.formats.y)
        return self.y.copy()

    def backward(self, alone: bool = False) -> None:
        """Runs backward twice, as it overwrites and never adds. `alone` are gradients of inputs: weights are frozen."""
        call = self.call(backward=True)
        call = replace(call, dw={}) if alone else call
        run = self.kernel.backward(call)
        run()
        run()
        for mine, array, tag in zip(self.dx, call.dx, self.shapes.formats.x, strict=True):
            if mine is not None and array is not None:
                _take(mine, array, tag)
        for key, tag in self._weight_tags(backward=True)[1].items():
            if not alone:
                _take(self.dw[key], call.dw[key], tag)

    def hide_what_backward_may_not_read(self) -> None:
        reads = self.case.op.reads
        hidden = [] if "x" in reads else list(self.x)
        hidden += [] if "y" in reads else [self.y, *self.more]
        hidden += [] if "w" in reads else list(self.w.values())
        for array in hidden:
            array.view(np.uint8).fill(0xFF)


def poisoned(shape: tuple[int, ...], dtype: str) -> Array:
    """Room for numbers: NaN, or wild integers."""
    array = np.empty(shape, dtype)
    array.view(np.uint8).fill(0xFF)
    return array


def _inward(array: Array, tag: str) -> Array:
    """`array` in the layout `tag`, for a kernel to read."""
    return array if tag == canonical(array.shape) else pack(array, tag)


def _outward(array: Array, tag: str) -> Array:
    """Room for `array` in the layout `tag`, for a kernel to write."""
    return array if tag == canonical(array.shape) else poisoned(physical(tag, array.shape), array.dtype.name)


def _take(array: Array, written: Array, tag: str) -> None:
    """Copies what a kernel wrote into `array`; padding must be zero."""
    if tag != canonical(array.shape):
        array[...] = unpack(written, tag, array.shape)
        np.testing.assert_array_equal(pack(array, tag), written.reshape(physical(tag, array.shape)))
