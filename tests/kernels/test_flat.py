"""The flat passes of every kernel set against pure formulas, and their independence of how the work is cut."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow.formulas import Formula, formula
from mpibow.graph import Array
from mpibow.graph.layout import whole
from mpibow.kernels import WHOLE, FlatKernels, Half, Local, StepArrays, chunks_of, share_of
from mpibow.kernels.numpy import flat as reference
from mpibow.optim import UPDATES
from mpibow.sync import rule_formulas
from mpibow.testing import hard

try:
    from mpibow.kernels.compiled.factors import LANES
except ImportError:
    LANES = 64
from tests.formulas.samples import same_bits
from tests.kernels.against import UNIT
from tests.stepping import kept, local_of, sgd, sgd_step

CHUNK = 32768  # of NumPy's here, for short arrays; the others' chunks divide it
SIZE = 2 * CHUNK + 100  # three such chunks, the last one short
SUMS = 1e-5  # relative, of float32 squares: all are positive, and those of a block are added up in one float32
LOCALS = {
    "plain": sgd_step(0.1, 0.0, False, 0.0, 0),
    "momentum": sgd_step(0.1, 0.9, False, 0.0, SIZE),
    "nesterov": sgd_step(0.1, 0.9, True, 0.0, 0),
    "decay": sgd_step(0.1, 0.0, False, 0.01, CHUNK + 7),
    "all": sgd_step(0.03, 0.7, True, 0.02, CHUNK + 7),
    "decay of nothing": sgd_step(0.1, 0.9, False, 0.5, 0),
    "decay of all": sgd_step(0.1, 0.9, False, 0.5, SIZE),
    "decay of a chunk": sgd_step(0.1, 0.9, False, 0.5, CHUNK),
}


@pytest.fixture(scope="module", autouse=True)
def short_chunks() -> Iterator[int]:
    """What NumPy's chunk is outside."""
    with pytest.MonkeyPatch.context() as patch:
        outside = reference.chunk
        patch.setattr(reference, "chunk", CHUNK)
        yield outside


def all_chunks(flat: FlatKernels, size: int = SIZE) -> range:
    return chunks_of(size, flat.chunk)


def arrays(*shapes: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> list[Array]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


def close(got: Array, expected: Array) -> None:
    """Float64: the passes round after every operation, as the formulas do, only in another order."""
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


# Every local step by one learner and by several; every number of learners, correction and gain by the richest step.
ALONE = [(k, name, 0.25, 1.5) for name in LOCALS for k in (1, 3)] + [
    (k, "all", *numbers) for k in (1, 2, 3, 6) for numbers in ((0.0, 0.0), (0.25, 0.0), (0.0, 1.5), (0.25, 1.5))
]


@pytest.mark.parametrize(("k", "local", "alpha", "gain"), list(dict.fromkeys(ALONE)))
def test_sma_alone(flat: FlatKernels, k, local, alpha, gain):
    chunk, chunks = flat.chunk, all_chunks(flat)
    w, v, g = arrays((k, SIZE), (k, SIZE), (k, SIZE))
    sums = np.full((len(chunks), 2), np.nan)
    momenta, u = sgd(w, v, g, LOCALS[local])
    total, mean = u.sum(axis=0), w.mean(axis=0)
    expected, centre = w + u - alpha * (w - mean) + gain * total, mean + (1 / k + gain) * total
    own = LOCALS[local]
    flat.sma_alone(StepArrays(w, kept(own, v), g), sums, local=own, alpha=alpha, extra=gain, chunks=chunks)
    close(w, expected)
    close(v, momenta)
    close(w.mean(axis=0), centre)
    for c in chunks:
        part = slice(c * chunk, (c + 1) * chunk)
        close(sums[c], np.array([(u[:, part] ** 2).sum(), (total[part] ** 2).sum()]))


@pytest.mark.parametrize("k", [1, 2, 3, 16])
def test_rows_mean(flat: FlatKernels, k):
    """Added up from the first row on, then times 1/k: to the bit, as updates count with it too."""
    w, mean = arrays((k, SIZE), (SIZE,), dtype="float32")
    total = w[0].copy()
    for row in w[1:]:
        total += row
    flat.rows_mean(w, mean, chunks=all_chunks(flat))
    np.testing.assert_array_equal(mean, total * np.float32(1 / k))


@pytest.mark.parametrize("begin", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.25])
@pytest.mark.parametrize("local", LOCALS.values(), ids=LOCALS.keys())
def test_update(flat: FlatKernels, local: Local, alpha, begin):
    k, chunk, chunks = 3, flat.chunk, all_chunks(flat)
    w, v, g, total, centre = arrays((k, SIZE), (k, SIZE), (k, SIZE), (SIZE,), (SIZE,))
    squares = 1.0 + np.arange(len(chunks))
    momenta, u = sgd(w, v, g, local)
    expected = w + u - alpha * (w - centre)
    sums = u.sum(axis=0) + (0 if begin else total)
    parts = [(u[:, i * chunk : (i + 1) * chunk] ** 2).sum() + (0 if begin else i + 1) for i in chunks]
    if begin:
        total.fill(np.nan)
        squares.fill(np.nan)
    read, send = centre.copy(), Half(PULL, (alpha,))
    flat.update(
        StepArrays(w, kept(local, v), g), total, squares, (centre,), local=local, send=send, begin=begin, chunks=chunks
    )
    close(w, expected)
    close(v, momenta)
    close(total, sums)
    close(squares, np.array(parts))
    np.testing.assert_array_equal(centre, read)


