"""Runs small enough for hundreds of them: 57 images of 6 x 6 in three classes, on ranks of one process."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from google_crc32c import value as crc32c

from mpibow import batch_norm, dense, dropout, flatten, relu, train as command
from mpibow.comm import Communicator, checksum
from mpibow.config import load_mapping
from mpibow.data import Array, ArrayData, Samples, Slot
from mpibow.data.order import samples_at
from mpibow.data.pipeline import Pipeline
from mpibow.graph import Tensor
from mpibow.job import Job, make_job
from mpibow.job.device import Device
from mpibow.job.memory import Memory
from mpibow.models import Net
from mpibow.models.augmentation import Augmentation
from mpibow.run.opening import OpenParts, open_parts
from mpibow.run.results import Trained
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from mpibow.tune import Counts
from tests.comm.threads import on_threads
from tests.tune.windows import tuner_of

COUNT, CLASSES = 57, 3  # 57: no multiple of what an iteration consumes, so iterations run across epochs

# What a run may be told about averaging; each must be the same bits however the run goes on its way.
RULES = {
    "auto": {"name": "sma"},
    "quarter": {"name": "sma", "alpha": 0.25},
    "auto-3": {"name": "sma", "period": 3},
    "crossbow": {"name": "crossbow"},
    "crossbow-3": {"name": "crossbow", "period": 3},
    "easgd": {"name": "easgd", "period": 2},
    "number": {"name": "sma", "outer": {"gain": 2.0}},
    "number-3": {"name": "sma", "outer": {"gain": 2.0}, "period": 3},
    "nesterov-3": {"name": "diloco", "replicas": "pulled", "period": 3},
    "local": {"name": "local_sgd", "period": 3},
    "slowmo": {"name": "slowmo", "period": 2},
    "diloco": {"name": "diloco", "period": 4},
    "then": {"name": "crossbow", "then": {"epoch": 4}},
    "post-local": {"name": "post_local_sgd", "then": {"epoch": 3, "period": 3}},
    "ssgd": {"name": "ssgd"},
    "independent": {"name": "independent", "period": 3},
    "ssgd-scaled": {"name": "ssgd", "outer": {"gain": "learners"}},
}


def rules(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rule", names)


def images(count: int = COUNT, seed: int = 0) -> tuple[Array, Array]:
    """Noise with a bright bar whose row is the class: (count, 1, 6, 6) uint8, (count,)."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    pixels = generator.integers(0, 120, (count, 1, 6, 6))
    pixels[np.arange(count), 0, 2 * labels] += 100
    return pixels.astype(np.uint8), labels


TRAIN = ArrayData(*images(), classes=CLASSES, name="bars")
TEST = ArrayData(*images(20, seed=1), classes=CLASSES, name="more bars")


def plain(image: Tensor) -> Tensor:
    return dense(relu(dense(flatten(image), 12)), CLASSES)


def normed(image: Tensor) -> Tensor:
    """With all that a checkpoint has to carry: weights, statistics, and dropout's place in the stream."""
    return dense(dropout(relu(batch_norm(dense(flatten(image), 12, bias=False))), 0.1), CLASSES)


def dropping(image: Tensor) -> Tensor:
    return dense(dropout(relu(dense(flatten(image), 12)), 0.3), CLASSES)


def job(
    out: Path,
    *,
    net: Net = plain,
    augmentation: Augmentation | None = None,
    normalise: str = "channel",
    train: Samples = TRAIN,
    test: Samples | None = TEST,
    validation: Samples | float | None = None,
    iterations: int = 40,  # enough for a measured gain, which needs 20
    **settings,
) -> Job:
    """A run in `out`/run; `rule` may be a name of RULES."""
    defaults = {
        "name": "run",
        "out": str(out),
        "batch_size": 3,
        "learners": 1,
        "precision": "float64",
        "update": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
        "stop": {"epochs": None, "iterations": iterations},
        "evaluate": {"batch_size": 7},
        "checkpoint": {"every": None},
        "log": {"every": 5},
    }
    tuner = settings.pop("tuner", {})
    if isinstance(rule := settings.get("rule"), str):
        settings["rule"] = RULES[rule]
    config = load_mapping({**defaults, **settings}, model_given=True, data_given=True)
    config = replace(config, tuner=tuner_of(**tuner)) if tuner else config
    return make_job(
        "tiny", config, net, train, test, normalise=normalise, validation=validation, augmentation=augmentation
    )


def keeping(iterations: int) -> dict:
    """Settings of checkpoints: one every so many iterations, and none is removed."""
    return {"every": f"{iterations} iterations", "keep": 100, "best": False}


def run(work: Job, ranks: int = 1, resume: str | Path | None = None) -> Trained:
    """Trains on `ranks` ranks, whose centres must be the same bits."""
    path = None if resume is None else str(resume)
    found = on_threads(ranks, lambda comm: command.train(work, comm, resume=path))
    for other in found[1:]:
        assert same_bits(other.weights, found[0].weights)
    return found[0]


def train(out: Path, ranks: int = 1, *, resume: str | Path | None = None, **settings) -> Trained:
    """Trains the `job` of these settings on `ranks` ranks."""
    return run(job(out, **settings), ranks, resume)


