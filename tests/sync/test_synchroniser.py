"""The synchroniser: the same bits overlapped or not, ranks that agree again, errors that surface in wait()."""

import threading
import warnings
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpibow.comm import Communicator, Single
from mpibow.errors import CommunicationError
from mpibow.graph import Array
from mpibow.kernels.numpy import flat
from mpibow.learn.replica import Replicas
from mpibow.learn.scheduler import Scheduler
from mpibow.sync import Engine, Family, synchroniser
from mpibow.sync.agreement import agree
from mpibow.sync.family import Outer
from mpibow.sync.outbox import TAIL
from mpibow.sync.synchroniser import Synchroniser, Tally
from tests.clock import Clock
from tests.comm.threads import on_threads
from tests.launching import LIMIT
from tests.stepping import ball_step

SIZE = flat.chunk + 40
LOCAL, NOTHING = ball_step(0.05, 0.9, False, 0.01, SIZE), Tally()
SETTINGS = {
    "crossbow": Family(name="crossbow"),
    "crossbow, period 3": Family(name="crossbow", period=3),
    "pulled, period 3": Family(period=3, outer=Outer("momentum")),
    "local sgd": Family(name="local_sgd", period=2),
    "diloco": Family(name="diloco", period=3),
    "gain": Family(outer=Outer(gain=2.0)),
    "ssgd": Family(name="ssgd"),
}
ALL = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())


def inline(tasks: list[Any]) -> list[Any]:
    return [task() for task in tasks]


class Rank:
    """One rank's rule, replicas and synchroniser; `count` learners of `k`."""

    def __init__(
        self,
        comm: Communicator,
        settings: Family,
        count: int,
        k: int,
        *,
        overlap: bool,
        run: Any = inline,
        kernels: Any = flat,
        zeros: Any = None,
    ) -> None:
        self.rows = Replicas(4, SIZE, "float32", states=("momenta",))
        self.rows.resize(count)
        z = np.random.default_rng(99).standard_normal(SIZE).astype(np.float32)
        self.engine = Engine(settings, kernels, self.rows, z, zeros)
        self.engine.begin(k)
        self.sync = Synchroniser(comm, self.engine, self.rows, kernels, run, overlap=overlap)
        self.comm, self.t = comm, 0

    def gradients(self) -> None:
        noise = np.random.default_rng([self.comm.rank, self.t]).standard_normal(self.rows.weights.shape)
        self.rows.gradients[...] = self.rows.weights - 1 + noise

    def step(self, tally: Tally = NOTHING) -> Tally | None:
        """As the training loop does: compute, wait for the exchange before, update, begin the next one."""
        self.gradients()
        received = self.sync.settle()
        self.sync.update(LOCAL, 2)
        self.sync.exchange(tally, LOCAL, 2)
        self.t += 1
        return received


def overlapped(comm: Communicator) -> Rank:
    return Rank(comm, Family(name="crossbow"), 2, 2, overlap=True)


@ALL
def test_workers_that_wait_update_by_commands(settings):
    """With the bits of the passes."""
    compiled = pytest.importorskip("mpibow.kernels.compiled.flat")
    handoff = import_module("mpibow.kernels.compiled.handoff").Handoff
    scheduler, made = Scheduler(handoff=handoff, cores=2), list[Any]()
    recording = SimpleNamespace(**vars(compiled) | {"Recorder": lambda: made.append(compiled.Recorder()) or made[-1]})
    ours = Rank(Single(), settings, 3, 3, overlap=True, run=scheduler.run, kernels=recording)
    theirs = Rank(Single(), settings, 3, 3, overlap=True, kernels=compiled)
    for _ in range(5):
        ours.step()
        theirs.step()
        np.testing.assert_array_equal(ours.rows.weights, theirs.rows.weights)
    scheduler.close()
    assert {len(recorder._calls) for recorder in made} == {1}  # of the second worker, the first is the caller


class Gate(Single):
    """An all-reduce of two ranks that ends when it is let through."""

    size = 2

    def __init__(self) -> None:
        self.open, self.threads = threading.Event(), set[str]()

    def allreduce(self, array: Array, stream: Any = None) -> None:
        self.threads.add(threading.current_thread().name)
        assert self.open.wait(LIMIT)


