"""Opening a run: one rank's parts of it, as a new run has them, or as the checkpoint left them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial

from mpibow.comm.binding import allowed_cores, core_warnings, machine_cores
from mpibow.comm.communicator import Communicator
from mpibow.comm.nccl import Nccl
from mpibow.comm.transport import open_transport
from mpibow.config import dump
from mpibow.config.schema import Data
from mpibow.data.loading import Loading
from mpibow.data.pipeline import Pipeline
from mpibow.data.readers import Choice, choose, find_facts, prefetch, threads_of
from mpibow.data.wait import Watch
from mpibow.device.feed import Feeder
from mpibow.graph.graph import Array
from mpibow.graph.layout import initial_weights
from mpibow.job import Job
from mpibow.job.gpu import EXECUTIONS
from mpibow.kernels.cuda.fused import without_form
from mpibow.learn.learners import Learners
from mpibow.learn.replica import Replicas
from mpibow.learn.scheduler import Scheduler
from mpibow.optim.schedules import ended_early
from mpibow.run import directory
from mpibow.run.coordinator import Coordinator
from mpibow.run.device_times import DeviceTimes
from mpibow.run.ledger import Ledger
from mpibow.run.memory import free_memory, learner_bytes, memory_warnings, room_for
from mpibow.run.resets import Resets
from mpibow.run.state import restore
from mpibow.run.tuning import Compared, Tuning, open_tuning
from mpibow.session.carried import kept_states
from mpibow.session.judge import Judge, sets_told
from mpibow.session.reporter import Reporter, Where
from mpibow.session.start import Beginning, agreed, beginning, find_origin, first_timeline, lasting, replayed_run
from mpibow.sync.averaging import MOST, caps
from mpibow.sync.rules import make_rule
from mpibow.sync.synchroniser import Synchroniser
from mpibow.sync.tally import DeviceBook
from mpibow.trace import Trace
from mpibow.tune import Counts, as_sum


def loading_of(job: Job, choice: Choice, ranks: int) -> Loading:
    """How one of a node's `ranks` reads the data of `job`, by `choice`."""
    config, data = job.config, job.config.data or Data("given")
    return Loading(
        job.train, job.evaluated, choice, config.batch_size, prefetch(config.prefetch, job.train, config.batch_size),
        threads_of(data.workers, allowed_cores(), machine_cores(), ranks), data.most_damaged,
        gpu=job.kernels.gpu is not None,
    )  # fmt: skip


def chooser_of(job: Job) -> str:
    """The data that choose, as a checkpoint names them: is the best so far still that, where a run is continued?"""
    if job.chooser == "validation" and job.config.data is not None:
        return f"validation {job.config.data.validation}"
    return job.chooser or "test"


