"""Training on two nodes: exchanges in buckets beside computing, exchanges behind it, and PyTorch's DDP by gloo.

    python -m benchmarks.nets.roads resnet20 vgg16_cifar --rates 1gbit 10gbit      # as root: namespaces as nodes

One rank a node, one thread a rank, samples/s of both; sides take turns, and the medians of the rounds are compared.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from statistics import median

from benchmarks.sides import MPI, note
from tests.launching import OPEN_MPI
from tests.nodes.hosts import Cluster, cluster

LIMIT = 600.0  # seconds of a side


def ours(nodes: Cluster, model: str, options: argparse.Namespace, *settings: str) -> float:
    with tempfile.TemporaryDirectory() as out:
        return _ours(nodes, model, options, f"out={out}", *settings)


def _ours(nodes: Cluster, model: str, options: argparse.Namespace, *settings: str) -> float:
    command = nodes.mpirun([1, 1], "-m", "mpibow.bench", "train", *model.split(), "--json", "--batch-size",
                           str(options.batch), "--seconds", str(options.seconds), f"rule.name={options.rule}",
                           *settings)  # fmt: skip
    done = subprocess.run(command, env={**os.environ, **MPI, **OPEN_MPI}, text=True, stdout=-1, timeout=LIMIT)
    done.check_returncode()
    return float(json.loads(done.stdout.splitlines()[-1])["images_per_second"])


def ddp(nodes: Cluster, model: str, options: argparse.Namespace) -> float:
    address = nodes.nodes[0].address
    shared = {"MASTER_ADDR": address, "MASTER_PORT": "29511", "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "eth0"}
    peer = [options.torch, "-m", "benchmarks.nets.ddp_peer", model, str(options.batch), str(options.seconds)]
    sides = [
        subprocess.Popen(
            node.enter(*peer),
            env={**os.environ, **shared, "RANK": str(rank)}, stdout=-1, text=True,
        )
        for rank, node in enumerate(nodes.nodes)
    ]  # fmt: skip
    said = [side.communicate(timeout=LIMIT)[0] for side in sides]
    if any(side.returncode for side in sides):
        raise SystemExit("DDP failed")
    return float(said[0])


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains on two nodes behind slowed links.")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--rates", nargs="+", default=["1gbit", "10gbit"], help="of the links, as tc writes them")
    parser.add_argument("--rule", default="sma")
    parser.add_argument("--batch", type=int, default=8, help="samples a rank")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="a Python with PyTorch")
    options = parser.parse_args()
    print("| link | net | rule | behind | in buckets | ratio | DDP | ratio |\n" + "| --- " * 8 + "|")
    for rate in options.rates:
        for model in options.models:
            rounds = list[tuple[float, float, float]]()
            with cluster(2, rate) as nodes:
                for _ in range(options.rounds):
                    whole = ours(nodes, model, options, "buckets=1")
                    rounds.append((whole, ours(nodes, model, options), ddp(nodes, model, options)))
                    note(f"{rate}, {model}: {rounds[-1]}")
            whole, cut, theirs = map(median, zip(*rounds, strict=True))
            figures = f"{whole:.1f} | {cut:.1f} | {cut / whole:.2f} | {theirs:.1f} | {cut / theirs:.2f}"
            print(f"| {rate} | {model} | {options.rule} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
