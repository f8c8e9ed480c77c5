"""The rules in place against the pure functions, over several ranks whose flat arrays are summed by hand."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from itertools import product
from typing import cast

import hypothesis
import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.config import build
from mpibow.errors import ConfigError
from mpibow.graph import Array, Kernels, compile_plan, initial_weights, plan_layout
from mpibow.kernels import FlatKernels, Local, StepArrays, chunks_of, share_of
from mpibow.kernels.numpy import OPERATORS, flat
from mpibow.learn.replica import Replicas
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from mpibow.sync import Engine, Family, RuleNumbers, RuleState, gain_of
from mpibow.sync.family import Outer
from mpibow.sync.gain import Averages, carried, noise_gain
from mpibow.sync.outbox import TAIL
from tests.refusals import refuses
from tests.stepping import ball_step, sgd
from tests.sync import oracle

CHUNK = 4096  # of NumPy's here, for short arrays
SIZE, LARGE = 48, CHUNK + 40  # one chunk, and two
NUMPY = cast(FlatKernels, flat)
LOCALS = {
    "plain": ball_step(0.1, 0.0, False, 0.0, SIZE),
    "momentum": ball_step(0.05, 0.9, False, 0.0, SIZE),
    "nesterov and decay": ball_step(0.05, 0.9, True, 0.01, 32),
}
RANKS = {"one rank": (3,), "two ranks": (1, 2), "three ranks": (2, 1, 3)}


@pytest.fixture(scope="module", autouse=True)
def short_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flat, "chunk", CHUNK)
        yield


@pytest.fixture(scope="module", params=["numpy", "compiled"])
def kernels(request: pytest.FixtureRequest) -> FlatKernels:
    if request.param == "compiled":
        pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    return cast(FlatKernels, import_module(f"mpibow.kernels.{request.param}.flat"))


class Cluster:
    """Several ranks, each with its rule and replicas; what crosses them is added up here."""

    def __init__(
        self,
        settings: Family,
        counts: tuple[int, ...],
        z: Array,
        size: int = SIZE,
        keep: bool = False,
        kernels: FlatKernels = NUMPY,
        one: bool = False,
    ) -> None:
        self.settings, self.counts, self.k, self.size = settings, counts, sum(counts), size
        self.rows = [Replicas(8, size, str(z.dtype), states=("momenta",), one=one) for _ in counts]
        self.kernels = kernels
        self.rules = [Engine(settings, kernels, rows, z.copy()) for rows in self.rows]
        self.resize(counts, keep)

    def resize(self, counts: tuple[int, ...], keep: bool = False) -> None:
        self.counts, self.k = counts, sum(counts)
        for rule, rows, count in zip(self.rules, self.rows, counts, strict=True):
            rows.resize(count)
            rule.begin(self.k, keep)

    @property
    def weights(self) -> Array:
        return np.concatenate([rows.weights for rows in self.rows])

    @property
    def momenta(self) -> Array:
        return np.concatenate([rows.states["momenta"] for rows in self.rows])

    @property
    def alone(self) -> bool:
        """Whether one rank has all learners and needs no sums but of their squares."""
        rule = self.rules[0]
        if len(self.rules) > 1:
            return False
        return rule.alike or (self.settings.of(self.k).in_one_pass and not rule.state().numbers.apart)

    def step(self, gradients: Array, local: Local, workers: int = 2) -> bool:
        """One iteration with gradients (k, size), up to where the centre may be read; whether it sent anything."""
        sent = self.update(gradients, local, workers)
        for rule in self.rules:
            rule.settle()
        return sent

    def update(self, gradients: Array, local: Local, workers: int = 2) -> bool:
        begin, chunks = 0, chunks_of(self.size, self.kernels.chunk)
        for rule, rows, count in zip(self.rules, self.rows, self.counts, strict=True):
            rows.gradients[...] = gradients[begin : begin + count]
            begin += count
            for worker in reversed(range(workers)):
                rule.update(local)(share_of(chunks, worker, workers))
        return self.exchange(local, workers)

    def end_period(self, local: Local) -> bool:
        """Ends a period early, and restarts; whether there were steps that waited for its end."""
        (exchanges,) = {rule.end_period() for rule in self.rules}
        for _ in range(exchanges):
            self.exchange(local)
        for rule in self.rules if exchanges else []:
            rule.restart()
        return exchanges > 0

    def exchange(self, local: Local, workers: int = 2) -> bool:
        chunks = chunks_of(self.size, self.kernels.chunk)
        messages = [rule.outgoing() for rule in self.rules]
        sent = [message.whole for message in messages if message is not None]
        assert len(sent) in (0, len(self.rules))
        total, every = (sum(sent), np.stack(sent)) if sent else (None, None)
        for rule, message in zip(self.rules, messages, strict=True):
            sums = None
            if message is not None:
                assert message.whole.shape == (self.size * (not self.alone) + TAIL,)
                message.whole[:] = total
                sums = message.rows if rule.overlaps else every
            for each in rule.passes(local, sums):
                for worker in range(workers):
                    each(share_of(chunks, worker, workers))
            rule.advance()
        return bool(sent)


def gradients_of(w: Array, t: int) -> Array:
    """Of the quadratic |w - 1|^2 / 2 with noise, of iteration t."""
    return w - 1 + 3 * np.random.default_rng(t).standard_normal(w.shape)


def start_at(dtype: str = "float64", size: int = SIZE) -> Array:
    return np.random.default_rng(99).standard_normal(size).astype(dtype)


def close(got: Array, expected: Array) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)


SETTINGS = {
    f"{name}, period {period}": replace(each, period=period)
    for (name, each), period in product(
        {
            "gain": Family(),
            "gain 3": Family(outer=Outer(gain=3.0)),
            "gain of all": Family(outer=Outer(gain="learners")),
            "nesterov": Family(outer=Outer("nesterov", lr=0.7, momentum=0.8)),
            "crossbow": Family(name="crossbow"),
            "local sgd": Family(name="local_sgd"),
            "slowmo": Family(name="slowmo"),
            "diloco": Family(name="diloco"),
        }.items(),
        (1, 3),
    )
}
SETTINGS["alpha and momentum"] = Family(name="crossbow", alpha=0.2, momentum=0.5)
SETTINGS["alpha and gain"] = Family(alpha=0.7, period=2, outer=Outer(gain=1.5))
SETTINGS["easgd"] = Family(name="easgd", period=2)
SETTINGS["reset"] = Family(replicas="reset")
ALL = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())


def known_to(rule: Engine) -> Averages:
    return rule.state().numbers.averages


def mean_of(rule: Engine) -> Array:
    """W."""
    return rule.state().shared.get("mean", rule.centre)


def alone(array: Array) -> None:
    """What one rank's sums are over all ranks."""


