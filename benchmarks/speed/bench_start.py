"""Compiles what two nets begin with: make demo's from an empty cache, a ViT after it, and both again from a full cache.

For each net: seconds, and the processor's on each rank. Ranks share the work, so quiet cores for each of them show what
a user waits.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.sides import ROOT, launched, note


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tree", type=Path, default=ROOT, help="a checkout of mpibow (default: this one)")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(options.tree / "mpibow", Path(folder) / "mpibow", ignore=shutil.ignore_patterns("__pycache__"))
        os.environ["XDG_CACHE_HOME"] = folder
        for net, cache in (("demo", "empty"), ("vit", "demo's"), ("demo", "full"), ("vit", "full")):
            code = f"import sys; sys.path[:0] = [{folder!r}, '']; from benchmarks.speed import bench_start as b; "
            note(f"{net:5} {cache:7} {launched(options.ranks, '-c', f'{code}b.compile_for({net!r})').strip()}")
    return 0


def compile_for(net: str) -> None:
    """What every rank of a run does."""
    from benchmarks.nets.net_cells import CELLS, job
    from mpibow.comm.launch import open_communicator
    from mpibow.config import load_mapping
    from mpibow.job import BUILT_IN, open_job

    comm, _ = open_communicator()
    if net == "demo":
        opened = open_job(load_mapping({**BUILT_IN, "device": "onednn", "learners": 2}, []))
    else:
        opened = job(net, CELLS[net].data(Path()), 4, 2, "onednn", "runs")
    comm.barrier()
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    begin, used = time.perf_counter(), time.process_time()
    opened.prepare(comm, (2,) * comm.size)
    used = time.process_time() - used
    comm.barrier()
    every = comm.share(used)
    if comm.rank == 0:
        seconds = time.perf_counter() - begin
        print(f"{seconds:6.1f} s; processor: {', '.join(f'{each:.1f}' for each in every)} s")
    comm.close()


if __name__ == "__main__":
    sys.exit(main())
