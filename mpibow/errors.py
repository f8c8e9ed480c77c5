"""Every error that mpibow raises on purpose, and the exit code that a command ends with.

    MpibowError            1   the tree's root
    |- CallbackError       1   a callback that raised, or returned a value of no use
    |- ConfigError         2   a setting, an override or a command line that breaks a rule
    |- ShapeError          2   a graph whose node cannot take the shapes it is given
    |- FormulaError        2   a function that is no formula of one element
    |- RecordError         3   a record file or data set that is damaged or does not fit
    |  `- DamagedRecord        one sample of it that is damaged; the others may be whole
    |- CheckpointError     4   a checkpoint that is damaged or belongs to another run
    |- CommunicationError  5   ranks that cannot work together: launcher, MPI, a lost peer
    |- DivergedError       6   a loss or gradient that is not finite
    |- DeviceError         7   a device or a library of kernels that is not there or not fit
    `- OutputError         9   a file of the run that cannot be written, or is gone

    Interrupted           75   a SystemExit: a signal ended training, and its state is saved

A run that makes no progress for longer than `limits` allow is ended by its watchdog, with 8.

Messages are lower case, name the thing, the rule and the value, and the remedy where there is one.
"""

from pathlib import Path
from typing import ClassVar, NoReturn

# sysexits.h EX_TEMPFAIL: "saved, start me again". Batch systems requeue on it.
EXIT_REQUEUE = 75
EXIT_STALLED = 8
EXIT_INTERRUPTED = 130  # as a shell gives for SIGINT
# What each code of a command that fails means; `train --help` and docs/runs.md have these words.
EXIT_CODES = {
    1: "any other error",
    2: "a setting, a command line or a graph",
    3: "data",
    4: "a checkpoint",
    5: "the ranks cannot work together, or one of them was lost",
    6: "the loss diverged",
    7: "a device or a library",
    EXIT_STALLED: "no progress for longer than limits allow; standard error names the rank that hangs",
    9: "a file of the run cannot be written or is gone, or another run uses its directory",
    EXIT_REQUEUE: "a signal came; the state is saved: continue with --resume auto",
    EXIT_INTERRUPTED: "Ctrl-C; the state is saved likewise",
}


def install(extra: str) -> str:
    """The command that installs an extra of mpibow: by path where mpibow runs from its folder, as no index has it."""
    folder = Path(__file__).resolve().parents[1]
    if not (folder / "pyproject.toml").exists():  # a copy that pip installed, and finds by its name
        return f"pip install 'mpibow[{extra}]'"
    return f"pip install -e '{'.' if folder.samefile('.') else folder}[{extra}]'"


def raised(error: BaseException) -> NoReturn:
    """Raises the error, where a function is wanted that is called with it."""
    raise error


class MpibowError(Exception):
    """Root of the tree; `code` is the exit code of a command that it ends."""

    code: ClassVar[int] = 1


class CallbackError(MpibowError):
    """A callback of the program raised, or returned a wrong value; the message names it."""


class ConfigError(MpibowError):
    """A setting breaks a rule; the message starts with the setting's path."""

    code = 2


class ShapeError(MpibowError):
    """A node cannot take the shapes it is given; the message names node, rule and shapes."""

    code = 2


class FormulaError(MpibowError):
    """A function cannot be compiled as a formula; the message names the function, the line and the rule."""

    code = 2


class RecordError(MpibowError):
    """A record file or data set is damaged or unfit; the message names file and record number."""

    code = 3


class DamagedRecord(RecordError):
    """Sample `sample` of an open data set cannot be read; one that skips it can go on with the others."""

    def __init__(self, message: str, sample: int):
        super().__init__(message, sample)  # both, so that it can be pickled
        self.sample = sample

    def __str__(self) -> str:
        return str(self.args[0])


class CheckpointError(MpibowError):
    """A checkpoint is damaged or does not belong to this run; the message names the file."""

    code = 4


class CommunicationError(MpibowError):
    """The ranks cannot work together: the launcher, the MPI library, or a lost peer."""

    code = 5


class DivergedError(MpibowError):
    """A loss or gradient is not finite; the message names iteration, learner and rank."""

    code = 6


class DeviceError(MpibowError):
    """A device, or a library that computes on it, cannot be used; the message names what to install or to change."""

    code = 7


class OutputError(MpibowError):
    """A file that a run writes is refused by the system, or gone; the message names it, and the remedy."""

    code = 9


class Interrupted(SystemExit):
    """A signal other than Ctrl-C's has ended training; a program that does not catch it ends with EXIT_REQUEUE."""

    code = EXIT_REQUEUE
