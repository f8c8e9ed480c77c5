"""The reader that decodes with NVIDIA DALI, on CPUs or a GPU; no other module imports it. No random draw is DALI's."""

from collections import deque
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mpibow.errors import DamagedRecord, DeviceError, MpibowError, install, raised

from .dali_decoders import DaliBatch, Decoder, OnHost, Raw, Windows
from .damage import decoding, undecodable
from .image_header import sides_of
from .photo import alike
from .readers import Reader
from .recordset import RecordSet
from .slots import Slot

if TYPE_CHECKING:
    from nvidia.dali import Pipeline


def available() -> str:
    """The package that `Dali` lacks, and how to install it; '' if it lacks none."""
    for module, name in (("nvidia.dali", "NVIDIA DALI"), ("numba", "numba")):
        try:
            missing = find_spec(module) is None
        except ModuleNotFoundError:  # not even the package that it is a part of
            missing = True
        if missing:
            return f"{name} is not installed: {install('dali')}"
    return ""


class Dali(Reader):
    """Fills slots with images of `data`, (3, size, size) uint8: their windows, decoded and scaled.

    On CPUs samples equal those of Pillow and `kernels.numpy.resize` to the bit, whatever the runs and `threads`, the
    number of DALI's threads and of those that scale. The GPU number `device` makes them by an arithmetic of its own,
    and its `decoder` delivers them; labels still come from the host. Raw images stay as they are and have no
    `windows`. A sample that can't be read or decoded is replaced by the one that `damaged` returns, at the same
    place of the stream and with that place's counter; `damaged` may raise, and without it the damage is raised. Raises
    DeviceError where DALI or the GPU is missing.
    """

    def __init__(
        self,
        data: RecordSet,
        windows: Windows | None = None,
        size: int = 0,
        *,
        threads: int,
        decoder: Decoder | None = None,
        device: int | None = None,
        samples: int = 64,
        depth: int = 2,
        damaged: Callable[[DamagedRecord], int] = raised,
    ):
        if missing := available():
            raise DeviceError(f"data.pipeline: dali cannot be used: {missing}")
        self.samples = samples
        self.depth = depth
        self._data = data
        self._threads = threads
        self._damaged = damaged
        self._device = device
        if decoder is None:
            assert data.shape or windows, "of encoded images windows are taken"
            decoder = Raw(data.dtype) if data.shape or windows is None else OnHost(windows, size, threads)
        self.decoder = decoder
        self._runs = deque[DaliBatch]()
        self._most = samples
        try:
            self._pipe = self._built(samples)
        except (RuntimeError, ImportError) as error:
            where = "CPUs" if device is None else f"GPU {device}"
            raise DeviceError(
                f"data.pipeline: dali cannot start on {where}: {error}; set data.pipeline=host"
            ) from error

    def begin(self, slots: list[Slot]) -> None:
        run = DaliBatch.of(slots)
        try:
            for row, sample in enumerate(run.samples.tolist()):
                self._take(run, row, sample)
            self.decoder.plan(run)
        except MpibowError as error:
            run.error = error  # to be raised in its turn, by end()
        self._runs.append(run)
        if len(run.samples) > self._most:  # a single slot may be larger than a run should be
            self._most = len(run.samples)
            self._restart()
        elif run.error is None:
            _start(self._pipe, run.inputs)

    def end(self) -> None:
        run = self._runs[0]
        outputs = None
        while outputs is None:
            if run.error is not None:
                self._runs.popleft()
                raise run.error
            try:
                (outputs,) = self._pipe.share_outputs()  # where it waits; others run meanwhile
            except RuntimeError as error:
                self._mend(run, error)
                self._restart()
        self.decoder.deliver(run, outputs)
        self._pipe.release_outputs()
        run.spread("label", run.labels)
        self._runs.popleft()

    def close(self) -> None:
        self.decoder.close()
        self._pipe = None  # before the arrays that it reads
        self._runs.clear()

    def _take(self, run: DaliBatch, row: int, sample: int) -> None:
        """Sets one row of the run to the stored `sample`, or to its replacement."""
        while True:
            try:
                run.images[row] = self._data.encoded(sample)
                run.labels[row] = self._data.label(sample)
                if not self._data.shape:
                    with decoding(self._data, sample):
                        run.sides[row], run.orientations[row] = sides_of(run.images[row])
                        run.images[row] = alike(run.images[row])
                break
            except DamagedRecord as error:
                sample = self._damaged(error)
        run.samples[row] = sample

    def _mend(self, run: DaliBatch, error: RuntimeError) -> None:
        """Replaces the samples that DALI can't decode, found one by one; sets run.error where that fails."""
        pipe = None
        found = False
        try:
            for row in range(len(run.samples)):
                while True:
                    pipe = pipe or self._built(1)
                    try:
                        _start(pipe, {name: batch[row : row + 1] for name, batch in run.inputs.items()})
                        pipe.share_outputs()
                        pipe.release_outputs()
                        break
                    except RuntimeError:
                        pipe = None
                        found = True
                        sample = int(run.samples[row])
                        self._take(run, row, self._damaged(undecodable(self._data, sample, "DALI refuses it")))
                        self.decoder.plan(run)
            if not found:
                raise DeviceError(f"data.pipeline: dali failed: {error}") from error
        except MpibowError as raised:
            run.error = raised

    def _restart(self) -> None:
        """Starts the runs under way again: an error ends the whole of a DALI pipeline."""
        self._pipe = self._built(self._most)
        for run in self._runs:
            if run.error is None:
                _start(self._pipe, run.inputs)

    def _built(self, most: int) -> "Pipeline":
        """A pipeline for up to `most` samples a run."""
        from nvidia.dali import Pipeline, fn, types

        pipe = Pipeline(
            batch_size=most,
            num_threads=self._threads,
            device_id=self._device,
            prefetch_queue_depth=self.depth,
            exec_dynamic=True,
            exec_async=True,
            exec_pipelined=False,  # True would ask for two runs at the first
        )
        with pipe:
            pipe.set_outputs(self.decoder.graph(fn, types))
        pipe.build()
        return pipe


def _start(pipe: "Pipeline", inputs: Mapping[str, object]) -> None:
    for name, batch in inputs.items():
        pipe.feed_input(name, batch)
    pipe.schedule_run()
