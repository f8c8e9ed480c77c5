"""mpibow convert: runs a converter by its name, as `mpibow convert mnist --source DIR --output data/mnist`."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from mpibow.system.command import converters, parser_of, prog, suggested
from mpibow.system.streams import as_command


def parser() -> argparse.ArgumentParser:
    known = converters()
    listed = "\n".join(f"  {name:<14} {summary}" for name, summary in known.items())
    made = parser_of(
        "convert",
        "Converts data to records. Each converter has its own options.",
        f"converters:\n{listed}\n\n`{prog('convert')} NAME --help` lists the options of a converter.",
    )
    made.add_argument("name", metavar="NAME", choices=known, help="a converter, as mnist")
    made.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the converter and returns its exit code; 2 if there is no such converter."""
    given = sys.argv[1:] if argv is None else list(argv)
    known = converters()
    name = given[0].replace("-", "_") if given and not given[0].startswith("-") else None
    if name is None:
        parser().parse_args(given)  # prints help or usage, and ends
    if name not in known:
        remedy = suggested(str(name), known, f"must be one of {', '.join(known)}")
        print(f"error: convert: '{given[0]}' is not a converter; {remedy}", file=sys.stderr)
        return 2
    code: int = import_module(f"mpibow.datasets.{name}").main(given[1:])
    return code


if __name__ == "__main__":
    as_command(main)
