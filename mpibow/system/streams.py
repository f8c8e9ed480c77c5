"""Output that its reader may stop reading, as `| head` does: the rest is dropped, and the program runs on."""

import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import starmap
from typing import TYPE_CHECKING, NoReturn, TextIO

from mpibow.errors import EXIT_INTERRUPTED, Interrupted, MpibowError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Unread(io.FileIO):
    """Drops output that nobody reads any more, as if it were written."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


@contextmanager
def until_nobody_reads() -> Iterator[None]:
    """Within it, writing to the process's standard output and error never fails; replaced streams are left alone.

    Characters that the locale's encoding lacks are escaped.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = starmap(_unbroken, zip(before, (sys.__stdout__, sys.__stderr__), strict=True))
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def interactive() -> bool:
    """Whether a person can type next: in a notebook, at a prompt, or with python -i."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def is_live(stream: TextIO) -> bool:
    """Whether a line on it can be overwritten: on a terminal, and below a notebook's cell."""
    return stream.isatty() or type(stream).__module__ == "ipykernel.iostream"


def outcome(main: Callable[[], int | None]) -> tuple[int, str]:
    """The exit code of main(), and its message."""
    try:
        return main() or 0, ""
    except Interrupted as interrupt:
        return interrupt.code, str(interrupt) or "interrupted"
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0, ""
        return 1, str(end.code)
    except KeyboardInterrupt as interrupt:
        return EXIT_INTERRUPTED, str(interrupt) or "interrupted"
    except MpibowError as error:
        return error.code, f"error: {error}"
    except MemoryError as error:
        why = f": {error}" if str(error) else ""
        return 1, f"error: out of memory{why}; use fewer learners or a smaller batch, or raise ulimit -v"
    except BaseException:
        return 1, traceback.format_exc().rstrip()


def exit_code(work: Callable[[], int | None]) -> int:
    """The exit code of a command's work, whose message is printed."""
    code, text = outcome(work)
    if text:
        print(text, file=sys.stderr)
    return code


def as_command(main: Callable[[], int | None]) -> NoReturn:
    """Runs main() as a command of its own and ends the process with its code."""
    with until_nobody_reads():
        try:
            os.getcwd()
        except OSError:
            sys.exit("error: the working directory was removed; cd to another one")
        sys.exit(exit_code(main))


def _unbroken(stream: TextIO, own: TextIO | None) -> TextIO:
    if stream is not own or not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    raw = _Unread(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        stream.encoding,
        "backslashreplace" if stream.errors == "strict" else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
