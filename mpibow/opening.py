"""Opening a run: one rank's parts of it, as a new run has them, or as the checkpoint left them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from mpibow.comm.binding import allowed_cores, machine_cores
from mpibow.comm.communicator import Communicator
from mpibow.comm.nccl import Nccl
from mpibow.comm.transport import open_transport
from mpibow.config import dump
from mpibow.config.schema import Data
from mpibow.data.damage import Damages, Intact
from mpibow.data.dataset import NamedSamples
from mpibow.data.pipeline import Pipeline
from mpibow.data.readers import (
    choose,
    described,
    find_facts,
    held,
    open_source,
    prefetch,
    remedy,
    sent_of,
    threads_of,
)  # fmt: skip
from mpibow.data.slots import specs_of
from mpibow.data.timeline import Timeline
from mpibow.data.wait import Watch
from mpibow.device.driver import Event
from mpibow.device.feed import Feeder, pack
from mpibow.gpus import EXECUTIONS, execution_of
from mpibow.graph.graph import Array
from mpibow.graph.layout import initial_weights
from mpibow.job import Job, on_device
from mpibow.kernels.cuda.fused import without_form
from mpibow.learn.learners import Learners
from mpibow.learn.replica import Replicas
from mpibow.learn.scheduler import Scheduler
from mpibow.origin import (
    Origin,
    anew,
    check_alike,
    core_warnings,
    find_origin,
    first_timeline,
    identity,
    memory_warnings,
    started,
)  # fmt: skip
from mpibow.reporter import Reporter, Where
from mpibow.run import directory
from mpibow.run.coordinator import Coordinator
from mpibow.run.evaluate import Evaluator
from mpibow.run.ledger import Ledger
from mpibow.run.memory import free_memory, learner_bytes, room_for
from mpibow.run.state import check_fits, read_centre, restore, timeline_of
from mpibow.run.tuning import Compared, Given, Measured, Tuning
from mpibow.sync.averaging import MOST, caps, check_rule
from mpibow.sync.rules import make_rule
from mpibow.sync.synchroniser import Synchroniser
from mpibow.sync.tally import Book, DeviceBook
from mpibow.trace import Trace
from mpibow.tune import Counts, History, as_sum


class Opened:
    """Every rank has one, alike; session.py opens it, in the order of these methods, and does something with it."""

    def _plan_run(self, job: Job, comm: Communicator, resume: str | None, trace: Trace) -> tuple[Origin, str]:
        """Where the run begins, and what is to be said. The ranks make sure that they run the same."""
        job, note = on_device(job, comm)
        self.job, self.config, self.rank, self.size, self.trace = job, job.config, comm.rank, comm.size, trace
        self.gpu = job.kernels.gpu
        self._unfused = "" if self.gpu is None else without_form(job.build(job.config.batch_size, True))
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
        free = None if self.gpu is None else self.gpu.free(comm)
        facts = comm.share(find_facts(comm.local_size, free))
        self._choice = choose(self._reading.pipeline, job.train, facts)
        self.comm: Communicator = comm
        if self.gpu is not None and comm.size > 1:
            machine = self.gpu.machine
            self.comm, more = open_transport(
                comm, machine.driver, machine.stream, transport=self.config.transport, shared=machine.found.shared
            )
            note = f"{note}\n{more}".strip()
        return find_origin(job, comm, resume), note

    def _open(self, origin: Origin, comm: Communicator, stack: ExitStack) -> None:
        """Everything that holds threads, memory or files, as a new run has it or as the checkpoint left it."""
        config, job, header, path = self.config, self.job, origin.header, origin.checkpoint
        if isinstance(self.comm, Nccl):
            stack.push(self._part)
        dtype, gpu, flat = self._plan.weight_dtype, self.gpu, job.kernels.flat
        first = initial_weights(self._plan.statistics, config.seed, dtype)
        if header is None or path is None:
            self.iteration, timeline = 0, self._first
            centre, statistics = initial_weights(self.layout, config.seed, dtype), first
        else:
            check_fits(path, header, identity(job, self._plan))
            self.iteration = header["iteration"]
            timeline = timeline_of(header, started(config, self._first), self._first)
            centre, statistics = read_centre(path, self._plan)
        changed = [] if header is None else anew(header, config, self._first)
        same = header is not None and not changed
        how = lambda recorded: "" if gpu is None else execution_of(config.execution, recorded)  # noqa: E731
        timeline = timeline.executed(how)
        execution = timeline.change(max(self.iteration - 1, timeline.changes[0].iteration)).execution
        self._prefetch = prefetch(config.prefetch, job.train, config.batch_size)
        self._threads = threads_of(self._reading.workers, allowed_cores(), machine_cores(), comm.local_size)
        limit = self._reading.most_damaged
        self._damages = [Damages(data.name, data.count, limit) for data in (job.train, job.test) if data is not None]
        self.coordinator = Coordinator(timeline, self._prefetch)
        evaluation = None if job.test is None else job.evaluation_plan()
        free = free_memory(comm.local_size) if gpu is None else gpu.free(comm)
        ahead = held(self._choice, job.train, config.batch_size, self._prefetch, gpu is not None)
        learner = learner_bytes(self._plan, evaluation, ahead.learner)
        room = room_for(free - ahead.data, learner, MOST)
        if ahead.locked:
            room = min(room, room_for(free_memory(comm.local_size), ahead.locked, MOST))
        self._room_learners = room
        self.tuning = self._tuning(comm, room, header if same else None, timeline, execution)
        most = max(change.counts[comm.rank] for change in timeline.changes)
        if gpu is None or config.learners == "auto":  # on the host what nobody touches takes no memory
            most = max(min(room, config.tuner.most), most)
        self.replicas = Replicas(most, self.layout.size, dtype, first, self.layout.factors, flat)
        if gpu is not None:
            gpu.flat.learners(self.replicas.all_gradients)
        specs = specs_of(job.train, config.batch_size)
        self.learners = Learners(
            self._plan, self.replicas, config.update, config.assignment, learner, gpu,
            pack(specs, sent_of(self._choice, specs)), job.fused_plan, dated=self.size > 1,
        )  # fmt: skip
        self.scheduler = Scheduler(self.trace, apart=gpu is None)
        stack.callback(self.scheduler.close)
        sent = None if gpu is not None else self.comm.zeros
        self.rule = make_rule(config.rule, flat, centre.copy(), sent, self.layout)
        self.synchroniser = Synchroniser(
            self.comm, self.rule, self.replicas, partial(self.scheduler.run, name="update"), overlap=config.overlap,
            trace=self.trace, book=self._book(),
        )  # fmt: skip
        stack.callback(self.synchroniser.close)
        self._restarted = ""
        self._untold = 0  # samples whose losses no all-reduce has carried yet
        if header is not None and path is not None and same:
            self.change_learners(tuple(header["counts"]), execution, keep=True)
            tally, scale = restore(path, header, comm.rank, centre, self.replicas, self.rule, self.layout)
            self.synchroniser.book.load(tally)
            self._untold = header["untold"]
            if gpu is not None and scale is not None:
                gpu.load_scale(scale)
        else:
            now = timeline.change(self.iteration)
            self.change_learners(now.counts, now.execution)
            flat.put(self.replicas.statistics, statistics)
            if header is not None:
                self._restarted = f"{', '.join(changed)}: averaging restarts from the centre"
        self.evaluator = None
        if job.test is not None and evaluation is not None:
            test = job.test if isinstance(job.test, NamedSamples) else Intact(job.test, self._damages[1])
            self.evaluator = Evaluator(evaluation, test, config.loss.ignore, gpu)
        self.ledger = Ledger.of({} if header is None else header["ledger"], config.stop.accuracy)
        self.reporter = Reporter(
            origin.folder, comm.rank, self.ledger, job, header, self._waits,
            classes="accuracy" in self._plan.graph.outputs,
            memory=None if gpu is None else lambda: gpu.machine.memory.peak,
        )  # fmt: skip
        stack.callback(self.reporter.close)
        self.saved = path  # the last checkpoint

    def _begin(self, origin: Origin, comm: Communicator, note: str) -> None:
        """Tells the user what is run, and how; from here on the folder is this run's."""
        job, counts, learners = self.job, self.counts, self.config.learners
        how = "" if not isinstance(learners, str) else "auto, now " if learners == "auto" else "replayed, now "
        if comm.rank == 0 and origin.checkpoint is not None:
            directory.write(origin.folder / "config.yaml", dump(self.config))
        self.reporter.start(
            self.where,
            job.title,
            [
                note,
                *([] if self.gpu else self._host_warnings(comm)),
                *origin.notes,
                self._restarted,
                f"{job.title}: {job.weights:,} weights, {job.train.count:,} samples, {comm.size} rank(s), "
                f"learners {how}{as_sum(counts)}, "
                f"batch {self.config.batch_size}, {job.kernels.about}; "
                f"{origin.folder}",
                described(self._choice, job.train, self._threads),
                self._execution_told(),
                "assignment: first_come is fixed on a GPU, where the host enqueues batches in turn"
                if self.gpu and self.config.assignment == "first_come"
                else "",
            ],
            anew=bool(self._restarted),
            other=origin.other,
        )

    def _host_warnings(self, comm: Communicator) -> list[str]:
        """Where given learners are more than a rank's cores or its memory; `auto` looks for itself."""
        if self.config.learners == "auto":
            return core_warnings(comm, (1,) * comm.size)
        return [*core_warnings(comm, self.counts), *memory_warnings(comm, self.counts, self._room_learners)]

    def _execution_told(self) -> str:
        if self.gpu is None:
            return ""
        text = f"execution: {self.learners.execution}, {EXECUTIONS[self.learners.execution]}"
        if self.config.execution == "auto" and self._unfused:
            return f"{text}: {self._unfused}"
        return f"{text}; what is faster is measured" if isinstance(self.tuning, Compared) else text

    def _tuning(
        self, comm: Communicator, room: int, header: Mapping[str, Any] | None, timeline: Timeline, execution: str
    ) -> Tuning:
        """What decides how many learners there are: the settings, or measured times and `room` for so many; and how
        those of a GPU run."""
        config, inner = self.config, None
        known = {} if header is None else dict(header["tuning"] or {})
        compared = known.pop("compared", False)
        if config.learners == "auto":
            history = History.of(known) if known else History.begin(comm.size, config.batch_size)
            history = replace(history, room=tuple(comm.share(room)), caps=caps(config.rule, comm.size))
            inner = Measured(history, config.tuner)
        given = timeline.counts(max(self.iteration, timeline.changes[0].iteration))
        replayed = isinstance(config.learners, str) and inner is None
        open_to_both = self.gpu and config.execution == "auto" and not (compared or replayed or self._unfused)
        if open_to_both and (inner is not None or max(given) > 1):
            return Compared(inner, given, config.batch_size, execution, config.tuner)
        return Given() if inner is None else inner

    def _read(self, stack: ExitStack) -> None:
        """Begins to read ahead, once the user has been told how."""
        train, begin = self.job.train, time.perf_counter()
        feeder, bind, gpu = None, None, self.gpu
        if gpu is not None:
            machine, bind = gpu.machine, gpu.bind
            feeder = Feeder(machine.driver, machine.found.gpu.index, machine.memory, timed=True)
        reader, feed = open_source(self._choice, train, self._damages[0], self._threads, feeder, bind)
        if self._choice.kind == "resident":
            where = "the GPU's memory" if self._choice.on_device else "memory"
            self.reporter.note(f"{train.name}: read into {where} in {time.perf_counter() - begin:.1f} s")
        self.pipeline = Pipeline(
            train, reader, self.coordinator.timeline,
            rank=self.rank, iteration=self.iteration, seed=self.config.seed, prefetch=self._prefetch,
            trace=self.trace, feed=feed,
        )  # fmt: skip
        stack.callback(self.pipeline.close)
        if gpu is not None:
            stack.callback(self._idle)
        self._watch = Watch(remedy(self._choice, train, self._threads))
        self.reporter.pause()

    def _book(self) -> Book | None:
        """What a GPU's learners report, and how their exchange is awaited."""
        if self.gpu is None:
            return None
        wait = getattr(self.comm, "wait", None) or _synchronise
        count = lambda: self.replicas.count  # noqa: E731
        return DeviceBook(self.gpu, self.rule, count, self.learners.events, wait)

    def _part(self, kind: type[BaseException] | None, *_: object) -> None:
        """NCCL's communicator is of this run; where that fails, no peer is waited for."""
        assert isinstance(self.comm, Nccl)
        self.comm.part(failed=kind is not None)

    def _idle(self) -> None:
        """Nothing is under way on the GPU any more."""
        assert self.gpu is not None
        self.learners.synchronise()
        self.gpu.machine.close()

    @property
    def position(self) -> int:
        """Samples consumed so far, over all ranks and epochs."""
        return self.coordinator.timeline().position(self.iteration)

    @property
    def where(self) -> Where:
        epoch = self.position / self.job.train.count
        return Where(self.iteration, self.position, epoch, self.counts, self.learners.execution)

    def change_learners(self, counts: Counts, execution: str, keep: bool = False) -> None:
        """Replicas, learners and rule for `counts` learners by rank; `keep` where a state is loaded next."""
        statistics = self.statistics() if self.replicas.count else None
        self.counts = counts
        self.learners.change(counts[self.rank], execution, statistics)
        self.rule.begin(self.replicas, sum(counts), keep)

    def statistics(self) -> Array:
        """The centre's statistics: the mean over all learners."""
        rows = self.job.kernels.flat.host(self.replicas.statistics)
        for i in self.synchroniser.book.spoilt():  # before an update sets them back
            rows[i] = self.replicas.first_statistics
        mean: Array = rows.sum(axis=0)
        self.synchroniser.call(lambda comm: comm.allreduce(mean))
        mean *= mean.dtype.type(1.0 / sum(self.counts))
        return mean

    def _waits(self) -> dict[str, float]:
        waited, busy = self.synchroniser.seconds()
        return {"data_wait": self.pipeline.waited, "sync_wait": waited, "sync_busy": busy}


def _synchronise(event: Event) -> None:
    event.synchronise()