def of_the_weights(w: Array, u: Array, *, share: float) -> tuple[Array, Array]:
    """A learner's own weights are sent, as they were."""
    return w + u, share * w


def test_what_is_summed_may_be_the_weights_as_they_were(flat: FlatKernels):
    w, g, total = arrays((3, SIZE), (3, SIZE), (SIZE,))
    expected, local = 0.25 * w.sum(axis=0), sgd_step(0.1, 0.0, False, 0.0, 0)
    flat.update(
        StepArrays(w, (), g), total, np.zeros(len(all_chunks(flat))), (), local=local,
        send=Half(formula(of_the_weights), (0.25,)), begin=True, chunks=all_chunks(flat),
    )  # fmt: skip
    close(total, expected)


def test_a_rule_that_sends_nothing_makes_local_steps_alone(flat: FlatKernels):
    w, v, g = arrays((3, SIZE), (3, SIZE), (3, SIZE))
    local, chunks = LOCALS["all"], all_chunks(flat)
    momenta, u = sgd(w, v, g, local)
    expected, nothing = w + u, Half(formula(rule_formulas.local), ())
    flat.update(
        StepArrays(w, kept(local, v), g),
        w[0, :0],
        np.zeros(len(chunks)),
        (),
        local=local,
        send=nothing,
        begin=True,
        chunks=chunks,
    )
    close(w, expected)
    close(v, momenta)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("local", LOCALS.values(), ids=LOCALS.keys())
def test_sgd_update(flat: FlatKernels, local: Local, count):
    one, momentum, gradients = arrays((SIZE,), (SIZE,), (count, SIZE))
    v, u = sgd(one, momentum, 0.25 * gradients.sum(axis=0), local)
    weights, momenta, given = np.tile(one, (3, 1)), np.tile(momentum, (3, 1)), gradients.copy()
    flat.sgd_update(
        StepArrays(weights, kept(local, momenta), gradients), local=local, scale=0.25, chunks=all_chunks(flat)
    )
    np.testing.assert_array_equal(gradients, given)
    close(weights[0], one + u)
    close(momenta[0], v)
    for rows in (weights, momenta):
        np.testing.assert_array_equal(rows, np.tile(rows[0], (3, 1)))


def test_gradient_sum(flat: FlatKernels):
    g, total = arrays((4, SIZE), (SIZE,))
    flat.gradient_sum(g, total, chunks=all_chunks(flat))
    np.testing.assert_array_equal(total, g[0] + g[1] + g[2] + g[3])


