"""A session: one rank's parts of a run, and what happens between iterations. The loop itself is in train.py."""

from __future__ import annotations

import hashlib
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mpibow.comm.communicator import Communicator
from mpibow.config import dump
from mpibow.data.pipeline import HostPipeline
from mpibow.data.timeline import fixed
from mpibow.errors import CommunicationError, ConfigError, DivergedError
from mpibow.graph.layout import initial_weights
from mpibow.job import Job
from mpibow.kernels.passes import Local
from mpibow.learn.learner import Learner, Result, bind_learners
from mpibow.learn.replica import Replicas
from mpibow.learn.scheduler import Scheduler
from mpibow.learn.schedules import multiplier
from mpibow.run import checkpoint, directory
from mpibow.run.coordinator import Coordinator, Request, decide
from mpibow.run.evaluate import Evaluator, due
from mpibow.run.events import EventFile, Events, Silent
from mpibow.run.ledger import Ledger
from mpibow.run.progress import Line, Progress, Quiet
from mpibow.run.state import check_fits, read_centre, restore, snapshot, timeline_of
from mpibow.summary import Summary, Trained, versions
from mpibow.sync.rules import make_rule
from mpibow.sync.settings import Sma
from mpibow.sync.synchroniser import Synchroniser, Tally

CAPACITY = 64  # learners that a rank has room for; rows that no learner uses take no memory
SHOW_EVERY = 0.2  # seconds between updates of the progress line


@dataclass(frozen=True)
class Origin:
    """Where a run begins: its folder, and the checkpoint that it continues, if any."""

    folder: Path
    checkpoint: Path | None
    header: dict[str, Any] | None
    notes: tuple[str, ...]


