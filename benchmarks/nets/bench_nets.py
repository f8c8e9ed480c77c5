"""Training steps of a GPT, a ViT, an LSTM and a U-Net beside PyTorch's, eager and compiled; about 20 minutes.

    python -m benchmarks.nets.bench_nets --python PYTHON [--only gpt lstm] [--batches 4 8] [--output FOLDER]

PYTHON has PyTorch. Ours trains with one and with two learners, each one thread, and averages them (SMA); PyTorch with
one thread and with as many as there are cores, eager and by torch.compile, which needs a C++ compiler. Both take AdamW
(PyTorch's fused), float32 and the same samples: forward, backward, update. Every round has a turn of each side, and
every other round has them in reverse; ratios are of one round. Let nothing else run meanwhile. torch.compile takes a
minute a net and batch when it is new, and 20 s when its cache on disk has it.

The floor is the time of a step's matrix products alone, each repeated by itself on one thread by PyTorch, NumPy and us,
whichever is fastest; convolutions are ours.

FOLDER/nets.json and nets.md are written after every net and batch.
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import mpibow as mb
from benchmarks.asked import Asked
from benchmarks.nets.net_cells import CELLS, TEXT, Product, job, products
from benchmarks.nets.nets_page import page
from benchmarks.sides import Found, after, machine, note, parser_of_rounds, write
from benchmarks.turns import Side, in_turn, opened
from mpibow.diagnose.profile import profile
from mpibow.graph import Graph, compile_plan, plan_layout
from mpibow.job import Job
from mpibow.kernels import KernelSet
from mpibow.run.results import versions

LIMIT = 600.0  # seconds for an answer of PyTorch, which compiles with the first
LEAST = 0.02  # seconds that a product is repeated


def torch_sides(peer: Asked, compiled: bool) -> dict[str, Side]:
    cores = len(os.sched_getaffinity(0))
    kinds = {"eager": False, "compiled": True} if compiled else {"eager": False}

    def side(threads: int, kind: bool, seconds: float) -> float:
        return float(peer(LIMIT, threads=threads, compiled=kind, seconds=seconds))

    return {
        f"PyTorch {kind}, {threads}": partial(side, threads, found)
        for kind, found in kinds.items()
        for threads in sorted({1, cores})
    }


def alone(product: Product, kernels: KernelSet) -> float:
    """Seconds of NumPy's product or of `kernels`', whichever is faster."""
    many, m, k, n = product
    a, b, c = np.ones((many, m, k), "f4"), np.ones((many, k, n), "f4"), np.empty((many, m, n), "f4")
    graph = Graph()
    graph.output("y", mb.matmul(graph.input("a", a.shape), graph.input("b", b.shape)))
    plan = compile_plan(graph, plan_layout(graph), kernels, "float32", training=False)
    bound = plan.bind(np.zeros(plan.layout.size, "f4"))
    for name, array in (("a", a), ("b", b)):
        bound.inputs[name][...] = array
    return min(fastest(partial(np.matmul, a, b, out=c)), fastest(bound.run))


def fastest(run: Callable[[], object]) -> float:
    """Seconds, the least of some repeats."""
    best, begin = float("inf"), time.perf_counter()
    while True:
        start = time.perf_counter()
        run()
        now = time.perf_counter()
        best = min(best, now - start)
        if now - begin > LEAST:
            return best


def floor(made: Job, convolved: float, peer: Asked | None) -> dict[str, float]:
    """Seconds of a step's products alone on one thread, and their operations; convolutions alone take `convolved`."""
    found, operations = products(made.build(made.config.batch_size, True))
    counts = Counter(found)
    times = {product: alone(product, made.kernels) for product in counts}
    if peer:
        theirs = peer(LIMIT, products=list(counts))
        times = {product: min(mine, its) for (product, mine), its in zip(times.items(), theirs, strict=True)}
    operations += sum(2.0 * prod(product) for product in found)
    return {"seconds": convolved + sum(times[product] for product in found), "operations": operations}


def measure(name: str, batch: int, options: argparse.Namespace) -> Found:
    """Samples/s of all sides in every round, and the floor."""
    data = CELLS[name].data(options.text)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        single, sides = job(name, data, batch, 1, options.device, str(folder)), dict[str, Side]()
        for learners in options.learners:
            make = partial(job, name, data, batch, learners, options.device)
            sides[f"mpibow, {learners}"] = stack.enter_context(opened(make))
        about, peer = Found(), None
        if options.python:
            np.savez(folder / "data.npz", **data)  # type: ignore[arg-type]  # it takes arrays by name
            script = ["-m", "benchmarks.nets.torch_nets_peer"]
            peer = Asked([options.python, *script, name, str(batch), str(folder / "data.npz")])
            stack.callback(peer.close)
            about = peer(LIMIT, about=True)
            check_weights(name, single, about["weights"])
            sides |= torch_sides(peer, not options.eager)
        rounds = in_turn(sides, options.pairs, options.seconds)
        parts = profile(single, options.seconds)
        least = floor(single, parts["convolutions_alone"], peer)
    return {"rounds": rounds, "floor": least, "profile": parts, "torch": about.get("versions", {})}


def check_weights(name: str, ours: Job, theirs: int) -> None:
    if ours.weights != theirs:
        raise SystemExit(f"{name}: ours has {ours.weights:,} weights, PyTorch's has {theirs:,}: not the same net")


def main() -> None:
    parser = parser_of_rounds(__doc__, "nets")
    parser.add_argument("--python", help="a Python that has PyTorch; ours alone without it")
    parser.add_argument("--only", nargs="+", choices=list(CELLS), default=list(CELLS), help="the nets (all)")
    parser.add_argument("--batches", nargs="+", type=int, default=[4, 8], help="samples per learner (4 8)")
    parser.add_argument("--learners", nargs="+", type=int, default=[1, 2], help="of ours (1 2)")
    parser.add_argument("--text", type=Path, default=TEXT, help="a text; without it characters at random")
    parser.add_argument("--device", choices=["auto", "onednn", "numpy"], default="auto", help="of ours (auto)")
    parser.add_argument("--eager", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    threadpool_limits(1)
    about = {**machine(PYTHON=options.python, FOLDER=options.output), "mpibow": versions()}
    found: Found = {"about": about, "seconds": options.seconds, "nets": {}}
    for name in options.only:
        for batch in options.batches:
            note(f"{name}, batch {batch}")
            made = measure(name, batch, options)
            found["about"] = after({**about, "torch": made.pop("torch")})
            found["nets"].setdefault(name, {})[str(batch)] = made
            if options.output:
                write(options.output, "nets", page(found), found)
    print(page(found), end="")


if __name__ == "__main__":
    main()
