"""What replicas buy: accuracies at equal epochs of branches from one half-trained net, and of baselines.

    python -m benchmarks.averaging.bench_sma                  # what is missing
    python -m benchmarks.averaging.bench_sma --cells 10       # so many cells
    python -m benchmarks.averaging.bench_sma --only schedules # one table: the shortest schedule as good as one learner
    python -m benchmarks.averaging.bench_sma --only resnet20  # one net; mnist: LeNet
    python -m benchmarks.averaging.bench_sma --list           # what is missing; runs nothing
    python -m benchmarks.averaging.bench_sma --plot           # draws benchmarks/results/sma.svg; runs nothing
    python -m benchmarks.averaging.bench_sma --page           # the page of what is there; runs nothing

Each run is a cell, kept in benchmarks/results/sma.json as soon as it ends; started again it runs only what is
missing. The page, benchmarks/results/sma.md, is made of what is there. All learners are of one process, and cells
count epochs, not seconds: the load of the machine changes no number. Several of these commands share the cells: one on
each core (`taskset -c 0 python -m benchmarks.averaging.bench_sma & taskset -c 1 ...`) ends sooner than one on all.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from benchmarks.averaging.sma_arms import BN, NETS, TABLES
from benchmarks.averaging.sma_cells import Cell, Found, cells
from benchmarks.averaging.sma_claims import Claim, keep, kept
from benchmarks.averaging.sma_page import left_out, page
from benchmarks.averaging.sma_runs import Data, run
from benchmarks.averaging.sma_scaling import counts
from benchmarks.sides import ROOT, note, parser_of
from mpibow.run.directory import write

RESULTS = ROOT / "benchmarks/results/sma.json"


def asked(found: Found, only: str | None = None) -> list[Cell]:
    """The cells of a table or of a net, each once; none before the rates that they need have run."""
    names = (cell for cell in cells(found) if only in (None, cell.table, cell.also, NETS[cell.net].name))
    return list(dict.fromkeys(names))


def missing(found: Found, only: str | None = None) -> list[Cell]:
    """Those that have not run."""
    return [cell for cell in asked(found, only) if cell.key not in found]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--cifar", type=Path, default=Path("data/cifar10"), metavar="DIR", help="as datasets/cifar.py writes it"
    )
    parser.add_argument(
        "--mnist", type=Path, default=Path("data/mnist"), metavar="DIR", help="as mpibow convert mnist writes it"
    )
    choices = (*TABLES, *(net.name for net in NETS.values()))
    parser.add_argument("--only", choices=choices, help="a table, or a net (default: all)")
    parser.add_argument("--cells", type=int, default=1 << 30, metavar="N", help="run so many of what is missing")
    parser.add_argument("--list", action="store_true", help="print what is missing, and run nothing")
    parser.add_argument("--page", action="store_true", help="write the page of what is there, and run nothing")
    parser.add_argument("--plot", action="store_true", help="draw accuracy over learners, and run nothing")
    parser.add_argument("--pause", type=Path, metavar="FILE", help="wait between cells as long as FILE exists")
    parser.add_argument("--runs", type=Path, default=Path("runs/sma"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE.json", help="(default: %(default)s)")
    options = parser.parse_args()
    found = kept(options.results)
    if not asked(found, options.only):
        parser.error(f"--only {options.only}: needs rates that have not run; run --only rates first")
    if options.list:
        print(*(cell.key for cell in missing(found, options.only)), sep="\n")
        return
    if options.plot:
        from benchmarks.averaging.sma_plot import draw  # matplotlib

        note(f"{draw(counts(found, BN), options.results.with_suffix('.svg'))}")
        return
    if not options.page:
        cifar, mnist = options.cifar, options.mnist
        data = {"cifar10": Data(cifar), "mnist": Data(mnist), "whole cifar10": Data(cifar, 50_000)}
        needed = {data[NETS[cell.net].data].folder for cell in missing(found, options.only)}
        for name, folder in (("cifar", cifar), ("mnist", mnist)):
            if folder in needed and not folder.is_dir():
                make = f"python -m mpibow convert {name} --source FOLDER --output {folder}"
                parser.error(f"no folder {folder}: {make}, or --{name} DIR")
        claim, runs = Claim(options.runs / "claims"), options.runs / str(os.getpid())
        runs.mkdir()
        for _ in range(options.cells):
            while left := missing(found := kept(options.results), options.only):  # anew: rates choose other cells
                waits = options.pause is not None and options.pause.exists()
                if not waits and (cell := claim.first(left)) is not None:
                    break
                time.sleep(2.0)  # another process runs what is left
            else:
                break
            begin = time.perf_counter()
            result = run(cell, data[NETS[cell.net].data], runs)
            keep(options.results, cell.key, result)
            note(f"{len(left)} left; {time.perf_counter() - begin:.1f} s: {cell.key}: {result}")
        claim.drop()
        shutil.rmtree(runs)
        found = kept(options.results)
    write(options.results.with_suffix(".md"), page(found) + left_out(missing(found)))


if __name__ == "__main__":
    main()
