"""The steps of all converters: parts written aside and verified as one folder, work spread over processes.

A converter reads its source into one `Part` for train and one for test, and hands them to `write_parts`.
"""

import hashlib
import http.client
import multiprocessing
import os
import signal
import threading
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tqdm import tqdm

from mpibow.data import Array, verify, write_records
from mpibow.data.aside import file_aside, folder_aside, opened
from mpibow.errors import RecordError

Item = TypeVar("Item")
Made = TypeVar("Made")
Each = Callable[..., Iterator[Any]]  # spreader's
AHEAD = 4  # tasks a worker that may be under way: enough to keep it busy, few enough for memory


@dataclass(frozen=True)
class Part:
    """One data set to write: `count` samples (image, label), made while they are written.

    `moments` are mean and std per channel of encoded images, None for raw ones; `sources` maps the
    names of source files to their checksums; it is read after the last sample, which may have filled it. `contents`
    describes records that are no images, `files` lie beside them.
    """

    count: int
    samples: Iterable[tuple[Array | bytes, int]]
    encoding: str = "raw"
    moments: tuple[Sequence[float], Sequence[float]] | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[str, object] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


def write_parts(
    output: Path,
    parts: Mapping[str, Part],
    *,
    classes: int,
    class_names: Sequence[str] = (),
    source: str = "",
    overwrite: bool = False,
) -> None:
    """Writes output/NAME for every part, reads all of it back, and prints a line for each; all of it or nothing.

    Raises RecordError where a sample does not fit, where a part has more or fewer than `count` samples, where `output`
    exists and `overwrite` is false, and where the disk returns other bytes than were written.
    """
    with folder_aside(output, overwrite=overwrite) as folder:
        for name, part in parts.items():
            write_records(
                folder / name,
                _counted(part, f"{output}/{name}"),
                classes=classes,
                class_names=class_names,
                encoding=part.encoding,
                moments=part.moments,
                source=source,
                sources=part.sources,
                contents=part.contents,
                files=part.files,
            )
        for name, part in parts.items():
            with progress(part.count, f"{output}/{name}: verify", " records") as bar:
                for damage in verify.damages(folder / name, bar.update):
                    raise RecordError(f"{output}: the records differ when read back; is the disk sound? {damage}")
    for name, part in parts.items():
        print(f"{output}/{name}: {part.count:,} records of {classes:,} classes, verified")


def progress(total: int | None, title: str, unit: str) -> "tqdm[NoReturn]":
    """A progress bar, on a terminal only."""
    return tqdm(total=total, desc=title, unit=unit, disable=None, leave=False)


def watched(items: Iterable[Item], total: int | None, title: str, unit: str) -> Iterator[Item]:
    """The same items, with a progress bar."""
    with progress(total, title, unit) as bar:
        for item in items:
            bar.update()
            yield item


def _counted(part: Part, title: str) -> Iterator[tuple[Array | bytes, int]]:
    done = 0
    for sample in watched(part.samples, part.count, title, " images"):
        done += 1
        yield sample
    if done != part.count:
        raise RecordError(f"{title}: the source has {done:,} images, {part.count:,} were expected; did it change?")


@contextmanager
def spreader(workers: int) -> Iterator[Each]:
    """`each(function, items)` on `workers` processes (in this one where 1): results in the order of the items.

    `function` is a module's own and, like its items and results, can be pickled. Items are taken as they are
    needed, AHEAD a worker at the most. The first error ends it; nothing runs on when the block ends. Ctrl-C, which a
    terminal sends to all processes, is this one's: workers end when it does.
    """
    if workers == 1:
        yield map
        return
    # not forked: the parent may hold threads, or an MPI library
    spawn = multiprocessing.get_context("spawn")
    with _uninterrupted():  # half-made it would leave a semaphore
        pool = ProcessPoolExecutor(workers, mp_context=spawn, initializer=_end_with_parent)
    try:
        yield lambda function, items: _ordered(pool, function, items, AHEAD * workers)
    except BrokenProcessPool as error:
        raise RecordError("a worker process was killed; is there enough memory? use fewer --workers") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, and never comes to a process that is started inside.

    Where Python's handler was replaced, or on a thread, only the latter holds.
    """
    main = threading.current_thread() is threading.main_thread()
    ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    came = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if ours:  # a signal that another thread receives comes here all the same
        signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Ends a worker when this program is killed; workers of a pool would wait for its next task for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _ordered(pool: Executor, function: Callable[[Item], Made], items: Iterable[Item], ahead: int) -> Iterator[Made]:
    under_way = deque[Future[Made]]()
    for item in items:
        if len(under_way) == ahead:
            yield under_way.popleft().result()
        with _uninterrupted():  # it may start a worker
            under_way.append(pool.submit(function, item))
    while under_way:
        yield under_way.popleft().result()


def cores() -> int:
    """Cores that this process may use: the default of `--workers`."""
    return len(os.sched_getaffinity(0))


def file_checksum(path: Path) -> str:
    """The checksum as in a manifest: 'md5 f68b3c2d...'."""
    with opened(path) as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    return f"md5 {digest.hexdigest()}"


def fetch(url: str, path: Path, size: int, md5: str, *, remedy: str) -> None:
    """Downloads `path`, unless it is there already, and compares its checksum; whole or not at all.

    Raises RecordError, with `remedy` where the download fails.
    """
    if path.exists():
        if (found := file_checksum(path)) != f"md5 {md5}":
            raise RecordError(
                f"{path}: MD5 is {found.split()[1]}, that of {url} is {md5}; remove it or choose another --source"
            )
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(url, timeout=30) as reply,
            file_aside(path) as file,
            tqdm(total=size, desc=path.name, unit="B", unit_scale=True, disable=None) as bar,
        ):
            digest = hashlib.md5(usedforsecurity=False)
            while block := reply.read(1 << 16):
                digest.update(block)
                bar.update(file.write(block))
            if digest.hexdigest() != md5:
                raise OSError(f"MD5 is {digest.hexdigest()}, it must be {md5}")
    except (OSError, http.client.HTTPException) as error:  # OSError: also URLError, or no space
        raise RecordError(f"{url}: cannot be downloaded: {error}; {remedy}") from error


def interruptible(convert: Callable[[], None]) -> None:
    """Runs it; the KeyboardInterrupt of Ctrl-C has a message."""
    try:
        convert()
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted: nothing was left behind") from None
