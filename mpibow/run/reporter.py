"""The reporter: a run's output to its user, on rank 0; on other ranks it only keeps the ledger."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from mpibow.config import plain
from mpibow.job.measures import directions
from mpibow.run import directory
from mpibow.sync import gain_of
from mpibow.sync.agreement import Agreement
from mpibow.sync.distance import summed_up
from mpibow.system import JsonObject, nulled
from mpibow.tune import Decision, as_sum, shortened

from .callbacks import Callbacks
from .evaluate import Evaluation
from .loggers import Loggers
from .output import EventFile, Line
from .results import Results, Summary, shown_metrics, versions
from .waits import Waits

if TYPE_CHECKING:
    from .session import Session

SHOW_EVERY = 0.2  # seconds between updates of the progress line


class Reporter:
    """Owns the clock of training, metrics.jsonl, log.txt and the progress line of a session."""

    def __init__(self, session: "Session"):
        job = session.job
        source = session.start.source
        self._session = session
        self.ledger = session.ledger
        position, mark = (source.header.position, source.header.metrics_bytes) if source.header else (0, 0)
        self.folder = source.folder
        first = session.rank == 0
        self._progress = Line(self.folder / "log.txt" if first else None, position, quiet=job.quiet or not first)
        self._file = EventFile(self.folder / "metrics.jsonl", mark, self._progress.note) if first else None
        settings = {**plain(job.config), "text": job.config.text}
        self._loggers = Loggers(job.config.log.to if first else (), self.folder, settings, position, self.note)
        heard = [each for each in job.callbacks if first or getattr(each, "every_rank", False)]
        self.callbacks = Callbacks(heard, self._write, directions(job.measures))
        self._mark = self._shown = time.perf_counter()
        self._began = self.ledger.seconds  # of training, before this process
        self._loss = "loss -"
        self._reason = ""  # of the tuner's last decision
        self._last = Waits()  # at the last metrics entry
        self._damaged = set(self.ledger.damaged)  # asked for after every iteration

    def start(self) -> None:
        """Enters the start, and prints the session's notes. The summary of an end before is no longer true."""
        session = self._session
        with suppress(OSError):  # where it cannot go, the new one cannot be written either
            (self.folder / "summary.json").unlink()
        facts = {"elapsed": self.ledger.seconds, **session.where.running(), **session.start.facts}
        self._add("start", title=session.job.title, **facts, versions=versions())
        for note in session.notes:
            self.note(note)

    def note(self, text: str) -> None:
        """A line of the log, '' for none."""
        if text:
            self._progress.note(text)

    def clock(self) -> float:
        """Seconds of training so far; they are entered in the ledger."""
        now = time.perf_counter()
        self.ledger.seconds += now - self._mark
        self._mark = now
        return self.ledger.seconds

    def pause(self) -> None:
        """Leaves out the time since the last `clock`, which was not training."""
        self._mark = time.perf_counter()

    def mark(self) -> int:
        """Bytes of metrics.jsonl so far."""
        return 0 if self._file is None else self._file.mark()

    def _write(self, event: str, **entries: object) -> None:
        if self._file is not None:
            self._file.add(event, **entries)
        self._loggers.add(event, **entries)

    def _add(self, event: str, **entries: object) -> None:
        """Enters an event in metrics.jsonl, and tells loggers and callbacks of it."""
        entries = {**self._session.where.fields(), **entries}
        self._write(event, **entries)
        self.callbacks.hear(event, entries)

    def trained(self, rate: float, distances: Sequence[float]) -> None:
        """A metrics entry: means since the last one.

        `losses` are rank 0's learners' own, each the mean of its last batch (on a GPU of the one before that);
        `distance` and `distance_max` the mean and the largest |w - W| / |W| of rank 0's replicas w from the mean W of
        all, null on a GPU and where W comes with an all-reduce under way: then `agree` entries have them.

        `elapsed`, seconds of training without evaluations, and images_per_second, samples by these seconds, are of the
        whole run so far. data_wait, sync_wait and sync_busy are fractions of the training since this process started;
        `waits` has them in seconds. On a GPU device_memory is the most that this rank has held there, in bytes.
        """
        session = self._session
        ledger = self.ledger
        seconds = max(self.clock(), 1e-9)
        batch = session.config.batch_size
        waits = session.waits()
        n = ledger.samples  # samples whose losses an all-reduce has carried: 0 before the first
        loss = ledger.loss / n if n else None
        peak = session.job.device.memory.peak
        self._add(
            "train",
            loss=loss,
            accuracy=ledger.hits / n if n and "accuracy" in session.plan.graph.outputs else None,
            rate=rate,
            gain=session.gain,
            losses=[each / batch if math.isfinite(each) else None for each in session.resets.losses],
            **_distance(distances),
            elapsed=seconds,
            images_per_second=ledger.images / seconds,
            **session.where.running(),
            **waits.shares(seconds - self._began),
            sync_hidden=waits.hidden(self._last),
            corrupt=len(ledger.damaged),
            **({} if peak is None else {"device_memory": peak}),
        )
        self._last = waits
        self._loss = "loss -" if loss is None else f"loss {loss:.4f}"
        ledger.loss = ledger.hits = 0.0
        ledger.samples = 0

    def changed(self, what: str, seconds: float) -> None:
        """Enters a change of "learners" or "execution", which took `seconds` in all, binding included."""
        where = self._session.where
        self._add(what, **where.running(), seconds=seconds)
        execution = f" {where.execution}" if what == "execution" else ""
        self.note(f"iteration {where.iteration}: learners {as_sum(where.learners)}{execution}")

    def no_memory(self, rank: int, count: int, why: str) -> None:
        """Notes that `rank` has no memory for the `count` learners that the tuner decided on."""
        self._add("no_memory", rank=rank, wanted=count, reason=why)
        self.note(f"tuner: rank {rank} has no memory for {count} learners{f': {why}' if why else ''}")

    def tuned(self, decision: Decision, basis: JsonObject) -> None:
        """Enters the tuner's decision and its reason; the log has it where it is new. `basis`: Tuning's."""
        execution = {"execution": decision.execution} if decision.execution else {}
        ledger = self.ledger
        settled = decision.settled
        reason = decision.reason
        self._add("tuner", wanted=decision.counts, settled=settled, reason=reason, **execution, **basis)
        if reason != self._reason and not (settled and ledger.settled):
            self.note(f"tuner: {reason}")
            ledger.reason = reason
        self._reason = reason
        ledger.settled = settled

    def evaluated(self, data: str, found: Evaluation) -> bool:
        """Enters an evaluation of the centre on the `data` that choose; True if it is the best so far."""
        where = self._session.where
        best = self.ledger.evaluated(data, found, where.iteration, where.position, where.epoch)
        self._evaluated(data, found, best=best)
        return best

    def averaged(self, data: str, found: Evaluation) -> None:
        """Enters an evaluation of the centre's average."""
        self.ledger.enter(f"average_{data}", found)
        self._enter("average", data, found, ", the average of the centre")

    def tested(self, found: Evaluation, checkpoint: Path | None = None) -> None:
        """Enters an evaluation of the last centre, or the best `checkpoint`'s, on test data that chose nothing."""
        self.ledger.enter("test" if checkpoint is None else "best_test", found)
        if checkpoint is None:
            self._evaluated("test", found, ", the last centre")
        else:
            self._evaluated("test", found, f", the best checkpoint, {checkpoint.name}", checkpoint=str(checkpoint))

    def _evaluated(self, data: str, found: Evaluation, of: str = "", **more: object) -> None:
        """An evaluation's entry: `seconds` is how long it took, `elapsed` the seconds of training before it.

        `data` is validation or test; `checkpoint` is given if it was evaluated instead of the centre.
        """
        top_k = {} if found.top_k_accuracy is None else {"top_k_accuracy": found.top_k_accuracy}
        more |= top_k | {"elapsed": self.ledger.seconds, **self._session.where.running()}
        self._enter("evaluate", data, found, of, **more)

    def _enter(self, event: str, data: str, found: Evaluation, of: str, **more: object) -> None:
        entry = {"data": data, "accuracy": found.accuracy, "loss": found.loss, "seconds": found.seconds, **more}
        entry |= {"metrics": found.metrics} if found.metrics else {}
        self._add(event, **entry)
        shown = "" if found.accuracy is None else f"{data} accuracy {found.accuracy:.2%}, "
        shown += f"top-k {more['top_k_accuracy']:.2%}, " if "top_k_accuracy" in more else ""
        shown += f"{data} loss {found.loss:.4f}{shown_metrics(found.metrics)}{of}"
        self.note(f"epoch {self._session.where.epoch:.2f}: {shown}")

    def saved(self, path: Path, seconds: float) -> None:
        self._add("checkpoint", path=str(path), seconds=seconds)

    def agreed(self, found: Agreement) -> None:
        """Enters the ranks' comparison of means; `distance` and `distance_max` are over the replicas of all ranks."""
        self.ledger.drift = found.drift
        self.ledger.mismatches += found.mismatches
        self._add("agree", drift=found.drift, mismatches=found.mismatches, **_distance(found.distances))
        if found.mismatches:
            differed = f"{found.mismatches} array(s) differed between ranks; all ranks use rank 0's now"
            self.note(f"iteration {self._session.iteration}: {differed}")

    def tell(self, resets: Sequence[str] | None = None) -> None:
        """Prints the messages of all ranks: their `resets`, if given, and their damaged samples. Collective."""
        call = self._session.synchroniser.call
        if resets is not None:
            texts = [text for each in call(lambda comm: comm.share(resets)) for text in each]
            self.ledger.resets += len(texts)
            for text in shortened(texts, "learners likewise"):
                self.note(text)
        for found in call(lambda comm: comm.share(self._session.loading.damaged())):
            self.damaged(found)

    def damaged(self, found: Mapping[str, str]) -> None:
        """Prints the errors of samples, by data set and number, each once in a run."""
        for sample in [sample for sample in found if sample not in self._damaged]:
            self._damaged.add(sample)
            self.ledger.damaged.append(sample)
            self.note(f"warning: {found[sample]}: the next intact sample takes its place")

    def show(self) -> None:
        """Updates the progress line, at most every SHOW_EVERY seconds."""
        now = time.perf_counter()
        if now - self._shown < SHOW_EVERY:
            return
        self._shown = now
        ledger = self.ledger
        job = self._session.job
        where = self._session.where
        gain = self._session.gain
        seconds = max(ledger.seconds + now - self._mark, 1e-9)
        speed = ledger.images / seconds
        samples = job.config.batch_size * sum(where.learners)
        parts = [f"epoch {where.epoch:.2f}", f"{where.position:,} samples", self._loss]
        accuracy = ledger.chosen.get("accuracy")
        parts += [] if accuracy is None else [f"{job.chooser} accuracy {accuracy:.2%}"]
        learners = as_sum(where.learners).replace(" ", "")
        parts += [f"{speed:,.0f} images/s", f"learners {learners} {where.execution}".rstrip()]
        parts += [f"gain {gain:.2f}"] if gain != 1.0 else []
        end = job.config.stop.foreseen(
            where.iteration, where.position, job.train.count, samples=samples, speed=speed, seconds=seconds
        )
        self._progress.show(where.position, ", ".join(parts), speed, end)

    def end(self, stopped: str) -> Summary:
        """Enters the end of the run, and returns its summary, which rank 0 writes to disk."""
        summary = self._summary(stopped)
        if self._session.rank == 0:
            directory.write(self.folder / "summary.json", json.dumps(nulled(summary.json()), indent=2) + "\n")
        self._add("end", elapsed=self.ledger.seconds, **self._session.where.running(), stopped=stopped)
        self.note(str(summary))
        return summary

    def close(self) -> None:
        self._loggers.close()
        if self._file is not None:
            self._file.close()
        self._progress.close()

    def _summary(self, stopped: str) -> Summary:
        """The summary of the run, from its settings, the ledger and the clocks."""
        session = self._session
        ledger = self.ledger
        waits = session.waits()
        job = session.job
        config = session.config
        where = session.where
        decision = session.tuning.decision
        shares = waits.shares(ledger.seconds - self._began)
        return Summary(
            **{each.name: getattr(ledger, each.name) for each in fields(Results)},
            run=str(self.folder),
            stopped=stopped,
            checkpoint=str(session.saver.last) if session.saver.last else None,
            chosen_by=job.chooser,
            epochs=where.epoch,
            iterations=where.iteration,
            samples=where.position,
            ranks=len(where.learners),
            learners=where.learners,
            execution=where.execution or None,
            settled=None if decision is None else decision.settled,
            gain=gain_of(session.engine),
            corrupt=len(ledger.damaged),
            top_k=config.evaluate.top_k,
            batch_size=config.batch_size,
            rule=plain(config.rule),
            seed=config.seed,
            device=job.kernels.name,
            precision=job.precision,
            versions=versions(),
            data_wait=shares["data_wait"],
            sync_wait=shares["sync_wait"],
            sync_hidden=waits.hidden(),
            images_per_second=ledger.images / max(ledger.seconds, 1e-9),
        )


def _distance(distances: Sequence[float]) -> dict[str, float | None]:
    """The distances as entries have them: the mean and the largest."""
    mean, largest = summed_up(distances) or (None, None)
    return {"distance": mean, "distance_max": largest}