@pytest.mark.parametrize("received", [True, False])
@pytest.mark.parametrize("pull", [0.0, 0.75])
def test_a_centre_that_lags(flat: FlatKernels, pull, received):
    centre, mean, previous, total = arrays((SIZE,), (SIZE,), (SIZE,), (SIZE,))
    alpha, chunks = pull / 3, all_chunks(flat)
    z = centre + pull * (mean - centre) + 0.9 * (centre - previous) if pull else centre.copy()
    z_prev = centre.copy() if pull else previous.copy()
    w = mean - alpha * (mean - centre) + (0.2 * total if received else 0)
    half = half_of(rule_formulas.lag, pull=pull, alpha=alpha, mu=0.9, share=0.2 if received else 0.0)
    sums, rows = total[np.newaxis][:received], np.zeros((2, SIZE))
    flat.apply(half, rows, (centre, mean, previous), sums, np.zeros(len(chunks)), chunks)
    close(mean, w)
    close(centre, z)
    np.testing.assert_array_equal(previous, z_prev)
    assert not rows.any()  # it moves no replica


@pytest.mark.parametrize("gain", [0.0, 1.5])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 3])
def test_the_mean_step(flat: FlatKernels, k, n, gain):
    """Rows may be longer than what is added up."""
    weights, mean, sums = arrays((k, SIZE), (SIZE,), (n, SIZE + 10))
    total = sum(sums[:, :SIZE])
    expected_weights, expected_mean = weights + gain * total, mean + 0.25 * total
    squares, chunks, before = np.full(len(all_chunks(flat)), np.nan), all_chunks(flat), sums.copy()
    flat.apply(half_of(rule_formulas.mean, extra=gain, whole=0.25), weights, (mean,), sums, squares, chunks)
    close(weights, expected_weights)
    close(mean, expected_mean)
    np.testing.assert_array_equal(sums, before)  # other ranks read them as well
    for c, square in enumerate(squares):
        part = total[c * flat.chunk : (c + 1) * flat.chunk]
        assert square == pytest.approx(math.fsum(part**2), rel=1e-12)


def test_apply_adds_rows_in_order(flat: FlatKernels):
    sums = np.array([[1e8], [1.0], [-1e8], [1.0]], np.float32)
    weights, mean = np.zeros((1, 1), np.float32), np.zeros(1, np.float32)
    flat.apply(half_of(rule_formulas.mean, extra=1.0, whole=1.0), weights, (mean,), sums, np.zeros(1), range(1))
    assert (weights[0, 0], mean[0]) == (1.0, 1.0)


def half_of(rule: Callable[..., object] | Formula, **numbers: float) -> Half:
    made = rule if isinstance(rule, Formula) else formula(rule)
    return Half(made, tuple(numbers[name] for name in made.scalars))


PULL = formula(rule_formulas.pull)
Pass = Callable[[FlatKernels, list[Array], range], None]
ALL = LOCALS["all"]


def sma_pass(
    flat: FlatKernels,
    a: list[Array],
    chunks: range,
    local: Local = ALL,
    alpha: float = 0.3,
    begin: bool = False,
) -> None:
    w, v, g, total, squares, centre, _ = a
    send = Half(PULL, (alpha,))
    flat.update(
        StepArrays(w, kept(local, v), g), total, squares, (centre,), local=local, send=send, begin=begin, chunks=chunks
    )


def sgd_pass(flat: FlatKernels, a: list[Array], chunks: range) -> None:
    flat.sgd_update(StepArrays(a[0], (a[1],), a[2]), local=ALL, scale=0.3, chunks=chunks)


def centre_pass(flat: FlatKernels, a: list[Array], chunks: range) -> None:
    half = half_of(rule_formulas.lag, pull=0.9, alpha=0.3, mu=0.9, share=0.3)
    flat.apply(half, a[0], (a[5], a[3], a[6]), a[0][:1], np.zeros_like(a[4]), chunks)


def sum_pass(flat: FlatKernels, a: list[Array], chunks: range) -> None:
    flat.gradient_sum(a[2], a[3], chunks=chunks)


def alone_pass(flat: FlatKernels, a: list[Array], chunks: range) -> None:
    sums = np.zeros((len(a[4]), 2))
    flat.sma_alone(StepArrays(a[0], (a[1],), a[2]), sums, local=ALL, alpha=0.3, extra=0.7, chunks=chunks)
    a[4][chunks.start : chunks.stop] = sums[chunks.start : chunks.stop, 0]


