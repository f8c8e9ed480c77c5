"""Processes that read a user's data sets: started anew, not forked, as this one may hold threads and an MPI library.

A worker gets a data set once, pickled, and then the numbers of samples to read; it writes their arrays into memory that
it shares with this process and answers by a byte, or by the error. The memory has no name: nothing of it is left
behind, however a process ends, and no file system is too small for it.
"""

import mmap
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import recv_handle, send_handle

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from mpibow.errors import ConfigError, RecordError
from mpibow.system import aligned
from mpibow.system.process import ASKING

from .dataset import Array, DType, Inputs, Shape
from .items import Items, seed_globals

PIECE = 4  # samples that a worker reads at once
BLOCKS = 4  # pieces that a worker may have: enough to keep it busy
GRACE = 2.0  # seconds for a worker to end by itself
GUARD = "put what the program does under `if __name__ == '__main__':`"


def starting() -> bool:
    """Whether this process is a worker that is being started, and imports the program."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


@dataclass
class Task:
    """A worker's samples to read, and the destination of their arrays."""

    name: str
    samples: Array
    arrays: Sequence[Array]
    block: int
    done: Future[None]


@dataclass
class Worker:
    process: SpawnProcess
    connection: Connection
    memory: mmap.mmap
    free: list[int]  # blocks
    sets: set[int] = field(default_factory=set)  # data sets that it has
    tasks: deque[Task] = field(default_factory=deque)  # in the order of their answers


class Workers:
    """`count` processes, started at the first read; any number of threads may read at once."""

    def __init__(self, count: int):
        self.count = count
        self._sets = list[tuple[Items, Inputs, bytes]]()
        self._workers = list[Worker]()
        self._state = threading.Condition()
        self._listener: threading.Thread | None = None
        self._error: Exception | None = None
        self._closed = False

    def add(self, items: Items, inputs: Inputs) -> int:
        """A number for the data set, for `read`. Raises ConfigError where it can't be sent to a process."""
        try:
            data = pickle.dumps((items, inputs))
        except Exception as error:
            raise ConfigError(
                f"{items.name}: can't be sent to worker processes: {error}; define its class, and transform, at the "
                "top of a module, or set workers=0"
            ) from error
        with self._state:
            self._sets.append((items, inputs, data))
            return len(self._sets) - 1

    def read(self, number: int, samples: Array, epochs: Array | None, arrays: Sequence[Array]) -> None:
        """Copies samples (n,) of the data set `number` into arrays (n, ...). Raises RecordError."""
        asked = []
        for first in range(0, len(samples), PIECE):
            part = slice(first, first + PIECE)
            own = [array[part] for array in arrays]
            asked.append(self._ask(number, samples[part], None if epochs is None else epochs[part], own))
        for future in asked:
            future.result()

    def close(self) -> None:
        """Ends the processes; nothing is read any more."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        for worker in self._workers:
            with suppress(OSError):
                worker.connection.send(None)
        for worker in self._workers:
            worker.process.join(GRACE)
            if worker.process.is_alive():
                worker.process.kill()  # it is in the user's code
                worker.process.join()
        if self._listener is not None:
            self._listener.join()

    def _ask(self, number: int, samples: Array, epochs: Array | None, arrays: Sequence[Array]) -> Future[None]:
        items, _, data = self._sets[number]
        with self._state:
            if not self._workers and self._error is None and not self._closed:
                self._start()
            self._state.wait_for(lambda: self._error or self._closed or any(worker.free for worker in self._workers))
            if self._error is not None:
                raise self._error.with_traceback(None)  # else each raise adds to it
            if self._closed:
                raise RecordError(f"{items.name}: is read after its workers have ended")
            worker = min((each for each in self._workers if each.free), key=lambda each: len(each.tasks))
            task = Task(items.name, samples, arrays, worker.free.pop(), Future())
            worker.tasks.append(task)
            with suppress(OSError):  # it has ended: the listener finds out
                if number not in worker.sets:
                    worker.connection.send((number, data))
                    worker.sets.add(number)
                worker.connection.send((number, task.block, samples, epochs))
        return task.done

    def _start(self) -> None:
        # Each block holds the arrays of PIECE samples.
        size = BLOCKS * max(
            sum(aligned(PIECE * int(np.prod(shape)) * dtype.itemsize) for shape, dtype in inputs.values())
            for _, inputs, _ in self._sets
        )
        context = multiprocessing.get_context("spawn")
        for place in range(self.count):
            ours, theirs = context.Pipe()
            memory = os.memfd_create("mpibow-worker", os.MFD_CLOEXEC)
            os.truncate(memory, size)
            process = context.Process(target=_serve, args=(theirs,), name=f"worker{place}", daemon=True)
            with _blocked():
                process.start()
            theirs.close()
            send_handle(ours, memory, process.pid)
            self._workers.append(Worker(process, ours, mmap.mmap(memory, size), list(range(BLOCKS))))
            os.close(memory)
        self._listener = threading.Thread(target=self._listen, name="workers", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        """Takes answers until all workers have ended."""
        running = {worker.connection: worker for worker in self._workers}
        while running:
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                worker = running[connection]
                try:
                    self._take(worker, connection.recv())
                except (EOFError, OSError):
                    del running[connection]
                    worker.process.join(GRACE)
                    self._ended(worker)

    def _take(self, worker: Worker, answer: tuple[str, str] | None) -> None:
        task = worker.tasks[0]
        if answer is None:
            inputs = [(array.shape[1:], array.dtype) for array in task.arrays]
            for array, found in zip(task.arrays, views(worker.memory, task.block, inputs), strict=True):
                np.copyto(array, found[: len(array)])
        with self._state:
            worker.tasks.popleft()
            worker.free.append(task.block)
            self._state.notify_all()
        if task.done.done():  # another worker has ended meanwhile
            return
        if answer is None:
            task.done.set_result(None)
        else:
            message, trace = answer
            error = RecordError(message)
            error.__cause__ = WorkerTrace(trace)
            task.done.set_exception(error)

    def _ended(self, worker: Worker) -> None:
        """Fails every task that waits: all workers' where this one was not to end."""
        with self._state:
            if self._closed or self._error is not None:
                waiting = list(worker.tasks)
            else:
                self._error = RecordError(_death(worker))
                waiting = [task for each in self._workers for task in each.tasks]
            self._state.notify_all()
        for task in waiting:
            if not task.done.done():
                task.done.set_exception(self._error or RecordError(f"{task.name}: reading has ended"))


