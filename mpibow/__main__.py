"""The command `mpibow`, which starts all others: `mpibow train` is `python -m mpibow.train`."""

import sys
from collections.abc import Sequence
from typing import NoReturn, TextIO

from mpibow import __version__

from .system.command import COMMANDS, module_of, suggested
from .system.crowd import warn_of_crowd
from .system.streams import as_command


def main(argv: Sequence[str] | None = None) -> int | None:
    """Runs a command and returns its exit code; 2 if there is no such command."""
    name, *arguments = (sys.argv[1:] if argv is None else list(argv)) or [""]
    if name == "help" and arguments:
        name = arguments[0]
        arguments = ["--help"]
    if name in ("-h", "--help", "help"):
        return _usage(sys.stdout, 0)
    if name in ("-V", "--version"):
        print(f"mpibow {__version__}, Python {sys.version.partition(' ')[0]}")
        return 0
    if name not in COMMANDS:
        if not name:
            return _usage(sys.stderr, 2)
        remedy = suggested(name, COMMANDS, "mpibow --help lists the commands")
        print(f"error: '{name}': is not a command of mpibow; {remedy}", file=sys.stderr)
        return 2
    warn_of_crowd()
    code: int | None = module_of(name).main(arguments)
    return code


def _usage(stream: TextIO, code: int) -> int:
    print(
        "usage: mpibow COMMAND [ARGUMENTS]\n\n"
        "Trains deep networks with small batches, several learners on every device.\n\ncommands:",
        *[f"  {name:<12} {about}" for name, about in COMMANDS.items()],
        "\n`mpibow COMMAND --help` lists the options of a command. `mpibow --version` prints the version.\n"
        "Several ranks: mpirun -np 4 mpibow train CONFIG.yaml",
        sep="\n",
        file=stream,
    )
    return code


def command() -> NoReturn:
    """The entry point of the installed script `mpibow`."""
    as_command(main)


if __name__ == "__main__":
    command()