class Pure:
    """The same learners by the pure functions, all on one rank."""

    def __init__(self, settings: Family, k: int, size: int = SIZE) -> None:
        self.rule, self.state, self.v = settings.of(k), oracle.start(start_at(size=size), k), np.zeros((k, size))

    def step(self, t: int, local: Local) -> bool:
        """One iteration; whether its steps are sent."""
        self.v, u = sgd(self.state.w, self.v, gradients_of(self.state.w, t), local)
        sends = self.rule.sends_at(self.state.turn)
        self.state, total, squares = oracle.send(self.rule, self.state, u)
        self.state = oracle.apply(self.rule, self.state, total if sends else None, squares, local.rate)
        return sends


def compare(
    settings: Family,
    local: Local,
    counts: tuple[int, ...],
    size: int = SIZE,
    kernels: FlatKernels = NUMPY,
    early: int = 0,
    rates: Sequence[float] = (),
    restarts: Collection[int] = (25,),
) -> None:
    """30 iterations of the rules in place and of the pure functions, on the same gradients; `early` ends a period."""
    cluster = Cluster(settings, counts, start_at(size=size), size, kernels=kernels)
    pure = Pure(settings, cluster.k, size)
    rule, near = pure.rule, partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)
    for t, rate in enumerate(rates or [local.rate] * 30):
        if t in restarts:
            pure.state = oracle.restart(pure.state)
            for one in cluster.rules:
                one.restart()
        if early and t == early:
            waits = rule.unfinished(pure.state.turn)
            pure.state = oracle.end_period(rule, pure.state, pure.state.pending, local.rate)
            assert cluster.end_period(local) == waits
        here = replace(local, rate=rate)
        sends = pure.step(t, here)
        assert cluster.step(gradients_of(cluster.weights, t), here) == sends
        near(cluster.weights, pure.state.w)
        near(cluster.momenta, pure.v)
        for one in cluster.rules:
            near(one.centre, pure.state.centre)
            near(mean_of(one), pure.state.mean)
            assert gain_of(one) == pytest.approx(rule.used(pure.state.gain), rel=1e-10)
            np.testing.assert_array_equal(one.centre, cluster.rules[0].centre)
            lags = rule.replicas == "lagging"
            assert one.overlaps == (cluster.alone or lags or not rule.sends_at(one.state().numbers.turn))
    assert rates or rule.gain != "measured" or pure.state.gain > 1.01, "the estimate was at work"


