"""The passes over flat arrays on the host: NumPy's bits, whatever the size and the rows."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow.cuda.kernels import flat, formulas as cuda_source
from mpibow.cuda.kernels.kernels import Constant
from mpibow.formulas import formula
from mpibow.graph import Array
from mpibow.kernels import Half, Local, StepArrays, chunks_of
from mpibow.kernels.numpy import flat as reference
from mpibow.optim import Update
from mpibow.sync import rule_formulas
from mpibow.sync.gain import CERTAIN, Averages, follow, noise_gain
from tests.cuda.kernels.host import needs_compiler, prepared, run_all
from tests.optim.test_table import every
from tests.stepping import local_of, sgd_step

pytestmark = needs_compiler
prepare = prepared("flat.cu", "steps.cu", "update.cu", "apply.cu")
CHECKS = settings(max_examples=25)

SIZES = st.one_of(st.integers(1, 40), st.sampled_from([2048, 2049, 5000]))
ROWS = st.integers(1, 4)
NUMBERS = st.sampled_from([0.0, 0.1, 0.25, 1.5])


@st.composite
def locals_(draw) -> Local:
    momentum, nesterov, decay = draw(st.tuples(st.sampled_from([0.0, 0.1, 0.25]), st.booleans(), NUMBERS))
    return sgd_step(draw(NUMBERS), momentum, nesterov, decay, 4 * draw(st.integers(0, 525)))


def rows(generator: np.random.Generator, k: int, size: int) -> Array:
    """k rows that begin at multiples of 16 bytes, NaN between them."""
    stride = -(-size // 4) * 4 + 4
    whole = np.full((k, stride), np.nan, np.float32)
    whole[:, :size] = generator.standard_normal((k, size))
    return whole[:, :size]


def row(generator: np.random.Generator, size: int) -> Array:
    return generator.standard_normal(size).astype(np.float32)


def step(**numbers: float) -> Array:
    made = np.zeros(1, flat.STEP)
    for name, value in numbers.items():
        made[name] = value
    return made


def device(local: Local) -> flat.DeviceStep:
    return flat.DeviceStep(
        cuda_source.source(local.formula), local.scalars.astype(np.float32), flat.spans_of(local)
    )  # fmt: skip


def everything(size: int) -> range:
    return chunks_of(size, reference.chunk)


def chunk_sums(u: Array) -> Array:
    """|u|^2 of every chunk, in float64."""
    return np.array(
        [(u[..., i : i + flat.CHUNK].astype(np.float64) ** 2).sum() for i in range(0, u.shape[-1], flat.CHUNK)]
    )


def same(own, numpys, *arrays: Array | None, backwards: bool = False) -> None:
    """In `arrays` the kernels leave the bits that NumPy's pass leaves in copies of them."""
    copies = [array if array is None else array.copy() for array in arrays]
    run_all(own(*arrays), backwards)
    numpys(*copies)
    for got, wanted in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(got, wanted)