class Session:
    """Every rank makes one and calls the same methods in the same order; use it in a `with` statement."""

    def __init__(self, job: Job, comm: Communicator, resume: str | None, note: str) -> None:
        self.job, self.config, self.rank, self.size = job, job.config, comm.rank, comm.size
        config, counts = job.config, learner_counts(job.config.learners, comm.size)
        self.layout, self._plan = job.layout(), job.training_plan()
        _check_alike(comm, dump(config) + self.layout.digest())
        origin = directory.on_rank_0(lambda f: f(comm), comm.rank, lambda: find_origin(job, resume))
        path, header, notes = origin.checkpoint, origin.header, [note, *origin.notes]
        if header is None:
            self.iteration, timeline = 0, fixed(config.batch_size, counts)
            centre = initial_weights(self.layout, config.seed, config.precision)
        else:
            check_fits(path, header, self._identity())
            self.iteration, timeline = header["iteration"], timeline_of(header, counts, config.batch_size)
            centre = read_centre(path, self.layout, config.precision)
        self.ledger = Ledger() if header is None else Ledger.of(header["ledger"])
        self.coordinator = Coordinator(timeline, config.prefetch)
        self.replicas = Replicas(max(CAPACITY, *counts), self.layout.size, config.precision)
        self.learners: list[Learner] = []
        self.scheduler = Scheduler()
        self.rule = make_rule(config.rule, job.kernels.flat, centre.copy())
        self.synchroniser = Synchroniser(comm, self.rule, self.replicas, self.scheduler.run, overlap=config.overlap)
        self._stack = ExitStack()
        self._stack.callback(self.scheduler.close)
        self._stack.callback(self.synchroniser.close)
        same = header is not None and [header["counts"], header["rule_settings"]] == [list(counts), self._rule()]
        self.change_learners(keep=same)
        if header is not None and path is not None:
            if same:
                restore(path, header, comm.rank, centre, self.replicas, self.rule)
            else:
                notes.append(f"other learners ({header['counts']}) or rule then: averaging restarts from its centre")
        self.evaluator = None
        if job.test is not None:
            self.evaluator = Evaluator(job.evaluation_plan(), job.test, counts[comm.rank])
        self.folder, self._saved = origin.folder, path
        self._open_output(header, notes)
        self._asked = self._diverged = False
        self._began = self._mark = self._shown = self._saved_at = time.perf_counter()
        self._first_images = self.ledger.images

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.close()
        self._stack.close()

    # What the loop asks for

    @property
    def position(self) -> int:
        """Samples consumed so far, over all ranks and epochs."""
        return self.coordinator.timeline().position(self.iteration)

    @property
    def epoch(self) -> float:
        return self.position / self.job.train.count

    def open_pipeline(self) -> HostPipeline:
        """The slots of this rank from here on."""
        pipeline = HostPipeline(
            self.job.train,
            self.coordinator.timeline,
            rank=self.rank,
            iteration=self.iteration,
            seed=self.config.seed,
            prefetch=self.config.prefetch,
        )
        self._stack.callback(pipeline.close)
        self._pipeline = pipeline
        return pipeline

    def local_step(self) -> Local:
        """The numbers of this iteration's local step."""
        update = self.config.update
        rate = update.lr * multiplier(update.schedule, update.warmup, self.epoch)
        return Local(rate, update.momentum, update.nesterov, update.weight_decay, self.layout.decayed)

    def limit_reached(self) -> str:
        """The first limit of `stop` that is reached, '' if none is."""
        stop = self.config.stop
        if stop.epochs is not None and self.position >= stop.epochs * self.job.train.count:
            return f"stop.epochs {stop.epochs:g}"
        if stop.iterations is not None and self.iteration >= stop.iterations:
            return f"stop.iterations {stop.iterations}"
        if stop.accuracy is not None and self.ledger.epochs_to_target is not None:
            return f"stop.accuracy {stop.accuracy:g}"
        return ""

    def prepare(self) -> None:
        """What an iteration begins with where learners come or go, or the rate drops: averaging starts again."""
        if self.coordinator.timeline().changes_at(self.iteration):
            self.settle()
            self.change_learners()
            self.note(f"iteration {self.iteration}: learners {self.coordinator.timeline().counts(self.iteration)}")
        elif self.iteration and self._restart_due():
            self.settle()
            self.rule.restart(self.replicas)

    def change_learners(self, keep: bool = False) -> None:
        """Replicas, learners and rule for the number of learners of this iteration."""
        counts = self.coordinator.timeline().counts(self.iteration)
        self.replicas.resize(counts[self.rank])
        bind_learners(self.learners, self._plan, self.replicas)
        self.rule.begin(self.replicas, sum(counts), keep)

    def settle(self) -> None:
        """Ends the exchange under way, if any."""
        tally = self.synchroniser.wait()
        if tally is not None:
            self._asked = self._asked or tally.attention > 0
            self.ledger.loss += tally.loss
            self.ledger.hits += tally.hits

    def check(self, results: list[Result], rate: float) -> list[Result]:
        """The finite results. A learner whose loss or gradient is not is reset, or ends the run (`on_nan`)."""
        for i, result in enumerate(results):
            if result.finite:
                continue
            counts = self.coordinator.timeline().counts(self.iteration)
            where = f"iteration {self.iteration}: learner {sum(counts[: self.rank]) + i} (rank {self.rank})"
            what = f"{where}: loss or gradient is not finite (loss {result.loss:g})"
            if self.config.on_nan == "stop":
                kept = f"the last checkpoint is {self._saved}" if self._saved else "there is no checkpoint yet"
                raise DivergedError(f"{what}; lower update.lr (now {rate:g}), or set on_nan=reset; {kept}")
            self.replicas.reseed(i, self.rule.centre)
            self.ledger.resets += 1
            self._diverged = True
            self.note(f"{what}; it starts again from the centre")
        return [result for result in results if result.finite]

    def tally(self, results: list[Result], signal: str) -> Tally:
        """What this rank tells the others beside its steps."""
        attention = self._request(signal).attention
        return Tally(attention, sum(result.loss for result in results), sum(result.hits for result in results))

    def advance(self, signal: str) -> str:
        """Ends an iteration: requests, metrics, evaluation, checkpoint where due. The reason to stop now, if any."""
        before, count = self.position, self.job.train.count
        images = sum(self.coordinator.timeline().counts(self.iteration)) * self.config.batch_size
        self.iteration += 1
        self.ledger.images += images
        self.ledger.samples += images
        stop, save = "", False
        if self._asked:  # every rank read this from the same all-reduce
            stop, save = self._talk(signal)
        config, after = self.config, self.position
        if self.iteration % config.metrics.every == 0:
            self._enter_metrics()
        if self.iteration % config.rule.resync == 0:
            self._agree()
        best = False
        if self.evaluator is not None and due(before, after, count, config.evaluate.every) and not stop:
            best = self.evaluate()
        if stop.startswith("SIG") or save or self._checkpoint_due(before, after, best):
            self.save(best)
        self._show()
        return stop

    # What happens between iterations

    def evaluate(self) -> bool:
        """Evaluates the centre; whether it is the best so far."""
        assert self.evaluator is not None
        self.settle()
        self._clock()
        found = self.evaluator(self.rule.centre, self.scheduler.run, self.synchroniser.call)
        self._mark = time.perf_counter()
        best = self.ledger.evaluated(found, self.position, self.epoch, self.config.stop.accuracy)
        entry = {"accuracy": found.accuracy, "loss": found.loss, "seconds": found.seconds, "best": best}
        self.events.add("evaluate", **self._where(), **entry)
        self.note(f"epoch {self.epoch:.2f}: test accuracy {found.accuracy:.2%}, test loss {found.loss:.4f}")
        return best

    def save(self, best: bool = False) -> None:
        """Writes a checkpoint on all ranks, and forgets those that are not to be kept."""
        self.settle()
        self._clock()
        begin = time.perf_counter()
        folder = self.folder / "checkpoints"
        header = {
            **self._identity(),
            "rule_settings": self._rule(),
            "config": dump(self.config),
            "input": self._input(),
            "ledger": self.ledger.state(),
            "metrics_bytes": self.synchroniser.call(lambda comm: comm.share(self.events.mark()))[0],
        }
        state = snapshot(header, self.layout, self.coordinator.timeline(), self.iteration, self.replicas, self.rule)
        self._saved = checkpoint.save(folder, state, self.synchroniser.call)
        if self.rank == 0:
            if best:
                checkpoint.point(folder, "best", self._saved)
            checkpoint.prune(folder, self.config.checkpoint.keep)
        seconds = time.perf_counter() - begin
        self.events.add("checkpoint", **self._where(), path=str(self._saved), seconds=seconds)

    def finish(self, stop: str) -> Trained:
        """The end of a run that reached a limit, or was told to stop: what it came to, on rank 0 also on disk."""
        self.settle()
        self._clock()
        ended = not stop.startswith("SIG")
        if ended and self.evaluator is not None and self.ledger.evaluated_at != self.position:
            best = self.evaluate()
            if self.config.checkpoint.interval is not None:
                self.save(best)
        elif ended and self.config.checkpoint.interval is not None and not self._saved_here():
            self.save()
        summary = self._summary(stop)
        if self.rank == 0:
            directory.write_summary(self.folder, summary.json())
        self.events.add("end", **self._where(), stopped=stop)
        self.events.close()
        self.note(str(summary))
        return Trained(summary, {name: view.copy() for name, view in self.layout.views(self.rule.centre).items()})

    def note(self, text: str) -> None:
        self.progress.note(text)

    def _request(self, signal: str) -> Request:
        stop, interval = signal, self.config.checkpoint.interval
        now = time.perf_counter()
        minutes = self.config.stop.minutes
        if (
            self.rank == 0
            and not stop
            and minutes is not None
            and self.ledger.seconds + now - self._mark > 60 * minutes
        ):
            stop = f"stop.minutes {minutes:g}"
        timed = self.rank == 0 and interval is not None and interval.unit == "minute"
        save = timed and interval is not None and now - self._saved_at > 60 * interval.amount
        return Request(stop, save, self._diverged)

    def _talk(self, signal: str) -> tuple[str, bool]:
        """All ranks say what they want and do the same."""
        requests = self.synchroniser.call(lambda comm: comm.share(self._request(signal)))
        decision = decide(requests)
        self._asked = False
        if decision.resync:
            self._agree()
            self._diverged = False
        if decision.stop:
            who = f" on rank {decision.rank}" if decision.stop.startswith("SIG") else ""
            self.note(f"iteration {self.iteration}: {decision.stop}{who}")
        if decision.save:
            self._saved_at = time.perf_counter()
        return decision.stop, decision.save

    def _agree(self) -> None:
        self.settle()
        found = self.synchroniser.agree(self.coordinator.timeline().learners(self.iteration - 1))
        self.ledger.drift = found.drift
        self.ledger.mismatches += found.mismatches
        self.events.add("agree", **self._where(), drift=found.drift, mismatches=found.mismatches)

    def _checkpoint_due(self, before: int, after: int, best: bool) -> bool:
        interval = self.config.checkpoint.interval
        if interval is None:
            return False
        if interval.unit == "iteration" and self.iteration % int(interval.amount) == 0:
            return True
        if interval.unit == "epoch" and due(before, after, self.job.train.count, interval.amount):
            return True
        return best and self.config.checkpoint.best

    def _restart_due(self) -> bool:
        """Whether `rule.restart` wants averaging to start again before this iteration."""
        rule = self.config.rule
        if not isinstance(rule, Sma) or rule.restart == "never":
            return False
        timeline, count = self.coordinator.timeline(), self.job.train.count
        before, now = timeline.position(self.iteration - 1) / count, timeline.position(self.iteration) / count
        if isinstance(rule.restart, tuple):
            return any(before < epoch <= now for epoch in rule.restart)
        return self.config.update.schedule.drops(before, now)

    def _enter_metrics(self) -> None:
        self._clock()
        ledger, local = self.ledger, self.local_step()
        seconds = max(ledger.seconds, 1e-9)
        samples = max(ledger.samples, 1)
        self.events.add(
            "train",
            **self._where(),
            loss=ledger.loss / samples,
            accuracy=ledger.hits / samples,
            rate=local.rate,
            gain=self.rule.gain,
            images_per_second=ledger.images / seconds,
            learners=self.coordinator.timeline().counts(self.iteration),
            data_wait=self._share(self._pipeline.waited),
            sync_wait=self._share(self.synchroniser.waited),
            sync_busy=self._share(self.synchroniser.busy),
        )
        self._text = f"loss {ledger.loss / samples:.4f}"
        ledger.loss = ledger.hits = 0.0
        ledger.samples = 0

    def _show(self) -> None:
        now = time.perf_counter()
        if now - self._shown < SHOW_EVERY:
            return
        self._shown = now
        ledger = self.ledger
        seconds = ledger.seconds + now - self._mark
        rate = ledger.images / max(seconds, 1e-9)
        counts = "+".join(map(str, self.coordinator.timeline().counts(self.iteration)))
        parts = [f"epoch {self.epoch:.2f}", f"{self.position:,} samples", self._text]
        parts += [] if ledger.accuracy is None else [f"accuracy {ledger.accuracy:.2%}"]
        parts += [f"{rate:,.0f} images/s", f"learners {counts}"]
        parts += [f"gain {self.rule.gain:.2f}"] if self.rule.gain != 1.0 else []
        self.progress.show(self.position, ", ".join(parts))

    def _clock(self) -> None:
        """Enters the training time up to now."""
        now = time.perf_counter()
        self.ledger.seconds += now - self._mark
        self._mark = now

    def _share(self, seconds: float) -> float:
        return seconds / max(time.perf_counter() - self._began, 1e-9)

    def _saved_here(self) -> bool:
        return self._saved is not None and self._saved.name.endswith(f"{self.iteration:010d}")

    def _where(self) -> dict[str, Any]:
        return {"iteration": self.iteration, "position": self.position, "epoch": round(self.epoch, 6)}

    def _rule(self) -> dict[str, Any]:
        rule = asdict(self.config.rule)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in rule.items()}

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must have in common with the run that continues it."""
        config = self.config
        return {
            "seed": config.seed,
            "precision": config.precision,
            "layout": self.layout.digest(),
            "train_samples": self.job.train.count,
        }

    def _input(self) -> dict[str, Any]:
        """What an evaluation must know of the data that the net was trained on."""
        data = self.job.train
        scaling = self.config.data is None or self.config.data.normalise
        mean, std = (list(data.mean), list(data.std)) if scaling else (None, None)
        return {"shape": data.shape, "dtype": str(data.dtype), "classes": data.classes, "mean": mean, "std": std}

    def _open_output(self, header: dict[str, Any] | None, notes: list[str]) -> None:
        self.events: Events = Silent()
        self.progress: Progress = Quiet()
        self._text = "loss -"
        if self.rank == 0:
            mark = 0 if header is None else header["metrics_bytes"]
            self.events = EventFile(self.folder / "metrics.jsonl", mark)
            epochs = self.config.stop.epochs
            total = None if epochs is None else int(epochs * self.job.train.count)
            self.progress = Line(self.folder / "log.txt", total, self.position)
        self.events.add("start", **self._where(), title=self.job.title, ranks=self.size, versions=versions())
        counts = self.coordinator.timeline().counts(self.iteration)
        for note in notes:
            if note:
                self.note(note)
        self.note(
            f"{self.job.title}: {self.layout.size:,} weights, {self.job.train.count:,} samples, {self.size} rank(s), "
            f"learners {' + '.join(map(str, counts))}, batch {self.config.batch_size}; {self.folder}"
        )

    def _summary(self, stop: str) -> Summary:
        ledger, config = self.ledger, self.config
        return Summary(
            run=str(self.folder),
            stopped=stop,
            accuracy=ledger.accuracy,
            best_accuracy=ledger.best_accuracy,
            test_loss=ledger.test_loss,
            epochs=self.epoch,
            iterations=self.iteration,
            samples=self.position,
            seconds=ledger.seconds,
            evaluation_seconds=ledger.evaluation_seconds,
            target=config.stop.accuracy,
            epochs_to_target=ledger.epochs_to_target,
            seconds_to_target=ledger.seconds_to_target,
            images_per_second=ledger.images / max(ledger.seconds, 1e-9),
            ranks=self.size,
            learners=self.coordinator.timeline().counts(self.iteration),
            batch_size=config.batch_size,
            rule=self._rule(),
            device=self.job.kernels.name,
            precision=config.precision,
            seed=config.seed,
            gain=self.rule.gain,
            drift=ledger.drift,
            mismatches=ledger.mismatches,
            resets=ledger.resets,
            data_wait=self._share(self._pipeline.waited),
            sync_wait=self._share(self.synchroniser.waited),
            versions=versions(),
            checkpoint=str(self._saved) if self._saved else None,
        )


def find_origin(job: Job, resume: str | None) -> Origin:
    """Decided by rank 0: a new run directory, or the checkpoint that `resume` (a path or 'auto') leads to."""
    config, notes = job.config, list[str]()
    out = Path(config.out)
    start = directory.latest(out, config.name) if resume == "auto" else Path(resume) if resume else None
    if start is not None:
        path, header = checkpoint.choose(start, notes.append)
        notes.append(f"continuing {path} at iteration {header['iteration']}")
        return Origin(path.parent.parent, path, header, tuple(notes))
    if resume == "auto":
        notes.append(f"nothing to resume in {out}: a new run")
    folder = directory.create(out, config.name, job.title)
    directory.write(folder / "config.yaml", dump(config))
    return Origin(folder, None, None, tuple(notes))


def learner_counts(learners: int | tuple[int, ...], ranks: int) -> tuple[int, ...]:
    """Learners by rank. Raises ConfigError where a list does not fit the ranks."""
    if isinstance(learners, int):
        return (learners,) * ranks
    if len(learners) != ranks:
        raise ConfigError(
            f"learners: must have one number for each of {ranks} rank(s), got {list(learners)}; "
            f"start {len(learners)} ranks or give {ranks} number(s)"
        )
    return learners


def _check_alike(comm: Communicator, text: str) -> None:
    """All ranks train the same model with the same settings, else their flat arrays must not be added up."""
    sums = comm.share(hashlib.sha256(text.encode()).hexdigest())
    odd = next((rank for rank, found in enumerate(sums) if found != sums[0]), None)
    if odd is not None:
        raise CommunicationError(f"rank {odd}: has another config or model than rank 0; start all ranks with the same")
