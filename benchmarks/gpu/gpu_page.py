"""The page of results of a GPU, of what there is under gpu-results/: all, a part, or nothing.

python -m benchmarks.gpu.gpu_page                 # writes gpu-results/page.md
"""

import json
from pathlib import Path

from benchmarks.gpu import gpu_accuracy
from benchmarks.gpu.bench_gpu import title
from benchmarks.gpu.gpu_items import NETS
from benchmarks.gpu.gpu_tables import page
from benchmarks.sides import ROOT, parser_of, table

STATES = {"0": "done", "75": "to go on", "124": "stopped at its time limit", "137": "stopped at its time limit"}


def steps(folder: Path) -> str:
    """What gpu_all.sh has run: each step's last result and seconds."""
    path = folder / "steps.tsv"
    rows = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
    last = {row[0]: row for row in rows if len(row) == 3}
    if not last:
        return ""
    cells = [[name, STATES.get(code, f"failed with {code}"), seconds] for name, code, seconds in last.values()]
    return f"## Steps of benchmarks/gpu_all.sh\n\n{table(['step', 'result', 'seconds'], cells)}"


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
    return "\n".join(part for part in parts if part)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "gpu-results", metavar="FOLDER", help="(gpu-results)")
    options = parser.parse_args()
    path = options.results / "page.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(whole_page(options.results))
    print(f"written: {path}")


if __name__ == "__main__":
    main()
