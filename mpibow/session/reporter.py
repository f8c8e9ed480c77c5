"""The reporter: a run's output to its user, on rank 0; on other ranks it only keeps the ledger."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from mpibow.config.strict import plain
from mpibow.job import Job
from mpibow.job.measures import directions
from mpibow.run import directory
from mpibow.run.callbacks import Heard
from mpibow.run.evaluate import Evaluation
from mpibow.run.events import EventFile, Events, Silent
from mpibow.run.ledger import Ledger
from mpibow.run.loggers.logger import Told
from mpibow.run.loggers.table import open_loggers
from mpibow.run.progress import Line, Progress, Quiet
from mpibow.session.header import Header
from mpibow.session.summary import Summary, shown_metrics, versions
from mpibow.session.where import Where
from mpibow.sync.distance import summed_up
from mpibow.sync.synchroniser import Agreement
from mpibow.tune import Decision

Waits = dict[str, float]  # by name: data_wait, sync_wait, sync_busy

SHOW_EVERY = 0.2  # seconds between updates of the progress line


class Reporter:
    """Owns the ledger and its clock, metrics.jsonl, log.txt and the progress line.

    `memory` gives the most bytes that a GPU's rank has held, None elsewhere. Without `classes` there are no hits.
    """

    def __init__(
        self, folder: Path, rank: int, ledger: Ledger, job: Job, header: Header | None, *, classes: bool = True,
        memory: Callable[[], int | None] = lambda: None,
    ) -> None:  # fmt: skip
        self.folder, self.ledger, self._job, self._rank = folder, ledger, job, rank
        self._classes, self._memory = classes, memory
        written: Events = Silent()
        self._progress: Progress = Quiet()
        if rank == 0:
            position = 0 if header is None else header.position
            self._progress = Line(folder / "log.txt", position, quiet=job.quiet)
            mark = 0 if header is None else header.metrics_bytes
            written = EventFile(folder / "metrics.jsonl", mark, self._progress.note)
            settings = {**plain(job.config), "text": job.config.text}
            loggers = open_loggers(job.config.log.to, folder, settings, position, self._progress.note)
            written = Told(written, loggers, self._progress.note) if loggers else written
        heard = [each for each in job.callbacks if rank == 0 or getattr(each, "every_rank", False)]
        self._events = Heard(written, heard, directions(job.measures))
        self._mark = self._shown = time.perf_counter()
        self._began = ledger.seconds  # of training, before this process
        self._loss = "loss -"
        self._reason = ""  # of the tuner's last decision
        self._last: Waits = {}  # at the last metrics entry
        self._damaged = set(ledger.damaged)  # asked for after every iteration

    def start(self, where: Where, title: str, notes: list[str], begun: Mapping[str, Any]) -> None:
        """Enters the start; `begun` are the further entries of a continued run."""
        told = {"elapsed": self.ledger.seconds, **where.running(), **begun, "versions": versions()}
        self._events.add("start", **where.fields(), title=title, **told)
        for note in notes:
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

    @property
    def stop(self) -> str:
        """The callback of this rank that ends the run, '' for none."""
        return self._events.stop

    def mark(self) -> int:
        """Bytes of metrics.jsonl so far."""
        return self._events.mark()

    def trained(
        self, where: Where, rate: float, gain: float, losses: Sequence[float], distances: Sequence[float], waits: Waits
    ) -> None:
        """A metrics entry: means since the last one.

        `losses` are rank 0's learners' own, each the mean of its last batch (on a GPU of the one before that);
        `distance` and `distance_max` the mean and the largest |w - W| / |W| of rank 0's replicas w from the mean W of
        all, null on a GPU and where W comes with an all-reduce under way: then `agree` entries have them.

        `elapsed`, seconds of training without evaluations, and images_per_second, samples by these seconds, are of the
        whole run so far. data_wait, sync_wait and sync_busy are fractions of the training since this process started;
        `waits` has them in seconds. On a GPU device_memory is the most that this rank has held there, in bytes.
        """
        ledger, seconds = self.ledger, max(self.clock(), 1e-9)
        n = ledger.samples  # samples whose losses an all-reduce has carried: 0 before the first
        loss, accuracy = (ledger.loss / n, ledger.hits / n) if n else (None, None)
        accuracy = accuracy if self._classes else None
        entry = {"loss": loss, "accuracy": accuracy, "rate": rate, "gain": gain}
        speed = {"elapsed": seconds, "images_per_second": ledger.images / seconds, **where.running()}
        shares = {**self._shares(waits), "sync_hidden": hidden(waits, self._last), "corrupt": len(ledger.damaged)}
        held = {} if (peak := self._memory()) is None else {"device_memory": peak}
        batch = self._job.config.batch_size
        own = {"losses": [each / batch if math.isfinite(each) else None for each in losses], **_distance(distances)}
        self._events.add("train", **where.fields(), **entry, **own, **speed, **shares, **held)
        self._last = waits
        self._loss = "loss -" if loss is None else f"loss {loss:.4f}"
        ledger.loss = ledger.hits = 0.0
        ledger.samples = 0

    def changed(self, where: Where, seconds: float) -> None:
        """Enters a change of learners, which took `seconds` in all, binding included."""
        self._events.add("learners", **where.fields(), **where.running(), seconds=seconds)
        self.note(f"iteration {where.iteration}: {where}")

    def executed(self, where: Where, seconds: float) -> None:
        """Enters a change of execution, which took `seconds` in all, binding included."""
        self._events.add("execution", **where.fields(), **where.running(), seconds=seconds)
        self.note(f"iteration {where.iteration}: {where} {where.execution}")

    def no_memory(self, where: Where, rank: int, count: int, why: str) -> None:
        """Notes that `rank` has no memory for the `count` learners that the tuner decided on."""
        self._events.add("no_memory", **where.fields(), rank=rank, wanted=count, reason=why)
        self.note(f"tuner: rank {rank} has no memory for {count} learners{f': {why}' if why else ''}")

    def tuned(self, where: Where, decision: Decision, basis: Mapping[str, Any]) -> None:
        """Enters the tuner's decision and its reason; the log has it where it is new. `basis`: Tuning's."""
        wanted: dict[str, Any] = {"wanted": decision.counts, "settled": decision.settled, "reason": decision.reason}
        wanted |= {"execution": decision.execution} if decision.execution else {}
        self._events.add("tuner", **where.fields(), **wanted, **basis)
        ledger = self.ledger
        if decision.reason != self._reason and not (decision.settled and ledger.settled):
            self.note(f"tuner: {decision.reason}")
            ledger.reason = decision.reason
        self._reason, ledger.settled = decision.reason, decision.settled

    def evaluated(self, where: Where, data: str, found: Evaluation) -> bool:
        """Enters an evaluation of the centre on the `data` that choose; True if it is the best so far."""
        best = self.ledger.evaluated(data, found, where.iteration, where.position, where.epoch)
        self._evaluated(where, data, found, best=best)
        return best

    def averaged(self, where: Where, data: str, found: Evaluation) -> None:
        """Enters an evaluation of the centre's average."""
        self.ledger.averaged(data, found)
        entry = {"data": data, "accuracy": found.accuracy, "loss": found.loss, "seconds": found.seconds}
        self._events.add("average", **where.fields(), **entry, **_metrics(found))
        shown = "" if found.accuracy is None else f"{data} accuracy {found.accuracy:.2%}, "
        shown += f"{data} loss {found.loss:.4f}{shown_metrics(found.metrics)}"
        self.note(f"epoch {where.epoch:.2f}: {shown}, the average of the centre")

    def tested(self, where: Where, found: Evaluation, checkpoint: Path | None = None) -> None:
        """Enters an evaluation of the last centre, or the best `checkpoint`'s, on test data that chose nothing."""
        self.ledger.tested(found, best=checkpoint is not None)
        of = "the last centre" if checkpoint is None else f"the best checkpoint, {checkpoint.name}"
        self._evaluated(
            where, "test", found, f", {of}", **({} if checkpoint is None else {"checkpoint": str(checkpoint)})
        )

    def _evaluated(self, where: Where, data: str, found: Evaluation, of: str = "", **more: Any) -> None:
        """An evaluation's entry: `seconds` is how long it took, `elapsed` the seconds of training before it.

        `data` is validation or test; `checkpoint` is given if it was evaluated instead of the centre.
        """
        times = {"seconds": found.seconds, "elapsed": self.ledger.seconds}
        entry = {"data": data, "accuracy": found.accuracy, "loss": found.loss, **times, **more}
        top_k = found.top_k_accuracy
        entry |= ({} if top_k is None else {"top_k_accuracy": top_k}) | _metrics(found)
        self._events.add("evaluate", **where.fields(), **where.running(), **entry)
        shown = "" if found.accuracy is None else f"{data} accuracy {found.accuracy:.2%}, "
        shown += "" if top_k is None else f"top-k {top_k:.2%}, "
        self.note(f"epoch {where.epoch:.2f}: {shown}{data} loss {found.loss:.4f}{shown_metrics(found.metrics)}{of}")

    def saved(self, where: Where, path: Path, seconds: float) -> None:
        self._events.add("checkpoint", **where.fields(), path=str(path), seconds=seconds)

    def agreed(self, where: Where, found: Agreement) -> None:
        """Enters the ranks' comparison of means; `distance` and `distance_max` are over the replicas of all ranks."""
        self.ledger.drift = found.drift
        self.ledger.mismatches += found.mismatches
        told = {"drift": found.drift, "mismatches": found.mismatches, **_distance(found.distances)}
        self._events.add("agree", **where.fields(), **told)
        if found.mismatches:
            differed = f"{found.mismatches} array(s) differed between ranks; all ranks use rank 0's now"
            self.note(f"iteration {where.iteration}: {differed}")

    def tell(
        self, call: Callable[..., Any], damaged: Callable[[], Mapping[str, str]], resets: Sequence[str] | None = None
    ) -> None:
        """Prints the messages of all ranks: their `resets`, if given, and their `damaged` samples. Collective."""
        for texts in [] if resets is None else call(lambda comm: comm.share(resets)):
            self.ledger.resets += len(texts)
            for text in texts:
                self.note(text)
        for found in call(lambda comm: comm.share(damaged())):
            self.damaged(found)

    def damaged(self, found: Mapping[str, str]) -> None:
        """Prints the errors of samples, by data set and number, each once in a run."""
        for sample in [sample for sample in found if sample not in self._damaged]:
            self._damaged.add(sample)
            self.ledger.damaged.append(sample)
            self.note(f"warning: {found[sample]}: the next intact sample takes its place")

    def show(self, where: Where, gain: float) -> None:
        """Updates the progress line, at most every SHOW_EVERY seconds."""
        now = time.perf_counter()
        if now - self._shown < SHOW_EVERY:
            return
        self._shown = now
        ledger, job = self.ledger, self._job
        seconds = max(ledger.seconds + now - self._mark, 1e-9)
        speed, samples = ledger.images / seconds, job.config.batch_size * sum(where.learners)
        parts = [f"epoch {where.epoch:.2f}", f"{where.position:,} samples", self._loss]
        accuracy, chooser = ledger.chosen_accuracy, job.chooser
        parts += [] if accuracy is None else [f"{chooser} accuracy {accuracy:.2%}"]
        parts += [f"{speed:,.0f} images/s", f"learners {'+'.join(map(str, where.learners))} {where.execution}".rstrip()]
        parts += [f"gain {gain:.2f}"] if gain != 1.0 else []
        end = job.config.stop.foreseen(
            where.iteration, where.position, job.train.count, samples=samples, speed=speed, seconds=seconds
        )
        self._progress.show(where.position, ", ".join(parts), speed, end)

    def end(self, where: Where, summary: Summary) -> None:
        if self._rank == 0:
            directory.write_summary(self.folder, summary.json())
        self._events.add("end", **where.fields(), **where.running(), stopped=summary.stopped)
        self.note(str(summary))

    def close(self) -> None:
        self._events.close()
        self._progress.close()

    def summary(
        self, where: Where, stopped: str, waits: Waits, *, gain: float, checkpoint: Path | None, settled: bool | None
    ) -> Summary:
        """The summary of the run, from its settings, the ledger and the clocks."""
        job, config, ledger = self._job, self._job.config, self.ledger
        names = {each.name for each in fields(Summary)}
        entries = {key: value for key, value in vars(ledger).items() if key in names}
        shares = self._shares(waits)
        entries.update(
            run=str(self.folder), stopped=stopped, checkpoint=str(checkpoint) if checkpoint else None,
            chosen_by=job.chooser,
            epochs=where.epoch, iterations=where.iteration, samples=where.position, ranks=len(where.learners),
            learners=where.learners, execution=where.execution or None, settled=settled,
            gain=gain, corrupt=len(ledger.damaged),
            top_k=config.evaluate.top_k, batch_size=config.batch_size, rule=plain(config.rule), seed=config.seed,
            device=job.kernels.name, precision=job.precision, versions=versions(),
            data_wait=shares["data_wait"], sync_wait=shares["sync_wait"], sync_hidden=hidden(waits),
            images_per_second=ledger.images / max(ledger.seconds, 1e-9),
        )  # fmt: skip
        return Summary(**entries)

    def _shares(self, waits: Waits) -> dict[str, float]:
        """The waits as fractions of the training since this process started."""
        elapsed = max(self.ledger.seconds - self._began, 1e-9)
        return {name: seconds / elapsed for name, seconds in waits.items()}


def _metrics(found: Evaluation) -> dict[str, Any]:
    """The metrics as entries have them, if the run has any."""
    return {"metrics": found.metrics} if found.metrics else {}


def _distance(distances: Sequence[float]) -> dict[str, float | None]:
    """The distances as entries have them: the mean and the largest."""
    mean, largest = summed_up(distances) or (None, None)
    return {"distance": mean, "distance_max": largest}


def hidden(waits: Waits, before: Waits | None = None) -> float | None:
    """The fraction of the all-reduces since `before` that was hidden behind compute, 0 to 1; None where none ended.

    An all-reduce takes from this rank's call to its end, so waiting for ranks that come later is part of it, and is
    hidden as long as this rank's learners compute meanwhile. 1 means that they never stood still for it, not that the
    network was fast. If ranks differ in speed, the slowest has the shortest all-reduces.
    """
    wait, busy = (waits[name] - (before[name] if before else 0.0) for name in ("sync_wait", "sync_busy"))
    return min(max(1.0 - wait / busy, 0.0), 1.0) if busy > 0 else None