def mean_pass(flat: FlatKernels, a: list[Array], chunks: range) -> None:
    flat.rows_mean(a[0], a[3], chunks=chunks)


def mean_step_pass(flat: FlatKernels, a: list[Array], chunks: range) -> None:
    flat.apply(half_of(rule_formulas.mean, extra=0.7, whole=0.3), a[0], (a[3],), a[2], a[4], chunks)


def nesterov_pass(flat: FlatKernels, a: list[Array], chunks: range) -> None:
    half = half_of(rule_formulas.reset(formula(rule_formulas.nesterov)), share=0.3, keep=0.9, ahead=0.63, rest=-0.3)
    flat.apply(half, a[0], (a[3], a[5]), a[2], a[4], chunks)


def momentum_pass(flat: FlatKernels, a: list[Array], chunks: range) -> None:
    half = half_of(rule_formulas.momentum, share=0.3, keep=0.6, lr=0.7)
    flat.apply(half, a[0], (a[3], a[5]), a[2], a[4], chunks)


sma_begin_pass = partial(sma_pass, local=LOCALS["decay"], alpha=0, begin=True)
PASSES = [
    sma_pass,
    sma_begin_pass,
    alone_pass,
    mean_pass,
    sgd_pass,
    centre_pass,
    sum_pass,
    mean_step_pass,
    momentum_pass,
    nesterov_pass,
]


def everything(flat: FlatKernels, k: int, size: int, dtype: str = "float32") -> list[Array]:
    """Weights, momenta, gradients (k, size), total (size,), squares (chunks,), centre and common step (size,)."""
    row, rows = (size,), (k, size)
    w, v, g, total, centre, common = arrays(rows, rows, rows, row, row, row, dtype=dtype, seed=size)
    return [w, v, g, total, np.zeros(len(all_chunks(flat, size))), centre, common]


@pytest.mark.parametrize("pass_", PASSES)
@settings(max_examples=12, deadline=None)
@given(size=st.integers(1, 4 * CHUNK + 1), cuts=st.lists(st.integers(0, 40), max_size=4), data=st.data())
def test_any_cut_gives_the_same_bits(flat: FlatKernels, pass_: Pass, size, cuts, data: st.DataObject):
    chunks = all_chunks(flat, size)
    whole = everything(flat, 3, size)
    cut, again = ([array.copy() for array in whole] for _ in range(2))
    ends = [0, *sorted(c % (len(chunks) + 1) for c in cuts), len(chunks)]
    for a in (whole, again):
        pass_(flat, a, chunks)
    for start, stop in data.draw(st.permutations(list(pairwise(ends)))):
        pass_(flat, cut, chunks[start:stop])
    for one, *others in zip(whole, cut, again, strict=True):
        for other in others:
            np.testing.assert_array_equal(one, other)


compiled_alone = pytest.mark.parametrize("flat", ["compiled"], indirect=True)


def same_as_numpys(flat: FlatKernels, a: list[Array], pass_: Pass) -> None:
    """The bits are those of the NumPy kernels. Sums of squares are not: those of float32 are rounded in float32."""
    size, used_up = a[3].size, 3 if pass_ is sgd_pass else 2
    b = [array.copy() for array in a]
    b[4] = np.zeros(len(all_chunks(reference, size)))
    with np.errstate(over="ignore", invalid="ignore"):
        for kernels, each in ((flat, a), (reference, b)):
            pass_(kernels, each, all_chunks(kernels, size))
        (got, a[4]), (expected, b[4]) = ((each[4].sum(), each[4][:0]) for each in (a, b))
    for i, (one, other) in enumerate(zip(a, b, strict=True)):
        if i != used_up:
            np.testing.assert_array_equal(one, other)
    if math.isfinite(expected):
        assert got == pytest.approx(expected, rel=1e-12 if a[0].dtype == np.float64 else SUMS)
    else:
        assert not math.isfinite(got)


