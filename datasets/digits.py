"""Writes scikit-learn's 1,797 handwritten digits as records: python datasets/digits.py --output data/digits"""

from __future__ import annotations

import argparse

from mpibow.convert import arguments
from mpibow.convert.conversion import exit_code
from mpibow.data.digits import write_digits
from mpibow.errors import install
from mpibow.system.streams import as_command


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=f"{__doc__.partition(':')[0]}. Needs {install('demo')}.")
    arguments.add_output(parser, "data/digits")
    arguments.add_overwrite(parser)
    options = parser.parse_args(argv)

    def run() -> None:
        write_digits(options.output, overwrite=options.overwrite)
        print(f"{options.output}/train and {options.output}/test are written")

    return exit_code(run)


if __name__ == "__main__":
    as_command(main)
