"""Worker processes read the same bits as this one; what goes wrong in one ends the reading by name, and leaves none."""

import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest

from mpibow.data import fixed
from mpibow.data.indexed import Hands, NamedItems, open_named
from mpibow.data.items import Items
from mpibow.data.pipeline_choice import PipelineChoice, open_reader
from mpibow.data.workers import Workers
from mpibow.errors import ConfigError, RecordError
from tests.data import owned
from tests.data.owned import Pairs
from tests.data.slots import piped

COUNT = 40


@pytest.fixture
def workers() -> Iterator[Workers]:
    found = Workers(2)
    yield found
    found.close()
    assert not any(worker.process.is_alive() for worker in found._workers)


def opened(hands: Hands, source: Pairs, **given) -> NamedItems:
    return open_named(Items("train", source, ("x",), "target", 5, **given), hands, training=True)


def read(data: NamedItems, samples: list[int], epoch: int | None = 1) -> tuple:
    x, target = np.zeros((len(samples), 8), np.float32), np.zeros(len(samples), np.int32)
    counters = np.zeros((len(samples), 4), np.uint32)
    numbers = np.array(samples)
    if epoch is None:
        data.read(numbers, x, target)
    else:
        counters[:, 1] = epoch
        data.draw(numbers, counters, x, target)
    return x, target


@pytest.mark.parametrize("epoch", [None, 0, 2])
def test_the_same_bits_as_here(workers: Workers, epoch):
    order = np.random.default_rng(1).permutation(COUNT).tolist()
    here, there = (read(opened(h, Pairs(), transform=owned.noisy), order, epoch) for h in (Hands(), Hands(workers)))
    assert here[0].tobytes() == there[0].tobytes()
    assert here[1].tobytes() == there[1].tobytes()
    assert (here[0] != read(opened(Hands(), Pairs(), transform=owned.noisy), order, 7)[0]).any()


def test_global_generators_are_a_function_of_the_sample(workers: Workers):
    data = opened(Hands(workers), Pairs(), transform=owned.global_noise)
    forwards, backwards = read(data, [*range(COUNT)])[0], read(data, [*range(COUNT)][::-1])[0]
    assert forwards.tobytes() == backwards[::-1].tobytes()
    assert len({row.tobytes() for row in forwards}) == COUNT
    assert (forwards != read(data, [*range(COUNT)], epoch=2)[0]).all()


def test_a_part_is_read_by_its_numbers(workers: Workers):
    whole = opened(Hands(workers), Pairs(), transform=owned.noisy)
    part = whole.part(np.array([30, 7, 12]))
    assert read(part, [2, 0])[0].tobytes() == read(whole, [12, 30])[0].tobytes()


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (owned.divide, "ZeroDivisionError: integer division or modulo by zero"),
        (
            owned.longer,
            "x is (9,) float32, the first sample's is (8,) float32; a batch needs samples of one shape",
        ),
        (owned.nothing, "must be (input, target) or values by name, got None"),
    ],
)
def test_a_fault_names_the_sample(processes, fault: owned.Fault, message):
    hands = Hands(Workers(processes) if processes else None)
    try:
        data = opened(hands, Pairs(bad=17, fault=fault))
        with pytest.raises(RecordError) as error:
            read(data, [*range(COUNT)])
        assert str(error.value) == f"train: sample 17: {message}"
        if fault is owned.divide:
            cause = error.value.__cause__
            assert isinstance(cause, ZeroDivisionError) or "in divide" in str(cause)
        assert read(data, [1, 2])[0].any()  # another one is still read
    finally:
        hands.close()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (owned.killed, r"was killed by signal 9 \(SIGKILL\) while it read samples 16, 17, 18, 19; is there"),
        (owned.left, r"ended with 3 while it read samples 16, 17, 18, 19; is the program safe\? put what the program "
         r"does under `if __name__ == '__main__':`"),
    ],
)  # fmt: skip
@pytest.mark.timeout(300)
def test_a_worker_that_ends_is_named(workers: Workers, fault: owned.Fault, message):
    data = opened(Hands(workers), Pairs(bad=17, fault=fault))
    with pytest.raises(RecordError, match=rf"train: worker process \d+ {message}"):
        read(data, [*range(COUNT)])
    lengths = []
    for _ in range(2):
        with pytest.raises(RecordError, match=message) as caught:
            read(data, [1])
        lengths.append(len(caught.traceback))
    assert lengths[0] == lengths[1]  # it does not grow


@pytest.mark.timeout(300)
def test_a_pipeline_ends_with_its_worker(workers: Workers):
    """Killed from outside, while nothing is asked of it and while something is."""
    data = opened(Hands(workers), Pairs())
    reader = open_reader(PipelineChoice("host", ""), data, None, 1)
    pipeline = piped(data, reader, fixed(4, (1,)), 4, seed=1)
    try:
        pipeline.next()[0].release()
        os.kill(workers._workers[1].process.pid or 0, signal.SIGKILL)
        with pytest.raises(RecordError, match="was killed by signal 9"):  # noqa: PT012
            while True:
                pipeline.next()[0].release()
                time.sleep(0.01)
    finally:
        pipeline.close()


def test_signals_that_ask_this_program_to_end_leave_workers_alone(workers: Workers):
    data = opened(Hands(workers), Pairs())
    read(data, [0])
    for worker in workers._workers:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(worker.process.pid or 0, number)
    assert read(data, [*range(COUNT)])[0].any()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_every_sample_comes_once_an_epoch(workers: Workers, number):
    hands = Hands(workers if number == 2 else None)
    data = opened(hands, Pairs())
    reader = open_reader(PipelineChoice("host", ""), data, None, 1)
    pipeline = piped(data, reader, fixed(5, (2,)), 3, seed=1)
    seen = []
    try:
        for _ in range(COUNT // 10):
            for slot in pipeline.next():
                seen += [row.tobytes() for row in slot.arrays["x"]]
                slot.release()
    finally:
        pipeline.close()
    assert sorted(seen) == sorted(Pairs()[n][0].tobytes() for n in range(COUNT))


def test_what_cannot_be_sent(workers: Workers):
    transform = lambda sample, rng: sample  # noqa: E731
    with pytest.raises(ConfigError, match=r"train: can't be sent to worker processes: .*; define its class, and"):
        opened(Hands(workers), Pairs(), transform=transform)
