"""The passes over flat arrays on a GPU: as mpibow.kernels.numpy.flat, enqueued on the averaging stream of a rank.

Values that change from one iteration to the next go to device memory in front of the launch that reads them. The gain
exists only there, and never comes to the host for it.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mpibow.cuda.device.array import DeviceArray, PlanArray
from mpibow.cuda.device.cupy_driver import Event
from mpibow.cuda.device.machine import Machine
from mpibow.cuda.kernels import flat, formulas as cuda_source
from mpibow.graph import Array
from mpibow.kernels import WHOLE, Half, Local, StepArrays

from .cudnn import Enqueue
from .elementwise import fill
from .gain import DeviceGain
from .kernels import Launch
from .launcher import Bind

STEPS = 256  # records that are on their way at once, and passes that are bound
SLOT = 64  # bytes of a record's place, so that records are aligned; behind it are a local step's scalars
FIELDS = {name: 4 * i for i, name in enumerate(flat.STEP.names or ())}  # the offset of each, all of 4 bytes
SCALARS = 64  # of a learner's local step, for which there is room from the start
Number = float | DeviceArray  # one that only the device has is the array that holds it
Arrays = Sequence[PlanArray]  # None for one that is left out
Make = Callable[[DeviceArray, DeviceArray], Sequence[Launch]]
NO_SCALARS = np.zeros(0, np.float32)
REPORT = 3  # numbers that a learner reports of its batch: loss, hits, |gradient|^2


class DeviceFlat:
    """One rank's. `norms` and `reports` (capacity,) are written by learners' own graphs, beside their gradients."""

    chunk = flat.CHUNK

    def __init__(self, machine: Machine, bind: Bind):
        self.machine, self.bind = machine, bind
        self.zeros, self.host = machine.zeros, machine.host
        self._make_room(SLOT)
        self._next, self._passed = 0, list[Event | None]([None, None])
        self.norms: DeviceArray
        self.reports: DeviceArray
        self._gradients: DeviceArray
        self._row: DeviceArray | None = None
        self._bound = dict[tuple[object, ...], tuple[Enqueue, DeviceArray]]()

    def _make_room(self, slot: int) -> None:
        self._sent = self.machine.memory.pinned("rates", STEPS * slot).reshape(STEPS, slot)
        self._steps = self.machine.zeros((STEPS, slot), "uint8")

    # Arrays

    def put(self, target: DeviceArray, source: PlanArray) -> None:
        if isinstance(source, int):
            assert source == 0
            if target.size:
                assert target.dtype == np.float32
                rows = [target] if target.c_contiguous else [target[i] for i in range(len(target))]
                self.run("put", (target,), lambda *_: [fill(row.reshape(-1), 0.0) for row in rows], writes=True)
        else:
            self.machine.put(target, source)

    def rows_sum(self, rows: DeviceArray) -> Array:
        """The sum of rows (k, size), on the host."""
        if not rows.shape[1]:
            return np.zeros(0, np.float32)
        if self._row is None or self._row.size != rows.shape[1]:
            self._row = self.zeros(rows.shape[1], "float32")
        self._pass(flat.gradient_sum, rows, self._row)
        return self.host(self._row)

    def sum_squares(self, squares: DeviceArray, out: DeviceArray) -> None:
        """out (1,) <- the sum of the chunks' squares."""
        self.run("send", (squares, out), lambda *_: [flat.sum_parts(squares.reshape(1, -1, 1), out.reshape(1, 1))])

    Recorder = None

    def meter(self) -> DeviceGain:
        return DeviceGain(self)

    def learners(self, gradients: DeviceArray) -> None:
        """The block (capacity, size) that learners' gradients lie in: it identifies the learner of a row."""
        self._gradients = gradients
        self._bound.clear()
        self._make_room(SLOT + 4 * SCALARS * len(gradients))
        self.norms = self.machine.zeros(len(gradients), "float64", "what learners report")
        self.reports = self.machine.zeros((len(gradients), REPORT), "float64", "what learners report")

    # How a pass is run

    def run(
        self,
        name: str,
        arrays: Arrays,
        make: Make,
        scalars: Array = NO_SCALARS,
        /,
        *,
        writes: bool = False,
        **numbers: Number,
    ) -> None:
        """Enqueues the launches that `make` makes of a record STEP and of a step's scalars, both on the device.

        For the same name and arrays they are made once.

        The record is written in front of them: a number that only the device has is given as the array that holds it.
        `writes`: they write weights, which learners wait for.
        """
        key = (name, *(None if array is None else (array.ptr, array.shape) for array in arrays))
        end = SLOT + 4 * scalars.size
        if end > self._steps.shape[1]:
            self.machine.stream.synchronise()
            self._bound.clear()
            self._make_room(-(-end // SLOT) * SLOT)
        if key not in self._bound:
            if len(self._bound) == STEPS:
                self._bound.clear()
            place = self._steps[len(self._bound)]
            record = place[: flat.STEP.itemsize].view(flat.STEP)
            launches = make(record, place[SLOT:end].view(np.float32).reshape(scalars.shape))
            self._bound[key] = self.bind(launches), place
        enqueue, place = self._bound[key]
        if numbers:
            self._write(place[:end], scalars, numbers)
        enqueue(self.machine.stream)
        if writes:
            self.machine.mark()

    def _pass(self, launch: Callable[..., Launch], *arrays: DeviceArray | None, **numbers: Number) -> None:
        """As `run`, of one launch that takes the arrays, and behind them the record where there are numbers."""
        self.run(
            launch.__name__,
            arrays,
            lambda step, _: [launch(*arrays, step) if numbers else launch(*arrays)],
            writes=False,
            **numbers,
        )

    def _step_by_parts(
        self,
        kernel: flat.Stepping,
        step: StepArrays,
        others: Arrays,
        norms: DeviceArray | None,
        local: Local,
        send: Half | None = None,
        **numbers: Number,
    ) -> None:
        """As `run`, of a launch for every part of a local step; it takes the parts of all arrays, and `norms` whole."""
        name = kernel if send is None else f"{kernel} {id(send.formula)}"

        def enqueue(part: Local, states: Arrays, stop: int) -> None:
            weights, *rest = (_part_of(array, part.start, stop) for array in (step.weights, *others))
            own = part.formula
            text = cuda_source.source(own) if send is None else cuda_source.sending(own, send.formula)

            def make(record: DeviceArray, scalars: DeviceArray) -> Sequence[Launch]:
                stepping = flat.DeviceStep(text, scalars, flat.spans_of(part))
                return [flat.stepped(kernel, weights, states, (*rest, record), stepping, norms)]

            numbers["rate"] = part.rate
            arrays, name_of_part = (weights, *states, *rest), f"{name} {len(part.scalars)}"
            self.run(name_of_part, arrays, make, part.scalars, writes=True, **numbers)

        for part, states, stop in local.parts(step):
            enqueue(part, states, stop)

    def _write(self, there: DeviceArray, scalars: Array, numbers: Mapping[str, Number]) -> None:
        sent = self._sent[self._place(), : there.size]
        record = sent[: flat.STEP.itemsize].view(flat.STEP)
        of_device = {name: value for name, value in numbers.items() if isinstance(value, DeviceArray)}
        for name in FIELDS:
            record[name] = 0 if name in of_device else numbers.get(name, 0)
        sent[SLOT:].view(np.float32)[:] = scalars.reshape(-1)
        copy, stream = self.machine.driver.copy, self.machine.stream
        copy(there, sent, stream)
        for name, value in of_device.items():
            begin = FIELDS[name]
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
        self,
        step: StepArrays,
        total: DeviceArray,
        squares: DeviceArray,
        arrays: tuple[DeviceArray, ...],
        *,
        local: Local,
        send: Half,
        begin: bool,
        chunks: range,
    ) -> None:
        others = (step.gradients, total if total.size else None, squares, *flat.filled(arrays))
        norms = self._own(step.gradients)
        self._step_by_parts("update", step, others, norms, local, send, begin=begin, **_numbers(send))

    def apply(
        self,
        half: Half,
        weights: DeviceArray,
        arrays: tuple[DeviceArray, ...],
        sums: DeviceArray,
        squares: DeviceArray,
        chunks: range,
    ) -> None:
        """`sums` are one row, or none; `squares` stay as they are, since the gain makes its own."""
        total = sums[0][: weights.shape[1]] if len(sums) else None
        text = cuda_source.applying(half.formula)
        self.run(
            f"apply {id(half.formula)}",
            (weights, *arrays, total),
            lambda step, _: [flat.apply(text, weights, arrays, total, step)],
            writes=half.moves,
            **_numbers(half),
        )

    def sma_alone(
        self, step: StepArrays, sums: DeviceArray, *, local: Local, alpha: float, extra: Number, chunks: range
    ) -> None:
        norms = self._own(step.gradients)
        self._step_by_parts("sma_alone", step, (step.gradients, sums), norms, local, alpha=alpha, gain=extra)

    def rows_mean(self, rows: DeviceArray, mean: DeviceArray, *, chunks: range) -> None:
        self._pass(flat.rows_mean, rows, mean)

    def gradient_sum(self, gradients: PlanArray, total: DeviceArray, *, chunks: range, factors: Array = WHOLE) -> None:
        self._pass(flat.gradient_sum, gradients, total, self._own(gradients))

    def sgd_update(
        self, step: StepArrays, total: DeviceArray | None = None, *, local: Local, scale: float, chunks: range
    ) -> None:
        gradient = step.gradients[0]
        norm = self._own(step.gradients[:1])
        if total is not None:
            self.gradient_sum(step.gradients, total, chunks=chunks)
            gradient, norm = total, None
        self._step_by_parts("sgd_update", step, (gradient, None), norm, local, scale=scale)

    def follow_scale(self, norms: DeviceArray, state: DeviceArray) -> None:
        self._pass(flat.follow_scale, norms, state)

    def enter_reports(
        self, attention: float, reports: DeviceArray, unsent: DeviceArray, tail: DeviceArray | None
    ) -> None:
        """unsent (3,) += this rank's wish to talk, and what its learners report; into tail (3,) where given."""
        self._pass(flat.enter_reports, reports, unsent, tail, attention=attention)

    def _own(self, gradients: PlanArray) -> DeviceArray | None:
        """The norms of learners' gradients (k, size); None for other arrays."""
        first, rest = divmod(gradients.ptr - self._gradients.ptr, self._gradients.strides[0])
        inside = 0 <= first < len(self._gradients) and rest == 0
        return self.norms[first : first + len(gradients)] if inside else None


def _numbers(half: Half) -> dict[str, Number]:
    """The fields of STEP that have a formula's numbers."""
    return {f"number{i}": number for i, number in enumerate(half.numbers)}


def _part_of(array: PlanArray, start: int, stop: int) -> PlanArray:
    """An array's elements [start, stop), of all rows; of sums, which are float64, those of the chunks in there."""
    if array is None:
        return None
    if array.dtype == np.float64:
        assert start % flat.CHUNK == 0, start
        return array[start // flat.CHUNK : -(-stop // flat.CHUNK)]
    return array[:, start:stop] if array.ndim == 2 else array[start:stop]
