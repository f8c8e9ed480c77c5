"""python -m mpibow.records: inspects, verifies and exports data sets of records."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from .convert import export
from .convert.conversion import cores, interruptible, progress, spreader
from .data import verify
from .data.aside import file_aside
from .data.contents import contents, pick, summary
from .data.recordset import RecordSet, open_records
from .data.sheet import sheet
from .errors import ConfigError, MpibowError, RecordError
from .system.command import integer, main_of, natural, parser_of, suggested
from .system.streams import as_command

SHOWN = 20  # damages listed for one data set; a broken disk can have millions
SHEET = 64  # images on a sheet
WORTH, WORTH_DECODED = 512 << 20, 16 << 20  # bytes to check that make a process worth starting


def inspect(options: argparse.Namespace) -> int:
    """Prints the contents of each data set, and draws a sheet of images for --sheet."""

    def look(path: Path) -> None:
        data = open_records(path)
        print(json.dumps(contents(data)) if options.json else summary(data))
        if options.sheet:
            drawn = draw(data, options.sheet, options.samples or SHEET, options.of_class, options.seed or 0)
            if not options.json:
                print(f"  sheet     {options.sheet}, {drawn:,} images")

    if options.sheet and len(options.paths) > 1:
        raise ConfigError(f"--sheet: draws one data set, got {len(options.paths)}")
    if not options.sheet and (options.samples, options.of_class, options.seed) != (None, None, None):
        raise ConfigError("--samples, --class, --seed: choose what is drawn; give the file with --sheet")
    return _all(options.paths, look)


def verified(options: argparse.Namespace) -> int:
    """Checks every data set or file."""
    workers = options.workers or max(useful(path, options.decode) for path in options.paths)
    with spreader(workers) as each:
        return _all(options.paths, lambda path: check(path, each, options.decode))


def check(path: Path, each: verify.Each, decoded: bool) -> None:
    """Verifies a data set or a record file; raises RecordError that lists the damages, at most SHOWN of them."""
    if not path.exists():
        raise RecordError(f"{path}: there is no such file or folder")
    found = []
    count = 0
    checked = verify.size(path)
    with progress(checked, str(path), " records") as bar:
        for damage in verify.damages(path, bar.update, each=each, decoded=decoded):
            count += 1
            if count <= SHOWN:
                found.append(damage)
    if count > SHOWN:
        found.append(f"{path}: and {count - SHOWN:,} more")
    if found:
        raise RecordError("\n".join(found))
    print(f"{path}: {checked:,} records, all intact")


def draw(data: RecordSet, file: Path, samples: int, wanted: str | None, seed: int) -> int:
    """Writes a sheet of that many images, of one class if `wanted`, as the PNG `file`; returns their number."""
    chosen = np.arange(data.count)
    if wanted is not None:
        chosen = np.flatnonzero(data.labels() == _class(data, wanted))
        if not len(chosen):
            raise RecordError(f"{data.folder}: has no records of class {wanted!r}")
    drawn = pick(chosen, samples, seed)
    picture = sheet(data, sorted(drawn, key=data.label))
    with file_aside(file) as target:
        picture.save(target, "PNG")
    return len(drawn)


def _all(paths: Sequence[Path], look: Callable[[Path], None]) -> int:
    """Calls `look` for each path; an error at one is printed, and the others are still checked."""
    code = 0
    for path in paths:
        try:
            look(path)
        except MpibowError as error:
            print("\n".join(f"error: {line}" for line in str(error).splitlines()), file=sys.stderr)
            code = error.code
    return code


def _class(data: RecordSet, wanted: str) -> int:
    names = data.manifest.class_names
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and int(wanted) < data.classes:
        return int(wanted)
    remedy = suggested(wanted, names, f"give a name or a number below {data.classes}")
    raise ConfigError(f"--class: {data.folder} has no class {wanted!r}; {remedy}")


def useful(path: Path, decoded: bool) -> int:
    """The number of workers worth starting."""
    files = path.glob("*.mpr") if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files if file.exists())
    return min(cores(), 1 + size // (WORTH_DECODED if decoded else WORTH))


def parser() -> argparse.ArgumentParser:
    made = parser_of("records", "Inspects, verifies and exports data sets of records.")
    commands = made.add_subparsers(required=True, metavar="inspect | verify | export")
    inspecting = commands.add_parser(
        "inspect",
        help="print what a data set holds",
        description="Prints counts, shape, classes and their balance, mean and std, sizes of encoded images, shards "
        "and source of data sets. Reads the manifest and the indices, and only the images that it samples or draws.",
    )
    inspecting.set_defaults(run=inspect)
    inspecting.add_argument("paths", nargs="+", type=Path, metavar="DIR", help="a data set, such as data/mnist/train")
    inspecting.add_argument("--json", action="store_true", help="print one JSON object per line")
    inspecting.add_argument(
        "--sheet", type=Path, metavar="FILE.png", help="draw images with the names of their classes"
    )
    inspecting.add_argument(
        "--samples", type=integer(1, 10_000), metavar="N", help=f"number of images to draw (default: {SHEET})"
    )
    inspecting.add_argument(
        "--class", dest="of_class", metavar="NAME", help="draw only images of this class, a name or a number"
    )
    inspecting.add_argument("--seed", type=natural, metavar="S", help="seed of the choice of images (default: 0)")
    verifying = commands.add_parser(
        "verify",
        help="check every byte of a data set or record file",
        description="Reads every record and compares its checksum, and every shard with the manifest. "
        f"Lists the damaged records, at most {SHOWN} of a data set. The exit code is 0 if there are none, else 3.",
    )
    verifying.set_defaults(run=verified)
    verifying.add_argument("paths", nargs="+", type=Path, metavar="DIR_OR_FILE", help="a data set, or one .mpr file")
    verifying.add_argument("--decode", action="store_true", help="also decode every encoded image")
    verifying.add_argument(
        "--workers",
        type=integer(1, 1024),
        metavar="N",
        help="number of processes (default: one per core, fewer for small data)",
    )
    exporting = commands.add_parser(
        "export",
        help="write a data set as TFRecord files or folders of images",
        description="Writes a data set in a form that other programs read; `mpibow convert tfrecord` or `folder` "
        "converts it back. Writes all of it or nothing.",
    )
    exporting.set_defaults(run=lambda options: interruptible(lambda: export.run(options)))
    export.add_options(exporting)
    return made


main = main_of(parser, lambda options: options.run(options))

if __name__ == "__main__":
    as_command(main)