class Opened:
    """Every rank has one, alike; session.py goes through the iterations with its parts."""

    def __init__(
        self, job: Job, comm: Communicator, resume: str | None, note: str, trace: Trace, stack: ExitStack
    ) -> None:
        """`stack` closes what holds threads, memory or files. Nothing is read yet."""
        # What is trained, the same on all ranks; how it is read, and averaged
        first = first_timeline(job.config, comm.size)
        job, notes = agreed(job, comm)
        self.job, self.config, self.gpu, self.rank, self.trace = job, job.config, job.kernels.gpu, comm.rank, trace
        self.pulse, self.pulse.limits = comm.pulse, job.config.limits
        stack.callback(self.pulse.beat, "start")  # the last iteration is over
        self.plan = plan = job.training_plan()
        self.loading = self._choose_loading(comm)
        self.comm, way = self._open_transport(comm, stack)
        # The state that it begins with
        begun = beginning(find_origin(job, comm, resume), job, plan, first)
        self.iteration, self.saved, self._lasting = begun.iteration, begun.origin.checkpoint, lasting(job, plan, first)
        self.coordinator = Coordinator(
            begun.timeline, self.loading.ahead, recorded=replayed_run(job.config) is not None
        )
        # Learners: how many there is room for, who decides how many there are, and those that there are now
        evaluation = job.evaluation_plan() if job.evaluated else None
        learner = learner_bytes(plan, evaluation, self.loading.held.learner, len(job.config.update.states))
        room = self._find_room(comm, learner)
        unfused = "" if self.gpu is None else without_form(job.build(self.config.batch_size, True))
        self.tuning = self._open_tuning(begun, comm, room, unfused)
        self._open_learners(begun, learner, room, stack)
        self._take_up(begun)
        # Who looks at them, and tells of it
        self._times = None if self.gpu is None else DeviceTimes(self.gpu.machine, trace)
        self._open_reporter(begun, stack)
        self.judge = None
        if evaluation is not None:
            self.judge = Judge(
                job, evaluation, self.loading, self.scheduler, self.synchroniser, self.reporter, trace,
                lambda: self.counts[self.rank] if self.gpu is None else 1,
            )  # fmt: skip
        warnings = [] if self.gpu else self._host_warnings(comm, room)
        self._tell(begun, [note, *notes, way, *warnings], self._execution_told(unfused))

    def _choose_loading(self, comm: Communicator) -> Loading:
        """The same choice on all ranks, from what each of them has."""
        wanted = "auto" if self.config.data is None else self.config.data.pipeline
        free = None if self.gpu is None else self.gpu.free(comm)
        facts = comm.share(find_facts(comm.local_size, free))
        return loading_of(self.job, choose(wanted, self.job.train, facts), comm.local_size)

    def _open_transport(self, comm: Communicator, stack: ExitStack) -> tuple[Communicator, str]:
        """What averages: another communicator where GPUs have arrays for it; and what is to be said of that."""
        if self.gpu is None or comm.size == 1:
            return comm, ""
        machine = self.gpu.machine
        found, note = open_transport(
            comm, machine.driver, machine.stream, transport=self.config.transport, shared=machine.found.shared
        )
        if isinstance(found, Nccl):  # it is of this run; where that fails, no peer is waited for
            nccl = found
            stack.push(lambda kind, *_: nccl.part(failed=kind is not None))
        return found, note

    def _find_room(self, comm: Communicator, learner: int) -> int:
        """Learners of `learner` bytes that this rank has memory for, beside what is read ahead."""
        held = self.loading.held
        host = free_memory(comm.local_size)
        free = host if self.gpu is None else self.gpu.free(comm)
        return room_for(free - held.data, learner, MOST, host, held.locked)

    def _open_tuning(self, begun: Beginning, comm: Communicator, room: int, unfused: str) -> Tuning:
        """`unfused` says why learners of a GPU can't be fused, '' where they can."""
        config, auto = self.config, self.config.learners == "auto"
        return open_tuning(
            (begun.kept and begun.kept.tuning) or {}, begun.timeline.counts(self.iteration), config.batch_size,
            begun.learners[1], config.tuner,
            rooms=comm.share(room) if auto else None, caps=caps(config.rule, comm.size) if auto else (),
            compares=self.gpu is not None and config.execution == "auto" and not (replayed_run(config) or unfused),
        )  # fmt: skip

    def _open_learners(self, begun: Beginning, learner: int, room: int, stack: ExitStack) -> None:
        """Rows for as many replicas as there may ever be, what computes on them, and what averages them."""
        job, config, plan, gpu, flat = self.job, self.config, self.plan, self.gpu, self.job.kernels.flat
        most = max(change.counts[self.rank] for change in begun.timeline.changes)
        if gpu is None or config.learners == "auto":  # on the host what nobody touches takes no memory
            most = max(min(room, config.tuner.most), most)
        statistics = initial_weights(plan.statistics, config.seed, plan.weight_dtype)
        replicas = Replicas(
            most, plan.layout.size, plan.weight_dtype, statistics, plan.layout.factors, flat, config.update.states
        )
        if gpu is not None:
            gpu.flat.learners(replicas.all_gradients)
        learners = Learners(
            plan, replicas, config.update, config.assignment, learner, gpu, self.loading.packing, job.fused_plan,
            dated=self.comm.size > 1,
        )  # fmt: skip
        self.replicas, self.learners = replicas, learners
        self.scheduler = Scheduler(self.trace, apart=gpu is None)
        stack.callback(self.scheduler.close)
        self.rule = make_rule(
            config.rule, flat, replicas, begun.centre.copy(), None if gpu is not None else self.comm.zeros, plan.layout
        )
        book = None
        if gpu is not None:
            wait = getattr(self.comm, "wait", None)
            book = DeviceBook(gpu, self.rule, lambda: replicas.count, learners.events, wait)
        self.synchroniser = Synchroniser(
            self.comm, self.rule, replicas, flat, partial(self.scheduler.run, name="update"), overlap=config.overlap,
            trace=self.trace, book=book,
        )  # fmt: skip
        stack.callback(self.synchroniser.close)

    def _take_up(self, begun: Beginning) -> None:
        """Learners, replicas and averaging are as the run begins with them."""
        config, gpu = self.config, self.gpu
        self._asked, diverged, self._owed = begun.due
        self._untold = begun.kept.untold if begun.kept else 0  # samples whose losses no all-reduce has carried yet
        self.resets = Resets(
            self.rank, config.on_nan, config.update.lr, self.synchroniser, self.rule, self.job.kernels.flat, gpu,
            diverged,
        )  # fmt: skip
        self.change_learners(*begun.learners, keep=begun.exact)
        if begun.kept is None:
            self.job.kernels.flat.put(self.replicas.statistics, begun.statistics)
            return
        assert self.saved is not None
        tally, scale = restore(
            self.saved, begun.kept.rule, self.rank, begun.centre, self.replicas, self.rule, self.job.kernels.flat,
            self.plan.layout, kept_states(begun.kept.config, config),
        )  # fmt: skip
        self.synchroniser.book.load(tally)
        if gpu is not None and scale is not None:
            gpu.load_scale(scale)

    def _open_reporter(self, begun: Beginning, stack: ExitStack) -> None:
        origin, gpu, header = begun.origin, self.gpu, begun.origin.header
        self.pulse.folder = origin.folder
        known = header.ledger.state() if header else {}
        self.ledger = Ledger.of(known, self.config.stop.accuracy, chooser_of(self.job))
        self.reporter = Reporter(
            origin.folder, self.rank, self.ledger, self.job, header, self._waits,
            classes="accuracy" in self.plan.graph.outputs,
            memory=None if gpu is None else lambda: gpu.machine.memory.peak,
        )  # fmt: skip
        stack.callback(self.reporter.close)

    def _host_warnings(self, comm: Communicator, room: int) -> list[str]:
        """Where given learners are more than a rank's cores or its memory; `auto` looks for itself."""
        if self.config.learners == "auto":
            return core_warnings(comm, (1,) * comm.size)
        return [*core_warnings(comm, self.counts), *memory_warnings(comm, self.counts, room)]

    def _execution_told(self, unfused: str) -> list[str]:
        """How a GPU's learners run."""
        if self.gpu is None:
            return []
        text = f"execution: {self.learners.execution}, {EXECUTIONS[self.learners.execution]}"
        if self.config.execution == "auto" and unfused:
            text = f"{text}: {unfused}"
        elif isinstance(self.tuning, Compared):
            text = f"{text}; what is faster is measured"
        turns = "assignment: first_come is fixed on a GPU, where the host enqueues batches in turn"
        return [text, turns] if self.config.assignment == "first_come" else [text]

    def _tell(self, begun: Beginning, before: list[str], behind: list[str]) -> None:
        """Tells the user what is run, and how; from here on the folder is this run's."""
        job, config, origin = self.job, self.config, begun.origin
        if self.rank == 0 and origin.checkpoint is not None:
            directory.write(origin.folder / "config.yaml", dump(config))
        how = {"auto": "auto, now "}.get(config.learners, "replayed, now ") if isinstance(config.learners, str) else ""
        about = (
            f"{job.title}: {job.weights:,} weights, {self.comm.size} rank(s), "
            f"learners {how}{as_sum(self.counts)}, batch {config.batch_size}, {job.kernels.about}; {origin.folder}"
        )
        anew = f"{', '.join(begun.changed)}: averaging restarts from the centre" if begun.changed else ""
        early = ended_early(config.schedule, config.update.lr, config.stop.epochs)
        chose = origin.header.ledger.chooser if origin.header else self.ledger.chooser
        other = f"{chose} data chose the best so far: it is chosen anew" if chose != self.ledger.chooser else ""
        notes = [*before, *origin.notes, anew, other, about, *sets_told(job), early, self.loading.described, *behind]
        self.reporter.start(self.where, job.title, notes, anew=bool(anew), other=origin.other)

    def _read(self, stack: ExitStack) -> None:
        """Begins to read ahead, once the user has been told how."""
        train, begin, gpu, feeder = self.job.train, time.perf_counter(), self.gpu, None
        if gpu is not None:
            feeder = Feeder(gpu.machine.driver, gpu.machine.found.gpu.index, gpu.machine.memory, timed=True)
        reader, feed = self.loading.open(feeder, None if gpu is None else gpu.bind)
        if self.loading.choice.kind == "resident":
            where = "the GPU's memory" if self.loading.choice.on_device else "memory"
            self.reporter.note(f"{train.name}: read into {where} in {time.perf_counter() - begin:.1f} s")
        self.pipeline = Pipeline(
            train, reader, self.coordinator.timeline,
            rank=self.rank, iteration=self.iteration, seed=self.config.seed, prefetch=self.loading.ahead,
            trace=self.trace, feed=feed,
        )  # fmt: skip
        stack.callback(self.pipeline.close)
        if gpu is not None:  # before the pipeline ends nothing is under way there any more
            stack.callback(gpu.machine.close)
            stack.callback(self.learners.synchronise)
        self._watch = Watch(self.loading.remedy)
        self.reporter.pause()

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
        self.rule.begin(sum(counts), keep)

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
