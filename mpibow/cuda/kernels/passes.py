"""The passes over flat arrays on a GPU: as mpibow.kernels.numpy.flat, enqueued on the averaging stream of a rank.

Values that change from one iteration to the next go to device memory in front of the launch that reads them. The gain
exists only there, and never comes to the host for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from mpibow.cuda.device.array import DeviceArray
from mpibow.cuda.device.cupy_driver import Event
from mpibow.cuda.device.machine import Machine
from mpibow.cuda.kernels import flat
from mpibow.cuda.kernels import formulas as cuda_source
from mpibow.cuda.kernels.cudnn import Enqueue
from mpibow.cuda.kernels.elementwise import fill
from mpibow.cuda.kernels.gain import DeviceGain
from mpibow.cuda.kernels.kernels import Launch
from mpibow.cuda.kernels.launcher import Bind
from mpibow.formulas.formula import Formula
from mpibow.graph.graph import Array
from mpibow.kernels.passes import WHOLE, Half, Local

STEPS = 256  # records that are on their way at once, and passes that are bound
SLOT = 64  # bytes of a record's place, so that records are aligned; behind it are a local step's scalars
FIELDS = cast(Mapping[str, tuple[Any, int]], flat.STEP.fields)
SCALARS = 64  # of a learner's local step, for which there is room from the start
REPORT = 3  # numbers that a learner reports of its batch: loss, hits, |gradient|^2


class DeviceFlat:
    """One rank's. `norms` and `reports` (capacity,) are written by learners' own graphs, beside their gradients."""

    chunk = flat.CHUNK

    def __init__(self, machine: Machine, bind: Bind) -> None:
        self.machine, self.bind = machine, bind
        self._make_room(SLOT)
        self._next, self._passed = 0, list[Event | None]([None, None])
        self.norms: Any = None
        self.reports: Any = None
        self._gradients: Any = None
        self._row: Any = None
        self._bound: dict[tuple[Any, ...], tuple[Enqueue, Any]] = {}
        self._formulas: dict[tuple[Any, ...], tuple[tuple[Formula, ...], str]] = {}  # by identity, with their texts

    def _make_room(self, slot: int) -> None:
        self._sent = self.machine.pinned(STEPS * slot, "rates").reshape(STEPS, slot)
        self._steps = self.machine.zeros((STEPS, slot), "uint8")

    # Arrays

    def zeros(self, shape: int | tuple[int, ...], dtype: Any) -> Any:
        return self.machine.zeros(shape, dtype)

    def put(self, target: Any, source: Any) -> None:
        if isinstance(source, int):
            assert source == 0
            if target.size:
                assert target.dtype == np.float32
                rows = [target] if target.c_contiguous else [target[i] for i in range(len(target))]
                self.run("put", (target,), lambda step: [fill(row.reshape(-1), 0.0) for row in rows], writes=True)
        else:
            self.machine.put(target, source)

    def host(self, array: Any) -> Array:
        return self.machine.host(array)

    def rows_sum(self, rows: Any) -> Array:
        """The sum of rows (k, size), on the host."""
        if not rows.shape[1]:
            return np.zeros(0, np.float32)
        if self._row is None or self._row.size != rows.shape[1]:
            self._row = self.zeros(rows.shape[1], "float32")
        self._pass(flat.gradient_sum, rows, self._row)
        return self.host(self._row)

    def sum_squares(self, squares: Any, out: Any) -> None:
        """out (1,) <- the sum of the chunks' squares."""
        self.run("send", (squares, out), lambda step: [flat.sum_parts(squares.reshape(1, -1, 1), out.reshape(1, 1))])

    def meter(self) -> DeviceGain:
        return DeviceGain(self)

    def learners(self, gradients: Any) -> None:
        """The block (capacity, size) that learners' gradients lie in: it identifies the learner of a row."""
        self._gradients = gradients
        self._bound.clear()
        self._make_room(SLOT + 4 * SCALARS * len(gradients))
        self.norms = self.machine.zeros(len(gradients), "float64", "what learners report")
        self.reports = self.machine.zeros((len(gradients), REPORT), "float64", "what learners report")

    # How a pass is run

    def run(
        self, name: str, arrays: Sequence[Any], make: Callable[[Any], Sequence[Launch]], *, writes: bool = False,
        **numbers: Any,
    ) -> None:  # fmt: skip
        """Enqueues the launches that `make` makes of a record STEP; for the same name and arrays they are made once.

        The record is written in front of them: a number that only the device has is given as the array that holds it.
        `writes`: they write weights, which learners wait for.
        """
        self._run(name, arrays, lambda place: make(_step_of(place)), None, writes, numbers)

    def _pass(self, launch: Callable[..., Launch], *arrays: Any, writes: bool = False, **numbers: Any) -> None:
        """As `run`, of one launch that takes the arrays, and behind them the record where there are numbers."""

        def make(step: Any) -> Sequence[Launch]:
            return [launch(*arrays, step) if numbers else launch(*arrays)]

        self.run(launch.__name__, arrays, make, writes=writes, **numbers)

    def _step_by_parts(
        self, launch: Callable[..., Launch], weights: Any, states: Sequence[Any], others: Sequence[Any], norms: Any,
        local: Local, send: Half | None = None, **numbers: Any,
    ) -> None:  # fmt: skip
        """As `run`, of a launch for every part of a local step; it takes the parts of all arrays, and `norms` whole."""
        name = launch.__name__ if send is None else f"{launch.__name__} {id(send.formula)}"
        for part, own, stop in local.parts(tuple(states), weights.shape[1]):
            rows, *rest = (_part_of(array, part.start, stop) for array in (weights, *others))
            if send is None:
                text = self._text(cuda_source.source, part.formula)
            else:
                text = self._text(cuda_source.sending, part.formula, send.formula)
            make = partial(self._step_launches, partial(launch, rows, own, *rest), part, text, norms)
            numbers["rate"] = part.rate
            self._run(f"{name} {len(part.scalars)}", (rows, *own, *rest), make, part.scalars, True, numbers)

    def _step_launches(
        self, launch: Callable[..., Launch], local: Local, text: str, norms: Any, place: Any
    ) -> Sequence[Launch]:
        scalars = place[SLOT : SLOT + 4 * local.scalars.size].view(np.float32).reshape(local.scalars.shape)
        own = flat.DeviceStep(text, scalars, flat.spans_of(local))
        return [launch(_step_of(place), local=own, norms=norms)]

    def _text(self, source: Callable[..., str], *formulas: Formula) -> str:
        key = (source.__name__, *map(id, formulas))
        if key not in self._formulas:
            self._formulas[key] = formulas, source(*formulas)
        return self._formulas[key][1]

    def _run(
        self, name: str, arrays: Sequence[Any], make: Callable[[Any], Sequence[Launch]], scalars: Array | None,
        writes: bool, numbers: Mapping[str, Any],
    ) -> None:  # fmt: skip
        key = (name, *(None if array is None else (array.ptr, array.shape) for array in arrays))
        need = 0 if scalars is None else SLOT + 4 * scalars.size
        if need > self._steps.shape[1]:
            self.machine.stream.synchronise()
            self._bound.clear()
            self._make_room(-(-need // SLOT) * SLOT)
        if key not in self._bound:
            if len(self._bound) == STEPS:
                self._bound.clear()
            place = self._steps[len(self._bound)]
            self._bound[key] = self.bind(make(place)), place
        launches, place = self._bound[key]
        if numbers:
            self._write(place, scalars, numbers)
        launches(self.machine.stream)
        if writes:
            self.machine.mark()

    def _write(self, there: Any, scalars: Array | None, numbers: Mapping[str, Any]) -> None:
        sent = self._sent[self._place()]
        record = _step_of(sent)
        of_device = {name: value for name, value in numbers.items() if isinstance(value, DeviceArray)}
        for name in FIELDS:
            record[name] = 0 if name in of_device else numbers.get(name, 0)
        count = 0 if scalars is None else scalars.size
        if scalars is not None:
            sent[SLOT : SLOT + 4 * count].view(np.float32)[:] = scalars.reshape(-1)
        copy, stream = self.machine.driver.copy, self.machine.stream
        copy(there[: SLOT + 4 * count], sent[: SLOT + 4 * count], stream)
        for name, value in of_device.items():
            begin = FIELDS[name][1]
            copy(there[begin : begin + 4], value[:1], stream)

    def _place(self) -> int:
        """The next record's place. Earlier records in the half of the ring that begins there are copied by then."""
        number, half = self._next, STEPS // 2
        self._next = (number + 1) % STEPS
        if number % half == 0:
            before, self._passed[number // half - 1] = self._passed[number // half], self.machine.stream.record()
            if before is not None:
                before.synchronise()  # of more than a hundred passes ago
        return number

    # The passes

    def update(
        self, weights: Any, states: Any, gradients: Any, total: Any, squares: Any, arrays: tuple[Any, ...], *,
        local: Local, send: Half, begin: bool, chunks: range, factors: Array = WHOLE,
    ) -> None:  # fmt: skip
        others, norms = (gradients, total if total.size else None, squares, *arrays), self._own(gradients)
        self._step_by_parts(flat.update, weights, states, others, norms, local, send, begin=begin, **_numbers(send))

    def apply(self, half: Half, weights: Any, arrays: tuple[Any, ...], sums: Any, squares: Any, chunks: range) -> None:
        """`sums` are one row, or none; `squares` stay as they are, since the gain makes its own."""
        total = sums[0][: weights.shape[1]] if len(sums) else None
        text = self._text(cuda_source.applying, half.formula)

        def make(step: Any) -> Sequence[Launch]:
            return [flat.apply(text, weights, arrays, total, step)]

        name = f"apply {id(half.formula)}"
        self.run(name, (weights, *arrays, total), make, writes=half.moves, **_numbers(half))

    def sma_alone(
        self, weights: Any, states: Sequence[Any], gradients: Any, sums: Any, *, local: Local, alpha: float, extra: Any,
        chunks: range, factors: Array = WHOLE,
    ) -> None:  # fmt: skip
        others, norms = (gradients, sums), self._own(gradients)
        self._step_by_parts(flat.sma_alone, weights, states, others, norms, local, alpha=alpha, gain=extra)

    def rows_mean(self, rows: Any, mean: Any, *, chunks: range) -> None:
        self._pass(flat.rows_mean, rows, mean)

    def gradient_sum(self, gradients: Any, total: Any, *, chunks: range, factors: Array = WHOLE) -> None:
        self._pass(flat.gradient_sum, gradients, total, self._own(gradients))

    def sgd_update(
        self, weights: Any, states: Sequence[Any], gradients: Any, total: Any = None, *, local: Local, scale: float,
        chunks: range, factors: Array = WHOLE,
    ) -> None:  # fmt: skip
        gradient, norm = gradients[0], self._own(gradients[:1])
        if total is not None:
            self.gradient_sum(gradients, total, chunks=chunks)
            gradient, norm = total, None
        self._step_by_parts(flat.sgd_update, weights, states, (gradient,), norm, local, scale=scale)

    def follow_scale(self, norms: Any, state: Any) -> None:
        self._pass(flat.follow_scale, norms, state)

    def enter_reports(self, attention: float, reports: Any, unsent: Any, tail: Any) -> None:
        """unsent (3,) += this rank's wish to talk, and what its learners report; into tail (3,) where given."""
        self._pass(flat.enter_reports, reports, unsent, tail, attention=attention)

    def _own(self, gradients: Any) -> Any:
        """The norms of learners' gradients (k, size); None for other arrays."""
        first, rest = divmod(gradients.ptr - self._gradients.ptr, self._gradients.strides[0])
        inside = 0 <= first < len(self._gradients) and rest == 0
        return self.norms[first : first + len(gradients)] if inside else None


def _numbers(half: Half) -> dict[str, Any]:
    """The fields of STEP that have a formula's numbers."""
    return {f"number{i}": number for i, number in enumerate(half.numbers)}


def _part_of(array: Any, start: int, stop: int) -> Any:
    """An array's elements [start, stop), of all rows; of sums, which are float64, those of the chunks in there."""
    if array is None:
        return None
    if array.dtype == np.float64:
        assert start % flat.CHUNK == 0, start
        return array[start // flat.CHUNK : -(-stop // flat.CHUNK)]
    return array[:, start:stop] if array.ndim == 2 else array[start:stop]


def _step_of(place: Any) -> Any:
    """The record STEP at a place of the ring."""
    return place[: flat.STEP.itemsize].view(flat.STEP)


def bound_norms(
    gradient: Any, norm: Any, clip_value: float | None, clip_norm: float | None, parts: Any
) -> Sequence[Launch]:
    """The end of a learner's backward: limits its gradient (size,), norm (1,) <- |gradient|^2 before `clip_norm`."""
    launches = [] if clip_value is None else [flat.clamp(gradient, clip_value)]
    launches += flat.squared_norms(gradient.reshape(1, -1), parts, norm)
    return launches if clip_norm is None else [*launches, flat.shorten(gradient, norm, clip_norm)]
