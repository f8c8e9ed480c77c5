"""Images/s of the whole training step beside PyTorch's on the same cores, against the targets; about an hour.

    python -m benchmarks.speed.bench_cpu [--quoted] [--models resnet32] [--batches 1 4] [--output FOLDER]

Our figures are those of `python -m mpibow.bench train`. PyTorch trains the same net, with as many weights, with its
best of one thread or all cores and of channels first or last, which it looks for anew in every process; in the cells
that the README shows it tries torch.compile as well, which needs a C++ compiler and half a minute a cell. The two are
measured in turn, `--repeats` times, a fresh process each. Figures are medians, ratios medians of the paired ratios;
PyTorch's best at any batch is the best of a round. Let nothing else run meanwhile: it is PyTorch's two threads, which
wait for each other, that suffer most.

FOLDER/cpu.json and cpu.md are written after every cell, and keep the parts that are not measured again.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.sides import Found, Peer, after, machine, note, ours, parser_of, rate, write
from benchmarks.speed.cpu_page import NETS, Figure, Round, page
from mpibow.graph import choose_layout
from mpibow.job.synthetic import SHAPES
from mpibow.kernels import find_kernels
from mpibow.models import MODELS
from mpibow.models.classifier import classifier

DEFAULT = ("resnet32", "resnet20", "lenet", "vgg16_cifar", "resnet50")
FLOORS = (("resnet32", 4, 1.4), ("lenet", 8, None), ("lenet", 1, None))  # model, batch, most of its convolutions alone
STREAMS = (("lenet", 1), ("lenet", 8))  # bound by memory
SCALING = ("resnet32", 4, (1, 2), 1.8)  # model, batch, learners, how many times the images/s


def images_per_second(model: str, batch: int, learners: int, options: argparse.Namespace) -> float:
    arguments = ["train", model, "--batch-size", str(batch), "--learners", str(learners), "--json"]
    arguments += ["--seconds", str(options.seconds), "update.weight_decay=1e-4", *options.set]
    return float(json.loads(ours("bench", *arguments))["images_per_second"])


def cells(model: str, options: argparse.Namespace, peer: Peer | None) -> Iterator[tuple[int, bool, bool]]:
    """Every batch, whether ours is measured, and whether PyTorch's is."""
    net = NETS[model]
    mine = set(net.same if options.batches is None else options.batches)
    search = mine | set(net.search if options.search is None else options.search) if peer else set()
    for batch in sorted(mine | search):
        if not options.quoted or batch in net.quoted:
            yield batch, batch in mine, batch in search


def measure(made: Round, model: str, options: argparse.Namespace, peer: Peer | None) -> Iterator[None]:
    """Measures every batch that `made` does not have yet, ours and then PyTorch's."""
    for batch, mine, theirs in cells(model, options, peer):
        told = ""
        if mine and batch not in made.ours:
            made.ours[batch] = images_per_second(model, batch, options.learners, options)
            told = f" mpibow {rate(made.ours[batch])}"
        if peer and theirs and batch not in made.peer:
            tries = options.compile == "all" or (options.compile == "quoted" and batch in NETS[model].quoted)
            words = ("speed", model, batch, options.seconds, *["compile"] * tries)
            found = peer("speed.torch_peer", *words)
            made.peer[batch] = Figure(found["images_per_second"], found["setting"], found["compiled"])
            told += f" PyTorch {rate(made.peer[batch].rate)} ({found['setting']})"
        if told:
            note(f"  {model}, batch {batch}:{told}")
            yield


def speed(options: argparse.Namespace, peer: Peer | None, before: Found) -> Iterator[Found]:
    """Every model and batch beside PyTorch: a round of all of them after the other."""
    models = {model: list(map(Round.of, before.get("models", {}).get(model, ()))) for model in options.models}
    found = {"learners": options.learners, "seconds": options.seconds}
    for number in range(options.repeats):
        for model, rounds in models.items():
            note(f"{model}, round {number + 1} of {options.repeats}")
            if number == len(rounds):
                rounds.append(Round())
            for _ in measure(rounds[number], model, options, peer):
                kept = {name: [asdict(each) for each in made] for name, made in models.items() if made}
                yield {**found, "models": kept}


