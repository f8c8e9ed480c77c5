"""Opening a run: the parts of one rank's session, new or as the checkpoint left them."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial

from mpibow.comm import Communicator, allowed_cores
from mpibow.comm.binding import core_share, core_warnings
from mpibow.comm.cgroups import machine_cores
from mpibow.comm.shared import ordered
from mpibow.config import Config
from mpibow.config.schema import Data
from mpibow.data.loading import Loading
from mpibow.data.pipeline import Pipeline
from mpibow.data.pipeline_choice import PipelineChoice, choose, prefetch, threads_of
from mpibow.errors import ConfigError
from mpibow.graph import Plan, initial_weights
from mpibow.job import Job
from mpibow.job.measures import directions
from mpibow.job.memory import learner_bytes, memory_warnings
from mpibow.learn.directions import described
from mpibow.learn.learners import Learners
from mpibow.learn.local import Stepping, arrays_of, kept_of
from mpibow.learn.replica import Replicas
from mpibow.learn.scheduler import Scheduler
from mpibow.models.losses import ignored
from mpibow.sync import Engine, caps
from mpibow.sync.ahead import Ahead
from mpibow.sync.buckets import Way, WayTrial, candidates
from mpibow.sync.synchroniser import Synchroniser
from mpibow.system import JsonObject
from mpibow.trace import Trace
from mpibow.tune import History

from .alike import agreed, compare_state, send_first
from .changing import frozen_lines
from .coordinator import Coordinator
from .evaluate import Evaluator
from .first_lines import execution_lines, start_lines
from .loggers import check_loggers
from .results import Ledger
from .start import Start, find_source, keep_settings, kept_states, lasting, start_of
from .state import State
from .steering import in_force
from .timelines import first_timeline
from .tuning import Trial, Tuning

STAGES = 16  # of a backward pass: as many buckets as a measurement may choose


@dataclass
class Parts:
    """Every rank has its own, alike. The run's state is that of `start`; no data are read and no lines printed yet."""

    job: Job  # on this rank's device, job.device
    comm: Communicator
    trace: Trace
    plan: Plan
    loading: Loading
    start: Start
    lasting: JsonObject  # the entries that all checkpoints share
    coordinator: Coordinator
    tuning: Tuning
    replicas: Replicas
    state: State  # the content of a checkpoint
    learners: Learners
    stepping: Stepping
    scheduler: Scheduler
    engine: Engine
    synchroniser: Synchroniser
    ledger: Ledger
    evaluator: Evaluator | None
    notes: list[str]  # lines for the user about all that

    @property
    def config(self) -> Config:
        return self.job.config

    @property
    def rank(self) -> int:
        return self.comm.rank


OpenParts = Callable[[Job, Communicator, str | None, str, Trace, ExitStack], Parts]


