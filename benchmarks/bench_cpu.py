"""Images/s of the whole training step beside PyTorch's on the same cores, against the targets; about half an hour.

    python benchmarks/bench_cpu.py [--models resnet32] [--batches 1 4] [--set device=onednn] [--output FOLDER]

Our figures are those of `python -m mpibow.bench train`. PyTorch trains the same net, with as many weights, with its
best of one thread or all cores and of channels first or last, which it looks for anew in every process. The two are
measured in turn, `--repeats` times, a fresh process each. Figures are medians, ratios medians of the paired ratios;
PyTorch's best at any batch is the best of a round. Let nothing else run meanwhile: it is PyTorch's two threads, which
wait for each other, that suffer most.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, mode
from typing import Any

import numpy as np
from sides import Peer, heading, machine, note, ours, table, verdict, write

from mpibow.bench import SHAPES
from mpibow.graph.plan import choose_layout
from mpibow.kernels import choose
from mpibow.models import MODELS
from mpibow.models.classifier import classifier


@dataclass(frozen=True)
class Net:
    """Our batches with the ratio wanted to PyTorch at the same batch, and at its best of the batches in `search`."""

    same: Mapping[int, float | None]
    any: Mapping[int, float] = field(default_factory=dict)
    search: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256)


RESNET = Net({1: 5.0, 2: 4.0, 4: 3.2, 8: None, 16: 1.95, 32: None}, {4: 1.25, 8: 1.35, 16: 1.35, 32: 1.35})
PLAIN = Net({1: None, 4: None, 8: None, 16: None})
NETS = {
    "resnet32": RESNET,
    "resnet20": RESNET,
    "lenet": Net({1: 2.0, 2: 2.0, 4: 2.0, 8: 2.0, 16: 2.0, 64: None}, {64: 1.2}),
    "vgg16_cifar": Net({4: 1.3, 8: 1.3}, search=(4, 8, 16, 32, 64, 128)),  # smaller ones are slower, and may be skipped
    "resnet50": Net({4: 1.15}, search=(4, 8, 16, 32)),
    "convnet": PLAIN,
    "mlp": PLAIN,
    "logistic": PLAIN,
}
DEFAULT = ("resnet32", "resnet20", "lenet", "vgg16_cifar", "resnet50")
FLOORS = (("resnet32", 4, 1.4), ("lenet", 8, None), ("lenet", 1, None))  # model, batch, most of its convolutions alone
STREAMS = (("lenet", 1), ("lenet", 8))  # bound by memory
SCALING = ("resnet32", 4, (1, 2), 1.8)  # model, batch, learners, how many times the images/s


@dataclass(frozen=True)
class Figure:
    """What PyTorch reaches, images/s, and its setting."""

    rate: float
    setting: str


@dataclass(frozen=True)
class Round:
    """What was measured in turn: images/s by batch."""

    ours: dict[int, float]
    peer: dict[int, Figure]


@dataclass(frozen=True)
class Row:
    """A batch of the table: medians over the rounds; None where something was not measured."""

    batch: int
    ours: float | None
    peer: float | None = None
    setting: str = ""
    ratio: float | None = None
    target: float | None = None
    best: float | None = None
    best_batch: int | None = None
    best_ratio: float | None = None
    best_target: float | None = None


def rows(net: Net, rounds: Sequence[Round]) -> list[Row]:
    return [_row(net, rounds, batch) for batch in sorted({*rounds[0].ours, *rounds[0].peer})]


def _row(net: Net, rounds: Sequence[Round], batch: int) -> Row:
    mine = [r.ours[batch] for r in rounds] if batch in rounds[0].ours else []
    peer = [r.peer[batch] for r in rounds] if batch in rounds[0].peer else []
    best = [max((figure.rate, size) for size, figure in r.peer.items()) for r in rounds] if rounds[0].peer else []
    return Row(
        batch,
        ours=median(mine) if mine else None,
        peer=median(figure.rate for figure in peer) if peer else None,
        setting=mode(figure.setting for figure in peer) if peer else "",
        ratio=median(a / b.rate for a, b in zip(mine, peer, strict=True)) if mine and peer else None,
        target=net.same.get(batch),
        best=median(rate for rate, _ in best) if best else None,
        best_batch=mode(size for _, size in best) if best else None,
        best_ratio=median(a / rate for a, (rate, _) in zip(mine, best, strict=True)) if mine and best else None,
        best_target=net.any.get(batch),
    )


HEADS = ("model", "batch", "mpibow, images/s", "PyTorch, images/s", "its setting", "ratio", "target", "")
HEADS += ("PyTorch's best at any batch", "ratio", "target", "")


def line(model: str, row: Row) -> list[str]:
    best = f"{show(row.best)} at {row.best_batch}" if row.best_ratio is not None else ""
    return [
        *(model, str(row.batch), show(row.ours), show(row.peer), row.setting),
        *(times(row.ratio), times(row.target), verdict(row.ratio, row.target)),
        *(best, times(row.best_ratio), times(row.best_target), verdict(row.best_ratio, row.best_target)),
    ]


def show(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"


def times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def images_per_second(model: str, batch: int, learners: int, options: argparse.Namespace) -> float:
    arguments = ["train", model, "--batch-size", str(batch), "--learners", str(learners), "--json"]
    arguments += ["--seconds", str(options.seconds), "update.weight_decay=1e-4", *options.set]
    return float(json.loads(ours("bench", *arguments))["images_per_second"])


def measure(model: str, options: argparse.Namespace, peer: Peer | None) -> Round:
    """Every batch once, ours and then PyTorch's."""
    batches = set(NETS[model].same if options.batches is None else options.batches)
    search = batches | set(NETS[model].search if options.search is None else options.search)
    made = Round({}, {})
    for batch in sorted(search if peer else batches):
        told = f"  {model}, batch {batch}:"
        if batch in batches:
            made.ours[batch] = images_per_second(model, batch, options.learners, options)
            told += f" mpibow {show(made.ours[batch])}"
        if peer:
            compiled = ["compile"] if options.compile else []
            found = peer("torch_peer.py", "speed", model, batch, options.seconds, *compiled)
            made.peer[batch] = Figure(found["images_per_second"], found["setting"])
            told += f" PyTorch {show(made.peer[batch].rate)} ({found['setting']})"
        note(told)
    return made


