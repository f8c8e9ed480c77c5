"""Fine-tuning against training from scratch: eight classes of CIFAR-10, then the other two with 200 images each.

    python -m benchmarks.nets.bench_finetune DATA    # a folder of records of CIFAR-10; about ten minutes on two cores

Every training is a cell, kept in benchmarks/results/finetune.json when it ends. Started again after a kill, the script
continues the training that was cut off, and trains only what is missing. The page finetune.md is made of what is there.
"""

import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from textwrap import wrap

import numpy as np

import mpibow as mb
from benchmarks.sides import ROOT, parser_of, table
from mpibow.data import Array, open_records
from mpibow.models import MODELS
from mpibow.run.directory import write

RESULTS = ROOT / "benchmarks/results/finetune.json"
NET = "resnet20"
OLD, NEW = tuple(range(8)), (8, 9)  # ship and truck are new
EACH_OLD, EACH_NEW, EACH_VALIDATION = 4000, 200, 500  # training images of a class
EPOCHS_OLD, EPOCHS_NEW, FROZEN = 4, 15, 5
TUNED, SEEDS = 0, (1, 2, 3, 4, 5)  # the seed that chooses the rates, on validation images; those of the table
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's, two-sided 95 %, by the number of seeds
BODY = ("conv*", "batch_norm*")
MODES: Mapping[str, Mapping[str, object]] = {
    "from scratch": {},
    f"fine-tuned, body frozen for {FROZEN} epochs": {"freeze": {"epochs": FROZEN}},
    "fine-tuned, body at a tenth of the rate": {"lr_scale": 0.1},
}
SETTINGS: dict[str, object] = {
    "normalise": "half",  # the same scaling for old and new classes
    "augment": {"pad": 4, "flip": True},
    "batch_size": 8,
    "learners": 2,
    "checkpoint": {"every": "0.3 minutes", "keep": 1},
}


def images_of(folder: Path, labels: Array, picked: Mapping[int, slice]) -> tuple[Array, Array]:
    """Images of the classes in `picked`, of each those that its slice takes; classes are numbered from 0."""
    rows = [np.flatnonzero(labels == label)[part] for label, part in picked.items()]
    part = open_records(folder).part(np.concatenate(rows).astype(np.int64))
    images, found = np.empty((part.count, *part.shape), part.dtype), np.empty(part.count, np.int32)
    part.read(np.arange(part.count), images, found)
    return images, np.repeat(np.arange(len(picked)), [len(each) for each in rows])


def train(
    runs: Path, name: str, data: tuple[Array, Array], seed: int, epochs: int, rate: float, **more: object
) -> mb.Fitted:
    """The trained net, by a run that continues where it was cut off."""
    net = partial(MODELS[NET], classes=int(data[1].max()) + 1)
    groups = more.pop("groups", [])
    update = {"lr": rate, "momentum": 0.9, "weight_decay": 5e-4, "schedule": {"name": "cosine"}, "groups": groups}
    return mb.fit(
        net, data, out=str(runs / name), resume="auto", seed=seed + 1, update=update, stop={"epochs": epochs},
        **SETTINGS, **more,
    )  # fmt: skip


def cell(folder: Path, runs: Path, mode: str, seed: int, rate: float) -> float:
    """Accuracy of one training on test images of the new classes; of the seed that chooses, on validation images."""
    labels = open_records(folder / "train").labels()
    generator, more = np.random.default_rng(seed), dict(MODES[mode])
    order = {label: generator.permutation(4000) for label in NEW}  # the other 1,000 are for validation
    rows = {label: np.flatnonzero(labels == label) for label in NEW}
    picked = np.concatenate([rows[label][order[label][:EACH_NEW]] for label in NEW])
    chosen = np.full_like(labels, -1)
    chosen[picked] = labels[picked]
    data = images_of(folder / "train", chosen, dict.fromkeys(NEW, slice(None)))
    settings: dict[str, object] = {}
    if more:
        body = train(
            runs, "body", images_of(folder / "train", labels, dict.fromkeys(OLD, slice(EACH_OLD))), TUNED, EPOCHS_OLD,
            0.05,
        )  # fmt: skip
        settings = {
            "weights": {"file": body, "exclude": "dense1.*"},
            "groups": [{"match": pattern, **more} for pattern in BODY],
        }
    name = f"{mode.replace(', ', '-').replace(' ', '-')}-{seed}-{rate}"
    fitted = train(runs, name, data, seed, EPOCHS_NEW, rate, **settings)
    if seed == TUNED:
        held = images_of(folder / "train", labels, dict.fromkeys(NEW, slice(4000, 4000 + EACH_VALIDATION)))
    else:
        test = open_records(folder / "test").labels()
        held = images_of(folder / "test", test, dict.fromkeys(NEW, slice(None)))
    return float((fitted.predict(held[0]).argmax(axis=1) == held[1]).mean())


