"""Opening a large data set: seconds and memory of one process; the data are made up.

    python -m benchmarks.data.bench_open [--shards 1300] [--records 1000] [--keep DIR]   # half a minute, 300 MB of disk

Every side runs in a fresh process on files that are in the page cache. Memory is what the process has grown by:
private pages, and pages of the files that it has mapped, which all ranks of a node share and the system may take back.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.sides import Found, parser_of
from mpibow.data import manifest
from mpibow.data.recordset import RecordSet, open_records, write_records

REPEATS = 5
LIMITS = {"seconds": 1.0, "megabytes": 100.0}  # the target: 1,300 shards, 1.3 million records


def make(folder: Path, shards: int, records: int) -> None:
    """One shard is written, and copied under the other names."""
    images = np.random.default_rng(1).integers(0, 256, (records, 3, 8, 8), dtype=np.uint8)
    samples = ((image, number % 10) for number, image in enumerate(images))
    write_records(folder, samples, classes=10, name="open", shard_size=1 << 40)
    known = manifest.load(folder)
    (first,) = known.shards
    copies = tuple(replace(first, file=f"open-{number:05d}.mpr") for number in range(shards))
    for copy in copies[1:]:
        shutil.copy(folder / first.file, folder / copy.file)
    manifest.save(replace(known, count=shards * records, shards=copies), folder)


def memory() -> dict[str, float]:
    """Megabytes of this process: private, and mapped from files."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(lines[key].split()[0]) / 1024 for name, key in (("private", "RssAnon"), ("mapped", "RssFile"))}


def grown(act: Callable[[], object]) -> dict[str, float]:
    before, begin = memory(), time.perf_counter()
    kept = act()
    seconds, after = time.perf_counter() - begin, memory()
    del kept
    return {"seconds": seconds, **{name: after[name] - before[name] for name in after}}


def side(folder: Path) -> Found:
    """What one process sees: opening, then all labels, then the manifest alone."""
    opened: list[RecordSet] = []
    result = {"open": grown(lambda: opened.append(open_records(folder)))}
    (data,) = opened
    result["labels"] = grown(lambda: data.labels())
    result["manifest"] = grown(lambda: manifest.load(folder))
    return result


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--shards", type=int, default=1300)
    parser.add_argument("--records", type=int, default=1000, help="of every shard")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the data there (default: made, and deleted)")
    parser.add_argument("--side", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(side(options.side)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary) / "open"
        if not folder.exists():
            make(folder, options.shards, options.records)
        sides = []
        for _ in range(REPEATS + 1):  # the first one warms the page cache
            command = [sys.executable, "-m", "benchmarks.data.bench_open", "--side", str(folder)]
            sides.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(f"{options.shards:,} shards of {options.records:,} records, median of {REPEATS} fresh processes")
        for what in ("open", "labels", "manifest"):
            found = {key: median(one[what][key] for one in sides[1:]) for key in ("seconds", "private", "mapped")}
            private, mapped = found["private"], found["mapped"]
            line = f"  {what:9} {found['seconds']:7.3f} s   {private:6.1f} MB private {mapped:6.1f} MB mapped"
            if what == "open":
                whole = found["private"] + found["mapped"]
                line += (
                    f"   {found['seconds'] / LIMITS['seconds']:.0%} and {whole / LIMITS['megabytes']:.0%} of the target"
                )
            print(line)


if __name__ == "__main__":
    main()