def speed(options: argparse.Namespace, peer: Peer | None) -> tuple[str, dict[str, Any]]:
    """Every model and batch beside PyTorch."""
    cells: list[list[str]] = []
    found: dict[str, Any] = {}
    for model in options.models:
        rounds = []
        for number in range(options.repeats):
            note(f"{model}, round {number + 1} of {options.repeats}")
            rounds.append(measure(model, options, peer))
        made = rows(NETS[model], rounds)
        cells += [line(model, row) for row in made]
        found[model] = {"rounds": [asdict(r) for r in rounds], "rows": [asdict(row) for row in made]}
    text = (
        f"{options.learners} learners of mpibow, SMA, the whole training step; medians of {options.repeats} rounds of "
    )
    return text + f"{options.seconds:g} s a figure.\n\n{table(HEADS, cells)}", found


def scaling(options: argparse.Namespace, peer: Peer | None) -> tuple[str, dict[str, Any]]:
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
    heads = ["model", "batch", "1 learner, images/s", f"{two} learners", "ratio", "target", "", f"{two} processes of 1"]
    cells = [model, str(batch), show(alone), show(both), times(ratio), times(target), verdict(ratio, target)]
    found = {"rounds": rounds, "one": alone, "two": both, "separate": separate, "ratio": ratio, "limit": limit}
    return table([*heads, "ratio"], [[*cells, show(separate), times(limit)]]), {**found, "target": target}


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


