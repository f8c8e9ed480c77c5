"""The passes over flat arrays on a GPU: as mpibow.kernels.numpy.flat, enqueued on the averaging stream of a rank.

What changes from one iteration to the next goes to device memory in front of the launch that reads it; what is only
known there, the gain, never comes to the host for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from mpibow.device.array import DeviceArray
from mpibow.device.driver import Event
from mpibow.device.machine import Machine
from mpibow.graph.graph import Array
from mpibow.graph.layout import Span
from mpibow.kernels.cuda import flat
from mpibow.kernels.cuda.cudnn import Enqueue
from mpibow.kernels.cuda.elementwise import fill
from mpibow.kernels.cuda.gain import DeviceGain
from mpibow.kernels.cuda.kernels import Launch
from mpibow.kernels.cuda.launcher import Bind
from mpibow.kernels.cuda.orthogonal import Coefficients, DeviceCommonStep, Tables
from mpibow.kernels.passes import STILL, WHOLE, Local

STEPS = 256  # records that are on their way at once, and passes that are bound
SLOT = 64  # bytes of a record's place, so that records are aligned
NUMBERS = ("alpha", "gain", "scale", "pull", "centre_momentum", "attention", "even", "begin")
FIELDS = cast(Mapping[str, tuple[Any, int]], flat.STEP.fields)
REPORT = 3  # numbers that a learner says of its batch: loss, hits, |gradient|^2


class DeviceFlat:
    """One rank's. `norms` and `reports` (capacity,) are what learners' own graphs leave beside their gradients."""

    chunk = flat.CHUNK

    def __init__(self, machine: Machine, bind: Bind) -> None:
        self.machine, self.bind = machine, bind
        self._sent = machine.pinned(STEPS * SLOT, "rates").reshape(STEPS, SLOT)
        self._steps = machine.zeros((STEPS, SLOT), "uint8")
        self._next, self._passed = 0, list[Event | None]([None, None])
        self.norms: Any = None
        self.reports: Any = None
        self._gradients: Any = None
        self._row: Any = None
        self._bound: dict[tuple[Any, ...], tuple[Enqueue, Any]] = {}

    # Arrays

    def zeros(self, shape: int | tuple[int, ...], dtype: Any) -> Any:
        return self.machine.zeros(shape, dtype)

    def put(self, target: Any, source: Any) -> None:
        if isinstance(source, int):
            assert source == 0
            if target.size:
                assert target.dtype == np.float32
                self.run("put", (target,), lambda step: [fill(target.reshape(-1), 0.0)], writes=True)
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
        self.run("sum", (rows,), lambda step: [flat.gradient_sum(rows, self._row)])
        return self.host(self._row)

    def sum_squares(self, squares: Any, out: Any) -> None:
        """out (1,) <- the sum of the chunks' squares."""
        self.run("send", (squares, out), lambda step: [flat.sum_parts(squares.reshape(1, -1, 1), out.reshape(1, 1))])

    def meter(self) -> DeviceGain:
        return DeviceGain(self)

    def common_step(self, spans: Sequence[Span], size: int, coefficients: Coefficients, iterations: int) -> Any:
        return DeviceCommonStep(self, Tables(tuple(spans), size), coefficients, iterations)

    def common_step_bytes(self, spans: Sequence[Span], size: int) -> int:
        return Tables(tuple(spans), size).scratch_bytes

    def learners(self, gradients: Any) -> None:
        """The block (capacity, size) that learners' gradients lie in: so it is known whose a row is."""
        self._gradients = gradients
        self.norms = self.machine.zeros(len(gradients), "float64", "what learners report")
        self.reports = self.machine.zeros((len(gradients), REPORT), "float64", "what learners report")

    # How a pass is run

    def run(
        self, name: str, arrays: Sequence[Any], make: Callable[[Any], Sequence[Launch]], local: Local | None = None, *,
        writes: bool = False, **numbers: Any,
    ) -> None:  # fmt: skip
        """Enqueues the launches that `make` makes of a record STEP; for the same name and arrays they are made once.

        The record is written in front of them: a number that the device alone knows is given as the array it lies in.
        `writes`: what they write are weights, which learners wait for.
        """
        key = (name, *(None if array is None else (array.ptr, array.shape) for array in arrays))
        if key not in self._bound:
            if len(self._bound) == STEPS:
                self._bound.clear()
            step = self._steps[len(self._bound)][: flat.STEP.itemsize].view(flat.STEP)
            self._bound[key] = self.bind(make(step)), step
        launches, step = self._bound[key]
        if local is not None:
            self._write(step, local, numbers)
        launches(self.machine.stream)
        if writes:
            self.machine.mark()

    def _write(self, step: Any, local: Local, numbers: Mapping[str, Any]) -> None:
        place = self._sent[self._place()][: flat.STEP.itemsize]
        record = place.view(flat.STEP)
        record["rate"], record["momentum"], record["nesterov"] = local.rate, local.momentum, local.nesterov
        record["decay"], record["decayed"] = local.decay, local.decayed
        there = {name: value for name, value in numbers.items() if isinstance(value, DeviceArray)}
        for name in NUMBERS:
            record[name] = 0 if name in there else numbers.get(name, 0)
        copy, stream = self.machine.driver.copy, self.machine.stream
        copy(step.view(np.uint8), place, stream)
        for name, value in there.items():
            begin = FIELDS[name][1]
            copy(step.view(np.uint8)[begin : begin + 4], value[:1], stream)

    def _place(self) -> int:
        """Where the next record goes: what was sent from the half of the ring that begins there has gone by then."""
        number, half = self._next, STEPS // 2
        self._next = (number + 1) % STEPS
        if number % half == 0:
            before, self._passed[number // half - 1] = self._passed[number // half], self.machine.stream.record()
            if before is not None:
                before.synchronise()  # of more than a hundred passes ago
        return number

    # The passes

    def sma_update(
        self, weights: Any, states: Sequence[Any], gradients: Any, total: Any, squares: Any, centre: Any, common: Any,
        *, local: Local, alpha: float, gain: Any, begin: bool, chunks: range, factors: Array = WHOLE,
    ) -> None:  # fmt: skip
        others, norms = (gradients, total, squares, centre, common), self._own(gradients)
        self.run(
            "sma_update", (weights, *states, *others),
            lambda step: [flat.sma_update(weights, states, *others, step, norms)], local,
            writes=True, alpha=alpha, gain=gain, begin=begin,
        )  # fmt: skip

    def sma_alone(
        self, weights: Any, states: Sequence[Any], gradients: Any, sums: Any, *, local: Local, alpha: float, gain: Any,
        chunks: range, factors: Array = WHOLE,
    ) -> None:  # fmt: skip
        arrays, norms = (weights, *states, gradients, sums), self._own(gradients)
        self.run(
            "sma_alone", arrays, lambda step: [flat.sma_alone(weights, states, gradients, sums, step, norms)], local,
            writes=True, alpha=alpha, gain=gain,
        )  # fmt: skip

    def rows_mean(self, rows: Any, mean: Any, *, chunks: range) -> None:
        self.run("rows_mean", (rows, mean), lambda step: [flat.rows_mean(rows, mean)])

    def gradient_sum(self, gradients: Any, total: Any, *, chunks: range, factors: Array = WHOLE) -> None:
        arrays, norms = (gradients, total), self._own(gradients)
        self.run("gradient_sum", arrays, lambda step: [flat.gradient_sum(*arrays, norms)])

    def sgd_update(
        self, weights: Any, states: Sequence[Any], gradient: Any, *, local: Local, scale: float, chunks: range,
        factors: Array = WHOLE,
    ) -> None:  # fmt: skip
        arrays, norm = (weights, *states, gradient), self._own(gradient.reshape(1, -1))
        self.run(
            "sgd_update", arrays, lambda step: [flat.sgd_update(weights, states, gradient, step, norm=norm)], local,
            writes=True, scale=scale,
        )  # fmt: skip

    def centre_update(
        self, mean: Any, centre: Any, previous: Any, total: Any, *, pull: float, alpha: float, momentum: float,
        scale: Any, chunks: range,
    ) -> None:  # fmt: skip
        arrays = (mean, centre, previous, total)
        self.run(
            "centre_update", arrays, lambda step: [flat.centre_update(*arrays, step)], STILL,
            pull=pull, alpha=alpha, centre_momentum=momentum, scale=scale,
        )  # fmt: skip

    def sma_apply(
        self, weights: Any, mean: Any, sums: Any, squares: Any, *, gain: Any, scale: Any, chunks: range,
        more: Array | None = None,
    ) -> None:  # fmt: skip
        """`sums` are one row; `squares` stay as they are, since the gain makes its own."""
        total = sums[0][: mean.size]
        self.add_scaled(weights, total, scale=gain, chunks=chunks)
        self.add_scaled(mean, total, scale=scale, chunks=chunks)

    def add_scaled(self, target: Any, source: Any, *, scale: Any, chunks: range) -> None:
        arrays = (target, source)
        self.run(
            "add_scaled", arrays, lambda step: [flat.add_scaled(*arrays, step)], STILL,
            writes=target.ndim == 2, scale=scale,
        )  # fmt: skip

    def squared_norm(self, array: Any) -> float:
        raise AssertionError("the gain follows on the device")

    def follow_scale(self, norms: Any, state: Any) -> None:
        self.run("follow_scale", (norms, state), lambda step: [flat.follow_scale(norms, state)])

    def enter_reports(self, attention: float, reports: Any, unsent: Any, tail: Any) -> None:
        """unsent (3,) += this rank's wish to talk, and what its learners report; into tail (3,) where given."""
        arrays = (reports, unsent, tail)
        self.run(
            "enter_reports", arrays, lambda step: [flat.enter_reports(reports, step, unsent, tail)], STILL,
            attention=attention,
        )  # fmt: skip

    def _own(self, gradients: Any) -> Any:
        """The norms of learners' gradients (k, size); None of what is no learner's."""
        first, rest = divmod(gradients.ptr - self._gradients.ptr, self._gradients.strides[0])
        inside = 0 <= first < len(self._gradients) and rest == 0
        return self.norms[first : first + len(gradients)] if inside else None


def bound_norms(
    gradient: Any, norm: Any, clip_value: float | None, clip_norm: float | None, parts: Any
) -> Sequence[Launch]:
    """What follows a learner's backward: limits its gradient (size,), norm (1,) <- |gradient|^2 before `clip_norm`."""
    launches = [] if clip_value is None else [flat.clamp(gradient, clip_value)]
    launches += flat.squared_norms(gradient.reshape(1, -1), parts, norm)
    return launches if clip_norm is None else [*launches, flat.shorten(gradient, norm, clip_norm)]