# The local step is the same on any number of ranks: the others' with the one that has all.
EACH = [("nesterov and decay", counts) for counts in RANKS] + [("plain", "two ranks"), ("momentum", "one rank")]


@pytest.mark.parametrize(
    ("local", "counts"), [(LOCALS[local], RANKS[counts]) for local, counts in EACH], ids=map(", ".join, EACH)
)
@ALL
def test_sma_is_the_pure_function_in_place(kernels: FlatKernels, settings: Family, local: Local, counts):
    compare(settings, local, counts, SIZE, kernels)


@ALL
def test_and_with_more_than_one_chunk(kernels: FlatKernels, settings: Family):
    size = kernels.chunk + 40
    compare(settings, ball_step(0.05, 0.5, False, 0.01, kernels.chunk + 16), (1, 2), size, kernels)


ALONE = {
    name: each
    for name, each in SETTINGS.items()
    if (each.point.replicas, each.period, each.point.outer) == ("pulled", 1, "mean")
}


READERS: dict[str, Callable[[Engine], object]] = {
    "centre": lambda rule: rule.centre,
    "set_mean": lambda rule: rule.set_mean(start_at(), alone),
    "shared": lambda rule: rule.shared(),
    "begin": lambda rule: rule.begin(3),
    "restart": lambda rule: rule.restart(),
}


@pytest.mark.parametrize(
    ("settings", "counts", "stale"),
    [
        (Family(), (2,), True),
        (Family(name="crossbow"), (1,), True),
        (Family(), (1, 1), False),
        (Family(name="crossbow"), (2,), False),
    ],
)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_a_centre_that_is_not_settled_cannot_be_read(read: Callable[[Engine], object], settings: Family, counts, stale):
    """Of learners that are all one rank's; else an update leaves it as it is."""
    cluster = Cluster(settings, counts, start_at())
    cluster.update(gradients_of(cluster.weights, 0), LOCALS["plain"])
    rule, before = cluster.rules[0], cluster.weights
    if stale:
        with pytest.raises(AssertionError, match=r"^settle\(\) comes first$"):
            read(rule)
        np.testing.assert_array_equal(cluster.weights, before)
    rule.settle()
    read(rule)


@hypothesis.settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(ALONE.values())), st.integers(1, 6), st.sampled_from(list(LOCALS.values())), st.data())
def test_settling_is_seen_by_nobody_and_finds_the_pure_functions_mean(
    settings: Family, k, local: Local, data: st.DataObject
):
    """Two runs of learners of one rank, one settled at any times, the other at its end alone."""
    often, once = (Cluster(settings, (k,), start_at()) for _ in range(2))
    pure = Pure(settings, k)
    for t in range(data.draw(st.integers(1, 30))):
        pure.step(t, local)
        for each in (often, once):
            each.update(gradients_of(each.weights, t), local)
        if data.draw(st.booleans()):
            often.rules[0].settle()
            close(often.rules[0].centre, pure.state.mean)
    for each in (often, once):
        each.rules[0].settle()
    np.testing.assert_array_equal(often.weights, once.weights)
    np.testing.assert_array_equal(often.rules[0].centre, once.rules[0].centre)
    close(once.rules[0].centre, pure.state.mean)