@compiled_alone
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@settings(max_examples=100, deadline=None)
@given(data=st.data(), k=st.integers(1, 5), size=st.integers(1, 40000))
def test_the_bits_are_numpys(flat: FlatKernels, dtype, data: st.DataObject, k, size):
    def either(value: float) -> float:
        return data.draw(st.sampled_from([0.0, value]))

    decayed, nesterov, begin = data.draw(st.tuples(st.integers(0, size), st.booleans(), st.booleans()))
    local, alpha = sgd_step(0.03, either(0.9), nesterov, either(0.02), decayed), either(0.3)
    for pass_ in (partial(sma_pass, local=local, alpha=alpha, begin=begin), *PASSES):
        same_as_numpys(flat, everything(flat, k, size, dtype), pass_)


@compiled_alone
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("pass_", PASSES)
def test_what_is_not_finite_stays_so(flat: FlatKernels, pass_: Pass, value):
    """In every input, where vectors are full, in a row's short last one, and beside the end of what decays."""
    size = CHUNK + 13
    for i in (0, 1, 2, 3, 5, 6):
        a = everything(flat, 3, size)
        a[i][..., [0, 300, CHUNK + 6, CHUNK + 7, size - 1]] = value
        same_as_numpys(flat, a, pass_)


@pytest.mark.parametrize("name", UPDATES)
def test_every_optimisers_bits_are_numpys(name):
    """The loops around its formula, of two rows and of three, of all magnitudes, NaN, infinities and denormals; the
    last block is short, and so is a vector in it."""
    pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    compiled = cast(FlatKernels, import_module("mpibow.kernels.compiled.flat"))
    update = UPDATES[name](name=name, weight_decay=0.02)
    local, size, states = local_of(update, decayed=1003, count=3), compiled.chunk + 259, len(update.states)
    for k in (2, 3):
        found = []
        for kernels in (compiled, reference):
            rows = [np.stack([hard("float32", 10 * n + i, size) for i in range(k)]) for n in range(2 + states)]
            w, g, own = rows[0], rows[1], tuple(rows[2:])
            chunks = all_chunks(cast(FlatKernels, kernels), size)
            with np.errstate(all="ignore"):
                sums = np.zeros((len(chunks), 2))
                kernels.sma_alone(StepArrays(w, own, g.copy()), sums, local=local, alpha=0.0, extra=0.0, chunks=chunks)
                kernels.sgd_update(StepArrays(w, own, g), local=local, scale=0.5, chunks=chunks)
            found.append((w, *own))
        for got, expected in zip(*found, strict=True):
            same_bits(got, expected)


def test_sums_of_squares_do_not_overflow(flat: FlatKernels):
    """1e30 squared is no float32."""
    sums, squares = np.full((1, 3), 1e30, np.float32), np.zeros(1)
    flat.apply(
        half_of(rule_formulas.mean, extra=0, whole=0),
        np.zeros((1, 3), np.float32),
        (np.zeros(3, np.float32),),
        sums,
        squares,
        range(1),
    )
    assert squares[0] == (pytest.approx(3e60) if flat is not reference else np.inf)


def test_momenta_of_dead_units_become_0(flat: FlatKernels):
    """0.9^1000 is 1e-46, a denormal."""
    a = everything(flat, 2, 70)
    w, v, g, *_ = a
    v[:, 5] = math.nan
    for _ in range(1000):
        g.fill(0)
        sma_pass(flat, a, range(1), sgd_step(0.1, 0.9), 0, begin=True)
    assert np.isnan(v[:, 5]).all()
    assert np.isfinite(np.delete(w, 5, axis=1)).all()
    v[:, 5] = 0
    assert not v.any()


def test_compiled_once_for_each_precision():
    """Whatever Python numbers the settings are."""
    pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    from mpibow.kernels.compiled import flat
    from mpibow.kernels.compiled.generated import applying, loops, sending

    rule = rule_formulas.reset(formula(rule_formulas.momentum))
    for number, dtype in ((0, "float32"), (0.5, "float64"), (np.float64(0.5), "float32")):
        local, kernels, chunks = sgd_step(number, 0.9, False, number, 3), cast(FlatKernels, flat), range(1)
        a, sums = everything(kernels, 2, 9, dtype), np.zeros((1, 2))
        sma_pass(kernels, a, chunks, local, number, begin=True)
        flat.sgd_update(StepArrays(a[0], kept(local, a[1]), a[2]), local=local, scale=number, chunks=chunks)
        flat.sma_alone(
            StepArrays(a[0], kept(local, a[1]), a[2]), sums, local=local, alpha=number, extra=number, chunks=chunks
        )
        flat.apply(half_of(rule, share=number, keep=0, lr=1), a[0], (a[3], a[5]), a[2], a[4], chunks)
        flat.gradient_sum(a[2], a[3], chunks=chunks)
    made = loops(local.formula)
    passes = [made.sma_alone, made.sgd_update, sending(local.formula, PULL).update, applying(rule).apply]
    for each in (*passes, flat._gradient_sum):
        assert len(each.signatures) == 2, each


