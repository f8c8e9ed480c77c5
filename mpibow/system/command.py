"""What mpibow has by name: commands, converters, launch files; how a command is started, and its integer options."""

import argparse
import ast
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from .streams import exit_code

COMMANDS = {
    "train": "train a model on all ranks",
    "evaluate": "evaluate a checkpoint",
    "predict": "predict files with a trained net",
    "export": "write trained weights for other programs",
    "generate": "continue a text with a language model",
    "plot": "draw the curves of runs",
    "sweep": "train with every combination of settings",
    "convert": "convert data to records",
    "records": "inspect, verify or export records",
    "launch": "list, show or copy configs and batch scripts",
    "doctor": "check the installation",
    "bench": "measure speed and memory",
    "kernels": "compile the kernels for this machine",
    "completion": "print a script that completes commands in your shell",
}
MODULES = {  # of commands that have other names
    "sweep": "sweep.__main__",
    "convert": "convert.__main__",
    "launch": "launch_files",
    "kernels": "kernels.__main__",
}


def module_of(name: str) -> ModuleType:
    """The module whose `main(arguments)` the command runs, and whose `parser()` completion reads."""
    return import_module(f"mpibow.{MODULES.get(name, name)}")


def prog(name: str, alone: str | None = None) -> str:
    """The start of a usage line of the command `name`; `alone` where it was started by itself."""
    started = Path(sys.argv[0])
    if started.name == "mpibow":
        return f"mpibow {name}"
    if (started.parent.name, started.name) == ("mpibow", "__main__.py"):
        return f"python -m mpibow {name}"
    return alone or f"python -m mpibow.{name}"


def parser_of(name: str, about: str, below: str = "", *, alone: str | None = None) -> argparse.ArgumentParser:
    """The parser of the command `name`, with the texts above and below its options; lines that end stay as they are."""
    lines = argparse.RawDescriptionHelpFormatter if "\n" in about + below else argparse.HelpFormatter
    return argparse.ArgumentParser(prog(name, alone), description=about, epilog=below or None, formatter_class=lines)


def main_of(
    parser: Callable[[], argparse.ArgumentParser],
    work: Callable[[argparse.Namespace], int | None],
    fault: Callable[[argparse.Namespace], str | None] = lambda options: None,
) -> Callable[..., int]:
    """A command's main(argv): does `work` on the options, unless they have a `fault`, and returns the exit code."""

    def main(argv: Sequence[str] | None = None) -> int:
        command = parser()
        options = command.parse_args(argv)
        if message := fault(options):
            command.error(message)
        return exit_code(lambda: work(options))

    return main


PLAIN = re.compile(r"-?[0-9]+")  # int() also takes ' +3 ', '1_0' and digits of other scripts


def integer(least: int, most: int) -> Callable[[str], int]:
    """The type of an integer from `least` to `most`."""

    def integer(text: str) -> int:
        if not PLAIN.fullmatch(text):
            raise argparse.ArgumentTypeError(f"must be an integer, got {text!r}")
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        if value > most:
            raise argparse.ArgumentTypeError(f"must be at most {most:,}, got {value}")
        return value

    return integer


positive, natural = integer(1, 2**63 - 1), integer(0, 2**64 - 1)  # the latter for seeds too


PACKAGE = Path(__file__).parents[1]
CONVERTERS = PACKAGE / "datasets"  # in a clone a link to the folder beside the package, in a wheel the folder itself
LAUNCH = PACKAGE / "launch"


def converters() -> dict[str, str]:
    """Every converter's name, and the first sentence of its docstring."""
    return {path.stem: _summary(path) for path in sorted(CONVERTERS.glob("*.py")) if not path.stem.startswith("_")}


def with_config(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command of `config`, a file that may be left out, and `overrides`."""
    options = parser.parse_intermixed_args(argv)
    if options.config is not None and "=" in options.config:
        options.config, options.overrides = None, [options.config, *options.overrides]
    return options


def some(names: Sequence[str], most: int = 6) -> str:
    """The first of the names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def launch_files() -> list[str]:
    """Paths of all launch files below launch/, in the order of their names."""
    paths = sorted(path for folder in (LAUNCH, *LAUNCH.iterdir()) for path in folder.glob("*") if path.is_file())
    return [path.relative_to(LAUNCH).as_posix() for path in paths if path.suffix not in (".py", ".pyc")]


def launch_file(name: str) -> str | None:
    """The launch file of that name: a path below launch/, with or without its ending; None if there is none."""
    asked = name.removeprefix("launch/")
    return next((path for path in launch_files() if asked in (path, stem(path))), None)


def stem(path: str) -> str:
    """A launch file's path without its ending."""
    return path.rpartition(".")[0] or path


def suggested(word: str, names: Iterable[str], otherwise: str) -> str:
    """The remedy for a mistyped name: the nearest one, or `otherwise`."""
    nearest = difflib.get_close_matches(word, list(names), n=1)
    return f"did you mean '{nearest[0]}'?" if nearest else otherwise


def _summary(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].partition(". ")[0].partition(": mpibow ")[0].rstrip(".")