def scaling(options: argparse.Namespace, peer: Peer | None, before: Found) -> Iterator[Found]:
    """How much a second learner brings, and what the machine has for it: a process of one on each core brings that."""
    model, batch, (one, two), target = SCALING
    note(f"{model}, batch {batch}: {one} and {two} learners, {two} processes of {one}; {options.repeats} rounds")
    rounds = []
    for _ in range(options.repeats):
        rates = [images_per_second(model, batch, k, options) for k in (one, two)]
        with ThreadPoolExecutor(two) as pool:
            apart = pool.map(lambda _: images_per_second(model, batch, one, options), range(two))
        rounds.append([*rates, sum(apart)])
    alone, both, separate = (median(rates) for rates in zip(*rounds, strict=True))
    ratio, limit = (median(each[i] / each[0] for each in rounds) for i in (1, 2))
    found = {"model": model, "batch": batch, "rounds": rounds, "one": alone, "two": both, "separate": separate}
    yield {**found, "ratio": ratio, "limit": limit, "target": target}


# How often an iteration moves an array of the weights' size, at least. A learner's: the weights are read forward and
# backward, weights and momenta are read and written by the update; a gradient that is not kept as factors is written
# (into lines that are fetched first), read for its norm and for the update. The centre of one rank's learners, whose
# mean it is, is not moved at all.
PER_LEARNER, PER_GRADIENT = 2 + 4, 2 + 1 + 1


