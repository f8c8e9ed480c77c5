"""A GPU beside PyTorch on the same one: images/s, learners, the cost of averaging, the floor, time to accuracy.

    python -m benchmarks.gpu.bench_gpu [--only speed learners sync] [--budget 570] [--torch PYTHON] [--output FOLDER]
    python -m benchmarks.gpu.bench_gpu --only accuracy [--tasks resnet32 lenet] [--budget 3600]

What matters most is measured first, every figure is written to FOLDER/gpu.json and gpu.md at once, and what does not
fit into the budget is left out and named; --resume measures what FOLDER lacks. Our figures are those of `python -m
mpibow.bench train`, a fresh process each; PyTorch trains the same net on one made-up batch in channels last, in one
process that stays: eager, as a CUDA graph of the whole step, and compiled. Let nothing else run on the GPU meanwhile.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.asked import Asked, Refused
from benchmarks.gpu import gpu_accuracy
from benchmarks.gpu.gpu_items import COMPILED, NETS, PLAIN, Bench, Item, items, measure_all, named
from benchmarks.gpu.gpu_tables import page
from benchmarks.sides import Found, Peer, machine, note, parser_of, write
from benchmarks.speed.bench_cpu import check_weights
from mpibow.run.results import versions

PARTS = ("speed", "learners", "sync", "floor", "accuracy")
QUICK = PARTS[:-1]
QUERY = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")


def gpu() -> str:
    """The GPUs with their driver and memory, in nvidia-smi's words."""
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return "no NVIDIA driver"
    return "; ".join(line.strip() for line in done.stdout.splitlines() if line.strip())


def title(about: Found) -> str:
    """The top of gpu.md."""
    sides = [
        ", ".join(f"{name} {version}" for name, version in about[side].items() if version) or "not there"
        for side in ("mpibow", "torch")
    ]
    return (
        f"# Training on a GPU, beside PyTorch\n\n    {about['command']}\n\n{about['date']}, {about['gpu']}; "
        f"{about['processor']}, {about['cores']} cores; commit {about['commit'] or 'unknown'}.\n"
        f"Ours: {sides[0]}. PyTorch's side: {sides[1]}.\n"
    )


def first_words(peer: Asked, models: list[str], limit: float) -> Found:
    """PyTorch's versions, of the same nets as ours; {} where there is none."""
    try:
        about = peer(limit, ask="about", models=models)
    except Refused as error:
        note(f"PyTorch is not measured: {error}")
        return {}
    check_weights(about["weights"])
    return {**about["versions"], "on": about["device"]}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=QUICK, help="parts (all but accuracy)")
    parser.add_argument("--models", nargs="+", default=["resnet32", "lenet", "resnet50"], help="(%(default)s)")
    parser.add_argument("--budget", type=float, default=570.0, metavar="SECONDS", help="for all of it (570)")
    parser.add_argument("--item", nargs="+", default=[], metavar="KEY", help="these entries of gpu.json alone")
    parser.add_argument("--rounds", type=int, default=3, help="of what is compared in pairs (3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring a figure (2)")
    parser.add_argument("--wait", type=float, default=45.0, help="for the tuner to settle, at most (45)")
    parser.add_argument("--tasks", nargs="+", choices=gpu_accuracy.TASKS, default=list(gpu_accuracy.TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="of the accuracy (1 2 3)")
    parser.add_argument("--data", type=Path, help="folder with mnist and cifar10; ../shared/data unless given")
    parser.add_argument("--device", default="cuda", help="of ours; PyTorch takes the CPU for any but cuda (cuda)")
    parser.add_argument("--set", action="append", default=[], metavar="key.path=value", help="any setting of mpibow's")
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="interpreter that has PyTorch (this)")
    parser.add_argument("--no-compile", action="store_true", help="PyTorch is not tried compiled")
    parser.add_argument("--resume", action="store_true", help="keep what FOLDER has, measure the rest")
    parser.add_argument("--output", type=Path, default=Path("gpu-results"), metavar="FOLDER", help="(%(default)s)")
    options = parser.parse_args()
    end = time.monotonic() + options.budget

    def left() -> float:
        return max(end - time.monotonic(), 1.0)

    nets = [net for net in NETS if net.model in options.models]
    if not nets:
        parser.error(f"--models: must be among {', '.join(dict.fromkeys(net.model for net in NETS))}")
    kept = options.output / "gpu.json"
    whole = json.loads(kept.read_text()) if options.resume and kept.exists() else {"found": {}}
    cuda = options.device == "cuda"
    process = Asked([options.torch, "-m", "benchmarks.gpu.torch_gpu", "--device", "cuda" if cuda else "cpu"])
    if options.item and all(key.startswith("learners ") for key in options.item):  # ours alone: it need not start
        theirs = whole.get("about", {}).get("torch", {})
    else:
        theirs = first_words(process, list(dict.fromkeys(net.model for net in nets)), left())
    whole["about"] = {**machine(), "gpu": gpu(), "mpibow": versions(), "torch": theirs}
    found, untold = whole["found"], list[str]()
    settings = (*PLAIN[: 1 + cuda], *COMPILED[: 0 if options.no_compile else 1 + cuda])
    bench = Bench(
        process if theirs else None, left, options.device, options.seconds, options.wait, options.set, settings
    )
    wanted = named(options.item, nets, QUICK) if options.item else list(items(nets, options.only, options.rounds))
    if "accuracy" in options.only:
        peer = Peer(options.torch) if theirs else None
        wanted += gpu_accuracy.items(options.tasks, options.seeds, peer, options.output.resolve(), options.data)
    tasks = {name: task.about for name, task in gpu_accuracy.TASKS.items()}

    def text() -> str:
        return page(title(whole["about"]), found, nets, tasks, untold)

    def keep(item: Item, failed: bool) -> None:
        note(f"  {options.budget - left():4.0f} s  {item.key}{': ' + found[item.key]['error'] if failed else ''}")
        write(options.output, "gpu", text(), whole)

    try:
        untold, failed = measure_all(wanted, bench, found, keep)
    finally:
        process.close()
    write(options.output, "gpu", text(), whole)
    print(text(), end="", flush=True)
    if failed:
        note(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a learner is one thread
    raise SystemExit(main())
