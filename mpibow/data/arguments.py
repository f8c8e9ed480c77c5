"""Options that converters share, and the types of their values."""

from __future__ import annotations

import argparse
from pathlib import Path

from mpibow.data.aside import check_free, refused
from mpibow.data.conversion import cores

STATISTICS = 10_000


def add_common(parser: argparse.ArgumentParser, *, statistics: bool = True) -> None:
    """--statistics, --workers and --overwrite."""
    if statistics:
        parser.add_argument(
            "--statistics",
            type=positive,
            default=STATISTICS,
            metavar="N",
            help="images, evenly spaced, that mean and std of encoded ones are taken of (default: %(default)s)",
        )
    parser.add_argument(
        "--workers",
        type=positive,
        default=cores(),
        metavar="N",
        help="processes that read and check images (default: the %(default)s cores)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the data set that is there")


def add_split(parser: argparse.ArgumentParser) -> None:
    """--test-fraction and --seed."""
    parser.add_argument(
        "--test-fraction",
        type=fraction,
        metavar="X",
        help="share of every class that becomes test, above 0 and below 1; names and --seed decide which images",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of --test-fraction (default: %(default)s)")


def prepare(output: Path, overwrite: bool) -> None:
    """Refuses at the door what would be refused after hours, and names what killed conversions have left."""
    with refused(output):
        check_free(output, overwrite)
    for left in sorted(output.parent.glob(f".{output.name}.tmp-*")):
        print(f"{left} is left from a conversion that was killed, if none is running: remove it to have the space back")


def positive(text: str) -> int:
    """An integer of at least 1."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def fraction(text: str) -> float:
    """A number above 0 and below 1."""
    if not 0 < (value := float(text)) < 1:
        raise argparse.ArgumentTypeError(f"must lie above 0 and below 1, got {text}")
    return value


def sides(text: str) -> tuple[int, int]:
    """HEIGHTxWIDTH."""
    height, times, width = text.partition("x")
    if not times:
        raise argparse.ArgumentTypeError(f"must be HEIGHTxWIDTH, such as 64x64, got {text!r}")
    return positive(height), positive(width)


def shape(text: str) -> tuple[int, int, int]:
    """CHANNELS,HEIGHT,WIDTH."""
    words = text.split(",")
    if len(words) != 3:
        raise argparse.ArgumentTypeError(f"must be CHANNELS,HEIGHT,WIDTH, such as 3,32,32, got {text!r}")
    channels, height, width = map(positive, words)
    return channels, height, width
