"""Where the time of a pass goes, by a clock that only the runs move: in turn, and each alone. Never how fast."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from mpibow import cast, conv2d, conv_transpose2d, dense, embedding, flatten
from mpibow.diagnose import profile
from mpibow.graph import Run, Tensor, one_by_one
from tests.run import tiny


class Machine:
    """Runs that take a second each, and longer where others ran before: then their data are not in the caches."""

    def __init__(self) -> None:
        self.now, self.ran = 0.0, []

    def clock(self) -> float:
        return self.now

    def run(self, name: str, cold: float) -> Run:
        def call() -> None:
            self.now += 1.0 if self.ran[-1:] == [name] else cold
            self.ran.append(name)

        return call


@pytest.fixture
def machine(monkeypatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(profile, "perf_counter", made.clock)
    return made


def plan(machine: Machine) -> list[Run]:
    return [machine.run("a", 3.0), machine.run("b", 8.0), machine.run("c", 5.0), machine.run("d", 2.0)]


def test_in_turn_every_step_finds_what_the_others_left(machine: Machine):
    assert profile.timed_in_turn(plan(machine), 40.0) == [3.0, 8.0, 5.0, 2.0]
    assert machine.ran == ["a", "b", "c", "d"] * 3  # 18 seconds a round


@pytest.mark.parametrize("join", [one_by_one, lambda runs: [lambda: [run() for run in runs]]])
def test_alone_a_step_is_repeated_by_itself_where_its_turn_is(machine: Machine, join: Callable[..., list[Run]]):
    assert profile.timed_alone(plan(machine), [1, 2], join, 0.0) == {1: 1.0, 2: 1.0}
    assert [(name, len(list(times))) for name, times in itertools.groupby(machine.ran)] == [
        ("a", 1), ("b", 1 + profile.REPEATS), ("c", 1 + profile.REPEATS), ("d", 1),
    ]  # fmt: skip


def test_the_figure_is_a_median(machine: Machine):
    """One round in three is slow, as when something else runs."""
    slow = itertools.cycle([1.0, 50.0, 1.0])

    def uneven() -> None:
        machine.now += next(slow)

    assert profile.timed_in_turn([uneven], 52.0) == [1.0]


def net(image: Tensor) -> Tensor:
    return dense(flatten(conv2d(conv2d(image, 4, 3, padding=1), 5, 3, padding=1)), tiny.CLASSES)


def profiled(folder: Path, monkeypatch: pytest.MonkeyPatch, net: Callable[[Tensor], Tensor]) -> dict:
    """A step takes two seconds in turn, and one alone."""
    monkeypatch.setattr(profile, "timed_in_turn", lambda runs, seconds: [2.0] * len(runs))
    monkeypatch.setattr(profile, "timed_alone", lambda runs, which, join, seconds: dict.fromkeys(which, 1.0))
    return profile.profile(tiny.job(folder, net=net, device="numpy", precision="float32"), 0.0)


def test_convolutions_are_those_measured_alone(tmp_path, monkeypatch):
    """Products and sums of a batch of 3 images of 6 x 6 by hand."""
    found = profiled(tmp_path, monkeypatch, net)
    assert (found["convolutions_in_turn"], found["convolutions_alone"]) == (8.0, 4.0)
    first, second, last = 2 * 3 * 36 * 4 * 9, 2 * 3 * 36 * 5 * 4 * 9, 2 * 3 * 3 * 180
    assert found["operations"] == 2 * first + 3 * second + 3 * last  # the first layer's input needs no gradient
    assert found["fastest"] == 2 * second
    numbers = 3 * 4 * 36 + 3 * 5 * 36 + 5 * 4 * 9 + 5  # x, y and weights of the second
    layers = 3 * 36 + 3 * 4 * 36 + 4 * 9 + 4 + numbers
    assert found["parts"]["forward conv"]["bytes"] == 4 * layers
    assert found["parts"]["backward conv"]["bytes"] == 4 * (layers + 4 * 9 + 4 + 5 * 4 * 9 + 5 + 3 * 4 * 36)
    assert found["plan"] == 2.0 * sum(part["count"] for part in found["parts"].values())


def test_operations_of_a_transposed_convolution_and_of_a_table(tmp_path, monkeypatch):
    """Each of 3 x 36 pixels meets 4 x 2 x 2 weights; rows of a table are looked up, not multiplied."""

    def net(image: Tensor) -> Tensor:
        rows = embedding(cast(flatten(image) + 0.5, "int32"), 7, 2)
        whole = conv_transpose2d(image, 4, 2, stride=2, bias=False)
        return dense(flatten(whole), tiny.CLASSES) + dense(flatten(rows), tiny.CLASSES)

    found = profiled(tmp_path, monkeypatch, net)
    larger, first, second = 2 * 3 * 36 * 4 * 4, 2 * 3 * 3 * 4 * 144, 2 * 3 * 3 * 36 * 2
    assert found["operations"] == 2 * larger + 3 * (first + second)
    assert found["fastest"] == larger