@pytest.mark.parametrize("settings", ALONE.values(), ids=ALONE.keys())
def test_other_learners_of_one_rank_go_on_from_their_mean(kernels: FlatKernels, settings: Family):
    cluster = Cluster(settings, (3,), start_at("float32"), kernels=kernels)
    for k in (2, 5, 1, 2):
        for t in range(25):
            cluster.update(gradients_of(cluster.weights, t).astype(np.float32), LOCALS["momentum"])
        first, *others = cluster.weights
        mean = sum(others, first) * np.float32(1 / cluster.k)
        cluster.rules[0].settle()
        cluster.resize((k,))
        np.testing.assert_array_equal(cluster.weights, np.tile(mean, (k, 1)))
        np.testing.assert_array_equal(cluster.rules[0].centre, mean)


def test_a_learner_that_starts_again_moves_the_mean_once_it_is_set_right():
    """Rows 1 and 4 have mean 2.5, from where the second starts again; W stays there, also loaded, and pulls by half."""
    cluster = Cluster(Family(alpha=0.5, outer=Outer(gain=1.0)), (2,), np.zeros(4), size=4)
    rule, rows, still = cluster.rules[0], cluster.rows[0], replace(LOCALS["plain"], rate=0.0)
    cluster.update(np.zeros((2, 4)), still)
    rows.weights[...] = [[1.0] * 4, [4.0] * 4]
    rule.settle()
    for _ in range(2):  # settled for another learner, say: it is given the same
        assert rule.reset(1) == "starts again from the centre"
        rule.settle()
        assert rule.centre.tolist() == [2.5] * 4
    loaded = Cluster(Family(alpha=0.5, outer=Outer(gain=1.0)), (2,), np.full(4, 7.0), size=4, keep=True)
    loaded.rows[0].weights[...] = rows.weights
    loaded.rules[0].load(rule.centre.copy(), saved(rule))
    for each in (cluster, loaded):
        one, of = each.rules[0], each.rows[0]
        assert not one.overlaps
        each.step(np.zeros((2, 4)), still)
        assert of.weights[:, 0].tolist() == [1.75, 2.5]
        assert one.centre.tolist() == [2.5] * 4
        assert one.set_mean(np.full(4, 2.125), alone) == pytest.approx(0.375 / 2.125)
        assert one.overlaps
        each.step(np.zeros((2, 4)), still)
        assert of.weights[:, 0].tolist() == [1.9375, 2.3125]
        assert one.centre.tolist() == [2.125] * 4
        one.reset(0)
        one.restart()
        assert one.overlaps


def saved(rule: Engine) -> RuleState:
    """The rule's state as a checkpoint would carry it: copies, and numbers through JSON."""
    state = rule.state()
    common, own = ({key: array.copy() for key, array in part.items()} for part in (state.shared, state.own))
    return RuleState(common, own, build(RuleNumbers, json.loads(json.dumps(asdict(state.numbers)))))


@pytest.mark.parametrize("counts", RANKS.values(), ids=RANKS.keys())
@pytest.mark.parametrize("settings", [*SETTINGS.values(), Family(name="ssgd")], ids=[*SETTINGS, "ssgd"])
def test_a_loaded_state_continues_the_same_bits(settings: Family, counts):
    """After 25 iterations (a period of 3 has unsent steps then) the rules are made anew from what state() gave."""
    local = LOCALS["nesterov and decay"]
    cluster = Cluster(settings, counts, start_at("float32"))
    for t in range(25):
        cluster.step(gradients_of(cluster.weights, t), local)
    loaded = Cluster(settings, counts, np.full(SIZE, 7.0, np.float32), keep=True)
    for one, other, rows, target in zip(cluster.rules, loaded.rules, cluster.rows, loaded.rows, strict=True):
        target.weights[...], target.states["momenta"][...] = rows.weights, rows.states["momenta"]
        other.load(one.centre.copy(), saved(one))
    if settings.point.period == 3:
        assert "pending" in cluster.rules[0].state().own
    for t in range(25, 40):
        for each in (cluster, loaded):
            each.step(gradients_of(each.weights, t), local)
        np.testing.assert_array_equal(loaded.weights, cluster.weights)
        np.testing.assert_array_equal(loaded.momenta, cluster.momenta)
        for one, other in zip(cluster.rules, loaded.rules, strict=True):
            np.testing.assert_array_equal(other.centre, one.centre)
            assert gain_of(other) == gain_of(one)
            assert one.state().numbers == other.state().numbers


