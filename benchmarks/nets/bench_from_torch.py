"""Training steps of a PyTorch module as a net, of the same net by hand, and of the module in PyTorch; about 3 minutes.

    python -m benchmarks.nets.bench_from_torch [--batches 4] [--pairs 9] [--seconds 1] [--eager] [--output FOLDER]

The module is ResNet-18 with a stem of 3 x 3, on images of 32 x 32. This Python has PyTorch (`pip install -e .[torch]`),
which is only imported by the other processes. Ours trains with one and with two learners of one thread each; the two
are averaged (SMA), or take one step of their mean gradient on one copy of the weights (S-SGD). PyTorch trains with one
thread and with as many as there are cores, eager and by torch.compile, which needs a C++ compiler. All take SGD with
momentum (PyTorch's fused), float32 and the same samples: forward, backward, update.
Every round has a turn of each side, and every other round has them in reverse; ratios are of one round. Let nothing
else run meanwhile.

FOLDER/from-torch.json and from-torch.md are written after every batch.
"""

import argparse
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

import mpibow as mb
from benchmarks import turns
from benchmarks.asked import Asked
from benchmarks.nets.bench_nets import LIMIT, torch_sides
from benchmarks.nets.nets_page import best
from benchmarks.sides import ROOT, Found, after, heading, machine, note, parser_of_rounds, table, verdict, write
from mpibow.aten.net import TorchNet
from mpibow.data import Array
from mpibow.graph import Tensor
from mpibow.job import Job
from mpibow.run.results import versions
from tests.torch_in.by_hand import resnet18

SAMPLES, CLASSES = 256, 10
UPDATE = {"name": "sgd", "lr": 0.01, "momentum": 0.9}
PEER = [sys.executable, "-m", "benchmarks.nets.from_torch_peer"]
OURS = {"1": (1, "sma"), "2": (2, "sma"), "2, S-SGD": (2, "ssgd")}  # learners and rule
KINDS = ("from_torch", "PyTorch")
TWICE, EQUAL = 2.0, 0.95  # the least of PyTorch's speed, and of that of the net by hand

Net = Callable[[Tensor], Tensor]


def job(net: Net, data: Mapping[str, Array], batch: int, learners: int, rule: str, out: str) -> Job:
    def losses(image: Tensor, label: Tensor) -> Tensor:
        return mb.cross_entropy(net(image), label)

    return turns.job("net", losses, data, batch, learners, "onednn", out, update=UPDATE, rule={"name": rule})


def read_module(file: Path) -> TorchNet:
    """The net of the module, which another process reads: PyTorch's threads stay out of this one."""
    subprocess.run([*PEER, "read", str(file)], cwd=ROOT, check=True)
    return TorchNet(pickle.loads(file.read_bytes()), None)


def measure(batch: int, options: argparse.Namespace) -> Found:
    """Images/s of all sides in every round."""
    generator = np.random.default_rng(0)
    data = {
        "image": generator.standard_normal((SAMPLES, 3, 32, 32), np.float32),
        "label": generator.integers(CLASSES, size=SAMPLES).astype(np.int32),
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        np.savez(folder / "data.npz", **data)  # type: ignore[arg-type]  # it takes arrays by name
        nets: dict[str, Net] = {"from_torch": read_module(folder / "program"), "by hand": resnet18}
        sides = dict[str, turns.Side]()
        for name, net in nets.items():
            for side, (learners, rule) in OURS.items():
                sides[f"{name}, {side}"] = stack.enter_context(
                    turns.opened(partial(job, net, data, batch, learners, rule))
                )
        peer = Asked([*PEER, "serve", str(batch), str(folder / "data.npz")])
        stack.callback(peer.close)
        about = peer(LIMIT, about=True)
        sides |= torch_sides(peer, not options.eager)
        rounds = turns.in_turn(sides, options.pairs, options.seconds)
    return {"rounds": rounds, "torch": about["versions"]}


def ratio(rounds: turns.Rounds, one: str, other: str, target: float) -> list[str]:
    each = turns.ratios(rounds, one, other)
    low, high = turns.interval(each)
    middle = median(each)
    return [one, other, f"{middle:.3f}", f"{low:.3f} to {high:.3f}", f"{target:.2f}", verdict(middle, target)]


def page(found: Found) -> str:
    text = heading("A PyTorch module trained by mpibow", found["about"])
    text += "\nResNet-18 with a stem of 3 x 3, images of 32 x 32, SGD with momentum; images/s, medians of rounds.\n"
    for batch, made in found["batches"].items():
        rounds = made["rounds"]
        text += f"\n## Batch {batch}\n\n"
        text += table(("side", "images/s"), [[side, f"{median(each):.1f}"] for side, each in rounds.items()]) + "\n"
        fastest = (best(rounds, [side for side in rounds if side.startswith(kind)]) for kind in KINDS)
        rows = [ratio(rounds, *fastest, TWICE)]
        rows += [ratio(rounds, f"from_torch, {k}", f"by hand, {k}", EQUAL) for k in OURS]
        text += table(("side", "beside", "times", "interval", "target", ""), rows)
    return text


def main() -> None:
    parser = parser_of_rounds(__doc__, "from-torch")
    parser.add_argument("--batches", nargs="+", type=int, default=[4], help="samples per learner (4)")
    parser.add_argument("--eager", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    threadpool_limits(1)
    about = {**machine(FOLDER=options.output), "mpibow": versions()}
    found: Found = {"about": about, "seconds": options.seconds, "batches": {}}
    for batch in options.batches:
        note(f"batch {batch}")
        made = measure(batch, options)
        found["about"] = after({**about, "torch": made.pop("torch")})
        found["batches"][str(batch)] = made
        if options.output:
            write(options.output, "from-torch", page(found), found)
    print(page(found), end="")


if __name__ == "__main__":
    main()