def key(mode: str, seed: int, rate: float) -> str:
    return f"{mode}; seed {seed}; lr {rate}"


def best_rate(found: Mapping[str, float], mode: str) -> float:
    return max(RATES, key=lambda rate: found[key(mode, TUNED, rate)])


def page(found: Mapping[str, float]) -> str:
    """The table as Markdown. `found` has every cell."""
    lines = [
        "# Fine-tuning against training from scratch",
        "",
        "Made by `python -m benchmarks.nets.bench_finetune data/cifar10`.",
        "",
        f"- Net: `{NET}`. Body: trained on {len(OLD)} classes of CIFAR-10, {EACH_OLD:,} images each, for {EPOCHS_OLD} "
        "epochs at rate 0.05, once. Seeds differ in the images of the task, their order and the new weights.",
        f"- Task: the other two classes (ship, truck), {EACH_NEW} training images each, another choice with each seed; "
        f"{EPOCHS_NEW} epochs in every row.",
        "- Both: two learners of batch 8, SGD with momentum 0.9, weight decay 5e-4, cosine to 0, pad 4 and flip.",
        f"- Rates: the best of {', '.join(map(str, RATES))} on {EACH_VALIDATION} other training images of each new "
        f"class, on seed {TUNED}, which is in no column.",
        "- Accuracy in % on the 2,000 test images of the two classes, which chose nothing.",
    ]
    rows, scratch = [], [found[key("from scratch", seed, best_rate(found, "from scratch"))] for seed in SEEDS]
    for mode in MODES:
        rate = best_rate(found, mode)
        own = [found[key(mode, seed, rate)] for seed in SEEDS]
        gains = [100 * (a - b) for a, b in zip(own, scratch, strict=True)]
        half = T[len(SEEDS)] * stdev(gains) / math.sqrt(len(gains))
        interval = f"{mean(gains):+.1f} [{mean(gains) - half:+.1f}, {mean(gains) + half:+.1f}]"
        cells = [f"{100 * each:.2f}" for each in (*own, mean(own))]
        rows.append([mode, str(rate), *cells, "" if mode == "from scratch" else interval])
    heads = [
        "training",
        "rate",
        *(f"seed {seed}" for seed in SEEDS),
        "mean",
        "less from scratch, points, 95 % interval",
    ]
    text = "\n".join("\n".join(wrap(line, 118, subsequent_indent="  ")) for line in lines)
    return f"{text}\n\n{table(heads, rows)}\nThe interval is Student's of the differences within each seed.\n"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="folder with train and test, as datasets/cifar.py writes it")
    parser.add_argument("--runs", type=Path, default=Path(tempfile.gettempdir()) / "mpibow-finetune")
    options = parser.parse_args()
    found: dict[str, float] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}

    def need(mode: str, seed: int, rate: float) -> None:
        name = key(mode, seed, rate)
        if name not in found:
            found[name] = cell(options.data, options.runs, mode, seed, rate)
            write(RESULTS, json.dumps(found, indent=1) + "\n")
            print(f"{name}: {found[name]:.4f}", flush=True)

    for mode in MODES:
        for rate in RATES:
            need(mode, TUNED, rate)
        for seed in SEEDS:
            need(mode, seed, best_rate(found, mode))
    write(RESULTS.with_suffix(".md"), page(found))
    shutil.rmtree(options.runs, ignore_errors=True)


if __name__ == "__main__":
    main()
