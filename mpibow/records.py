"""python -m mpibow.records: looks into data sets of records (inspect), checks (verify) and writes (export) them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from mpibow.data import export, verify
from mpibow.data.conversion import exit_code
from mpibow.data.recordset import RecordSet, open_records
from mpibow.errors import MpibowError, RecordError

SHOWN = 20  # damages listed for one data set; a broken disk can have millions


def summary(data: RecordSet) -> str:
    """What a data set holds, in a few lines."""
    known = data.manifest
    tally = np.bincount(data.labels(), minlength=data.classes)
    size = sum(shard.size for shard in known.shards)
    shape = f" {data.shape}" if data.shape else ""
    lines = [
        f"{data.folder}",
        f"  name      {data.name}",
        f"  records   {data.count:,} {known.form.encoding} images, {data.dtype}{shape}",
        f"  classes   {data.classes:,}, of {tally.min():,} to {tally.max():,} records each",
    ]
    if data.classes <= SHOWN:
        names = known.class_names or [str(number) for number in range(data.classes)]
        lines.append("            " + ", ".join(f"{name}: {n:,}" for name, n in zip(names, tally, strict=True)))
    lines += [
        f"  mean      {'  '.join(f'{mean:.6g}' for mean in data.mean)}",
        f"  std       {'  '.join(f'{std:.6g}' for std in data.std)}",
        f"  shards    {len(known.shards):,}, {size / 1e6:,.1f} MB in all, from {known.shards[0].file}",
        f"  source    {known.source or 'unknown'}",
    ]
    lines += [f"            {file}  {checksum}" for file, checksum in known.sources.items()]
    return "\n".join(lines)


def check(path: Path) -> None:
    """Verifies a data set or a record file; raises RecordError that lists the damages, at most SHOWN of them."""
    if not path.exists():
        raise RecordError(f"{path}: there is no such file or folder")
    found, count, checked = [], 0, verify.size(path)
    with tqdm(total=checked, desc=str(path), unit=" records", disable=None, leave=False) as bar:
        for damage in verify.damages(path, bar.update):
            count += 1
            if count <= SHOWN:
                found.append(damage)
    if count > SHOWN:
        found.append(f"{path}: and {count - SHOWN:,} more")
    if found:
        raise RecordError("\n".join(found))
    print(f"{path}: {checked:,} records, all right")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code: 0 only where all is right."""
    options = _parser().parse_args(argv)
    if options.command == "export":
        return exit_code(lambda: export.run(options))
    code = 0
    for path in options.paths:
        try:
            if options.command == "inspect":
                print(summary(open_records(path)))
            else:
                check(path)
        except MpibowError as error:
            print("\n".join(f"error: {line}" for line in str(error).splitlines()), file=sys.stderr)
            code = error.code
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mpibow.records", description=__doc__.partition(": ")[2])
    commands = parser.add_subparsers(dest="command", required=True, metavar="inspect | verify | export")
    inspect = commands.add_parser(
        "inspect",
        help="print what a data set holds",
        description="Prints counts, shape, classes and their balance, mean and std, shards and source of data sets. "
        "Reads manifest and indices only.",
    )
    inspect.add_argument("paths", nargs="+", type=Path, metavar="DIR", help="a data set, such as data/mnist/train")
    verified = commands.add_parser(
        "verify",
        help="check every byte of a data set or record file",
        description="Reads every record and compares its checksum, and every shard with the manifest. "
        f"Lists all damages, {SHOWN} at most of one data set; exit code 0 only where there are none, 3 otherwise.",
    )
    verified.add_argument("paths", nargs="+", type=Path, metavar="DIR_OR_FILE", help="a data set, or one .mpr file")
    exported = commands.add_parser(
        "export",
        help="write a data set as TFRecord files or folders of images",
        description="Writes a data set in a form that others read, and datasets/tfrecord.py or folder.py read back: "
        "all of it or nothing.",
    )
    export.add_options(exported)
    return parser


if __name__ == "__main__":
    sys.exit(main())