def open_parts(job: Job, comm: Communicator, resume: str | None, note: str, trace: Trace, stack: ExitStack) -> Parts:
    """All ranks call it alike. `stack` closes all holders of threads, memory or files."""
    # The job, the same on all ranks; its reading and its averaging
    check_loggers(job.config.log.to)
    first = first_timeline(job.config, comm.size)
    job, notes = agreed(job, comm, first.counts(0))
    config = job.config
    flat = job.kernels.flat
    device = job.device
    memory = device.memory
    comm.pulse.limits = config.limits
    stack.callback(comm.pulse.beat, "start")  # the last iteration is over
    plan = job.training_plan()
    comm.narrow = config.wire == "bf16"
    if comm.narrow and (device.enqueues or plan.weight_dtype != "float32"):
        raise ConfigError("wire: bf16 rounds sums of float32 on CPUs alone; leave it out")
    wanted = "auto" if config.data is None else config.data.pipeline
    choice = choose(wanted, job.train, comm.share(memory.facts(comm)))  # shared by all ranks
    loading = loading_of(job, choice, comm.local_size)
    carrier, way = device.transport(job, comm, stack)
    # The room for learners, before any is taken
    evaluation = job.evaluation_plan() if job.evaluated else None
    kept = kept_of(config.update, plan.layout, job.trained(math.inf))
    held = memory.held(loading)
    lasting_plan = job.training_plan(math.inf) if job.stages else plan
    states = arrays_of(kept, plan.layout)
    memory.check(comm, first.counts(0)[comm.rank], lasting_plan, evaluation, states, loading, config.averaging)
    # The state at the start
    start = start_of(find_source(job, plan, comm, resume, stack), job, plan, first)
    ways = device.executions(job)
    start = replace(start, timeline=start.timeline.executed(ways))
    counts, execution = start.learners
    coordinator = Coordinator(start.timeline, loading.ahead, recorded=config.replayed is not None)
    # Learners: the tuner of their number, and the present ones
    settings = in_force(config, start.timeline, job.train.count, start.iteration)
    one = settings.one_copy and not device.enqueues
    learner = learner_bytes(lasting_plan, evaluation, held.learner, states, one)
    room = memory.fits(comm, learner, held)
    epoch = start.timeline.position(start.iteration) / job.train.count
    if job.stages:
        plan = job.training_plan(epoch)
    trained = job.trained(epoch)
    tuning = _open_tuning(job, start, comm, room, compares=len(ways) > 1 and not config.replayed)
    most = max(each[comm.rank] for each in (counts, *(change.counts for change in start.timeline.changes)))
    statistics = start.first
    if statistics is None:
        statistics = initial_weights(plan.statistics, config.seed, plan.weight_dtype)
    notes.append(send_first((start.centre, start.statistics, statistics), comm))
    auto = config.learners == "auto"
    # A host's rows take no memory until they are touched
    capacity = max(min(room, config.tuner.most), most) if auto or not device.enqueues else most
    replicas = Replicas(
        capacity,
        plan.layout.size,
        plan.weight_dtype,
        statistics,
        plan.layout.factors,
        flat,
        counted="count" in plan.graph.outputs,
        parts=kept,
        trained=trained,
        one=one,
    )
    binder = device.bind(job, replicas, loading, carrier.size, trace)
    learners = Learners(plan, replicas, binder, config.assignment, learner)
    scheduler = Scheduler(
        trace, apart=not device.enqueues, handoff=job.kernels.handoff, cores=core_share(comm.local_size)
    )
    stack.callback(scheduler.close)
    # Their averaging
    if job.stages and settings.behind is not None:
        raise ConfigError("rule.then: must be null where weights are frozen until an epoch, got a rule")
    engine = Engine(settings, flat, replicas, start.centre[:trained].copy(), carrier.zeros)
    most = _buckets(job, comm)
    ahead = None
    if most > 1 and flat.Recorder is not None:
        stages = learners.stage(flat.chunk, max(most, STAGES))
        late = {config.update.clip_value, config.update.clip_norm} != {None} or bool(job.matrices.spans)
        by: Way | WayTrial = Way(most, 0 if late else 3 * most // 4)
        if config.buckets == "auto":
            by = WayTrial(candidates(len(stages.chunks), late))
            if start.kept and start.kept.buckets:  # measured without clipping, perhaps
                count, before = start.kept.buckets
                by = Way(count, 0 if late else before)
        ahead = Ahead(carrier, engine, stages, flat, trace, by)
    synchroniser = Synchroniser(
        carrier,
        engine,
        replicas,
        flat,
        partial(scheduler.run, name="update"),
        overlap=config.overlap,
        trace=trace,
        book=device.book(engine, learners, carrier),
        ahead=ahead,
    )
    stack.callback(synchroniser.close)
    learners.change(counts[comm.rank], execution)
    engine.begin(sum(counts), start.exact)
    state = State(comm.rank, plan, replicas, engine, flat, synchroniser.book)
    _take_up(start, state, config)
    rule_state = engine.state()
    shared = {"centre": engine.centre, **rule_state.shared}
    compare_state(
        comm,
        job,
        {
            **{name: flat.host(array) for name, array in shared.items()},
            "frozen weights": start.centre[trained:],
            "statistics": start.statistics,
            "first statistics": statistics,
        },
        asdict(rule_state.numbers),
    )
    # Evaluation and reports
    comm.pulse.folder = start.source.folder
    ledger = _ledger_of(start, job)
    evaluator = None
    if evaluation is not None:
        evaluator = Evaluator(evaluation, job.build, ignored(config.loss), device.bind_evaluation, job.measures)
    warnings = [] if device.enqueues else core_warnings(comm, (1,) * comm.size if auto else counts)
    if not (device.enqueues or auto):
        warnings += memory_warnings(comm, counts, room)
    if comm.rank == 0 and start.source.checkpoint is not None:
        keep_settings(start.source.folder, job)
    notes = [note, *notes, way, *warnings, *start_lines(start, job, ledger)]
    notes += [
        loading.described,
        *execution_lines(ways, execution, tuning.compares, config),
        described(job.matrices, config.update),
        *frozen_lines(job, epoch),
    ]
    return Parts(
        job,
        comm,
        trace,
        plan,
        loading,
        start,
        lasting(job, plan, first),
        coordinator,
        tuning,
        replicas,
        state,
        learners,
        Stepping(config.update, plan.layout, replicas, flat, job.matrices.spans),
        scheduler,
        engine,
        synchroniser,
        ledger,
        evaluator,
        notes,
    )


def _buckets(job: Job, comm: Communicator) -> int:
    """The most buckets of an exchange; 1 where it cannot be cut, or, by itself, within a node."""
    config = job.config
    if job.stages or not config.overlap or not ordered():
        return 1
    if config.buckets == "auto":
        return STAGES if comm.local_size < comm.size else 1
    return config.buckets


def open_pipeline(parts: Parts, stack: ExitStack, note: Callable[[str], None]) -> Pipeline:
    """Begins to read ahead, after a note on the way of reading."""
    job = parts.job
    loading = parts.loading
    begin = time.perf_counter()
    reader, feed = job.device.feed(loading)
    if loading.choice.kind == "resident":
        where = "the GPU's memory" if loading.choice.on_device else "memory"
        note(f"{job.train.name}: read into {where} in {time.perf_counter() - begin:.1f} s")
    pipeline = Pipeline(
        job.train,
        reader,
        parts.coordinator.timeline,
        rank=parts.rank,
        iteration=parts.start.iteration,
        seed=job.config.seed,
        prefetch=loading.ahead,
        trace=parts.trace,
        feed=feed,
    )
    stack.callback(pipeline.close)
    stack.callback(job.device.close)  # before the pipeline ends
    stack.callback(parts.learners.wait)
    return pipeline


def _open_tuning(job: Job, start: Start, comm: Communicator, room: int, *, compares: bool) -> Tuning:
    """The tuner, within the `room` of each rank; `compares`: a GPU's executions take turns, once in a run."""
    config = job.config
    kept = start.kept
    history = None
    batch = config.batch_size
    if config.learners == "auto":
        history = (kept and kept.batch_size == batch and kept.history) or History.begin(comm.size, batch)
        cores = None if job.device.enqueues else core_share(comm.local_size)
        rooms, shares = zip(*comm.share((room, cores)), strict=True)
        history = replace(
            history, room=rooms, caps=tuple(caps(config.averaging, comm.size, job.train.count // batch)), cores=shares
        )
    trial = Trial(start.timeline.counts(start.iteration), batch, start.learners[1]) if compares else None
    return Tuning(config.tuner, history, trial, compared=kept is not None and kept.compared)


def _take_up(start: Start, state: State, config: Config) -> None:
    """Restores replicas and averaging from the checkpoint, if it is continued bit for bit."""
    header = start.kept
    path = start.source.checkpoint
    replicas = state.replicas
    put = state.flat.put
    if header is None:
        put(replicas.statistics, start.statistics)
    else:
        assert path is not None
        states = kept_states(header.config, config, state.plan.layout)
        state.restore(path, header.rule, start.centre, states)
        for span in state.plan.statistics.spans:  # those that are frozen from here on are the centre's, too
            if not span.weight.trained:
                put(replicas.statistics[:, span.part], start.statistics[span.part])
    for i in range(replicas.count):
        replicas.freeze(i, start.centre[replicas.size :])


def _ledger_of(start: Start, job: Job) -> Ledger:
    goal, target = job.config.stop.target
    by = job.config.checkpoint.metric
    ledger = start.source.header.ledger if start.source.header else Ledger()
    rises = directions(job.measures).get(by or "accuracy", True)
    # The data that choose, as a checkpoint names them: where they have changed, there is no best so far
    chooser = job.chooser or "test"
    if chooser == "validation" and job.config.data is not None:
        chooser += f" {job.config.data.validation}"
    ledger = ledger.continued(target, chooser, goal, by=by, rises=rises)
    ledger.unheard = start.kept.untold if start.kept else 0
    return ledger


def loading_of(job: Job, choice: PipelineChoice, ranks: int) -> Loading:
    """The loading of one of a node's `ranks` for the data of `job`, by `choice`."""
    config = job.config
    data = job.config.data or Data("given")
    return Loading(
        job.train,
        job.evaluated,
        choice,
        config.batch_size,
        prefetch(config.prefetch, job.train, config.batch_size),
        threads_of(data.workers, allowed_cores(), machine_cores(), ranks),
        data.most_damaged,
    )
