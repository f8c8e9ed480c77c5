"""Writes scikit-learn's 1,797 handwritten digits as records: mpibow convert digits --output data/digits"""

import argparse
from pathlib import Path

from mpibow.convert import arguments
from mpibow.data.digits import write_digits
from mpibow.errors import install
from mpibow.system.streams import as_command


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("digits", f"{__doc__.partition(':')[0]}. Needs {install('demo')}.")
    arguments.add_output(made, "data/digits")
    arguments.add_shared(made, "overwrite")
    return made


def run(output: Path, overwrite: bool) -> None:
    write_digits(output, overwrite=overwrite)
    print(f"{output}/train and {output}/test are written")


main = arguments.command(parser, run)

if __name__ == "__main__":
    as_command(main)