@pytest.mark.parametrize(("size", "count"), [(0, 0), (1, 1), (CHUNK, 1), (CHUNK + 1, 2), (10 * CHUNK, 10)])
def test_chunks(size, count):
    assert chunks_of(size, CHUNK) == range(count)


def test_chunks_divide_numpys(flat: FlatKernels, short_chunks):
    assert short_chunks % CHUNK == 0
    assert CHUNK % flat.chunk == 0


@given(st.integers(0, 50), st.integers(1, 9))
def test_workers_share_all_chunks_evenly(count, workers):
    shares = [share_of(range(count), i, workers) for i in range(workers)]
    assert [chunk for share in shares for chunk in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


# Two dense layers' gradients, of ranks 4 and 8, as factors: they cross chunks, and are not all that there is.
FACTORS = np.array([[256, 256 + 128 * 128, 4, 128, LANES], [CHUNK - 1024, CHUNK - 1024 + 192 * 16, 8, 16, LANES]])


FACTORED = [sgd_step(0.03, 0.7, True, 0.02, CHUNK + 8192), sgd_step(0.1, 0.0, False, 0.0, CHUNK + 8192)]


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("local", FACTORED, ids=["all", "plain"])
def test_gradients_that_are_kept_as_factors(flat: FlatKernels, k, local: Local):
    """Every pass does with them what it does with their products."""
    w, v, g, total, mean = arrays(*[(k, SIZE)] * 3, (SIZE,), (SIZE,), dtype="float32")
    products, chunks = whole(g, FACTORS), all_chunks(flat)

    def results(gradients: Array, factors: Array = WHOLE) -> list[Array]:
        found, more = [], {"local": local, "chunks": chunks}
        for run in (
            lambda w, v, g, t, z, a: flat.update(
                StepArrays(w, v, g, factors), t, a[:, 0].copy(), (z,), send=Half(PULL, (0.3,)), begin=True, **more
            ),
            lambda w, v, g, t, z, a: flat.sma_alone(StepArrays(w, v, g, factors), a, alpha=0.3, extra=0.7, **more),
            lambda w, v, g, t, z, a: flat.gradient_sum(g, t, chunks=chunks, factors=factors),
            lambda w, v, g, t, z, a: flat.sgd_update(StepArrays(w, v, g, factors), scale=0.5, **more),
        ):
            copies = [each.copy() for each in (w, v, gradients, total, mean, np.zeros((len(chunks), 2)))]
            run(copies[0], kept(local, copies[1]), *copies[2:])
            found += [*copies[:2], *copies[3:]]
        return found

    rank = max(FACTORS[:, 2])  # an element of a gradient is the sum of so many products
    for got, expected in zip(results(g, FACTORS), results(products), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=UNIT * rank**0.5 * np.abs(expected).max())


def test_factors_give_the_same_bits_however_the_work_is_cut(flat: FlatKernels):
    w, v, g = arrays(*[(2, SIZE)] * 3, dtype="float32")
    chunks = all_chunks(flat)
    found = []
    for workers in (1, 3):
        mine = [w.copy(), v.copy(), g.copy(), np.zeros((len(chunks), 2))]
        for i in range(workers):
            flat.sma_alone(
                StepArrays(mine[0], (mine[1],), mine[2], FACTORS), mine[3], local=LOCALS["momentum"], alpha=0.1,
                extra=0.5, chunks=share_of(chunks, i, workers),
            )  # fmt: skip
        found.append(mine)
    for one, other in zip(*found, strict=True):
        if one is not found[0][2]:  # what the gradients hold afterwards is not defined
            np.testing.assert_array_equal(one, other)
