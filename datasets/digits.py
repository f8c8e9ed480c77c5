"""Writes scikit-learn's 1,797 handwritten digits as records: python datasets/digits.py --output data/digits"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mpibow.data.digits import write_digits
from mpibow.errors import MpibowError


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0] + ". Needs pip install 'mpibow[demo]'.")
    parser.add_argument(
        "--output", type=Path, default=Path("data/digits"), help="gets train and test (default: %(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the data set that is there")
    options = parser.parse_args(argv)
    try:
        write_digits(options.output, overwrite=options.overwrite)
    except MpibowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    print(f"{options.output}/train and {options.output}/test are written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