def check_steps(
    local: Local, alpha: float, gain: float, size: int, k: int, *, states: int = 1, begin: bool = False,
    backwards: bool = False,
) -> None:  # fmt: skip
    """The three passes that make a local step, on k rows whose step keeps `states`."""
    generator, chunks = np.random.default_rng(0), everything(size)
    w, g = (rows(generator, k, size) for _ in range(2))
    kept = [rows(generator, k, size) for _ in range(states)]
    for array in kept:
        np.abs(array, out=array)
    total, centre = (row(generator, size) for _ in range(2))
    gain, own, parts = float(np.float32(gain)), device(local), -(-size // flat.CHUNK)
    squares, sums, pairs, both = np.arange(1.0, 1.0 + parts), np.ones(1), np.full((parts, 2), np.nan), np.zeros((1, 2))
    before, numbers = 0 if begin else squares.sum() - 1, step(alpha=alpha, gain=gain, begin=begin, scale=0.25)
    how = {"local": local, "chunks": chunks}
    averaged = {**how, "alpha": alpha, "extra": gain}
    send = Half(formula(rule_formulas.pull), (alpha,))
    sent = replace(own, formula=cuda_source.sending(local.formula, send.formula))
    corrects = step(number0=alpha, begin=begin)
    same(
        lambda w, t, *s: flat.stepped("update", w, s, (g, t, squares, *flat.filled([centre]), corrects), sent),
        lambda w, t, *s: reference.update(
            StepArrays(w, s, g.copy()), t, sums, (centre,), send=send, begin=begin, **how
        ),
        w, total, *kept, backwards=backwards,
    )  # fmt: skip
    np.testing.assert_allclose(squares.sum() - before, sums[0], rtol=1e-5)
    same(
        lambda w, *s: flat.stepped("sma_alone", w, s, (g, pairs, numbers), own),
        lambda w, *s: reference.sma_alone(StepArrays(w, s, g.copy()), both, **averaged),
        w, *kept, backwards=backwards,
    )  # fmt: skip
    np.testing.assert_allclose(pairs.sum(axis=0), both[0], rtol=1e-5)
    for array in (w, *kept):
        array[:] = array[0]
    mean = np.full(size, np.nan, np.float32)

    def numpys(w: Array, mean: Array, *s: Array) -> None:
        reference.sgd_update(StepArrays(w, s, total[None]), scale=0.25, **how)
        mean[:] = w[0]

    same(lambda w, mean, *s: flat.stepped("sgd_update", w, s, (total, mean, numbers), own), numpys, w, mean, *kept)


@given(locals_(), NUMBERS, NUMBERS, st.booleans(), SIZES, ROWS, st.booleans())
@CHECKS
def test_steps_of_sgd(local: Local, alpha, gain, begin, size, k, backwards):
    states = len(local.formula.arrays) - 2
    check_steps(local, alpha, gain, size, k, states=states, begin=begin, backwards=backwards)


@every
def test_every_optimiser_gives_numpys_bits(update: Update):
    """Three rows of 52 elements, of which 16 decay, in their second update."""
    check_steps(local_of(update, 16, 2), 0.25, 0.5, 52, 3, states=len(update.states), begin=True)


@given(SIZES, ROWS, st.booleans())
@CHECKS
def test_rows_mean_and_sum(size, k, backwards):
    of, nothing, chunks = rows(np.random.default_rng(8), k, size), np.full(size, np.nan, np.float32), everything(size)
    for own, numpys in ((flat.rows_mean, reference.rows_mean), (flat.gradient_sum, reference.gradient_sum)):
        same(partial(own, of), partial(numpys, of, chunks=chunks), nothing, backwards=backwards)


def test_a_row_whose_gradient_overflowed_stands_still():
    """w 1 and 2, g inf and 1, rate 0.5, alpha 0.25 to centre 0: -0.25 for the first, -0.5 - 0.5 for the second."""
    w, v, g = np.array([[1.0], [2.0]]), np.array([[3.0], [3.0]]), np.array([[np.inf], [1.0]])
    w, v, g = (np.pad(array, ((0, 0), (0, 3))).astype(np.float32) for array in (w, v, g))
    norms, squares, parts = np.full(2, np.nan), np.full((2, 1), np.nan), np.full(1, np.nan)
    run_all(flat.squared_norms(g, squares, norms))
    assert norms.tolist() == [np.inf, 1.0]
    plain, ball = device(sgd_step(0.5)), device(sgd_step(0.5, 0.9))
    numbers, total = step(number0=0.25, begin=1), row(np.random.default_rng(0), 4)
    centre, pulled = np.zeros(4, np.float32), cuda_source.sending(sgd_step(0.5).formula, formula(rule_formulas.pull))
    others = (g, total, parts, *flat.filled([centre]), numbers)
    run_all(flat.stepped("update", w, (), others, replace(plain, formula=pulled), norms))
    assert w[:, 0].tolist() == [0.75, 1.0]
    assert total[0] == -0.5
    assert parts.tolist() == [0.25]
    alone, sums = np.array([[1, 0, 0, 0], [2, 0, 0, 0]], np.float32), np.zeros((1, 2))
    run_all(flat.stepped("sma_alone", alone, (), (g, sums, step()), plain, norms))
    assert alone[:, 0].tolist() == [1.0, 1.5]
    assert sums.tolist() == [[0.25, 0.25]]
    one, momenta = np.ones((2, 4), np.float32), np.zeros((2, 4), np.float32)
    run_all(flat.stepped("sgd_update", one, (momenta,), (g[0], None, step(scale=1.0)), ball, norms[:1]))
    assert one.tolist() == [[1.0] * 4] * 2
    run_all(flat.stepped("sma_alone", one, (momenta,), (g, sums, step()), ball, norms))
    assert momenta[:, 0].tolist() == [0.0, 1.0]


def test_a_rule_that_sends_nothing_leaves_the_total():
    """It may be none at all."""
    generator = np.random.default_rng(3)
    local, send = sgd_step(0.1, 0.9), Half(formula(rule_formulas.local), ())
    w, v, g = (rows(generator, 2, 50) for _ in range(3))
    own = replace(device(local), formula=cuda_source.sending(local.formula, send.formula))
    sums, chunks = np.zeros(1), everything(50)
    same(
        lambda w, v: flat.stepped("update", w, (v,), (g, None, np.zeros(1), *flat.filled([]), step(begin=1)), own),
        lambda w, v: reference.update(
            StepArrays(w, (v,), g.copy()), w[0, :0], sums, (), local=local, send=send, begin=True, chunks=chunks
        ),
        w, v,
    )  # fmt: skip


@given(st.sampled_from([*rule_formulas.APPLY.values(), rule_formulas.lag]), SIZES, ROWS, NUMBERS, st.booleans())
@CHECKS
def test_every_rules_apply(rule, size, k, number, received):
    apply, generator = formula(rule), np.random.default_rng(4)
    half = Half(apply, tuple(number + i / 8 for i in range(len(apply.scalars))))
    numbers = step(**{f"number{i}": value for i, value in enumerate(half.numbers)})
    w, total = rows(generator, k, size), row(generator, size)
    arrays = [row(generator, size) for _ in apply.arrays[half.moves : -1]]
    sums, squares = total[np.newaxis][:received], np.zeros(len(everything(size)))
    same(
        lambda w, *a: flat.apply(cuda_source.applying(apply), w, a, total if received else None, numbers),
        lambda w, *a: reference.apply(half, w, a, sums, squares, everything(size)),
        w, *arrays,
    )  # fmt: skip


@given(SIZES, ROWS, st.booleans())
@CHECKS
def test_squared_norms(size, k, backwards):
    x = rows(np.random.default_rng(6), k, size)
    squares, norms = np.full((k, -(-size // flat.CHUNK)), np.nan), np.full(k, np.nan)
    run_all(flat.squared_norms(x, squares, norms), backwards)
    np.testing.assert_allclose(squares, [chunk_sums(each) for each in x], rtol=1e-13)
    np.testing.assert_allclose(norms, [np.dot(each, each) for each in x], rtol=1e-5)


def test_sums_of_parts_are_in_one_order_and_may_be_float32():
    parts, out = np.random.default_rng(7).standard_normal((2, 700, 3)), np.full((2, 3), np.nan, np.float32)
    run_all(flat.sum_parts(parts, out))
    np.testing.assert_allclose(out, parts.sum(axis=1), rtol=1e-6)
    first, second = np.full((2, 3), np.nan), np.full((2, 3), np.nan)
    run_all(flat.sum_parts(parts, first))
    run_all(flat.sum_parts(parts, second), backwards=True)
    np.testing.assert_array_equal(first, second)


@given(
    st.lists(st.tuples(*[st.floats(0, 10)] * 2), min_size=CERTAIN - 1, max_size=CERTAIN + 4),
    st.sampled_from([1, 2, 16, 2000]),
)
@CHECKS
def test_the_gain_follows_the_noise_as_on_the_host(sums, k):
    state, common, averages = np.zeros(1, flat.GAIN), np.zeros(2, np.float32), Averages()
    state["measured"] = 1
    rate = float(np.float32(0.1))
    for squares, square in [*sums, (np.inf, 1.0), (1.0, np.nan)]:
        run_all(flat.follow_gain(np.array([squares, square]), step(rate=rate), state, common, k))
        averages = follow(averages, k, squares / k, square / k**2, rate)
    gain = noise_gain(averages, k)
    np.testing.assert_allclose(state["gain"], gain, rtol=1e-6)
    np.testing.assert_allclose(common, [(gain - 1) / k, gain / k], rtol=1e-5, atol=1e-7)
    assert state["count"] == averages.count
    np.testing.assert_allclose(state["n1"], averages.n1, rtol=1e-12)


@pytest.mark.parametrize(("fixed", "used"), [(3.0, 3.0), (0.5, 1.0), (9.0, 4.0)])
def test_a_fixed_gain_is_held_between_one_and_the_learners(fixed, used):
    state, common = np.zeros(1, flat.GAIN), np.zeros(2, np.float32)
    state["fixed"] = fixed
    run_all(flat.follow_gain(np.ones(2), step(), state, common, 4))
    assert state["gain"] == used
    assert common[0] == (used - 1) / 4


def test_the_loss_scale_halves_on_overflow_and_doubles_after_an_interval():
    state, good, bad = np.zeros(1, flat.LOSS_SCALE), np.array([1.0, 2.0]), np.array([1.0, np.nan])
    state["scale"], state["interval"] = 8.0, 2
    seen = []
    for norms in (good, good, good, bad, good, bad, bad, bad, bad):
        run_all(flat.follow_scale(norms, state))
        seen.append((float(state["scale"][0]), int(state["good"][0])))
        assert state["inverse"][0] * state["scale"][0] == 1
    assert seen == [(8, 1), (16, 0), (16, 1), (8, 0), (8, 1), (4, 0), (2, 0), (1, 0), (1, 0)]


def test_a_row_that_overflowed_is_no_part_of_the_sum():
    gradients, total = rows(np.random.default_rng(8), 3, 50), np.full(50, np.nan, np.float32)
    gradients[0, 7] = np.inf
    run_all(flat.gradient_sum(gradients, total, np.array([np.inf, 1.0, 1.0])))
    np.testing.assert_array_equal(total, gradients[1] + gradients[2])
    run_all(flat.gradient_sum(gradients, total, np.array([np.nan, np.inf, np.inf])))
    np.testing.assert_array_equal(total, 0)


def test_the_ranks_sum_of_squares_stands_for_this_ranks():
    """k 4: n1 = 16 / 4, n2 = 4 / 16, so noise 5, signal 0: the gain is 4."""
    for sent, sums in ((np.full(1, 16, np.float32), [np.nan, 4.0]), (None, [16.0, 4.0])):
        state, common = np.zeros(1, flat.GAIN), np.zeros(2, np.float32)
        state["measured"], state["count"] = 1, CERTAIN
        numbers = step(rate=1.0)
        run_all(flat.follow_gain(np.array(sums), numbers, state, common, 4, sent))
        assert (state["gain"].item(), common.tolist()) == (4.0, [0.75, 1.0])


@given(SIZES)
@CHECKS
def test_gradients_are_limited_as_on_the_host(size):
    g = 3 * row(np.random.default_rng(9), size)
    g[0] = np.nan
    clamped = g.copy()
    run_all(flat.clamp(clamped, 0.5))
    np.testing.assert_array_equal(clamped, np.clip(g, -0.5, 0.5))
    g[0] = 4
    square = float((g.astype(np.float64) ** 2).sum())
    for limit in (1.5, 1e6):
        short = g.copy()
        run_all(flat.shorten(short, np.array([square]), limit))
        np.testing.assert_array_equal(short, g * np.float32(limit / np.sqrt(square)) if limit == 1.5 else g)
    spoilt = g.copy()
    run_all(flat.shorten(spoilt, np.array([np.inf]), 1.0))
    np.testing.assert_array_equal(spoilt, g)


def test_what_batches_report_and_what_of_it_is_sent():
    loss, hits = np.array([1, 9, 2, 9, 4, 9], np.float32), np.array([1, 0, 0, 0, 1, 0], np.float32)
    norms, reports = np.array([5.0, 6.0, np.inf]), np.full((3, 3), np.nan)
    run_all(flat.report_batch(loss, hits, norms[:1], reports[0], 3, stride=2))
    run_all(flat.report_batch(loss[:3], None, norms[1:2], reports[1], 3))
    run_all(flat.report_batch(loss[:1], hits[:1], norms[2:], reports[2], 1))
    assert reports.tolist() == [[7.0, 2.0, 5.0], [12.0, 0.0, 6.0], [1.0, 1.0, np.inf]]
    unsent, tail = np.zeros(3), np.full(3, np.nan, np.float32)
    run_all(flat.enter_reports(reports, unsent, None, step(attention=1.0)))
    assert unsent.tolist() == [1.0, 19.0, 2.0]  # without the one that is not finite
    run_all(flat.enter_reports(reports[:1], unsent, tail, step()))
    assert (unsent.tolist(), tail.tolist()) == ([0.0] * 3, [1.0, 26.0, 4.0])
    loss[2] = np.nan
    run_all(flat.report_batch(loss, hits, norms[:1], reports[0], 3, stride=2))
    assert np.isnan(norms[0])
    assert np.isnan(reports[0, [0, 2]]).all()


def test_rows_are_joined_replica_beside_replica_and_parted_again():
    """Two weights of 20 and 3 elements, three replicas: 60 elements from 0 on, 9 from 64 on."""
    rows_ = np.arange(3 * 48, dtype=np.float32).reshape(3, 48)
    blocks = np.array([(0, 20, 16), (16, 20, 4), (64, 3, 3)], flat.BLOCK)
    wide = np.zeros(80, np.float32)
    run_all(flat.join_rows(rows_, wide, Constant(blocks)))
    np.testing.assert_array_equal(wide[:60].reshape(3, 20), rows_[:, :20])
    np.testing.assert_array_equal(wide[64:73].reshape(3, 3), rows_[:, 32:35])
    assert not wide[60:64].any()
    assert not wide[73:].any()
    back = np.full((3, 48), -1, np.float32)
    run_all(flat.part_rows(wide, back, Constant(blocks)))
    np.testing.assert_array_equal(back[:, :20], rows_[:, :20])
    np.testing.assert_array_equal(back[:, 32:35], rows_[:, 32:35])
    assert (back[:, 20:32] == -1).all()