@pytest.mark.parametrize("squares", [[15.0], [1.0, 2.0, 12.0]])
def test_sums_of_squares_of_other_chunks_are_loaded_as_one(squares):
    """A checkpoint may come from kernels with other chunks."""
    settings, z = Family(name="crossbow", period=3), start_at(size=LARGE)
    cluster, loaded = (Cluster(settings, (2,), z, LARGE, keep=keep) for keep in (False, True))
    for t in range(4):  # the last one's steps are unsent
        cluster.step(gradients_of(cluster.weights, t), LOCALS["plain"])
    state, rule = saved(cluster.rules[0]), loaded.rules[0]
    rule.load(z, replace(state, own={**state.own, "squares": np.array(squares)}))
    assert rule.state().own["squares"].tolist() == [15.0, 0.0]
    np.testing.assert_array_equal(rule.state().own["pending"], state.own["pending"])


@ALL
def test_another_number_of_learners_restarts(settings: Family):
    """In the middle of everything: what follows is a run that starts at the centre with its momenta and noise."""
    local = LOCALS["momentum"]
    cluster = Cluster(settings, (1, 2), start_at())
    for t in range(26):
        cluster.step(gradients_of(cluster.weights, t), local)
    centre, momenta = cluster.rules[0].centre.copy(), cluster.momenta
    known = carried(known_to(cluster.rules[1]), 3, 5)
    arrays = cluster.rules[0].state().shared.keys() & {"mean", "previous", "outer_velocity"}
    assert known.count == (26 if settings.point.gain == "measured" else 0)
    cluster.resize((3, 2))
    np.testing.assert_array_equal(cluster.weights, np.tile(centre, (5, 1)))
    for rule in cluster.rules:
        np.testing.assert_array_equal(rule.centre, centre)
        assert known_to(rule) == known
        assert gain_of(rule) == settings.of(5).used(noise_gain(known, 5))
        assert rule.state().shared.keys() == arrays
        assert rule.state().own == {}
        assert rule.state().numbers.turn == 0
    np.testing.assert_array_equal(cluster.momenta[[0, 3, 4]], momenta)
    assert not cluster.momenta[1:3].any()
    fresh = Cluster(settings, (3, 2), centre)
    for rule, rows, other, source in zip(fresh.rules, fresh.rows, cluster.rules, cluster.rows, strict=True):
        rows.states["momenta"][...] = source.states["momenta"]
        rule.load(centre, saved(other))  # in which there is nothing but the averages, as is seen above
    for t in range(30):
        for each in (cluster, fresh):
            each.step(gradients_of(each.weights, t), local)
        np.testing.assert_array_equal(cluster.weights, fresh.weights)
        np.testing.assert_array_equal(cluster.rules[1].centre, fresh.rules[0].centre)


@ALL
def test_to_one_learner_and_back(settings: Family):
    """With one learner z is W; a lagging centre comes back with the second."""
    cluster = Cluster(settings, (2,), start_at())
    for counts in ((1,), (2,), (1,)):
        for t in range(5):
            cluster.step(gradients_of(cluster.weights, t), LOCALS["plain"])
        centre = cluster.rules[0].centre.copy()
        cluster.resize(counts)
        np.testing.assert_array_equal(cluster.rules[0].centre, centre)
        np.testing.assert_array_equal(cluster.weights, np.tile(centre, (cluster.k, 1)))


@pytest.mark.parametrize("counts", [(3,), (1, 2)])
@pytest.mark.parametrize("early", range(1, 7))
@ALL
def test_a_period_that_ends_early_is_the_pure_one(settings: Family, early, counts):
    compare(settings, LOCALS["plain"], counts, early=early, rates=[0.1] * 12)