def test_an_overlapped_exchange_is_under_way_when_start_returns():
    comm = Gate()
    rank = overlapped(comm)
    _, mean, _ = rank.engine.shared()
    before = mean.copy()
    rank.step()  # returns, though nothing can have been received
    np.testing.assert_array_equal(mean, before)
    rank.gradients()
    comm.open.set()
    rank.sync.settle()
    assert (mean != before).all()
    assert len(comm.threads) == 1
    assert threading.current_thread().name not in comm.threads
    assert rank.sync.busy > 0
    rank.sync.close()


def test_one_rank_exchanges_on_the_caller_s_thread():
    comm = Gate()
    comm.size = 1
    comm.open.set()
    rank = overlapped(comm)
    rank.step()
    assert comm.threads == {threading.current_thread().name}
    rank.sync.close()


@pytest.mark.parametrize(
    ("settings", "overlap", "any_thread", "waited"),
    [
        (Family(name="crossbow"), True, True, 1.0),
        (Family(name="crossbow"), False, True, 4.0),
        (Family(name="crossbow"), True, False, 4.0),
        (Family(outer=Outer(gain=2.0)), True, True, 4.0),
        (Family(name="ssgd"), True, True, 4.0),
    ],
)
def test_what_learners_wait_for_and_what_is_hidden(monkeypatch, settings: Family, overlap, any_thread, waited):
    """An exchange takes four seconds, of which the learners compute three where they may."""
    begun, computed, ended = threading.Event(), threading.Event(), threading.Event()

    class Clocked(Single):
        size = 2

        def allreduce(self, array: Array, stream: Any = None) -> None:
            begun.set()
            if waited == 1.0:
                assert computed.wait(LIMIT)
            clock.now = 4.0
            ended.set()

    class Looked(Clock):
        def read(self) -> float:
            seen = self.now
            if seen == 3.0:  # receive() looks
                computed.set()
                assert ended.wait(LIMIT)
            return seen

    comm = Clocked()
    comm.any_thread = any_thread
    clock = Looked(monkeypatch, synchroniser)
    rank = Rank(comm, settings, 2, 3, overlap=overlap)
    rank.step()
    assert begun.wait(LIMIT)
    clock.now = max(clock.now, 3.0)  # the learners compute
    rank.sync.receive()
    assert (rank.sync.busy, rank.sync.waited) == (4.0, waited)
    rank.sync.close()


@pytest.mark.parametrize(("size", "seconds"), [(1, 0.0), (2, 4.0)])
def test_ranks_that_talk_wait_for_each_other(monkeypatch, size, seconds):
    """The other comes four seconds later."""
    clock = Clock(monkeypatch, synchroniser)

    class Late(Single):
        def share(self, obj: Any) -> list[Any]:
            clock.now += 4.0
            return [obj] * size

    comm = Late()
    comm.size = size
    rank = overlapped(comm)
    assert rank.sync.talk("a") == ["a"] * size
    assert rank.sync.seconds() == (seconds, seconds)
    rank.sync.close()


def test_the_centre_of_one_rank_s_learners_is_their_mean_once_it_is_settled():
    rank = Rank(Single(), Family(outer=Outer(gain=2.0)), 3, 3, overlap=False)
    for _ in range(3):
        rank.step()
    rank.sync.receive()
    with pytest.raises(AssertionError, match=r"^settle\(\) comes first$"):
        _ = rank.engine.centre
    rank.sync.settle()
    a, b, c = rank.rows.weights
    np.testing.assert_array_equal(rank.engine.centre, (a + b + c) * np.float32(1 / 3))
    assert agree(rank.sync.call, rank.engine, rank.rows, flat, 3).drift == 0.0
    rank.sync.close()


def test_tallies_are_summed_over_ranks():
    def body(comm: Communicator) -> list[Tally | None]:
        rank = Rank(comm, Family(name="crossbow"), 1, 2, overlap=True)
        tallies = [rank.step(Tally(float(comm.rank == 1 and t == 1), 1.5 * t, 10 * comm.rank + t)) for t in range(3)]
        tallies += [rank.sync.settle(), rank.sync.settle()]
        rank.sync.close()
        return tallies

    for tallies in on_threads(2, body):
        assert tallies == [None, Tally(0, 0, 10), Tally(1, 3, 12), Tally(0, 6, 14), None]


