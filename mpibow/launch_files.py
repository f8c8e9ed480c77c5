"""mpibow launch: lists, shows and copies the configs, batch scripts and container recipes that come with mpibow."""

import argparse
import shutil
from pathlib import Path

import yaml

from .errors import ConfigError, OutputError
from .system.command import LAUNCH, launch_file, launch_files, main_of, parser_of, prog, stem, suggested
from .system.files import refusal
from .system.streams import as_command

FOLDER = "launch"


def parser() -> argparse.ArgumentParser:
    made = parser_of(
        "launch",
        "Lists, shows or copies configs, batch scripts and container recipes.",
        "NAME is a path as --list prints it, with or without its ending: digits, slurm.sbatch.",
        alone="python -m mpibow.launch_files",
    )
    action = made.add_mutually_exclusive_group(required=True)
    action.add_argument("--list", action="store_true", help="print the names of all files")
    action.add_argument("--show", metavar="NAME", help="print a file")
    action.add_argument("--copy", nargs="+", metavar=("NAME", "DIR"), help=f"copy a file into DIR (default: {FOLDER})")
    made.add_argument("--overwrite", action="store_true", help="with --copy: replace a file that is there")
    return made


def _run(options: argparse.Namespace) -> None:
    if options.list:
        print(*(f"{name:<38} {about(name)}" for name in launch_files()), sep="\n")
    elif options.show:
        print((LAUNCH / find(options.show)).read_text(encoding="utf-8"), end="")
    else:
        name, folder = (*options.copy, FOLDER)[:2]
        print(copy(find(name), Path(folder), overwrite=options.overwrite))


def find(name: str) -> str:
    """The launch file of that name, as a path below launch/. Raises ConfigError."""
    if found := launch_file(name):
        return found
    all_names = f"{prog('launch', 'mpibow launch')} --list prints all names"
    remedy = suggested(name, [*launch_files(), *map(stem, launch_files())], all_names)
    raise ConfigError(f"'{name}': is not a launch file; {remedy}")


def copy(name: str, folder: Path, *, overwrite: bool = False) -> Path:
    """Copies a launch file to the same path below `folder`, and returns that path. Raises OutputError."""
    target = folder / name
    if target.exists() and not overwrite:
        raise OutputError(f"{target}: exists already; pass --overwrite, or another DIR")
    with refusal(OutputError, target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(LAUNCH / name, target)
    return target


def about(name: str) -> str:
    """A config's model, data and batch size; the first comment of any other file."""
    text = (LAUNCH / name).read_text(encoding="utf-8")
    settings = yaml.safe_load(text) if name.endswith(".yaml") else None
    if isinstance(settings, dict) and "model" in settings:
        data = str(settings["data"]["train"]).removesuffix("/train")
        batch = settings["batch_size"]
        return f"{settings['model']['name']} on {data}, batch {batch}"
    comments = [line[1:].strip() for line in text.splitlines() if line.startswith("#") and not line.startswith("#!")]
    return next(filter(None, comments), "").rstrip(".")


main = main_of(
    parser,
    _run,
    lambda options: "--copy: takes NAME and at most one DIR" if options.copy and len(options.copy) > 2 else None,
)

if __name__ == "__main__":
    as_command(main)