@pytest.mark.parametrize("name", ["sma", "ssgd"])
@pytest.mark.parametrize("reset", [True, False])
def test_restart_keeps_or_resets_the_momenta(name, reset):
    cluster = Cluster(Family(name=name, reset_momentum=reset), (2,), start_at())
    for t in range(3):
        cluster.step(gradients_of(cluster.weights, t), LOCALS["momentum"])
    before = cluster.momenta
    cluster.rules[0].restart()
    np.testing.assert_array_equal(cluster.momenta, 0 * before if reset else before)


@pytest.mark.parametrize("settings", [each for each in SETTINGS.values() if each.point.plain])
def test_one_learner_is_plain_sgd_bit_for_bit(kernels: FlatKernels, settings: Family):
    local = LOCALS["nesterov and decay"]
    cluster = Cluster(settings, (1,), start_at("float32"), kernels=kernels)
    w, v, buffer = (start_at("float32")[None], np.zeros((1, SIZE), np.float32), np.zeros(SIZE, np.float32))
    for t in range(25):
        g = gradients_of(w, t).astype(np.float32)
        cluster.step(g, local)
        buffer[:] = g[0]
        kernels.sgd_update(
            StepArrays(w, (v,), buffer[None]), local=local, scale=1.0, chunks=chunks_of(SIZE, kernels.chunk)
        )
        np.testing.assert_array_equal(cluster.weights, w)
        np.testing.assert_array_equal(cluster.rules[0].centre, w[0])


@ALL
def test_set_mean_sees_no_drift_where_there_is_none_and_changes_nothing(settings: Family):
    """At every iteration, also with steps that were not sent yet."""
    local = LOCALS["momentum"]
    cluster, control = (Cluster(settings, (1, 2), start_at()) for _ in range(2))
    for t in range(26):
        for each in (cluster, control):
            each.step(gradients_of(each.weights, t), local)
        unsent = sum(rule.state().own["pending"][:SIZE] for rule in cluster.rules if "pending" in rule.state().own)
        for rule in cluster.rules:
            assert rule.set_mean(cluster.weights.mean(axis=0), partial(np.copyto, src=unsent)) < 1e-14
            assert rule.state().own == {} or not rule.point.lags
        close(cluster.weights, control.weights)
        close(cluster.rules[0].centre, control.rules[0].centre)


@pytest.mark.parametrize("settings", [Family(), Family(name="crossbow"), Family(period=3)])
def test_drift(settings: Family):
    cluster = Cluster(settings, (1, 1), np.full(4, 2.0), size=4)
    rule = cluster.rules[0]
    assert rule.set_mean(np.full(4, 2.0), alone) == 0.0
    assert rule.set_mean(np.array([2.0, 2.0, 2.0, 5.0]), alone) == pytest.approx(3 / 37**0.5)
    assert mean_of(rule).tolist() == [2, 2, 2, 5]
    assert rule.set_mean(np.zeros(4), alone) == 0.0  # no size to be relative to


@pytest.mark.parametrize(("name", "count"), [("crossbow", 3), ("sma", 1), ("local_sgd", 1), ("diloco", 2), ("ssgd", 1)])
def test_shared_arrays_are_those_that_ranks_must_agree_on(name, count):
    cluster = Cluster(Family(name=name, period=1), (1, 2), start_at())
    for t in range(3):
        cluster.step(gradients_of(cluster.weights, t), LOCALS["plain"])
    one, two = (rule.shared() for rule in cluster.rules)
    assert len(one) == len(two) == count
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_replicas_that_are_reset_have_no_drift_and_their_centre_stays():
    cluster = Cluster(Family(name="local_sgd", period=3), (1, 1), np.full(4, 2.0), size=4)
    cluster.step(gradients_of(cluster.weights, 0), ball_step(0.1, 0.0, False, 0.0, 4))
    assert cluster.rules[0].set_mean(np.full(4, 7.0), alone) == 0.0
    assert cluster.rules[0].centre.tolist() == [2.0] * 4