def test_tallies_wait_for_the_iteration_that_sends():
    """With a period of 3 and no gain the steps of iterations 2, 3, 4 are sent together, and so are their tallies."""
    rank = Rank(Single(), Family(name="crossbow", period=3), 2, 2, overlap=False)
    tallies = []
    for t in range(8):
        rank.step(Tally(loss=float(2**t)))
        tallies.append(rank.sync.settle())
    assert [tally and tally.loss for tally in tallies] == [
        None,
        1 + 2,
        None,
        None,
        4 + 8 + 16,
        None,
        None,
        32 + 64 + 128,
    ]
    rank.sync.close()


class Broken(Single):
    def allreduce(self, array: Array, stream: Any = None) -> None:
        raise CommunicationError("rank 1 is gone")


@pytest.mark.parametrize("overlap", [True, False])
@ALL
def test_an_error_of_the_communicator_surfaces(settings: Family, overlap):
    rank = Rank(Broken(), settings, 2, 2, overlap=overlap)

    def step_and_wait() -> None:  # a rule that waits for its exchange raises at once, the others then
        for _ in range(settings.point.period):  # of which one sends
            rank.step()
            rank.sync.settle()

    with pytest.raises(CommunicationError, match=r"^rank 1 is gone$"):
        step_and_wait()
    rank.sync.close()


def test_calls_are_made_on_the_communication_thread_after_what_is_under_way():
    comm = Gate()
    rank = overlapped(comm)
    rank.step()
    threading.Timer(0.05, comm.open.set).start()
    assert rank.sync.call(lambda c: (c is comm, comm.open.is_set(), threading.current_thread().name)) == (
        True,
        True,
        *comm.threads,
    )
    rank.sync.settle()
    with pytest.raises(ZeroDivisionError):
        rank.sync.call(lambda c: 1 // 0)
    rank.sync.close()


def test_a_communicator_of_one_thread_is_called_on_that_thread():
    comm = Gate()
    comm.any_thread = False
    comm.open.set()
    rank = overlapped(comm)
    rank.step()
    rank.sync.settle()
    assert comm.threads == {threading.current_thread().name}
    rank.sync.close()

    class OneThreadBroken(Broken):
        any_thread = False

    rank = overlapped(OneThreadBroken())
    rank.step()
    with pytest.raises(CommunicationError, match=r"^rank 1 is gone$"):
        rank.sync.settle()
    rank.sync.close()


def flip(array: Array, place: int) -> None:
    array.view(np.uint32)[place] ^= 1


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        (Family(name="crossbow"), 0),
        (Family(name="crossbow"), 2),
        (Family(name="ssgd"), 0),
    ],
    ids=["z", "z_prev", "ssgd"],
)
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_rank_with_flipped_bits_is_given_rank_0s(settings: Family, number, wrong):
    """Also where rank 0 is the one that is wrong: what counts is that all are equal."""

    def body(comm: Communicator) -> tuple[list[Array], Array, int, list[Array]]:
        rank = Rank(comm, settings, 1, 3, overlap=True)
        for _ in range(3):
            rank.step()
        rank.sync.settle()
        if comm.rank == wrong:
            flip(rank.engine.shared()[number], 5)
        before = [array.copy() for array in rank.engine.shared()]
        mismatches = agree(rank.sync.call, rank.engine, rank.rows, flat, 3).mismatches
        shared, weights = [array.copy() for array in rank.engine.shared()], rank.rows.weights.copy()
        for _ in range(2):
            rank.step()
        rank.sync.settle()
        rank.sync.close()
        return shared, weights, mismatches, [before[number], rank.engine.centre.copy()]

    results = on_threads(3, body)
    for shared, weights, mismatches, (_, later) in results:
        assert mismatches == 1
        for array, first in zip(shared, results[0][0], strict=True):
            np.testing.assert_array_equal(array, first)
        np.testing.assert_array_equal(shared[number], results[0][3][0])
        np.testing.assert_array_equal(later, results[0][3][1])
        if settings.name == "ssgd":
            np.testing.assert_array_equal(weights[0], shared[0])