def floor_text(
    model: str, batch: int, target: float | None, made: Mapping[str, Any], direct: Mapping[str, Any] | None = None
) -> str:
    """What `mpibow.bench profile` found, against `target`: the most times that its convolutions alone may take.

    `direct` is what it found with oneDNN's own convolutions only.
    """
    ratio, limit = made["ratio_alone"], made["operations"] / made["fastest"]
    rows = sorted(made["parts"].items(), key=lambda part: -part[1]["seconds"])[:8]
    cells = [[kind, str(part["count"]), f"{1e3 * part['seconds']:.2f}"] for kind, part in rows]
    other = made["plan"] - sum(part["seconds"] for _, part in rows)
    rest = made["iteration"] - made["plan"]
    cells += [
        ["other operators", "", f"{1e3 * other:.2f}"],
        ["update, averaging, data, loop", "", f"{1e3 * rest:.2f}"],
    ]
    wanted = f" (at most {target:.2f}: {verdict(ratio, target, most=True)})" if target else ""
    beyond = ", ".join(f"{1e3 * seconds:.2f} ms {name}" for name, seconds in made["beyond"].items())
    own = (
        f"oneDNN's own convolutions alone (onednn.winograd=false) take {1e3 * direct['convolutions_alone']:.2f} ms: "
        f"the iteration takes {made['iteration'] / direct['convolutions_alone']:.2f} times these. "
        if direct
        else ""
    )
    return (
        f"{model}, batch {batch}, one learner: {1e3 * made['iteration']:.2f} ms an iteration, {ratio:.2f} times "
        f"its convolutions measured alone, each step repeated by itself, {1e3 * made['convolutions_alone']:.2f} ms"
        f"{wanted}; {made['ratio_in_turn']:.2f} times the same steps in turn, "
        f"{1e3 * made['convolutions_in_turn']:.2f} ms. Beyond them alone: {beyond}. {own}"
        f"Its {made['operations'] / 1e9:.2f} GFLOP at the rate of the fastest convolution, "
        f"{made['fastest'] / 1e9:.0f} GFLOP/s a core, would take {1e3 * limit:.2f} ms: "
        f"{batch / limit:,.0f} images/s a learner are the limit. In turn:\n\n"
        f"{table(['operator', 'steps', 'ms'], cells)}"
    )


def profiles(model: str, batch: int, options: argparse.Namespace, *, direct: bool) -> list[dict[str, Any]]:
    """Of an iteration, and if `direct` of one whose convolutions are all oneDNN's own."""
    line = ("bench", "profile", model, "--batch-size", str(batch), "--seconds", str(2 * options.seconds), *options.set)
    runs: list[tuple[str, ...]] = [(), ("onednn.winograd=false",)]
    return [json.loads(ours(*line, *settings, "--json")) for settings in runs[: 1 + direct]]


