"""Compares the samples/s of two commits, or two checkouts: python -m benchmarks.speed.same_speed OLD [NEW]

Both train the same net on made-up data, in turn, each time in a fresh process; every other pair begins with the new
one. The median ratio new / old stands beside the interval that holds it with at least 95 % (order statistics: for nine
pairs the second lowest to the second highest ratio, 96 %). Exit code 1 where an interval's upper end is below --bound.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.checkouts import environment_of, two_trees
from benchmarks.sides import machine, note, parser_of
from benchmarks.turns import interval

BATCHES = {"lenet": 8, "resnet20": 4, "resnet32": 4, "vgg16_cifar": 4, "gpt": 4, "vit": 4}  # those that docs quote
NETS = ("gpt", "vit")  # of bench_nets, on its data


def images_per_second(tree: Path, folder: Path, model: str, batch: int, options: argparse.Namespace) -> float:
    """What `bench train` of the checkout `tree` says; of NETS samples/s, by net_cells."""
    command = [
        sys.executable, "-m", "mpibow.bench", "train", model, "--device", "onednn", "--batch-size", str(batch),
        "--learners", str(options.learners), "--seconds", str(options.seconds), "--json", *options.settings,
    ]  # fmt: skip
    if model in NETS:
        words = (model, batch, options.learners, options.seconds)
        command = [sys.executable, "-m", "benchmarks.nets.net_cells", *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment_of(tree), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{tree}: exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    return float(json.loads(done.stdout)["images_per_second"])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("old", help="a commit, or the folder of a checkout")
    parser.add_argument("new", nargs="?", help="another one; default: the working tree")
    parser.add_argument("--models", nargs="+", choices=BATCHES, default=["lenet", "resnet20", "resnet32"])
    parser.add_argument("--learners", type=int, default=2, help="of the one rank (2)")
    parser.add_argument("--pairs", type=int, default=9, help="of runs (9)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of training in each run (5)")
    parser.add_argument("--bound", type=float, default=0.95, help="least upper end of an interval (0.95)")
    parser.add_argument("settings", nargs="*", metavar="key.path=value", help="settings of both sides")
    options = parser.parse_intermixed_args()
    if options.new and "=" in options.new:
        options.settings, options.new = [options.new, *options.settings], None
    if options.settings and (apart := [model for model in options.models if model in NETS]):
        parser.error(f"{options.settings[0]}: {apart[0]} takes no settings; name other --models")
    about, low = machine(), 0
    print(f"{about['date']}, {about['processor']}, {about['cores']} cores, load average {about['load'][0]}")
    with tempfile.TemporaryDirectory() as temporary, two_trees(options.old, options.new, Path(temporary)) as trees:
        for model in options.models:
            ratios, speeds = list[float](), list[float]()
            for pair in range(options.pairs):
                order = (0, 1) if pair % 2 == 0 else (1, 0)
                found = {
                    side: images_per_second(trees[side], Path(temporary), model, BATCHES[model], options)
                    for side in order
                }
                ratios.append(found[1] / found[0])
                speeds.append(found[1])
                note(f"{model}, pair {pair + 1} of {options.pairs}: {found[0]:,.0f} and {found[1]:,.0f} samples/s")
            ends = interval(ratios)
            low += ends[1] < options.bound
            print(
                f"{model}, batch {BATCHES[model]}, {options.learners} learners: new / old {median(ratios):.3f} "
                f"({ends[0]:.3f} to {ends[1]:.3f}), {median(speeds):,.0f} samples/s", flush=True,
            )  # fmt: skip
    print(f"{low} net(s) below {options.bound}")
    sys.exit(bool(low))


if __name__ == "__main__":
    main()