def bandwidth(size: int = 2**28, seconds: float = 1.0) -> float:
    """Bytes/s that all cores read and write together: x <- x + y, as updates go, of arrays too large for any cache."""
    cores = len(os.sched_getaffinity(0))
    pairs = [(np.ones(size // 8), np.ones(size // 8)) for _ in range(cores)]
    passes = [0] * cores

    def add(i: int, until: float) -> None:
        x, y = pairs[i]
        while time.perf_counter() < until:
            np.add(x, y, out=x)
            passes[i] += 1

    begin = time.perf_counter()
    threads = [threading.Thread(target=add, args=(i, begin + seconds)) for i in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 3 * size * sum(passes) / (time.perf_counter() - begin)


def profiles(model: str, batch: int, options: argparse.Namespace, *, direct: bool) -> list[Found]:
    """Of an iteration, and if `direct` of one whose convolutions are all oneDNN's own."""
    line = ("bench", "profile", model, "--batch-size", str(batch), "--seconds", str(2 * options.seconds), *options.set)
    runs: list[tuple[str, ...]] = [(), ("onednn.winograd=false",)]
    return [json.loads(ours(*line, *settings, "--json")) for settings in runs[: 1 + direct]]


def floor(options: argparse.Namespace, peer: Peer | None, before: Found) -> Iterator[Found]:
    """One learner's iteration beside its convolutions, each measured alone, and where the rest goes: the round whose
    ratio is the median."""
    made: list[Found] = []
    for model, batch, target in FLOORS:
        note(f"{model}, batch {batch}: where an iteration's time goes")
        rounds = [profiles(model, batch, options, direct=target is not None) for _ in range(options.repeats)]
        middle, *direct = sorted(rounds, key=lambda found: found[0]["iteration"] / found[0]["convolutions_alone"])[
            len(rounds) // 2
        ]
        middle |= {"target": target, "direct": direct[0]["convolutions_alone"] if direct else None}
        made.append(middle)
    yield {"profiles": made, "memory": [streamed(model, batch, options.learners) for model, batch in STREAMS]}


def streamed(model: str, batch: int, k: int) -> Found:
    """The bytes that an iteration of k learners moves at least, and how fast this machine moves them."""
    size, gradients = sizes_of(model, batch)
    weight_moves, gradient_moves = PER_LEARNER * k, PER_GRADIENT * k
    moved, rate = size * weight_moves + gradients * gradient_moves, bandwidth()
    return {
        "model": model, "batch_size": batch, "learners": k, "weights": size, "weight_moves": weight_moves,
        "gradients": gradients, "gradient_moves": gradient_moves, "bytes": moved, "bandwidth": rate,
        "limit": k * batch * rate / moved,
    }  # fmt: skip


Part = Callable[[argparse.Namespace, Peer | None, Found], Iterator[Found]]
PARTS: Mapping[str, Part] = {
    "speed": speed,
    "scaling": scaling,
    "floor": floor,
}  # --only chooses; each gives what it has so far, after every cell


def weights_of(model: str) -> int:
    classes, shape = SHAPES[model]
    return classifier(partial(MODELS[model], classes=classes), shape, "uint8")(1).weight_count


def sizes_of(model: str, batch: int) -> tuple[int, int]:
    """Bytes of the weights, and of what of their gradient is not kept as factors at this batch."""
    classes, shape = SHAPES[model]
    graph = classifier(partial(MODELS[model], classes=classes), shape, "uint8")(batch, True)
    layout = choose_layout(graph, find_kernels("auto", "float32", None)[0], factors=True)
    kept = sum(stop - start for start, stop, _, _ in layout.factors.tolist())
    return 4 * layout.size, 4 * (layout.size - kept)


def check_weights(counts: Mapping[str, int]) -> None:
    """Stops where PyTorch's nets have not as many weights as ours."""
    for model, count in counts.items():
        weights = weights_of(model)
        if weights != count:
            raise SystemExit(f"{model}: ours has {weights:,} weights, PyTorch's has {count:,}: not the same net")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="the parts (all)")
    parser.add_argument("--quoted", action="store_true", help="the cells that the README shows alone")
    parser.add_argument("--models", nargs="+", choices=list(NETS), default=DEFAULT, help=" ".join(DEFAULT))
    parser.add_argument("--batches", nargs="+", type=int, help="ours; those with a target, and some, unless given")
    parser.add_argument("--search", nargs="*", type=int, help="PyTorch's batches beside ours: 1 to 256 unless given")
    parser.add_argument("--cores", type=int, help="cores that both sides may use (all)")
    parser.add_argument("--learners", type=int, help="ours (as many as cores)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring a figure, beside warm-up (2)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (3)")
    parser.add_argument("--set", action="append", default=[], metavar="key.path=value", help="any setting of mpibow's")
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="interpreter that has PyTorch (this)")
    parser.add_argument(
        "--compile", choices=("quoted", "all", "none"), default="quoted",
        help="where PyTorch tries torch.compile: in the cells that the README shows (the default), in all, which takes "
        "hours, or in none",
    )  # fmt: skip
    parser.add_argument("--kept", action="store_true", help="PyTorch's malloc gives nothing back: faster than usual")
    parser.add_argument("--output", type=Path, help="folder for cpu.md and cpu.json")
    parser.add_argument("--resume", action="store_true", help="measure the cells that FOLDER/cpu.json does not have")
    options = parser.parse_args()
    if options.resume and not options.output:
        parser.error("--resume: needs --output FOLDER, whose cpu.json it continues")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    options.learners = options.learners or len(os.sched_getaffinity(0))
    about = machine()
    first = json.loads(ours("bench", "train", options.models[0], "--seconds", "0.1", "--json", *options.set))
    about["mpibow"] = {**first["versions"], "kernels": first["kernels"]}
    peer: Peer | None = Peer(options.torch, options.kept)
    if peer and (reason := peer.missing()):
        note(f"PyTorch is not measured: {reason}")
        peer = None
    if peer:
        theirs = peer("speed.torch_peer", "about", *options.models)
        check_weights(theirs["weights"])
        about["torch"] = theirs["versions"]
    path = options.output and options.output / "cpu.json"
    found: dict[str, Found] = json.loads(path.read_text()) if path and path.exists() else {}
    for part in options.only:
        for made in PARTS[part](options, peer, found.get(part, {}) if options.resume else {}):
            found[part] = {"about": after(about), **made}
            if options.output:
                write(options.output, "cpu", page(found), found)
    print(page(found), end="")


if __name__ == "__main__":
    main()