def floor(options: argparse.Namespace, peer: Peer | None) -> tuple[str, dict[str, Any]]:
    """One learner's iteration beside its convolutions, each measured alone, and where the rest goes: the round whose
    ratio is the median."""
    texts, found = [], {}
    for model, batch, target in FLOORS:
        note(f"{model}, batch {batch}: where an iteration's time goes")
        rounds = [profiles(model, batch, options, direct=target is not None) for _ in range(options.repeats)]
        made, *direct = sorted(rounds, key=lambda found: found[0]["ratio_alone"])[len(rounds) // 2]
        found[f"{model}, {batch}"] = made
        texts.append(floor_text(model, batch, target, made, *direct))
    rate, k = bandwidth(), options.learners
    for model, batch in STREAMS:
        size, gradients = sizes_of(model, batch)
        moved = size * PER_LEARNER * k + gradients * PER_GRADIENT * k
        limit = k * batch * rate / moved
        found[f"{model}, {batch}, memory"] = {"bytes": moved, "bandwidth": rate, "limit": limit}
        texts.append(
            f"{model}, batch {batch}, {k} learners: weights and momenta, {size / 1e6:.1f} MB each, are read or written "
            f"{PER_LEARNER * k} times an iteration, what of a gradient is not kept as factors, "
            f"{gradients / 1e6:.2f} MB, {PER_GRADIENT * k} times. At the {rate / 1e9:.0f} GB/s at which all "
            f"cores read and write large arrays, that takes {1e3 * moved / rate:.2f} ms: without any arithmetic "
            f"{limit:,.0f} images/s are the limit, of what does not stay in a cache.\n"
        )
    return "\n".join(texts), found


Part = Callable[[argparse.Namespace, Peer | None], tuple[str, dict[str, Any]]]
PARTS: Mapping[str, Part] = {
    "speed": speed,
    "scaling": scaling,
    "floor": floor,
}  # --only chooses; each gives Markdown and JSON


def weights_of(model: str) -> int:
    classes, shape = SHAPES[model]
    return classifier(partial(MODELS[model], classes=classes), shape, "uint8")(1).weight_count


def sizes_of(model: str, batch: int) -> tuple[int, int]:
    """Bytes of the weights, and of what of their gradient is not kept as factors at this batch."""
    classes, shape = SHAPES[model]
    graph = classifier(partial(MODELS[model], classes=classes), shape, "uint8")(batch, True)
    layout = choose_layout(graph, choose("auto", "float32", None)[0], factors=True)
    kept = sum(stop - start for start, stop, _, _ in layout.factors.tolist())
    return 4 * layout.size, 4 * (layout.size - kept)


def check_weights(counts: Mapping[str, int]) -> None:
    """Stops where PyTorch's nets have not as many weights as ours."""
    for model, count in counts.items():
        weights = weights_of(model)
        if weights != count:
            raise SystemExit(f"{model}: ours has {weights:,} weights, PyTorch's has {count:,}: not the same net")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="the parts (all)")
    parser.add_argument("--models", nargs="+", choices=list(NETS), default=DEFAULT, help=" ".join(DEFAULT))
    parser.add_argument("--batches", nargs="+", type=int, help="ours; those with a target, and some, unless given")
    parser.add_argument("--search", nargs="*", type=int, help="PyTorch's batches beside ours: 1 to 256 unless given")
    parser.add_argument("--learners", type=int, default=2, help="ours (2)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring a figure, beside warm-up (2)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (3)")
    parser.add_argument("--set", action="append", default=[], metavar="key.path=value", help="any setting of mpibow's")
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="interpreter that has PyTorch (this)")
    parser.add_argument("--compile", action="store_true", help="PyTorch tries torch.compile as well; takes hours")
    parser.add_argument("--kept", action="store_true", help="PyTorch's malloc gives nothing back: faster than usual")
    parser.add_argument("--output", type=Path, help="folder for cpu.md and cpu.json")
    options = parser.parse_args()
    about = machine()
    first = json.loads(ours("bench", "train", options.models[0], "--seconds", "0.1", "--json", *options.set))
    about["mpibow"] = {**first["versions"], "kernels": first["kernels"]}
    peer: Peer | None = Peer(options.torch, options.kept)
    if peer and (reason := peer.missing()):
        note(f"PyTorch is not measured: {reason}")
        peer = None
    if peer:
        theirs = peer("torch_peer.py", "about", *options.models)
        check_weights(theirs["weights"])
        about["torch"] = theirs["versions"]
    found: dict[str, Any] = {"about": about}
    texts = []
    for part in options.only:
        text, found[part] = PARTS[part](options, peer)
        texts.append(text)
    about["load"].append(round(os.getloadavg()[0], 2))
    page = "\n".join([heading("Training on a CPU, beside PyTorch", about), *texts])
    print(page, end="")
    if options.output:
        write(options.output, "cpu", page, found)


if __name__ == "__main__":
    main()