def spread(folder: Path, ranks: Sequence[int] = (1, 2), within: float = 1e-10, **settings) -> dict[str, Array]:
    """The weights of four learners of one rank, which those of learners on more ranks come close to."""
    one, *others = (run(job(folder / str(n), learners=4 // n, **settings), n).weights for n in ranks)
    for other in others:
        assert distance(other, one) < within
    return one


def same_bits(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


def distance(a: Mapping[str, Array], b: Mapping[str, Array]) -> float:
    """The largest difference of any weight, relative to the largest weight of its array."""
    assert a.keys() == b.keys()
    return float(np.max([np.abs(a[name] - b[name]).max() / (np.abs(b[name]).max() or 1.0) for name in a]))


def rates(folder: Path) -> list[float]:
    """The learning rates that a run in `folder` has told."""
    return [event["rate"] for event in events(folder / "run", "train")]


def events(folder: Path, kind: str | None = None) -> list[dict]:
    """The lines of metrics.jsonl, all or those of one kind."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if kind in (None, line["event"])]


def summary(folder: Path) -> dict:
    """The summary of the run in `folder`/run."""
    found = json.loads((folder / "run/summary.json").read_text())
    return found


def log(folder: Path) -> list[str]:
    """The lines of its log.txt, without their times."""
    lines = (folder / "run/log.txt").read_text().splitlines()
    return [line.split(" ", 2)[2] for line in lines if line[:2] == "20"]


@dataclass
class Replay:
    """What one rank saw: the centre's checksum after every iteration, each slot's samples and checksum, the end."""

    centres: list[int] = field(default_factory=list)
    samples: list[list[Array]] = field(default_factory=list)  # by iteration
    slots: list[list[int]] = field(default_factory=list)  # by iteration
    weights: dict[str, Array] = field(default_factory=dict)


@dataclass
class Watched:
    """A pipeline that writes down what it gives."""

    pipeline: Pipeline
    replay: Replay

    @property
    def waited(self) -> float:
        return float(self.pipeline.waited)

    def next(self) -> list[Slot]:
        slots: list[Slot] = self.pipeline.next()
        self.replay.samples.append([slot.samples.copy() for slot in slots if slot.samples is not None])
        self.replay.slots.append([zlib.crc32(b"".join(map(bytes, slot.arrays.values()))) for slot in slots])
        return slots


def replay(
    work: Job,
    ranks: int = 1,
    *,
    before: Callable[[Session], None] = lambda session: None,
    resume: str | Path | None = None,
    settle: bool = True,
    parts: OpenParts = open_parts,
) -> list[Replay]:
    """The loop of `train`, watched: by rank. `before` is called before every iteration, as the auto-tuner would be."""

    def body(comm: Communicator) -> Replay:
        seen, signals = Replay(), Signals()
        with Session(work, comm, None if resume is None else str(resume), opened=parts) as session:
            session.pipeline, stop = Watched(session.pipeline, seen), ""  # type: ignore[assignment]
            while not (stop := stop or session.limit_reached()):
                before(session)
                stop = command.iterate(session, signals)
                if settle:
                    session.settle()
                    seen.centres.append(checksum(session.engine.centre))
            seen.weights = session.finish(stop).weights
        return seen

    return on_threads(ranks, body)


def announcing(changes: Mapping[int, Counts]) -> Callable[[Session], None]:
    """Announces learners by rank before these iterations, as the auto-tuner would."""

    def announce(session: Session) -> None:
        if (counts := changes.get(session.iteration)) is not None:
            session.coordinator.announce(session.iteration, counts)

    return announce


def killed(work: Job, iteration: int, parts: OpenParts = open_parts, resume: str | None = None) -> None:
    """A run that is killed before this iteration."""

    def kill(session: Session) -> None:
        if session.iteration == iteration:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(work, parts=parts, before=kill, resume=resume)


def check_stream(seen: Sequence[Replay], begin: int = 0, count: int = COUNT) -> None:
    """No sample of `count` is lost or doubled from position `begin` on, and all ranks have the same centres."""
    iterations = zip(*(replay.samples for replay in seen), strict=True)
    stream = [samples for ranks in iterations for slots in ranks for samples in slots]
    assert {len(samples) for samples in stream} == {3}
    found = np.concatenate(stream)
    np.testing.assert_array_equal(found, samples_at(begin, len(found), count, 1)[1])
    whole = found[-begin % count :]
    epochs = whole[: len(whole) // count * count].reshape(-1, count)
    assert (np.sort(epochs) == np.arange(count)).all()
    assert all(other.centres == seen[0].centres for other in seen)


def watch(
    out: Path, ranks: int = 1, *, before: Callable[[Session], None] = lambda session: None,
    resume: str | Path | None = None, settle: bool = True, parts: OpenParts = open_parts, **settings,
) -> list[Replay]:  # fmt: skip
    """`replay` of the `job` of these settings."""
    return replay(job(out, **settings), ranks, before=before, resume=resume, settle=settle, parts=parts)


def with_memory(memory: Memory) -> OpenParts:
    """The parts of a session on a host whose memory is made up."""
    return lambda job, *more: open_parts(replace(job, device=Device(memory=memory)), *more)


def seal(path: Path, change: Callable[..., dict]) -> None:
    """Changes the header of checkpoint `path`, and makes its checksum that of what it says now."""
    header = {**change(json.loads((path / "checkpoint.json").read_bytes())), "crc32c": "00000000"}
    data = json.dumps({"format": header.pop("format"), "crc32c": header.pop("crc32c"), **header}).encode()
    (path / "checkpoint.json").write_bytes(data.replace(b"00000000", f"{crc32c(data):08x}".encode(), 1))


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Fails where the block adds, removes or changes anything under `folder`."""
    before = listing(folder)
    yield
    assert listing(folder) == before


def listing(folder: Path) -> dict[str, bytes | None]:
    """Every file under `folder` by its path, and what is in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
