"""The page of results of a GPU, of what there is under gpu-results/: all, a part, or nothing but the forecast.

python benchmarks/gpu_page.py                 # writes gpu-results/page.md
python benchmarks/gpu_page.py --forecast      # writes benchmarks/results/gpu-forecast.md; needs no GPU
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gpu_accuracy
from bench_gpu import title
from gpu_items import NETS, Net
from gpu_tables import page
from sides import ROOT, table

from mpibow.diagnose.forecast import bound_of, by_time, forecast
from mpibow.job.made_up import made_up_job

FORECAST = [net for net in NETS if (net.model, net.batch) != ("resnet50", 32)]
PAGE = ROOT / "benchmarks/results/gpu-forecast.md"
STATES = {"0": "done", "75": "to go on", "124": "stopped at its time limit", "137": "stopped at its time limit"}


def forecast_of(net: Net) -> dict[str, Any]:
    asked = argparse.Namespace(
        model=net.model, batch_size=net.batch, shape=None, classes=None, device="cuda",
        overrides=[f"precision={net.precision}"],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        return forecast(made_up_job(asked, folder))


def steps(folder: Path) -> str:
    """What gpu_all.sh has run: each step's last result and seconds."""
    path = folder / "steps.tsv"
    rows = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
    last = {row[0]: row for row in rows if len(row) == 3}
    if not last:
        return ""
    cells = [[name, STATES.get(code, f"failed with {code}"), seconds] for name, code, seconds in last.values()]
    return f"## Steps of benchmarks/gpu_all.sh\n\n{table(['step', 'result', 'seconds'], cells)}"


def by_arithmetic(found: Mapping[str, Any], measured: Mapping[str, Any] | None) -> str:
    """One net's parts, beside the microseconds that a profile measured, where there is one."""
    heads = ["steps", "number", "kernels", "GFLOP", "MB", "at least, us", "bound by"]
    rows = []
    for kind, row in by_time(found["parts"]):
        cells = [kind, str(row["count"]), str(row["kernels"]), f"{row['operations'] / 1e9:.3f}"]
        cells += [f"{row['bytes'] / 1e6:.2f}", f"{1e6 * row['seconds']:.1f}", bound_of(row)]
        if measured is not None:
            part = measured["parts"].get(kind)
            cells.append(f"{1e6 * part['seconds']:.1f}" if part else "")
        rows.append(cells)
    whole = found["iteration"]
    total = ["an iteration", "", str(whole["kernels"]), f"{whole['operations'] / 1e9:.3f}"]
    total += [f"{whole['bytes'] / 1e6:.2f}", f"{1e6 * whole['seconds']:.1f}", ""]
    if measured is not None:
        heads.append("measured, us")
        total.append(f"{1e6 * measured['iteration']:.1f}")
    rates = [[k, f"{rate:,.0f}"] for k, rate in found["images_per_second"].items()]
    own = [
        [
            f"`{fill['kernel']}`", str(fill["launches"]), str(fill["registers"]), str(fill["shared"]),
            f"{fill['occupancy']:.0%}", f"{fill['waves']:.2f}",
        ]
        for fill in found["own"]
    ]  # fmt: skip
    filled = table(["own kernel", "launches", "registers", "shared, B", "occupancy", "waves"], own)
    if found["own_missing"]:
        filled = f"How own kernels fill the device is left out: {found['own_missing']}.\n"
    name = f"{found['model']}, batch {found['batch_size']}, {found['precision']}"
    return f"### {name}\n\n{table(heads, [*rows, total])}\n{table(['learners', 'images/s at best'], rates)}\n{filled}"


def forecasts(nets: Sequence[Net], found: Mapping[str, Any]) -> str:
    """`found` are the entries of gpu.json: profiles go beside the forecast."""
    made = [(forecast_of(net), found.get(f"profile {net.name}")) for net in nets]
    assumed = "".join(f"- {text}\n" for text in made[0][0]["assumed"])
    return "\n".join([f"Assumed:\n\n{assumed}", *(by_arithmetic(*each) for each in made)])


def arithmetic(found: Mapping[str, Any]) -> str:
    """The forecast of the nets that are profiled, beside their profiles; before there is one, that of FORECAST."""
    profiled = [net for net in NETS if "error" not in found.get(f"profile {net.name}", {"error": ""})]
    if profiled:
        return f"## Profiles beside the forecast by arithmetic\n\n{forecasts(profiled, found)}"
    return PAGE.read_text().replace("# ", "## ", 1) if PAGE.exists() else ""


def whole_page(folder: Path) -> str:
    kept = [json.loads(path.read_text()) for path in (folder / "first/gpu.json", folder / "gpu.json") if path.exists()]
    whole = {**(kept[-1] if kept else {}), "found": {key: entry for one in kept for key, entry in one["found"].items()}}
    tasks = {name: task.about for name, task in gpu_accuracy.TASKS.items()}
    head = title(whole["about"]) if "about" in whole else "# Training on a GPU\n\nNo figure is measured yet.\n"
    whole_run = kept[-1]["found"] if (folder / "gpu.json").exists() else {}
    if early := [key for key in whole["found"] if key not in whole_run]:
        head += f"\nMeasured before cuDNN's plans were timed: {'; '.join(early)}.\n"
    parts = [page(head, whole["found"], NETS, tasks, []), steps(folder)]
    about = folder / "versions.log"
    if about.exists():
        text = "".join(f"    {line}".rstrip() + "\n" for line in about.read_text().splitlines())
        parts.append(f"## The machine\n\n{text}")
    parts.append(arithmetic(whole["found"]))
    return "\n".join(part for part in parts if part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forecast", action="store_true", help="the forecast alone")
    parser.add_argument("--results", type=Path, default=ROOT / "gpu-results", metavar="FOLDER", help="(gpu-results)")
    options = parser.parse_args()
    if options.forecast:
        path = PAGE
        head = "# A learner's iteration on an H200: by arithmetic; not run on a GPU\n\n"
        text = f"{head}    python benchmarks/gpu_page.py --forecast\n\n{forecasts(FORECAST, {})}"
    else:
        path, text = options.results / "page.md", whole_page(options.results)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