@ALL
def test_a_centre_that_is_another_on_one_rank_is_counted(settings: Family):
    """Also where the true mean then takes its place."""

    def body(comm: Communicator) -> tuple[int, list[Array]]:
        rank = Rank(comm, settings, 1 + comm.rank, 3, overlap=True)
        rank.step()
        rank.sync.settle()
        rank.engine.shared()[0][:] += comm.rank
        mismatches = agree(rank.sync.call, rank.engine, rank.rows, flat, 3).mismatches
        again = agree(rank.sync.call, rank.engine, rank.rows, flat, 3).mismatches
        rank.sync.close()
        assert again == 0
        return mismatches, [array.copy() for array in rank.engine.shared()]

    (one, first), (other, second) = on_threads(2, body)
    assert one == other == 1
    for mine, theirs in zip(first, second, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_mean_that_has_drifted_is_set_right():
    def body(comm: Communicator) -> tuple[float, Array, Array]:
        rank = Rank(comm, Family(outer=Outer(gain=2.0)), 1 + comm.rank, 3, overlap=True)
        for _ in range(3):
            rank.step()
        rank.sync.settle()
        mean = rank.engine.centre
        mean += 0.5
        drift = agree(rank.sync.call, rank.engine, rank.rows, flat, 3).drift
        rank.sync.close()
        return drift, rank.engine.centre, rank.rows.weights

    results = on_threads(2, body)
    true = np.concatenate([weights for _, _, weights in results]).astype(np.float64).mean(axis=0)
    for drift, centre, _ in results:
        np.testing.assert_allclose(centre, true, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(centre, results[0][1])
        assert drift == pytest.approx(0.5 * SIZE**0.5 / float(np.linalg.norm(true)), rel=1e-4)


@pytest.mark.parametrize("name", ["numpy", "compiled"])
@ALL
def test_what_overflows_goes_on_without_a_warning(settings: Family, name):
    """The learners' next losses tell. Of 1e25 the square is infinite in float32, and not in float64."""
    if name == "compiled":
        pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    kernels = import_module(f"mpibow.kernels.{name}.flat")
    rank = Rank(Single(), settings, 2, 2, overlap=False, kernels=kernels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (1e25, 3e38, np.inf, *[np.nan] * 4):  # also past the end of a period
            rank.rows.gradients.fill(value)
            rank.sync.settle()
            rank.sync.update(LOCAL, 2)
            rank.sync.exchange(NOTHING, LOCAL, 2)
        rank.sync.settle()
    assert not np.isfinite(rank.engine.centre).any()
    rank.sync.close()


def test_nothing_may_be_under_way():
    rank = overlapped(Single())
    rank.step()
    with pytest.raises(AssertionError):
        rank.sync.exchange(Tally(), LOCAL, 1)
    rank.sync.settle()
    rank.sync.close()


class Noted(Single):
    """Two ranks that send the same; the rows are padded, as a window's are."""

    size = 2

    def __init__(self) -> None:
        self.sent: list[Array] = []
        self.made: list[Array] = []

    def zeros(self, size: int, dtype: str) -> Array:
        self.made.append(np.zeros(size, dtype))
        return self.made[-1]

    def sum(self, array: Array) -> Array:
        self.sent.append(array)
        return np.stack([np.append(array, np.full(9, np.nan, array.dtype))] * 2)


def test_what_other_ranks_may_still_read_is_not_written():
    """What is added up row by row is sent in two arrays by turns."""
    comm = Noted()
    rank = Rank(comm, Family(), 1, 2, overlap=True, zeros=comm.zeros)
    assert not rank.engine.overlaps
    tally = None
    for turn in range(4):
        tally = rank.step(Tally(1.0, 2.0, 3.0))
        before = comm.sent[turn].copy()
        rank.gradients()
        assert comm.sent[turn] is comm.made[turn % 2]
        if turn:
            assert tally == Tally(2.0, 4.0, 6.0)
        np.testing.assert_array_equal(comm.sent[turn], before)
    rank.sync.settle()
    assert np.isfinite(rank.engine.centre).all()
    rank.sync.close()


@ALL
def test_what_crosses_ranks_lies_where_the_communicator_says(settings: Family):
    comm = Noted()
    rank = Rank(comm, settings, 1, 2, overlap=True, zeros=comm.zeros)
    assert {array.size for array in comm.made} == {SIZE + TAIL}
    rank.sync.close()


def test_what_overflows_on_several_ranks_goes_on_without_a_warning():
    comm = Noted()
    rank = Rank(comm, Family(), 1, 2, overlap=False, zeros=comm.zeros)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (1e25, 3e38, np.inf, np.nan):
            rank.rows.gradients.fill(value)
            rank.sync.receive()
            rank.sync.update(LOCAL, 2)
            rank.sync.exchange(NOTHING, LOCAL, 2)
        rank.sync.receive()
    rank.sync.close()