class WorkerTrace(Exception):
    """The traceback of an error in a worker."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _death(worker: Worker) -> str:
    code = worker.process.exitcode
    task = worker.tasks[0] if worker.tasks else None
    how = f"was killed by signal {-code} ({signal.Signals(-code).name})" if code and code < 0 else f"ended with {code}"
    reading = f" while it read samples {', '.join(map(str, task.samples.tolist()))}" if task else ""
    name = f"{task.name}: " if task else ""
    remedy = (
        "is there enough memory? set workers lower, or to 0" if code and code < 0 else f"is the program safe? {GUARD}"
    )
    return f"{name}worker process {worker.process.pid} {how}{reading}; {remedy}"


def views(memory: mmap.mmap, block: int, inputs: Sequence[tuple[Shape, DType]]) -> list[Array]:
    """The arrays of a block, each (PIECE, ...)."""
    start = block * (len(memory) // BLOCKS)
    found = []
    for shape, dtype in inputs:
        found.append(np.ndarray((PIECE, *shape), dtype, memory, start))
        start += aligned(found[-1].nbytes)
    return found


@contextmanager
def _blocked() -> Iterator[None]:
    """Blocks these signals, also for a process that is started here: only this one obeys them."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _serve(connection: Connection) -> None:
    """A worker's main loop, which ends on request, or when this program is gone."""
    threadpool_limits(1)
    memory = mmap.mmap(recv_handle(connection), 0)
    pickled = {}
    with suppress(EOFError, OSError):
        while (asked := connection.recv()) is not None:
            if len(asked) == 2:
                pickled[asked[0]] = asked[1]
            else:
                connection.send(_read(memory, pickled[asked[0]], *asked[1:]))


def _read(memory: mmap.mmap, data: bytes, block: int, samples: Array, epochs: Array | None) -> tuple[str, str] | None:
    """None, or an error's message and traceback."""
    try:
        items, inputs = _opened(data)
        arrays = [array[: len(samples)] for array in views(memory, block, list(inputs.values()))]
        for row in range(len(samples)):
            part = slice(row, row + 1)
            epoch = 0 if epochs is None else int(epochs[row])
            seed_globals(items.seed, epoch, items.number(int(samples[row])))
            items.fill(samples[part], None if epochs is None else epochs[part], inputs, [each[part] for each in arrays])
    except Exception as error:
        return str(error), traceback.format_exc()
    return None


@cache
def _opened(data: bytes) -> tuple[Items, Inputs]:
    try:
        found: tuple[Items, Inputs] = pickle.loads(data)
    except Exception as error:
        raise RecordError(
            f"the data set can't be opened in a worker process: {type(error).__name__}: {error}; "
            "define its class, and transform, at the top of a module, or set workers=0"
        ) from error
    return found
