"""Writes scikit-learn's 1,797 handwritten digits as records: mpibow convert digits --output data/digits"""

from __future__ import annotations

import argparse

from mpibow.convert import arguments
from mpibow.convert.conversion import exit_code
from mpibow.data.digits import write_digits
from mpibow.errors import install
from mpibow.system.streams import as_command


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("digits", f"{__doc__.partition(':')[0]}. Needs {install('demo')}.")
    arguments.add_output(made, "data/digits")
    arguments.add_overwrite(made)
    return made


def main(argv: list[str] | None = None) -> int:
    command = parser()
    options = command.parse_args(argv)

    def run() -> None:
        write_digits(options.output, overwrite=options.overwrite)
        print(f"{options.output}/train and {options.output}/test are written")

    return exit_code(run)


if __name__ == "__main__":
    as_command(main)