def test_within_a_period_ranks_talk_but_send_no_sums():
    cluster, sent = Cluster(Family(name="local_sgd", period=120), (1, 1), start_at()), []
    for t in range(240):
        for rule, rows in zip(cluster.rules, cluster.rows, strict=True):
            rows.gradients[...] = 1.0
            rule.update(LOCALS["plain"])(chunks_of(SIZE, flat.chunk))
        messages = [rule.outgoing() for rule in cluster.rules]
        if messages[0] is not None:
            sent.append((t, messages[0].whole.size))
        for rule, message in zip(cluster.rules, messages, strict=True):
            assert rule.overlaps == (message is None or not message.sums.size)
            for each in rule.passes(LOCALS["plain"], None if message is None else message.rows.copy()):
                each(chunks_of(SIZE, flat.chunk))
            rule.advance()
    assert sent == [(49, TAIL), (99, TAIL), (119, SIZE + TAIL), (149, TAIL), (199, TAIL), (239, SIZE + TAIL)]


@pytest.mark.parametrize(
    ("settings", "k", "message", "auto"),
    [
        (Family(name="crossbow", momentum=0.0, alpha=0.7), 2, "below 0.6667 for 2 learners, got 0.7", 1 / 2),
        (Family(name="crossbow", momentum=0.0, alpha=0.5), 3, "below 0.5 for 3 learners, got 0.5", 1 / 3),
        (Family(name="crossbow", alpha=1.0), 2, "below 0.9744 for 2 learners, got 1", 1 / 2),
        (Family(alpha=2.0), 2, "below 2 for 2 learners, got 2", 1.0),
    ],
)
def test_an_alpha_that_does_not_settle(settings: Family, k, message, auto):
    with refuses(f"rule.alpha: must be {message}; auto is 1{' / learners' * (auto < 1)}"):
        settings.of(k)
    assert replace(settings, alpha="auto").of(k).alpha == auto
    assert settings.of(1).plain


def test_begin_with_an_alpha_that_does_not_settle_changes_nothing():
    cluster = Cluster(Family(name="crossbow", momentum=0.0, alpha=0.6), (2,), start_at())
    cluster.step(gradients_of(cluster.weights, 0), LOCALS["plain"])
    rule, before = cluster.rules[0], cluster.weights
    with pytest.raises(ConfigError, match=r"^rule.alpha: must be below 0.5 for 3 learners, got 0.6"):
        rule.begin(3)
    assert rule.point.k == 2
    np.testing.assert_array_equal(cluster.weights, before)


def compare_ssgd(settings: Family, local: Local, counts: tuple[int, ...], size: int, kernels: FlatKernels) -> None:
    """20 iterations of the rule in place and of one SGD with the mean gradient."""
    cluster = Cluster(settings, counts, start_at(size=size), size, kernels=kernels)
    w, v = start_at(size=size), np.zeros(size)
    rate = local.rate * cluster.k if settings.outer.gain == "learners" else local.rate
    for t in range(20):
        g = gradients_of(np.tile(w, (cluster.k, 1)), t)
        v, u = sgd(w, v, g.mean(axis=0), replace(local, rate=rate))
        w = w + u
        assert cluster.step(gradients_of(cluster.weights, t), local)
        for row in (*cluster.weights, *(rule.centre for rule in cluster.rules)):
            close(row, w)
            np.testing.assert_array_equal(row, cluster.weights[0])
        close(cluster.momenta, np.tile(v, (cluster.k, 1)))


@pytest.mark.parametrize("counts", RANKS.values(), ids=RANKS.keys())
@pytest.mark.parametrize("local", LOCALS.values(), ids=LOCALS.keys())
@pytest.mark.parametrize("scale_lr", [True, False])
def test_ssgd_is_one_sgd_with_the_mean_gradient(kernels: FlatKernels, scale_lr, local: Local, counts):
    compare_ssgd(
        Family(name="ssgd", outer=Outer(gain="learners" if scale_lr else "auto")), local, counts, SIZE, kernels
    )


def test_ssgd_with_more_than_one_chunk(kernels: FlatKernels):
    compare_ssgd(Family(name="ssgd"), LOCALS["nesterov and decay"], (1, 2), kernels.chunk + 40, kernels)


