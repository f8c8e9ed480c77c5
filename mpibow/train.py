"""Trains: records -> order -> pipeline -> slots -> learners -> synchroniser -> ranks, one iteration after the other.

mpirun -np 8 python -m mpibow.train resnet50.yaml        one process per device
python -m mpibow.train                                   one process: the built-in run on real digits
"""

if __name__ == "__main__":
    from .system.crowd import warn_of_crowd

    warn_of_crowd()

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from .comm.communicator import Communicator
from .comm.launch import run_ranks, say
from .config import Config, describe, limits_of, load_mapping
from .config.overrides import rate_warning
from .config.yaml_text import read
from .errors import EXIT_CODES, EXIT_INTERRUPTED, EXIT_REQUEUE
from .job import BUILT_IN, Job, open_job
from .job.normalise import Scaling
from .models import MODELS, OBJECTIVES
from .probe.rates import HIGHEST, ITERATIONS, LOWEST, PLOT, find_rate
from .run.chrome import WINDOW, check_path, open_trace
from .run.describe import check_job
from .run.directory import on_rank_0
from .run.opening import OpenParts, open_parts
from .run.results import Trained
from .run.session import Session
from .run.signals import Signals
from .run.timelines import first_timeline
from .system.command import parser_of, with_config
from .system.streams import as_command
from .trace import SILENT, Trace


def train(
    job: Job,
    comm: Communicator,
    *,
    resume: str | None = None,
    note: str = "",
    trace: Trace = SILENT,
    opened: OpenParts = open_parts,
) -> Trained:
    """Runs `job` to its end on all ranks of `comm`; every rank calls it. `resume` is a path or 'auto'.

    `opened` makes the session's parts.
    """
    threadpool_limits(1)  # a learner is a thread: BLAS must not start more
    with Signals() as signals, Session(job, comm, resume, note, trace, opened) as session:
        stop = ""
        while not (stop := stop or session.limit_reached()):
            stop = iterate(session, signals)
        trained = session.finish(stop)
    return replace(trained, signal=next(filter(None, comm.share(signals.received)), ""))  # also one that came too late


def iterate(session: Session, signals: Signals) -> str:
    """One iteration: every learner of every rank processes one batch. Returns the reason to stop at once, if any."""
    local = session.prepare()  # this iteration's rate; averaging starts again where learners come or go or it drops
    with session.trace.span("waiting", "data"):
        slots = session.pipeline.next()  # one small batch for each learner of this rank
    tasks = session.tasks(slots)
    session.synchroniser.begin(local)  # across nodes what is done of the gradients is sent while the rest is computed
    results = session.scheduler.run(tasks)  # one gradient each, on the learners' threads
    session.receive()  # losses of all ranks; a rule may hide its exchange behind the gradients: then it ends here
    finite = session.resets.check(results, local.rate)  # a learner that diverged is reset, or ends the run
    workers = session.scheduler.workers(len(slots))  # threads that share the update
    session.synchroniser.update(local, workers)  # local steps and corrections of the replicas; sums of the steps
    # The ranks' sums, and what follows from them: the centre's step, and the replicas' common one
    session.synchroniser.exchange(session.tally(finite, signals.received), local, workers)
    return session.advance(local.rate, signals.received)  # metrics, evaluation, checkpoint where they are due


def parser() -> argparse.ArgumentParser:
    command = parser_of(
        "train",
        "Trains a model with small batches on all ranks. Without CONFIG: a small net on real digits.",
        f"models: {', '.join(sorted([*MODELS, *OBJECTIVES]))}\n\n"
        f"settings (key.path=value):\n\n{describe()}\n\n"
        "exit codes:\n\n" + "\n".join(f"{code:>5}  {meaning}" for code, meaning in EXIT_CODES.items()),
    )
    command.add_argument("config", nargs="?", help="YAML file of settings")
    command.add_argument("overrides", nargs="*", metavar="key.path=value", help="settings that override the file's")
    command.add_argument("--check", action="store_true", help="print settings, plan and memory; train nothing")
    command.add_argument(
        "--find-lr",
        action="store_true",
        help=f"try learning rates that rise, print losses and a suggestion, draw {PLOT}; keep nothing of it",
    )
    command.add_argument(
        "--find-lr-rates", metavar="FROM:TO", help=f"the same, with these (default: {LOWEST:g}:{HIGHEST:g})"
    )
    command.add_argument("--find-lr-iterations", metavar="N", type=int, help=f"between them (default: {ITERATIONS})")
    command.add_argument(
        "--resume",
        metavar="PATH",
        help="continue a checkpoint or a run directory; 'auto': the newest run in `out`, else a new run",
    )
    command.add_argument(
        "--timeline", type=Path, metavar="FILE.json", help="write a Chrome trace of all ranks' threads"
    )
    command.add_argument(
        "--timeline-iterations",
        metavar="FROM:TO",
        help="iterations of the trace, counted from this start (default "
        f"{WINDOW}, without the last); the file is written when TO begins, or the run ends",
    )
    command.set_defaults(base=None)
    return command


def main(argv: list[str] | None = None) -> None:
    arguments = with_config(parser(), argv)
    run_ranks(partial(_run, arguments), limits_of(partial(_config, arguments)))


def _config(arguments: argparse.Namespace) -> Config:
    if arguments.base is None:  # read once: it may be a pipe
        arguments.base = BUILT_IN if arguments.config is None else read(Path(arguments.config))
    return load_mapping(arguments.base, arguments.overrides)


def _run(arguments: argparse.Namespace, comm: Communicator, note: str) -> int:
    config = _config(arguments)
    warning = rate_warning(arguments.base, arguments.overrides, config.update, arguments.config or "the built-in run")
    counts = first_timeline(config, comm.size).counts(0)
    trace = open_trace(arguments.timeline, arguments.timeline_iterations)

    def look() -> Scaling | None:  # one rank converts and reads for data.normalise; its error is every rank's
        if arguments.timeline is not None:
            check_path(arguments.timeline)
        return open_job(config).scaling

    job = open_job(config, on_rank_0(lambda function: function(comm), look))
    if arguments.check:
        if warning and comm.rank == 0:
            say(warning)
        check_job(job, comm, counts)
        return 0
    if arguments.find_lr or arguments.find_lr_rates or arguments.find_lr_iterations is not None:
        rates = arguments.find_lr_rates
        iterations = arguments.find_lr_iterations
        return find_rate(
            job, train, comm, rates or f"{LOWEST:g}:{HIGHEST:g}", ITERATIONS if iterations is None else iterations
        )
    note = "\n".join(filter(None, (note, warning)))
    summary = train(job, comm, resume=arguments.resume, note=note, trace=trace).summary
    return EXIT_INTERRUPTED if summary.stopped == "SIGINT" else EXIT_REQUEUE if summary.interrupted else 0


if __name__ == "__main__":
    as_command(main)
