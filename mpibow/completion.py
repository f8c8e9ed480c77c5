"""mpibow completion: prints a script with which bash, zsh or fish completes mpibow's commands and options."""

import argparse
from importlib import import_module

from .errors import MpibowError, install
from .system.command import COMMANDS, converters, main_of, module_of, parser_of
from .system.streams import as_command

SHELLS = ("bash", "zsh", "fish")
EPILOG = """\
bash: mpibow completion bash > ~/.local/share/bash-completion/completions/mpibow
zsh:  mpibow completion zsh > DIR/_mpibow, where DIR is a folder of $fpath
fish: mpibow completion fish > ~/.config/fish/completions/mpibow.fish
"""


def parser() -> argparse.ArgumentParser:
    made = parser_of(
        "completion", "Prints a script that completes mpibow's commands and options in your shell.", EPILOG
    )
    made.add_argument("shell", choices=SHELLS, help="the shell that you type in")
    return made


def script(shell: str) -> str:
    """The script for `shell`. Raises MpibowError if shtab is missing."""
    try:
        import shtab
    except ImportError:
        raise MpibowError(f"shtab, which writes the script, is not installed: {install('completion')}") from None
    found: str = shtab.complete(whole(), shell)
    return found


def whole() -> argparse.ArgumentParser:
    """One parser of all commands; records, bench and convert have their sub-commands below them."""
    top = argparse.ArgumentParser(prog="mpibow")
    top.add_argument("--version", action="store_true", help="print the version")
    commands = top.add_subparsers(dest="command")
    for name, about in COMMANDS.items():
        if name == "convert":
            below = commands.add_parser(name, help=about).add_subparsers(dest="name")
            for converter, summary in converters().items():
                parent = import_module(f"mpibow.datasets.{converter}").parser()
                below.add_parser(converter, help=summary.replace("%", "%%"), parents=[parent], add_help=False)
        else:
            commands.add_parser(name, help=about, parents=[module_of(name).parser()], add_help=False)
    return top


main = main_of(parser, lambda options: print(script(options.shell)))

if __name__ == "__main__":
    as_command(main)
