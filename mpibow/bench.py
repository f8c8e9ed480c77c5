"""Measures training on made-up data, its parts, and a module beside PyTorch.

python -m mpibow.bench train MODEL --device D --batch-size B --learners K --seconds S --json
python -m mpibow.bench profile MODEL --batch-size B --seconds S --json
python -m mpibow.bench net FILE.py:NAME DATA --torch PYTHON --batch-size B --json
"""

import argparse
import json
import sys
import tempfile
import time
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from .comm.communicator import Communicator
from .comm.launch import run_ranks
from .compare import Figures, compare, compare_text
from .diagnose.profile import profile
from .errors import ConfigError
from .job import Job, on_device
from .job.synthetic import made_up_job
from .models import MODELS, OBJECTIVES
from .run.results import versions
from .run.session import Session
from .run.signals import Signals, interruption
from .system.command import parser_of, positive
from .system.streams import as_command
from .train import iterate

WARM_UP = 5  # iterations


def bench_train(job: Job, comm: Communicator, seconds: float) -> Figures:
    """Runs the training loop for `seconds` after a warm-up; images/s of all ranks and the time of an iteration."""
    threadpool_limits(1)
    times = list[float]()
    with Signals() as signals, Session(job, comm, None, "") as session:

        def step() -> None:
            if (stop := iterate(session, signals)).startswith("SIG"):
                raise interruption(stop)

        for _ in range(WARM_UP):
            step()
        while (  # ways to exchange are tried for a hundred iterations, under some rules for ever
            (session.iteration < 200 and session.synchroniser.ahead and not session.synchroniser.ahead.way)
            or session.tuning.comparing
            or session.learners.execution != session.coordinator.execution
        ):
            step()  # all ranks alike
        begin = last = time.perf_counter()
        idle = session.synchroniser.stood + session.pipeline.waited
        look = 1
        while len(times) < look or (look := next_look(session, comm, begin, seconds, len(times))):
            step()
            now = time.perf_counter()
            times.append(now - last)
            last = now
        session.settle()
        counts = session.counts
        elapsed = time.perf_counter() - begin
        idle = session.synchroniser.stood + session.pipeline.waited - idle
        job = session.job
        device = session.job.device
        peak = device.memory.peak
        held = {}
        if peak is not None:
            held = {"execution": session.learners.execution, "python_share": 1 - idle / elapsed, "device_memory": peak}
    median, p10, p90 = np.percentile(times, [50, 10, 90]).tolist()
    return {
        "images_per_second": len(times) * sum(counts) * job.config.batch_size / elapsed,
        "seconds_per_iteration": {"median": median, "p10": p10, "p90": p90},
        "iterations": len(times),
        "model": job.title,
        "batch_size": job.config.batch_size,
        "learners": counts,
        "ranks": comm.size,
        "rule": job.config.rule.name,
        "device": device.name,
        **held,
        "kernels": job.kernels.name,
        "precision": job.precision,
        "versions": versions(),
    }


def next_look(session: Session, comm: Communicator, begin: float, seconds: float, iterations: int) -> int:
    """The number of iterations since `begin` after which to look at the time again; 0 if it is up.

    Rank 0 decides for all, each time after at most twice as many iterations more as there were: its broadcast waits for
    the exchange under way, which is not hidden then. One rank decides alone, after each iteration.
    """
    since = time.perf_counter() - begin
    if comm.size == 1:
        return iterations + 1 if since < seconds else 0
    more = max(min(2.0 * since, seconds - since) / since * iterations, 1.0)
    look = np.array([iterations + more if since < seconds else 0.0])
    session.synchroniser.call(lambda c: c.broadcast(look))
    return int(look[0])


def bench_profile(job: Job, comm: Communicator, seconds: float) -> Figures:
    """One learner's iteration, the time of every kind of operator in it, and its convolutions measured alone."""
    if job.device.enqueues:
        raise ConfigError("profile: times steps on the host; on a GPU use --timeline, or --device onednn")
    whole = bench_train(job, comm, seconds)
    found = profile(job, seconds)
    return {
        "iteration": whole["seconds_per_iteration"]["median"],
        **found,
        **{key: whole[key] for key in ("model", "batch_size", "kernels", "precision", "versions")},
    }


