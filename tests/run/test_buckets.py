"""Exchanges in buckets, behind the backward pass: the bits are those of one exchange at its end."""

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest

import mpibow as mb
from mpibow.comm.across import CALL
from mpibow.data import ArrayData
from mpibow.errors import CommunicationError, ConfigError
from mpibow.graph import Tensor
from mpibow.kernels.compiled.command import Command
from mpibow.kernels.numpy import flat
from mpibow.sync.ahead import WRITTEN, Staged
from mpibow.sync.buckets import ONE, Way, chosen
from tests.run import tiny
from tests.run.test_muon import deep

RULES = pytest.mark.parametrize("rule", tiny.RULES.values(), ids=tiny.RULES.keys())


class Called:
    """Passes of NumPy as commands."""

    def record(self, work: Callable[[range], object], chunks: range) -> Command:
        words = np.array([chunks.start, chunks.stop])
        self._back = CALL(lambda *_: bool(work(range(*words.tolist()), do=None)))
        address = ctypes.cast(self._back, ctypes.c_void_p).value
        return Command([(address, words.ctypes.data, 0, 2, 0)], self._back, words)


def without_do(function: Callable[..., object]) -> Callable[..., object]:
    return lambda *arguments, do=None, **more: function(*arguments, **more)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Small chunks, and learners that leave the communication thread time at their end: the buckets that it sent."""
    seen, stop = list[int](), Staged.stop

    def patient(self: Staged) -> list[range]:
        time.sleep(0.002)
        left = stop(self)
        seen.append(int(self._words[WRITTEN]))
        return left

    monkeypatch.setattr(flat, "chunk", 32)
    monkeypatch.setattr(flat, "Recorder", Called)
    for name in ("update", "apply", "sma_alone", "sgd_update", "gradient_sum"):
        monkeypatch.setattr(flat, name, without_do(getattr(flat, name)))
    monkeypatch.setattr(Staged, "stop", patient)
    return seen


@RULES
def test_buckets_change_no_bit(tmp_path, rule, sent):
    one, cut = (
        tiny.train(tmp_path / str(buckets), 2, net=tiny.normed, rule=rule, learners=2, buckets=buckets, overlap=True)
        for buckets in (1, 8)
    )
    assert tiny.same_bits(one.weights, cut.weights)
    sends = "then" in rule or rule["name"] not in ("crossbow", "easgd", "independent")  # which overlap, or send none
    assert any(sent) == sends


def test_an_exchange_behind_one_that_failed_fails_alike_and_lets_learners_go_on():
    failed, opened = Future[None](), []
    failed.set_exception(CommunicationError("gone"))
    stages = SimpleNamespace(open=opened.append)
    with pytest.raises(CommunicationError, match="gone"):
        Staged(SimpleNamespace(stages=stages, engine=None), None, 7).run(failed, print)
    assert opened == [7]


@pytest.mark.parametrize("option", [{"clip_norm": 0.1}, {"clip_value": 0.01}, {"name": "muon", "largest_share": 1000}])
@pytest.mark.parametrize("rule", ["auto", "ssgd"])
def test_gradients_that_are_needed_whole_are_sent_behind_them(tmp_path, option, rule, sent):
    update = {"lr": 0.05, "momentum": 0.9, **option}
    one, cut = (
        tiny.train(
            tmp_path / str(n), 2, net=deep, learners=2, rule=rule, buckets=n, update=update, overlap=True
        ).weights
        for n in (1, 8)
    )  # fmt: skip
    assert tiny.same_bits(one, cut)
    assert not any(sent)
    assert len(sent) > 0 or (rule == "ssgd" and "name" in option)


def rooted(image: Tensor) -> Tensor:
    """The gradient of the first layer is not finite where a sample is 0; that of the second is."""
    x = mb.dense(mb.flatten(image), 12, bias=False)
    return mb.dense(mb.sqrt(x * x), tiny.CLASSES)


@pytest.mark.parametrize("rule", ["auto", "ssgd"])
def test_gradients_that_are_not_finite_are_left_out_by_weight(tmp_path, rule, sent):
    images, labels = tiny.images()
    images[5] = 0
    data = ArrayData(images, labels, classes=tiny.CLASSES, name="bars")
    one, cut = (
        tiny.train(
            tmp_path / str(buckets), 2, net=rooted, train=data, normalise="none", rule=rule, learners=2,
            buckets=buckets, on_nan="reset",
        ).weights
        for buckets in (1, 8)
    )  # fmt: skip
    assert tiny.same_bits(one, cut)
    assert max(sent) > 0
    assert np.isfinite(one["dense1.weight"]).all()
    said = [line for line in tiny.log(tmp_path / "8") if "not finite" in line]
    what = "is left out" if rule == "ssgd" else "starts again from the centre"
    assert said
    assert all(f"{what} in the 432 elements of weights whose gradient is not" in line for line in said)


def test_only_float32_is_rounded(tmp_path):
    with pytest.raises(ConfigError, match="wire: bf16 rounds sums of float32 on CPUs alone"):
        tiny.train(tmp_path, 2, wire="bf16")


def test_a_measured_number_is_kept(tmp_path, monkeypatch, sent):
    """Ranks of one node measure nothing, so they are made to look like two."""
    from tests.comm import threads

    monkeypatch.setattr(threads.Threads, "local_size", property(lambda self: 1, lambda self, size: None), raising=False)
    settings = {"net": tiny.normed, "learners": 2, "checkpoint": tiny.keeping(120)}
    whole = tiny.train(tmp_path / "whole", 2, iterations=130, **settings)
    again = tiny.train(
        tmp_path / "again",
        2,
        iterations=130,
        resume=tmp_path / "whole/run/checkpoints/iteration-0000000120",
        **settings,
    )
    assert tiny.same_bits(whole.weights, again.weights)
    assert len([line for line in tiny.log(tmp_path / "whole") if line.startswith("exchange ")]) == 1


def test_one_exchange_wins_a_tie():
    assert [chosen({ONE: 1.0, Way(4, 1): took})[0].buckets for took in (0.98, 0.96)] == [1, 4]
