"""Loading: the pipeline of a run's samples to one rank, its memory, the damage found, and a warning of long waits."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from mpibow.errors import install

from .damage import Damages, Intact
from .dataset import NamedSamples, Samples, row_bytes
from .decoded import Decoded
from .pipeline_choice import PipelineChoice, open_reader, size_of
from .readers import Reader
from .recordset import RecordSet
from .slots import Feed, specs_of


@dataclass(frozen=True)
class ReadAheadMemory:
    """A rank's memory for reading ahead, in bytes: for each learner where it computes, page-locked on a GPU's host,
    and on the GPU for a data set that lies there."""

    learner: int
    locked: int = 0
    data: int = 0


@dataclass(frozen=True)
class Loading:
    """`train` comes by `choice` in slots of `batch` samples, `ahead` iterations before learners need it, with `threads`
    that decode. `evaluated` are read on the host, by name.

    At most `most_damaged` samples of each are replaced; one more ends the run.
    """

    train: Samples
    evaluated: Mapping[str, Samples]
    choice: PipelineChoice
    batch: int
    ahead: int
    threads: int = 1
    most_damaged: int = 0

    @cached_property
    def damages(self) -> dict[str, Damages]:
        return {
            name: Damages(
                data.name, data.count, self.most_damaged, data.number if isinstance(data, RecordSet | Decoded) else int
            )
            for name, data in {"train": self.train, **self.evaluated}.items()
        }

    def damaged(self) -> dict[str, str]:
        """The damage of every damaged sample found so far, by data set and number."""
        return {sample: why for damages in self.damages.values() for sample, why in damages.found().items()}

    def intact(self, name: str) -> Samples:
        """The data to evaluate, with damaged samples replaced; arrays in memory are never damaged."""
        data = self.evaluated[name]
        return data if isinstance(data, NamedSamples) else Intact(data, self.damages[name])

    @property
    def held(self) -> ReadAheadMemory:
        """A learner has one slot more in the ring than iterations `ahead`, and its inputs take as much as a slot."""
        return ReadAheadMemory((self.ahead + 2) * sum(row_bytes(specs_of(self.train, self.batch)).values()))

    @property
    def resident(self) -> int:
        """Bytes of images that reading copies into the host's memory."""
        copied = self.choice.kind == "resident" and not (self.choice.on_device or isinstance(self.train, NamedSamples))
        return size_of(self.train) if copied else 0

    @property
    def described(self) -> str:
        """The log's line about the pipeline, '' where there was no choice."""
        used = f" with {self.threads} thread{'s' * (self.threads > 1)}" * isinstance(self.train, Decoded)
        where = " on the GPU" * self.choice.on_device
        return f"pipeline: {self.choice.kind}{where}{used}: {self.choice.why}" if self.choice.why else ""

    @property
    def remedy(self) -> str:
        """Advice on how to load samples faster."""
        kind = self.choice.kind
        if isinstance(self.train, Decoded):
            other = "" if kind == "dali" else f", or data.pipeline=dali ({install('dali')})"
            return f"set data.workers above {self.threads} where cores are free, bind more cores to a rank{other}"
        if kind == "resident" and self.choice.on_device:
            return "set prefetch higher"
        if kind == "resident" or not isinstance(self.train, RecordSet):
            return "set prefetch higher, or leave a core free for reading"
        return "set data.pipeline=resident where memory allows, prefetch higher, or copy the data to a faster disk"

    def open(self) -> tuple[Reader, Feed]:
        """The reader, and the feed of its slots to learners. Resident data are read now."""
        return open_reader(self.choice, self.train, self.damages["train"], self.threads), Feed(self.train)


MOST = 0.05  # of the time may be spent waiting for data
SECONDS = 10.0  # of training before the first warning


@dataclass
class Watch:
    """Warns once, and again where the share of the time has doubled since."""

    what: str
    remedy: str
    most: float = MOST
    _begin: tuple[float, float] | None = None

    def __call__(self, seconds: float, waited: float) -> str:
        """The warning, '' for none; `waited` of `seconds` of training, both since some start.

        The wait before the first call is the first run's reading, which nothing can hide.
        """
        if self._begin is None:
            self._begin = seconds, waited
        seconds -= self._begin[0]
        waited -= self._begin[1]
        if seconds < SECONDS or waited <= self.most * seconds:
            return ""
        share = waited / seconds
        self.most = 2 * share
        return f"warning: learners wait for {self.what} {share:.0%} of the time; {self.remedy}"
