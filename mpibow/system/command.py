"""The commands by name, and how one was started: `mpibow train`, `python -m mpibow train`, `python -m mpibow.train`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """The module whose `main(arguments)` the command runs, and whose `parser()` completion reads."""

    module: str
    help: str


COMMANDS = {
    "train": Command("mpibow.train", "train a model on all ranks"),
    "evaluate": Command("mpibow.evaluate", "evaluate a checkpoint"),
    "predict": Command("mpibow.predict", "predict files with a trained net"),
    "export": Command("mpibow.export", "write trained weights for other programs"),
    "generate": Command("mpibow.generate", "continue a text with a language model"),
    "plot": Command("mpibow.plot", "draw the curves of runs"),
    "sweep": Command("mpibow.sweep.__main__", "train with every combination of settings"),
    "convert": Command("mpibow.convert.__main__", "convert data to records"),
    "records": Command("mpibow.records", "inspect, verify or export records"),
    "launch": Command("mpibow.launch_files", "list, show or copy configs and batch scripts"),
    "doctor": Command("mpibow.doctor", "check the installation"),
    "bench": Command("mpibow.bench", "measure speed and memory"),
    "kernels": Command("mpibow.kernels.__main__", "compile the kernels for this machine"),
    "completion": Command("mpibow.completion", "print a script that completes commands in your shell"),
}


def prog(name: str, alone: str | None = None) -> str:
    """The start of a usage line of the command `name`; `alone` where it was started by itself."""
    started = Path(sys.argv[0])
    if started.name == "mpibow":
        return f"mpibow {name}"
    if (started.parent.name, started.name) == ("mpibow", "__main__.py"):
        return f"python -m mpibow {name}"
    return alone or f"python -m mpibow.{name}"
