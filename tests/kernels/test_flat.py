"""The flat passes against pure formulas, and their independence of how the work is cut."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpibow.graph.graph import Array
from mpibow.kernels.numpy import flat
from mpibow.kernels.passes import CHUNK, Local, chunks_of, share_of
from mpibow.learn.local import sgd

SIZE = 2 * CHUNK + 100  # three chunks, the last one short
LOCALS = {
    "plain": Local(0.1, 0.0, False, 0.0, 0),
    "momentum": Local(0.1, 0.9, False, 0.0, SIZE),
    "nesterov": Local(0.1, 0.9, True, 0.0, 0),
    "decay": Local(0.1, 0.0, False, 0.01, CHUNK + 7),
    "all": Local(0.03, 0.7, True, 0.02, CHUNK + 7),
    "decay of nothing": Local(0.1, 0.9, False, 0.5, 0),
    "decay of all": Local(0.1, 0.9, False, 0.5, SIZE),
    "decay of a chunk": Local(0.1, 0.9, False, 0.5, CHUNK),
}


def arrays(*shapes: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> list[Array]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


def close(got: Array, expected: Array) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("begin", [True, False])
@pytest.mark.parametrize(("alpha", "gain"), [(0.0, 0.0), (0.25, 0.0), (0.0, 1.5), (0.25, 1.5)])
@pytest.mark.parametrize("local", LOCALS.values(), ids=LOCALS.keys())
def test_sma_update(local: Local, alpha: float, gain: float, begin: bool) -> None:
    k = 3
    w, v, g, total, centre, common = arrays((k, SIZE), (k, SIZE), (k, SIZE), (SIZE,), (SIZE,), (SIZE,))
    squares = np.array([1.0, 2.0, 3.0])
    momenta, u = sgd(w, v, g, local)
    expected = w + u - alpha * (w - centre) + gain * common
    sums = u.sum(axis=0) + (0 if begin else total)
    parts = [(u[:, i * CHUNK : (i + 1) * CHUNK] ** 2).sum() + (0 if begin else i + 1) for i in range(3)]
    if begin:
        total.fill(np.nan)
        squares.fill(np.nan)
    read = centre.copy(), common.copy()
    flat.sma_update(
        w, v, g, total, squares, centre, common,
        local=local, alpha=alpha, gain=gain, begin=begin, chunks=chunks_of(SIZE),
    )  # fmt: skip
    close(w, expected)
    close(v, momenta)
    close(total, sums)
    close(squares, np.array(parts))
    np.testing.assert_array_equal((centre, common), read)


@pytest.mark.parametrize("local", LOCALS.values(), ids=LOCALS.keys())
def test_sgd_update(local: Local) -> None:
    one, momentum, gradient = arrays((SIZE,), (SIZE,), (SIZE,))
    v, u = sgd(one, momentum, 0.25 * gradient, local)
    weights, momenta = np.tile(one, (3, 1)), np.tile(momentum, (3, 1))
    flat.sgd_update(weights, momenta, gradient, local=local, scale=0.25, chunks=chunks_of(SIZE))
    close(weights[0], one + u)
    close(momenta[0], v)
    for rows in (weights, momenta):
        np.testing.assert_array_equal(rows, np.tile(rows[0], (3, 1)))


def test_the_local_step_by_hand() -> None:
    """w 2, g 1, v 3, rate 0.1, momentum 0.5, decay 0.25: g' = 1.5, v' = 3, u = -0.3, with Nesterov -0.1 (1.5 + 1.5)."""
    w, v, g = np.array([2.0, 2.0]), np.array([3.0, 3.0]), np.array([1.0, 1.0])
    decayed = Local(0.1, 0.5, False, 0.25, 1)
    np.testing.assert_allclose(sgd(w, v, g, decayed), ([3.0, 2.5], [-0.3, -0.25]))
    np.testing.assert_allclose(sgd(w, v, g, Local(0.1, 0.5, True, 0.25, 1)), ([3.0, 2.5], [-0.3, -0.225]))
    np.testing.assert_allclose(sgd(w, v, g, Local(0.1, 0.0, False, 0.25, 1)), ([3.0, 3.0], [-0.15, -0.1]))
    assert g.tolist() == [1.0, 1.0]


def test_gradient_sum() -> None:
    g, total = arrays((4, SIZE), (SIZE,))
    flat.gradient_sum(g, total, chunks=chunks_of(SIZE))
    np.testing.assert_array_equal(total, g[0] + g[1] + g[2] + g[3])


@pytest.mark.parametrize("received", [True, False])
@pytest.mark.parametrize("pull", [0.0, 0.75])
def test_centre_update(pull: float, received: bool) -> None:
    mean, centre, previous, total = arrays((SIZE,), (SIZE,), (SIZE,), (SIZE,))
    alpha = pull / 3
    z = centre + pull * (mean - centre) + 0.9 * (centre - previous) if pull else centre.copy()
    z_prev = centre.copy() if pull else previous.copy()
    w = mean - alpha * (mean - centre) + (0.2 * total if received else 0)
    flat.centre_update(
        mean, centre, previous, total if received else None,
        pull=pull, alpha=alpha, momentum=0.9, scale=0.2, chunks=chunks_of(SIZE),
    )  # fmt: skip
    close(mean, w)
    close(centre, z)
    np.testing.assert_array_equal(previous, z_prev)


@pytest.mark.parametrize("shape", [(SIZE,), (1, SIZE), (3, SIZE)])
def test_add_scaled(shape: tuple[int, ...]) -> None:
    target, source = arrays(shape, (SIZE,))
    expected = target + 1.5 * source
    flat.add_scaled(target, source, scale=1.5, chunks=chunks_of(SIZE))
    close(target, expected)


Pass = Callable[[list[Array], range], None]
ALL = LOCALS["all"]


def sma_pass(a: list[Array], chunks: range) -> None:
    w, v, g, total, squares, centre, common = a
    flat.sma_update(w, v, g, total, squares, centre, common, local=ALL, alpha=0.3, gain=0.7, begin=False, chunks=chunks)


def sgd_pass(a: list[Array], chunks: range) -> None:
    flat.sgd_update(a[0], a[1], a[3], local=ALL, scale=0.3, chunks=chunks)


def centre_pass(a: list[Array], chunks: range) -> None:
    flat.centre_update(a[3], a[5], a[6], a[0][0], pull=0.9, alpha=0.3, momentum=0.9, scale=0.3, chunks=chunks)


def sum_pass(a: list[Array], chunks: range) -> None:
    flat.gradient_sum(a[2], a[3], chunks=chunks)


def add_pass(a: list[Array], chunks: range) -> None:
    flat.add_scaled(a[0], a[5], scale=0.3, chunks=chunks)


@pytest.mark.parametrize("pass_", [sma_pass, sgd_pass, centre_pass, sum_pass, add_pass])
@settings(max_examples=12, deadline=None)
@given(size=st.integers(1, 4 * CHUNK + 1), cuts=st.lists(st.integers(0, 5), max_size=4), data=st.data())
def test_any_cut_gives_the_same_bits(pass_: Pass, size: int, cuts: list[int], data: st.DataObject) -> None:
    chunks = chunks_of(size)
    row = (size,)
    whole = arrays((2, size), (2, size), (2, size), row, (len(chunks),), row, row, dtype="float32", seed=size)
    cut = [array.copy() for array in whole]
    pass_(whole, chunks)
    ends = [0, *sorted(min(c, len(chunks)) for c in cuts), len(chunks)]
    for start, stop in data.draw(st.permutations(list(pairwise(ends)))):
        pass_(cut, chunks[start:stop])
    for one, other in zip(whole, cut, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("size", "count"), [(0, 0), (1, 1), (CHUNK, 1), (CHUNK + 1, 2), (10 * CHUNK, 10)])
def test_chunks(size: int, count: int) -> None:
    assert chunks_of(size) == range(count)


@given(st.integers(0, 50), st.integers(1, 9))
def test_workers_share_all_chunks_evenly(count: int, workers: int) -> None:
    shares = [share_of(range(count), i, workers) for i in range(workers)]
    assert [chunk for share in shares for chunk in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_nothing_but_its_chunks_is_touched() -> None:
    w, v, g, total, centre, common = arrays((2, SIZE), (2, SIZE), (2, SIZE), (SIZE,), (SIZE,), (SIZE,))
    squares = np.zeros(3)
    a = [w, v, g, total, squares, centre, common]
    before = [array.copy() for array in a]
    sma_pass(a, range(1, 2))
    for array, old in zip(a[:4], before, strict=False):
        changed = (array != old).reshape(-1, SIZE)
        assert changed[:, CHUNK : 2 * CHUNK].all()
        assert not changed[:, :CHUNK].any()
        assert not changed[:, 2 * CHUNK :].any()
    assert (squares != 0).tolist() == [False, True, False]


def test_float32_stays_close() -> None:
    shapes = ((2, SIZE), (2, SIZE), (2, SIZE), (SIZE,), (3,), (SIZE,), (SIZE,))
    single, double = arrays(*shapes, dtype="float32"), [a.astype(np.float64) for a in arrays(*shapes, dtype="float32")]
    for a in (single, double):
        sma_pass(a, range(3))
    for one, other in zip(single, double, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
