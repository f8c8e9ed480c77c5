"""Runs of every combination of settings, one after the other, and the table and the plot of their results.

python -m mpibow.sweep BASE.yaml update.lr=0.01,0.02 seed=1:3 --output DIR       six runs; again: the missing ones
python -m mpibow.sweep --output DIR --table update.lr --plot sweep.svg           of the finished runs; runs nothing
"""

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpibow.comm.launch import say
from mpibow.config import Config, load_mapping
from mpibow.config.overrides import rate_warning
from mpibow.config.yaml_text import read
from mpibow.errors import ConfigError
from mpibow.figure import NO_DATE, save
from mpibow.job import BUILT_IN, named_net, named_objective, of_arrays
from mpibow.job.net_file import with_checksum
from mpibow.run.timelines import first_timeline
from mpibow.system import JsonObject
from mpibow.system.command import natural, parser_of, positive, with_config
from mpibow.system.streams import as_command, exit_code

from .chart import draw
from .folder import SweepFolder
from .grid import Cell, cells
from .running import command_of, launch_of, run_cells
from .summary_table import table

EPILOG = """\
key.path=values: values as in YAML with commas between them, as in update.lr=0.01,0.02. A comma within brackets or
quotes is part of a value: learners=[1,2],[2,2]. a:b is every integer from a to b, both included: seed=1:9. Keys that
belong together are one mapping: update={lr: 0.1},{lr: 0.2, momentum: 0.9}. All cells of a seed run before those of the
next seed. Every cell's settings are checked before the first run; `mpibow train --help` lists all settings.

DIR/cells has a JSON file for every finished cell, DIR/runs has the run directories. To run a cell again, delete both.
Several commands may work on one DIR on one machine: each cell runs once.

exit codes: 0 every cell has finished; 1 a run has failed or is another command's, the others have finished; 5, 8, 137
likewise, and the run may be started again; 130 (Ctrl-C) and 75 (another signal) finished cells are kept, and the
interrupted run has saved its state; others as those of mpibow train"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code: 0 only where every requested cell has ended."""
    arguments = with_config(parser(), argv)
    return exit_code(lambda: sweep(arguments))


def sweep(arguments: argparse.Namespace) -> int:
    """Raises ConfigError before the first run where any cell's settings are wrong."""
    kept = SweepFolder(arguments.output)
    code = 0
    shown = arguments.table is not None or arguments.plot is not None
    if arguments.plot is not None and arguments.plot.suffix not in NO_DATE:
        raise ConfigError(f"--plot: must end in {', '.join(NO_DATE)}, got '{arguments.plot}'")
    if arguments.config is not None or arguments.overrides or not shown:
        named = configured(arguments, kept)
        launch = launch_of(arguments.ranks, arguments.launcher)
        if arguments.list:
            print(*(_listed(name, cell, kept, launch) for name, (cell, _) in named.items()), sep="\n")
            return 0
        code = _run(arguments, named, kept, launch)
    asked = [key for key in (arguments.table or "").split(",") if key]
    found = kept.results()
    if found:
        print(table(found, asked), end="")
    elif shown:
        raise ConfigError(f"--output: {kept.folder} has no cell that has finished")
    if arguments.plot is not None:
        save(draw(found, asked), arguments.plot)
        print(arguments.plot)
    return code


def configured(arguments: argparse.Namespace, kept: SweepFolder) -> dict[str, tuple[Cell, Config]]:
    """The cells by name with their settings, each checked. Raises ConfigError."""
    base: JsonObject = BUILT_IN if arguments.config is None else read(Path(arguments.config))
    named = {}
    told = dict[str, None]()
    for cell in cells(arguments.overrides):
        folder = str(kept.folder / "runs").replace("'", "''")
        try:
            config = with_checksum(load_mapping(base, [*cell.overrides, f"name={cell.name}", f"out='{folder}'"]))
            assert config.model is not None
            if of_arrays(config.model):  # the errors that a run raises before it opens its data
                named_objective(config)
            else:
                named_net(config, 2)
            first_timeline(config, arguments.ranks)
            told[rate_warning(base, cell.overrides, config.update, arguments.config or "the built-in run")] = None
            kept.check(cell.name, config)
        except ConfigError as error:
            raise ConfigError(f"{error}\nin the cell {cell}; nothing was run") from None
        named[cell.name] = (cell, config)
    for text in filter(None, told):
        say(text)
    return named


def _run(
    arguments: argparse.Namespace, named: Mapping[str, tuple[Cell, Config]], kept: SweepFolder, launch: Sequence[str]
) -> int:
    os.nice(arguments.nice)
    kept.begin(arguments.ranks)
    there = sum(kept.cell(name).exists() for name in named)
    say(f"{len(named)} cell(s), {there} of them there already")
    failed, elsewhere, code = run_cells(named, kept, launch)
    there = sum(kept.cell(name).exists() for name in named)
    if there < len(named):
        say(f"{there} of {len(named)} cells have ended; the same command continues")
    if elsewhere:
        say(f"another process runs {elsewhere} of them")
    for text in failed:
        say(f"failed: {text}")
    return code


def _listed(name: str, cell: Cell, kept: SweepFolder, launch: Sequence[str]) -> str:
    settings = kept.run(name) / "config.yaml"
    state = "ended" if kept.cell(name).exists() else "begun" if settings.exists() else "missing"
    return f"{state}  {cell}" + f"\n         {shlex.join(command_of(settings, launch))}" * settings.exists()


def parser() -> argparse.ArgumentParser:
    made = parser_of(
        "sweep",
        "Trains with every combination of values and prints a table of the results. A combination is a "
        "cell: one run.\nThe same command, started again, runs the missing cells, and continues an interrupted one.",
        EPILOG,
    )
    made.add_argument("config", nargs="?", metavar="BASE.yaml", help="settings of all runs (default: the built-in run)")
    made.add_argument("overrides", nargs="*", metavar="key.path=values", help="settings that override the file's")
    made.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="folder of the sweep: results and run directories"
    )
    made.add_argument("--ranks", type=positive, default=1, metavar="N", help="ranks of a run, by mpirun (default: 1)")
    made.add_argument(
        "--launcher", metavar="COMMAND", help="command that starts the ranks in place of mpirun, as 'srun -n {ranks}'"
    )
    made.add_argument("--nice", type=natural, default=0, metavar="N", help="niceness of all runs (default: 0)")
    made.add_argument(
        "--list", action="store_true", help="print the cells, with the commands of those begun; run nothing"
    )
    made.add_argument(
        "--table",
        nargs="?",
        const="",
        metavar="KEYS",
        help="print the table; KEYS, with commas between them, are its rows (default: all that differ, but seed)",
    )
    made.add_argument("--plot", type=Path, metavar="FILE", help="draw the table: .png, .svg or .pdf")
    return made


if __name__ == "__main__":
    as_command(main)
