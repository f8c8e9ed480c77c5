"""A session: one rank's parts of a run, and what happens between iterations. The loop itself is in train.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from mpibow.comm.binding import allowed_cores, machine_cores
from mpibow.comm.communicator import Communicator
from mpibow.config import dump
from mpibow.config.schema import Data
from mpibow.data.damage import Damages, Intact
from mpibow.data.dataset import NamedSamples
from mpibow.data.decoded import Decoded
from mpibow.data.pipeline import Pipeline
from mpibow.data.readers import choose, described, find_facts, open_reader, prefetch, remedy, threads_of
from mpibow.data.slots import Slot
from mpibow.data.timeline import Counts
from mpibow.data.wait import Watch
from mpibow.errors import DivergedError
from mpibow.graph.graph import Array
from mpibow.graph.layout import initial_weights
from mpibow.job import Job, kernels_of
from mpibow.kernels.passes import Local
from mpibow.learn.learner import ASSIGNMENTS, Learner, Result, bind_learners
from mpibow.learn.replica import Replicas
from mpibow.learn.scheduler import Scheduler
from mpibow.learn.schedules import multiplier
from mpibow.origin import Origin, check_alike, core_limits, core_warnings, find_origin, first_timeline
from mpibow.reporter import Reporter, Where
from mpibow.run import checkpoint
from mpibow.run.coordinator import Coordinator, Request, decide
from mpibow.run.evaluate import Evaluator, due
from mpibow.run.ledger import Ledger
from mpibow.run.state import check_fits, named, read_centre, restore, snapshot, timeline_of
from mpibow.run.tuning import Given, Measured, Tuning, free_memory, learner_bytes, room_for
from mpibow.summary import Summary, Trained
from mpibow.sync.rules import check_rule, make_rule, most_learners
from mpibow.sync.settings import Sma
from mpibow.sync.synchroniser import Synchroniser, Tally
from mpibow.trace import SILENT, Trace
from mpibow.tune import Decision, History

HOPELESS = 20  # iterations in a row in which every learner of a rank is reset


class Session:
    """Every rank makes one and calls the same methods in the same order; use it in a `with` statement."""

    def __init__(
        self, job: Job, comm: Communicator, resume: str | None = None, note: str = "", trace: Trace = SILENT
    ) -> None:
        self.job, self.config, self.rank, self.size, self.trace = job, job.config, comm.rank, comm.size, trace
        for first in (True, False):  # one rank compiles, the others then find it on disk
            if first == (comm.rank == 0):
                job.prepare()
            comm.barrier()
        self._plan = job.training_plan()
        self.layout = self._plan.layout
        self._first = first_timeline(self.config.learners, comm.size, self.config.batch_size)
        for change in self._first.changes:
            check_rule(self.config.rule, sum(change.counts))
        check_alike(comm, dump(self.config) + self.layout.canonical().digest())
        if len(set(comm.share(self.layout.digest()))) > 1:
            note = f"{note}\nranks' kernels want different layouts of the weights: all take the canonical one".strip()
            self.job = job = replace(job, canonical=True)
            self._plan = job.training_plan()
            self.layout = self._plan.layout
        self._reading = self.config.data or Data("given")
        facts = comm.share(find_facts(comm.local_size))
        self._choice = choose(self._reading.pipeline, job.train, facts)
        origin = find_origin(job, comm, resume)
        with ExitStack() as stack:
            self._open(origin, comm, stack)
            counts = self.counts
            self.reporter.start(
                self.where,
                job.title,
                [
                    note,
                    kernels_of(self.config)[1],
                    *core_warnings(comm, counts),
                    *origin.notes,
                    self._restarted,
                    f"{job.title}: {job.weights:,} weights, {job.train.count:,} samples, {comm.size} rank(s), "
                    f"learners {'auto, now ' * (self.config.learners == 'auto')}{' + '.join(map(str, counts))}, "
                    f"batch {self.config.batch_size}, {job.kernels.about}; "
                    f"{origin.folder}",
                    described(self._choice, job.train, self._threads),
                ],
            )
            self._read(stack)
            if self._owed and self.evaluate() and self.config.checkpoint.interval and self.config.checkpoint.best:
                self.save(best=True)
            self._stack = stack.pop_all()

    def _open(self, origin: Origin, comm: Communicator, stack: ExitStack) -> None:
        """Everything that holds threads, memory or files, as a new run has it or as the checkpoint left it."""
        config, job, header, path = self.config, self.job, origin.header, origin.checkpoint
        first = initial_weights(self._plan.statistics, config.seed, config.precision)
        if header is None or path is None:
            self.iteration, timeline = 0, self._first
            centre, statistics = initial_weights(self.layout, config.seed, config.precision), first
        else:
            check_fits(path, header, self._identity())
            self.iteration, timeline = header["iteration"], timeline_of(header, self._started(), self._first)
            centre, statistics = read_centre(path, self._plan)
        same = header is not None and [header["started"], header["rule_settings"]] == [
            self._started(),
            self._rule(),
        ]
        self._prefetch = prefetch(config.prefetch, job.train, config.batch_size)
        self._threads = threads_of(self._reading.workers, allowed_cores(), machine_cores(), comm.local_size)
        limit = self._reading.most_damaged
        self._damages = [Damages(data.name, data.count, limit) for data in (job.train, job.test) if data is not None]
        self.coordinator = Coordinator(timeline, self._prefetch)
        evaluation = None if job.test is None else job.evaluation_plan()
        room = room_for(free_memory(comm.local_size), learner_bytes(self._plan, evaluation), config.tuner.most)
        self.tuning = self._tuning(comm, room, header if same else None)
        most = max(room, *(max(change.counts) for change in timeline.changes))
        self.replicas = Replicas(most, self.layout.size, config.precision, first, self.layout.factors)
        self.learners: list[Learner] = []
        self.scheduler = Scheduler(self.trace)
        stack.callback(self.scheduler.close)
        self.rule = make_rule(config.rule, job.kernels.flat, centre.copy())
        self.synchroniser = Synchroniser(
            comm, self.rule, self.replicas, partial(self.scheduler.run, name="update"), overlap=config.overlap,
            trace=self.trace,
        )  # fmt: skip
        stack.callback(self.synchroniser.close)
        self._restarted = ""
        self._untold = 0  # samples whose losses no all-reduce has carried yet
        if header is not None and path is not None and same:
            self.change_learners(tuple(header["counts"]), keep=True)
            unsent = restore(path, header, comm.rank, centre, self.replicas, self.rule, self.layout)
            self.synchroniser.unsent, self._untold = unsent, header["untold"]
        else:
            self.change_learners(timeline.counts(self.iteration))
            self.replicas.statistics[...] = statistics
            if header is not None:
                then = " + ".join(map(str, header["counts"]))
                self._restarted = f"learners were {then} or the rule was another: averaging restarts from the centre"
        self.evaluator = None
        if job.test is not None and evaluation is not None:
            test = job.test if isinstance(job.test, NamedSamples) else Intact(job.test, self._damages[1])
            self.evaluator = Evaluator(evaluation, test, config.loss.ignore)
        self.ledger = Ledger.of({} if header is None else header["ledger"], config.stop.accuracy)
        total = None if config.stop.epochs is None else int(config.stop.epochs * job.train.count)
        self.reporter = Reporter(
            origin.folder, comm.rank, self.ledger, total, header, self._waits,
            classes="accuracy" in self._plan.graph.outputs,
        )  # fmt: skip
        stack.callback(self.reporter.close)
        self._saved, self._saved_at = path, time.perf_counter()
        self._binding = 0.0  # seconds that learners of the change to come were bound for
        self._limits = Counts()  # the learners that every rank's binding was last asked about
        if (decided := self.tuning.decision) and decided.counts != self.coordinator.announced:
            self._tune(decided)  # the memory is another machine's
        # What the ranks were about to do when the checkpoint was made: talk, agree after a reset, evaluate.
        due_then: list[bool] = [False] * 3 if header is None else header["due"]
        self._asked, self._diverged, self._owed = due_then
        self._barren = 0
        self._resets = list[str]()  # that the other ranks do not know of yet

    def _tuning(self, comm: Communicator, room: int, header: Mapping[str, Any] | None) -> Tuning:
        """What decides how many learners there are: the settings, or measured times and `room` for so many."""
        config = self.config
        if config.learners != "auto":
            return Given()
        rooms = comm.share(min(room, most_learners(config.rule, comm.size)))
        if header is not None and header["tuning"] is not None:
            return Measured.resumed(header["tuning"], rooms, config.tuner)
        return Measured(History.begin(comm.size, config.batch_size, rooms), config.tuner)

    def _started(self) -> list[Any]:
        """With which learners the run began: a resumed run goes on where this is the same."""
        learners = self.config.learners
        return [learners, self.size] if isinstance(learners, str) else list(self._first.changes[0].counts)

    def _read(self, stack: ExitStack) -> None:
        """Begins to read ahead, once the user has been told how."""
        train, begin = self.job.train, time.perf_counter()
        reader = open_reader(self._choice, train, self._damages[0], self._threads)
        if self._choice.kind == "resident":
            self.reporter.note(f"{train.name}: read into memory in {time.perf_counter() - begin:.1f} s")
        self.pipeline = Pipeline(
            train, reader, self.coordinator.timeline,
            rank=self.rank, iteration=self.iteration, seed=self.config.seed, prefetch=self._prefetch,
            trace=self.trace,
        )  # fmt: skip
        stack.callback(self.pipeline.close)
        self._watch = Watch(remedy(self._choice, train, self._threads))
        self.reporter.pause()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # What the loop asks for, iteration by iteration

    @property
    def position(self) -> int:
        """Samples consumed so far, over all ranks and epochs."""
        return self.coordinator.timeline().position(self.iteration)

    @property
    def where(self) -> Where:
        return Where(self.iteration, self.position, self.position / self.job.train.count, self.counts)

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

    def prepare(self) -> Local:
        """This iteration's local step; averaging starts again where learners change or the rate drops."""
        self._say(self.trace.begin(self.iteration, self.synchroniser.call))
        counts = self.coordinator.timeline().counts(self.iteration)
        if counts != self.counts:
            begin = time.perf_counter()
            self.settle()
            self.change_learners(counts)
            self.ledger.changes += 1
            self.reporter.changed(self.where, time.perf_counter() - begin + self._binding)
            self._binding = 0.0
        elif self.iteration > self.coordinator.timeline().changes[0].iteration and self._restart_due():
            self.settle()
            self.rule.restart(self.replicas)
        update = self.config.update
        rate = update.lr * multiplier(update.schedule, update.warmup, self.where.epoch)
        self._began, self._stood = time.perf_counter(), self.synchroniser.waited
        return Local(rate, update.momentum, update.nesterov, update.weight_decay, self.layout.decayed)

    def tasks(self, slots: list[Slot]) -> list[Callable[[], Result]]:
        """What the learners' threads are to do: one slot each."""
        return ASSIGNMENTS[self.config.assignment](self.learners, slots)

    def change_learners(self, counts: Counts, keep: bool = False) -> None:
        """Replicas, learners and rule for `counts` learners by rank; `keep` where a state is loaded next."""
        statistics = self.statistics() if self.replicas.count else None
        self.counts = counts
        bind_learners(self.learners, self._plan, self.replicas, self.config.update, counts[self.rank])
        self.replicas.resize(counts[self.rank], statistics)
        self.rule.begin(self.replicas, sum(counts), keep)

    def _bound(self, counts: Counts) -> list[bool]:
        """Whether each rank has memory for its learners, who are bound by then; those that there are stay."""
        try:
            bind_learners(self.learners, self._plan, self.replicas, self.config.update, counts[self.rank])
        except MemoryError:
            own = False
        else:
            own = True
        return self.synchroniser.call(lambda comm: comm.share(own))

    def statistics(self) -> Array:
        """The centre's statistics: the mean over all learners."""
        mean: Array = self.replicas.statistics.sum(axis=0)
        self.synchroniser.call(lambda comm: comm.allreduce(mean))
        mean *= mean.dtype.type(1.0 / sum(self.counts))
        return mean

    def receive(self) -> None:
        """Ends the exchange under way, if any; the next update brings the centre up to date."""
        self._heed(self.synchroniser.receive())

    def settle(self) -> None:
        """As `receive`, and the centre is up to date: to be read, or changed."""
        self._heed(self.synchroniser.settle())

    def _read_centre(self) -> None:
        """As `settle`, by all ranks: also the centre that does not follow its replicas is up to date."""
        self.settle()
        if not self.rule.follows:
            self.synchroniser.agree(sum(self.counts))

    def _heed(self, tally: Tally | None) -> None:
        self._gain = self.rule.gain  # which changes while an exchange is under way
        if tally is not None:
            self._asked = self._asked or tally.attention > 0
            self.ledger.loss += tally.loss
            self.ledger.hits += tally.hits
            self.ledger.samples += self._untold
            self._untold = 0

    def check(self, results: list[Result], rate: float) -> list[Result]:
        """The finite results. A learner whose loss or gradient is not is reset, or ends the run (`on_nan`)."""
        for i, result in enumerate(results):
            if result.finite:
                continue
            where = f"iteration {self.iteration}: learner {sum(self.counts[: self.rank]) + i} (rank {self.rank})"
            what = f"{where}: loss or gradient is not finite (loss {result.loss:g})"
            if self.config.on_nan == "stop":
                raise DivergedError(f"{what}; lower update.lr (now {rate:g}), or set on_nan=reset; {self._kept()}")
            self.settle()
            self._check_centre()
            if self.rule.uniform:  # its weights and momentum are those of all replicas
                self.replicas.leave_out(i)
                self._resets.append(f"{what}; it is left out")
            else:
                self.replicas.reseed(i, self.rule.centre)
                self._resets.append(f"{what}; it starts again from the centre")
            self._diverged = True
        finite = [result for result in results if result.finite]
        self._barren = 0 if finite else self._barren + 1
        if self._barren == HOPELESS:
            raise DivergedError(
                f"iteration {self.iteration}: no learner of rank {self.rank} had a finite loss "
                f"in {HOPELESS} iterations; lower update.lr (now {rate:g}); {self._kept()}"
            )
        return finite

    def _check_centre(self) -> None:
        """A centre that is not finite heals no learner, and is not worth a checkpoint."""
        if not np.isfinite(self.rule.centre).all():
            rate = self.config.update.lr
            raise DivergedError(
                f"iteration {self.iteration}: the centre is not finite; lower update.lr (now {rate:g}); {self._kept()}"
            )

    def _kept(self) -> str:
        return f"the last checkpoint is {self._saved}" if self._saved else "there is no checkpoint yet"

    def tally(self, results: list[Result], signal: str) -> Tally:
        """What this rank tells the others beside its steps."""
        attention = self._request(signal).attention
        return Tally(attention, sum(result.loss for result in results), sum(result.hits for result in results))

    def advance(self, rate: float, signal: str) -> str:
        """Ends an iteration: requests, metrics, evaluation, checkpoint where due. The reason to stop now, if any."""
        config, before = self.config, self.position
        whole = time.perf_counter() - self._began
        self.tuning.measured(whole - (self.synchroniser.waited - self._stood), whole, self.counts)
        self.iteration += 1
        self.ledger.images += self.position - before
        self._untold += self.position - before
        stop, save, best = "", False, False
        if self.rank == 0:
            for damages in self._damages:
                self.reporter.damaged(damages.found())
        if warning := self._watch(self.reporter.clock(), self.pipeline.waited):
            self.reporter.note(warning)
        if self._asked:  # every rank read this from the same all-reduce
            stop, save = self._talk(signal)
        if self.iteration % config.metrics.every == 0:
            self.reporter.trained(self.where, rate, self._gain)
        if self.iteration % config.rule.resync == 0:
            self._agree()
        self._owed = self.evaluator is not None and self._passed(before, config.evaluate.every)
        if self._owed and not stop:
            best = self.evaluate()
        if stop.startswith("SIG") or save or self._checkpoint_due(before, best):
            self.save(best)
        self.reporter.show(self.where, self._gain)
        return stop

    # What happens between iterations

    def evaluate(self) -> bool:
        """Evaluates the centre; whether it is the best so far."""
        assert self.evaluator is not None
        self._owed = False
        self._read_centre()
        self.reporter.clock()
        with self.trace.span("evaluation", "evaluate"):
            run = partial(self.scheduler.run, name="evaluate")
            call, workers = self.synchroniser.call, self.counts[self.rank]
            found = self.evaluator(self.rule.centre, self.statistics(), run, call, workers=workers)
        self.reporter.pause()
        self._tell_damages()
        best = self.ledger.evaluated(found, self.position, self.where.epoch)
        self.reporter.evaluated(self.where, found, best)
        return best

    def save(self, best: bool = False) -> None:
        """Writes a checkpoint on all ranks, and forgets those that are not to be kept."""
        self._read_centre()
        self._check_centre()
        self.reporter.clock()
        begin = time.perf_counter()
        folder = self.reporter.folder / "checkpoints"
        self._tell_resets()
        diverged = any(self.synchroniser.call(lambda comm: comm.share(self._diverged)))
        header = {
            **self._identity(),
            "started": self._started(),
            "counts": self.counts,
            "tuning": self.tuning.state(),
            "rule_settings": self._rule(),
            "config": dump(self.config),
            "input": self._input(),
            "ledger": self.ledger.state(),
            "due": [self._asked, diverged, self._owed],
            "untold": self._untold,
            "metrics_bytes": self.synchroniser.call(lambda comm: comm.share(self.reporter.mark()))[0],
        }
        timeline = self.coordinator.timeline()
        with self.trace.span("checkpoint", "save"):
            state = snapshot(
                header, self._plan, timeline, self.iteration, self.replicas, self.rule, self.statistics(),
                self.synchroniser.unsent, {} if self.job.scaling is None else self.job.scaling.arrays(),
            )  # fmt: skip
            self._saved = checkpoint.save(folder, state, self.synchroniser.call)
        if self.rank == 0:
            if best and self.config.checkpoint.best:
                checkpoint.point(folder, "best", self._saved)
            checkpoint.prune(folder, self.config.checkpoint.keep, self._saved)
        self.reporter.saved(self.where, self._saved, time.perf_counter() - begin)

    def finish(self, stop: str) -> Trained:
        """The end of a run that reached a limit, or was told to stop: what it came to, on rank 0 also on disk."""
        self._read_centre()
        self._check_centre()
        self.reporter.clock()
        self._tell_resets()
        if not stop.startswith("SIG"):
            late = self.evaluator is not None and self.ledger.evaluated_at != self.position
            best = self.evaluate() if late else False
            saved = self._saved is not None and self._saved.name == checkpoint.name_of(self.iteration)
            if self.config.checkpoint.interval is not None and (late or not saved):
                self.save(best)
        self._say(self.trace.end(self.synchroniser.call))
        summary = self._summary(stop)
        self.reporter.end(self.where, summary)
        return Trained(summary, named(self._plan, self.rule.centre.copy(), self.statistics()))

    def _say(self, text: str) -> None:
        if text:
            self.reporter.note(text)

    def _request(self, signal: str) -> Request:
        """What this rank wants now."""
        config, stop, now = self.config, signal, time.perf_counter()
        interval, minutes = config.checkpoint.interval, config.stop.minutes
        if self.rank == 0 and not stop and minutes is not None and self.reporter.clock() > 60 * minutes:
            stop = f"stop.minutes {minutes:g}"
        timed = self.rank == 0 and interval is not None and interval.unit == "minute"
        save = timed and interval is not None and now - self._saved_at > 60 * interval.amount
        return Request(stop, save, self._diverged, self.tuning.asks)

    def _talk(self, signal: str) -> tuple[str, bool]:
        """All ranks say what they want and do the same; (reason to stop, whether to save)."""
        own = replace(self._request(signal), reading=self.tuning.reading())
        requests = self.synchroniser.call(lambda comm: comm.share(own))
        decision = decide(requests)
        self._asked = False
        if decision.resync:
            self._tell_resets()
            self._agree()
            self._diverged = False
        if decision.stop:
            who = f" on rank {decision.rank}" if decision.stop.startswith("SIG") else ""
            self.reporter.note(f"iteration {self.iteration}: {decision.stop}{who}")
        if decision.save:
            self._saved_at = time.perf_counter()
        if (tuned := self.tuning.conclude([request.reading for request in requests])) is not None:
            self._tune(tuned)
        return decision.stop, decision.save

    def _tune(self, tuned: Decision) -> None:
        """Has the learners that were decided on come, once every rank has bound its own."""
        begin = time.perf_counter()
        while not all(fits := self._bound(tuned.counts)):
            short = fits.index(False)
            self.reporter.note(f"tuner: rank {short} has no memory for {tuned.counts[short]} learners")
            tuned = self.tuning.without(short, tuned.counts[short])
        self._binding += time.perf_counter() - begin
        if tuned.counts != self.coordinator.announced:
            self.coordinator.announce(self.iteration, tuned.counts)
        self.reporter.tuned(self.where, tuned)
        if tuned.settled and tuned.counts != self._limits:
            self._limits = tuned.counts
            for text in self.synchroniser.call(lambda comm: core_limits(comm, tuned.counts)):
                self.reporter.note(text)

    def _tell_resets(self) -> None:
        """Every rank enters the resets of all, and the damaged samples."""
        for texts in self.synchroniser.call(lambda comm: comm.share(self._resets)):
            self.ledger.resets += len(texts)
            for text in texts:
                self.reporter.note(text)
        self._resets = []
        self._tell_damages()

    def _tell_damages(self) -> None:
        for found in self.synchroniser.call(lambda comm: comm.share([each.found() for each in self._damages])):
            for damaged in found:
                self.reporter.damaged(damaged)

    def _agree(self) -> None:
        self.settle()
        with self.trace.span("synchronisation", "agree"):
            found = self.synchroniser.agree(sum(self.counts))
        self.reporter.agreed(self.where, found.drift, found.mismatches)

    def _passed(self, before: int, epochs: float) -> bool:
        return due(before, self.position, self.job.train.count, epochs)

    def _checkpoint_due(self, before: int, best: bool) -> bool:
        interval = self.config.checkpoint.interval
        if interval is None:
            return False
        if interval.unit == "iteration" and self.iteration % int(interval.amount) == 0:
            return True
        return (best and self.config.checkpoint.best) or (
            interval.unit == "epoch" and self._passed(before, interval.amount)
        )

    def _restart_due(self) -> bool:
        """Whether `rule.restart` wants averaging to start again before this iteration."""
        rule = self.config.rule
        if not isinstance(rule, Sma) or rule.restart == "never":
            return False
        timeline, count = self.coordinator.timeline(), self.job.train.count
        before, now = timeline.position(self.iteration - 1) / count, self.position / count
        if isinstance(rule.restart, tuple):
            return any(before < epoch <= now for epoch in rule.restart)
        return self.config.update.schedule.drops(before, now)

    def _rule(self) -> dict[str, Any]:
        rule = asdict(self.config.rule)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in rule.items()}

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must have in common with the run that continues it."""
        return {
            "seed": self.config.seed,
            "precision": self.config.precision,
            "layout": self.layout.canonical().digest(),
            "train_samples": self.job.train.count,
        }

    def _input(self) -> dict[str, Any]:
        """What an evaluation must know of the data that the net was trained on."""
        data = self.job.train
        if isinstance(data, NamedSamples):
            return {"inputs": {name: [list(shape), str(dtype)] for name, (shape, dtype) in data.inputs.items()}}
        assert self.job.scaling is not None
        kind = {"shape": data.shape, "dtype": str(data.dtype), "classes": data.classes}
        found = {**kind, **self.job.scaling.entries()}
        return {**found, "image": asdict(data.image)} if isinstance(data, Decoded) else found

    def _waits(self) -> dict[str, float]:
        sync = self.synchroniser
        busy = sync.busy if self.size > 1 else 0.0  # one rank sends nothing
        return {"data_wait": self.pipeline.waited, "sync_wait": sync.waited, "sync_busy": busy}

    def _summary(self, stop: str) -> Summary:
        config, where = self.config, self.where
        return Summary(
            run=str(self.reporter.folder),
            stopped=stop,
            epochs=where.epoch,
            iterations=where.iteration,
            samples=where.position,
            target=config.stop.accuracy,
            top_k=config.evaluate.top_k,
            ranks=self.size,
            learners=where.learners,
            changes=self.ledger.changes,
            settled=None if self.tuning.decision is None else self.tuning.decision.settled,
            batch_size=config.batch_size,
            rule=self._rule(),
            device=self.job.kernels.name,
            precision=config.precision,
            seed=config.seed,
            gain=self.rule.gain,
            checkpoint=str(self._saved) if self._saved else None,
            **self.reporter.summary_fields(),
        )
