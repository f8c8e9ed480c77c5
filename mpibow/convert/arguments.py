"""Options that converters share, by the same names and in the same words; and types of their values."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpibow.convert import source_files
from mpibow.data.aside import check_free, refused
from mpibow.errors import RecordError
from mpibow.system.command import main_of, natural, parser_of, positive

from .conversion import cores, interruptible

STATISTICS = 10_000


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """A converter's parser, without its own options; `description` is laid out already."""
    made = parser_of(f"convert {name}", description, alone=f"python datasets/{name}.py")
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    return made


def command(
    parser: Callable[[], argparse.ArgumentParser],
    convert: Callable[..., None],
    fault: Callable[[argparse.Namespace], str | None] = lambda options: None,
) -> Callable[..., int]:
    """A converter's main(argv), which returns the exit code.

    It calls `convert` with the options by their names, unless there is a `fault` in them.
    """
    return main_of(parser, lambda options: interruptible(lambda: convert(**vars(options))), fault)


def add_source(parser: argparse.ArgumentParser, what: str, *, default: str | None = None, needed: bool = True) -> None:
    """--source, which may be left out where there is a default, or where it is not `needed`."""
    parser.add_argument(
        "--source",
        type=Path,
        default=Path(default) if default else None,
        required=needed and not default,
        metavar="PATH",
        help=f"{what} (default: %(default)s)" if default else what,
    )


def add_parts(parser: argparse.ArgumentParser, kind: str) -> None:
    """--source, or --train and --test, for files of any names; see `given_parts`."""
    add_source(parser, f"folder of {kind} or of folders of them; their names say train, and test or val", needed=False)
    parser.add_argument(
        "--train",
        metavar="FILES",
        help="files of the training part, in place of --source: a folder, a file, or a quoted pattern, 'old/part-*'",
    )
    parser.add_argument("--test", metavar="FILES", help="files of the test part, given in the same way")


def given_parts(source: Path | None, train: str | None, test: str | None) -> dict[str, list[Path]]:
    """The files to train and to test. Raises RecordError where there are none, or one is in both."""
    if source is not None:
        return source_files.parts(source)
    given = (("train", train), ("test", test))
    found = {part: source_files.files(files) for part, files in given if files is not None}
    for path in sorted({*map(Path.resolve, found["train"])} & {*map(Path.resolve, found.get("test", ()))}):
        raise RecordError(f"{path}: is both to train and to test; give other files to --train or --test")
    return found


def parts_fault(options: argparse.Namespace) -> str | None:
    """What is wrong where not exactly one of --source and --train is given."""
    one = (options.source is None) != (options.train is None) and (options.source is None or options.test is None)
    return None if one else "give --source, or --train and --test"


def add_output(parser: argparse.ArgumentParser, *defaults: str) -> None:
    """--output; None, for the script to choose, where there are several defaults."""
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(defaults[0]) if len(defaults) == 1 else None,
        metavar="FOLDER",
        help=f"folder to write train and test to (default: {' or '.join(defaults)})",
    )


def add_shared(parser: argparse.ArgumentParser, *names: str) -> None:
    """Options of SHARED, in this order."""
    for name in names:
        parser.add_argument(f"--{name}", **SHARED[name])


def refuse_split(share: float | None, test: object | None) -> None:
    """Raises RecordError where --test-fraction is given although there is a `test` part."""
    if share is not None and test is not None:
        raise RecordError(f"{test}: is the test part already; leave out --test-fraction")


def prepare(output: Path, overwrite: bool) -> None:
    """Raises at once the errors that would come after hours, and names the leftovers of killed conversions."""
    with refused(output):
        check_free(output, overwrite)
    for left in sorted(output.parent.glob(f".{output.name}.tmp-*")):
        print(f"{left} is left from a conversion that was killed: unless one is running, remove it to free the space")


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


SHARED: dict[str, dict[str, Any]] = {
    "test-fraction": {
        "type": fraction,
        "metavar": "X",
        "help": "share of every class to split off as test data, above 0 and below 1, if the source has no test part",
    },
    "seed": {
        "type": natural,
        "default": 1,
        "metavar": "N",
        "help": "seed of the choice by --test-fraction (default: %(default)s)",
    },
    "statistics": {
        "type": positive,
        "default": STATISTICS,
        "metavar": "N",
        "help": "measure mean and std of encoded images on N of them, evenly spaced (default: %(default)s)",
    },
    "workers": {
        "type": positive,
        "default": cores(),
        "metavar": "N",
        "help": "number of processes that read and verify (default: %(default)s, the cores)",
    },
    "overwrite": {"action": "store_true", "help": "replace an existing data set"},
}
