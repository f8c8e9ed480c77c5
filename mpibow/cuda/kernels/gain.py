"""The gain of a rank's learners in a GPU's memory, which never comes to the host for a pass to read it."""

from dataclasses import astuple
from typing import TYPE_CHECKING

import numpy as np

from mpibow.cuda.device.array import DeviceArray, PlanArray
from mpibow.cuda.kernels import flat
from mpibow.kernels import chunks_of
from mpibow.sync.gain import Averages
from mpibow.sync.outbox import Message

from .kernels import Launches

if TYPE_CHECKING:
    from .passes import DeviceFlat


class DeviceGain:
    """mpibow.sync.gain in device memory: `common` (2,) is (gain - 1) / k and gain / k as the next pass reads them."""

    def __init__(self, passes: "DeviceFlat"):
        self._passes, machine = passes, passes.machine
        self._state = machine.zeros(1, flat.GAIN)
        # The stand-ins for (gain - 1) / k and 1 / k + (gain - 1) / k in a pass: their values are only on the device.
        self.common = machine.zeros(2, "float32")
        self.whole = self.common[1:]
        self._sums = machine.zeros(2, "float64")
        self._parts: DeviceArray | None = None
        self._owed: tuple[int, float, DeviceArray | None, DeviceArray | None] | None = None
        self._seen = machine.memory.pinned("the gain", flat.GAIN.itemsize).view(flat.GAIN)
        self.gain = 1.0

    def load(self, k: int, fixed: float | None, gain: float, averages: Averages) -> None:
        """As in mpibow.sync.gain.GainMeter."""
        used = gain if fixed is None else fixed
        common = np.zeros(2, np.float32)
        record = np.array([(*astuple(averages), fixed is None, used, gain)], flat.GAIN)
        common[0] = (used - 1.0) / k
        common[1] = 1.0 / k + float(common[0])
        self.gain = gain
        self._passes.machine.put(self._state.view(np.uint8), record.view(np.uint8))
        self._passes.machine.put(self.common, common)

    def state(self) -> tuple[float, Averages]:
        """The gain and the averages, when nothing is under way."""
        n1, n2, weight, count, *_, gain = self._passes.machine.host(self._state)[0].item()
        return gain, Averages(n1, n2, weight, count)

    def follow(self, k: int, rate: float, sums: DeviceArray, size: int, squares: DeviceArray | None = None) -> None:
        """As in mpibow.sync.gain.GainMeter; the ranks' sum is squared here."""
        self._owed = k, rate, None, sums[0]  # later passes still read the old gain

    def follow_alone(self, k: int, rate: float, own: DeviceArray) -> None:
        self._owed = k, rate, own, None

    def _launches(self, k: int, step: DeviceArray, own: DeviceArray | None, total: PlanArray) -> Launches:
        if own is not None:
            launches, square = [flat.sum_parts(own.reshape(1, -1, 2), self._sums.reshape(1, 2))], None
        else:
            message: PlanArray = Message(total)
            square, size = message.square, message.sums.size
            if self._parts is None:
                self._parts = self._passes.machine.zeros(len(chunks_of(size, flat.CHUNK)), "float64")
            launches = flat.squared_norms(message.sums.reshape(1, size), self._parts, self._sums[1:])
        return [*launches, flat.follow_gain(self._sums, step, self._state, self.common, k, square)]

    def see(self) -> None:
        """Enqueues the work that follows the gain, and its copy to the host."""
        machine, owed, self._owed = self._passes.machine, self._owed, None
        if owed is not None:
            k, rate, own, total = owed
            arrays = (self._state, own, total)
            self._passes.run(f"follow {k}", arrays, lambda step, _: self._launches(k, step, own, total), rate=rate)
        machine.driver.copy(self._seen, self._state, machine.stream)

    def seen(self) -> None:
        """Called when the enqueued work is over."""
        self.gain = float(self._seen["gain"][0])