def parser() -> argparse.ArgumentParser:
    models = sorted([*MODELS, *OBJECTIVES])
    made = parser_of(
        "bench",
        "Measures, on made-up data, the speed of training, or the parts of an iteration. Compares a module of your own "
        "in mpibow and in PyTorch.",
        f"models: {', '.join(models)}",
    )
    commands = made.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="measure the whole training step; also under mpirun")
    profiled = commands.add_parser("profile", help="measure the parts of one learner's iteration")
    net = commands.add_parser("net", help="compare a module of your own in mpibow and in PyTorch, on your data")
    net.add_argument("net", metavar="FILE.py:NAME", help="function that returns a torch.nn.Module, or a module")
    net.add_argument("data", metavar="DATA", help="folder of records with classes")
    net.add_argument(
        "--torch", default=sys.executable, metavar="PYTHON", help="Python that has PyTorch (default: this one)"
    )
    net.add_argument("--rounds", type=positive, default=5, help="turns of each side (default: 5)")
    for command in (train, profiled):
        command.add_argument("model", choices=models, metavar="MODEL", help="model to train")
        command.add_argument("--shape", help="channels,height,width of an image (default: the model's)")
        command.add_argument("--classes", type=int, help="number of classes (default: the model's)")
        command.add_argument("overrides", nargs="*", metavar="key.path=value", help="any other setting, as seed=2")
    for command in (train, profiled, net):
        command.add_argument(
            "--batch-size", type=positive, default=8, help="samples per learner and iteration (default: 8)"
        )
        command.add_argument("--json", action="store_true", help="print one JSON line")
        command.add_argument(
            "--device", choices=["auto", "cuda", "onednn", "numpy"], help="device to compute on (default: auto)"
        )
    train.add_argument("--learners", type=int, default=1, help="learners per rank (default: 1)")
    for command, seconds in ((train, 10.0), (profiled, 10.0), (net, 1.0)):
        command.add_argument(
            "--seconds", type=float, default=seconds, help="to measure, each time (default: %(default)g)"
        )
    return made


def main(argv: list[str] | None = None) -> None:
    command = parser()
    arguments, rest = command.parse_known_args(argv)  # settings that stand behind options
    if rest and (arguments.command == "net" or any(text.startswith("-") or "=" not in text for text in rest)):
        command.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        arguments.overrides += rest
    run_ranks(partial(_run, arguments))


def _run(arguments: argparse.Namespace, comm: Communicator, note: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        if arguments.command == "net":
            found = compare(arguments, comm, folder, bench_train)
            text = compare_text
        else:
            job, _ = on_device(made_up_job(arguments, comm.share(folder)[0]), comm)
            if arguments.seconds <= 0:
                raise ConfigError(f"--seconds: must be above 0, got {arguments.seconds:g}")
            bench, text = (bench_train, train_text) if arguments.command == "train" else (bench_profile, profile_text)
            found = bench(job, comm, arguments.seconds)
        comm.barrier()  # rank 0's folder is every rank's
    if comm.rank == 0:
        print(json.dumps(found) if arguments.json else text(found))
    return 0


def train_text(found: Figures) -> str:
    step = found["seconds_per_iteration"]
    return (
        f"{found['model']}, batch {found['batch_size']}, learners {found['learners']}: "
        f"{found['images_per_second']:,.0f} images/s, {1e3 * step['median']:.2f} ms an iteration "
        f"({1e3 * step['p10']:.2f} to {1e3 * step['p90']:.2f})"
    )


def profile_text(found: Figures) -> str:
    whole = found["iteration"]
    rows = sorted(found["parts"].items(), key=lambda part: -part[1]["seconds"])
    lines = [f"{found['model']}, batch {found['batch_size']}, 1 learner: {1e3 * whole:.2f} ms an iteration, of which"]
    for kind, part in rows:
        took = part["seconds"]
        share = max(part[what] / most for what, most in found["roofline"].items()) / took
        lines.append(
            f"  {kind:<32} {part['count']:4d} {1e3 * took:9.3f} ms {took / whole:6.1%} "
            f"{part['operations'] / took / 1e9:7.1f} {part['bytes'] / took / 1e9:7.1f} {share:6.0%}"
        )
    rest = whole - found["plan"]
    lines.append(f"  {'update, averaging, data, loop':<37} {1e3 * rest:9.3f} ms {rest / whole:6.1%}")
    peak, speed = found["roofline"].values()
    lines.append(
        f"Last: GFLOP/s, GB/s, and the share of the most that this core can do: {peak / 1e9:.0f} GFLOP/s in a product "
        f"of NumPy, {speed / 1e9:.1f} GB/s in a copy. Operations are those of the direct algorithm; each array counts "
        f"once. Convolutions, each repeated by itself, take {1e3 * found['convolutions_alone']:.2f} ms."
    )
    return "\n".join(lines)


if __name__ == "__main__":
    as_command(main)