@pytest.mark.parametrize("settings", [*SETTINGS.values(), Family(name="ssgd")])
def test_begin_with_keep_leaves_the_replicas_as_they_are(settings: Family):
    rows = Replicas(3, SIZE, "float64", states=("momenta",))
    rows.resize(3)
    rows.weights[...], rows.states["momenta"][...] = np.arange(3)[:, None], -np.arange(3)[:, None]
    rule = Engine(settings, NUMPY, rows, np.full(SIZE, 7.0))
    rule.begin(3, keep=True)
    assert rows.weights[:, 0].tolist() == [0, 1, 2]
    assert rows.states["momenta"][:, 0].tolist() == [0, -1, -2]


@pytest.mark.parametrize("counts", [(4,), (1, 3)], ids=["one rank", "two ranks"])
def test_ssgd_on_one_copy_of_the_weights_has_the_same_bits(kernels: FlatKernels, counts):
    start, local = start_at("float32"), LOCALS["nesterov and decay"]
    several, copy = (Cluster(Family(name="ssgd"), counts, start, kernels=kernels, one=one) for one in (False, True))
    for t in range(20):
        if t == 10:
            for each in (several, copy):
                each.resize((2,) * len(counts))
        gradients = gradients_of(several.weights, t).astype(np.float32)
        for each in (several, copy):
            each.step(gradients, local)
        np.testing.assert_array_equal(copy.weights, several.weights)
        np.testing.assert_array_equal(copy.momenta, several.momenta)
    for rows in copy.rows:
        assert all(np.shares_memory(rows.weights[0], row) for row in rows.weights)
        step = rows.trained
        assert [len(array) for array in (step.weights, *step.states, step.gradients)] == [1, 1, 2]


@pytest.mark.parametrize("one", [False, True])
def test_ssgd_grows_and_shrinks(one):
    cluster = Cluster(Family(name="ssgd"), (1, 2), start_at(), one=one)
    for counts in ((3, 1), (2, 3)):
        for t in range(3):
            cluster.step(gradients_of(cluster.weights, t), LOCALS["momentum"])
        w, v = cluster.weights[0], cluster.momenta[0]
        cluster.resize(counts)
        np.testing.assert_array_equal(cluster.weights, np.tile(w, (cluster.k, 1)))
        np.testing.assert_array_equal(cluster.momenta, np.tile(v, (cluster.k, 1)))


def test_a_rate_of_0_is_no_estimate():
    cluster = Cluster(Family(), (2,), start_at())
    cluster.step(gradients_of(cluster.weights, 0), replace(LOCALS["plain"], rate=0.0))
    rule = cluster.rules[0]
    assert known_to(rule) == Averages()


def test_ssgd_of_n_learners_is_one_learner_with_an_n_fold_batch():
    """A whole model: three learners with batches of 4 against one with 12."""
    build = classifier(partial(MODELS["mlp"], classes=4, hidden=[6]), (1, 3, 3), "float")
    layout = plan_layout(build(1))
    z = initial_weights(layout, 1, "float64")
    local = ball_step(0.2, 0.9, False, 0.01, layout.decayed)
    several, alone = (
        Cluster(Family(name="ssgd"), (1, 2), z, layout.size),
        Cluster(Family(name="ssgd"), (1,), z, layout.size),
    )
    generator = np.random.default_rng(0)
    gradients = [np.zeros(layout.size) for _ in range(4)]
    rows = [*several.rows[0].weights, *several.rows[1].weights, *alone.rows[0].weights]
    plans = [
        compile_plan(build(n), layout, Kernels(OPERATORS), "float64", training=True).bind(w, g)
        for n, w, g in zip((4, 4, 4, 12), rows, gradients, strict=True)
    ]
    for _ in range(10):
        image, label = generator.standard_normal((12, 1, 3, 3)), generator.integers(0, 4, 12)
        for plan, part in zip(plans, (slice(0, 4), slice(4, 8), slice(8, 12), slice(0, 12)), strict=True):
            plan.inputs["image"][...], plan.inputs["label"][...] = image[part], label[part]
            plan.run()
        several.step(np.array(gradients[:3]), local)
        alone.step(np.array(gradients[3:]), local)
        close(several.weights, np.tile(alone.weights, (3, 1)))
    assert np.abs(alone.weights - z).max() > 0.1
