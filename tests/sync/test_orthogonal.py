"""Orthogonal common steps: which weights have one and where they lie, whoever makes them."""

from __future__ import annotations

import threading
from functools import partial
from importlib import import_module
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpibow.graph.formats import canonical, physical
from mpibow.graph.graph import Array, Shape, Weight
from mpibow.graph.layout import Layout, Span, plan_layout
from mpibow.kernels.matrices import cost_of, place_of
from mpibow.kernels.numpy.orthogonal import nearest
from mpibow.kernels.passes import FlatKernels, chunks_of, share_of
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from mpibow.ops.initialisers import Constant
from mpibow.sync.orthogonal import CommonStep, matrices_of, rest_of, spread


@pytest.fixture(params=["numpy", "compiled"])
def flat(request: pytest.FixtureRequest) -> FlatKernels:
    if request.param == "compiled":
        pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    return cast(FlatKernels, import_module(f"mpibow.kernels.{request.param}.flat"))


def norm(array: Array) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))


# Of a replica's flat array


def span(name: str, offset: int, shape: Shape, tag: str = "") -> Span:
    tag = tag or canonical(shape)
    return Span(name, offset, int(np.prod(physical(tag, shape))), shape, Weight(shape, Constant(), 1, 1), tag)


LAYOUT = Layout(
    (
        span("conv", 0, (5, 3, 2, 2), "Acdb16a"),  # 16 x 2 x 2 x 3, of which 11 rows are padding
        span("bias", 192, (5,)),
        span("dense", 208, (4, 7)),
    ),
    decayed=192,
    size=240,
)


def test_matrices_are_the_costliest_first_and_the_rest_is_all_else() -> None:
    conv, dense = 4 * 25 * 12 + 34 * 125, 4 * 16 * 7 + 34 * 64  # of 17 products of squares, and 2 with the matrix
    assert matrices_of(LAYOUT) == [LAYOUT.spans[0], LAYOUT.spans[2]]
    assert [cost_of(each) for each in matrices_of(LAYOUT)] == [conv, dense]
    assert rest_of(LAYOUT) == [slice(192, 208), slice(236, 240)]


def test_where_matrices_lie_by_hand() -> None:
    """Outputs innermost in the convolution's layout, and its channels further in than its taps."""
    conv, dense = (place_of(each) for each in matrices_of(LAYOUT))
    assert conv.rows.tolist() == [0, 1, 2, 3, 4]
    assert conv.columns.tolist() == list(range(0, 192, 16))
    assert dense.rows.tolist() == [208, 215, 222, 229]
    assert dense.columns.tolist() == [0, 1, 2, 3, 4, 5, 6]
    turned = place_of(span("tall", 100, (7, 2)))
    assert turned.rows.tolist() == [100, 101]  # the smaller side
    assert turned.columns.tolist() == [0, 2, 4, 6, 8, 10, 12]


@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from(["abcd", "acdb", "cdba", "Acdb16a", "ABcd16b16a", "ABcd16a16b", "ABcd8a16b2a", "cdBA4b8a"]),
)
def test_in_every_layout_places_are_those_of_all_elements_without_padding(shape: Shape, tag: str) -> None:
    each = span("any", 48, shape, tag)
    layout, place = Layout((each,), decayed=0, size=48 + each.size), place_of(each)
    matrix = np.random.default_rng(0).permutation(np.arange(1.0, np.prod(shape) + 1)).reshape(shape)
    flat = layout.packed({"any": matrix}, "float64")
    found = flat[place.rows[:, np.newaxis] + place.columns]
    assert len(place.rows) <= len(place.columns)
    assert np.count_nonzero(flat) == found.size
    rows = matrix.reshape(len(matrix), -1)
    rows = rows if rows.shape[0] <= rows.shape[1] else rows.T
    # Rows and columns may change places among themselves: all of a row's elements stay together, and a column's.
    if rows.shape[0] < rows.shape[1]:
        assert {frozenset(row) for row in found.tolist()} == {frozenset(row) for row in rows.tolist()}
        assert {frozenset(row) for row in found.T.tolist()} == {frozenset(row) for row in rows.T.tolist()}


def packed(seed: int) -> Array:
    generator = np.random.default_rng(seed)
    return LAYOUT.packed({each.name: generator.standard_normal(each.shape) for each in LAYOUT.spans}, "float64")


def test_matrices_are_made_orthogonal_wherever_they_lie_and_padding_stays_0() -> None:
    step = packed(1)
    before, made = LAYOUT.unpacked(step), spread(step, LAYOUT)
    after = LAYOUT.unpacked(made)
    np.testing.assert_array_equal(after["bias"], before["bias"])
    for name in ("dense", "conv"):
        np.testing.assert_allclose(matrix_in(after, name), nearest(matrix_in(before, name))[0], rtol=1e-10)
    np.testing.assert_array_equal(made[step == 0], 0)
    assert (step == 0).sum() == 11 * 12 + 11 + 4
    np.testing.assert_array_equal(step, packed(1))  # nothing in place


def test_matrices_have_a_factor_of_their_own_within_their_reach() -> None:
    step = packed(1)
    plain = LAYOUT.unpacked(spread(step, LAYOUT))
    reach = {name: nearest(matrix_in(LAYOUT.unpacked(step), name))[1] for name in ("conv", "dense")}
    for gain, even in ((15.0, 15.0), (20.0, 15.0), (3.0, 15.0), (1.0, 1e9), (0.0, 15.0)):
        made = LAYOUT.unpacked(spread(step, LAYOUT, gain, even))
        np.testing.assert_array_equal(made["bias"], gain * plain["bias"])
        for name, own in reach.items():
            assert 1.0 < own < 2.0
            np.testing.assert_allclose(made[name], min(even, gain * own) * plain[name], rtol=1e-15)


def matrix_in(named: dict[str, Array], name: str) -> Array:
    return named[name].reshape(len(named[name]), -1)


@pytest.mark.parametrize(
    ("model", "shape", "kept", "gigaflop"),
    [
        ("lenet", (1, 28, 28), {(1024, 1024)}, 0.02307),
        ("resnet20", (3, 32, 32), set(), 0.1205),
        ("vgg16_cifar", (3, 32, 32), {(512, 256), (512, 512)}, 3.497),
    ],
)
def test_which_matrices_take_part_and_what_they_cost(
    model: str, shape: Shape, kept: set[Shape], gigaflop: float
) -> None:
    layout = plan_layout(classifier(partial(MODELS[model], classes=10), shape, "float")(1))
    matrices = matrices_of(layout)
    assert sum(each.size for each in matrices) + sum(each.stop - each.start for each in rest_of(layout)) == layout.size
    taken = {each.name for each in matrices}
    left = {each.shape[:2] for each in layout.spans if len(each.shape) > 1 and each.name not in taken}
    assert left == kept
    costs = [cost_of(each) for each in matrices]
    assert costs == sorted(costs, reverse=True)
    assert sum(costs) / 1e9 == pytest.approx(gigaflop, rel=0.001)


def test_any_number_of_threads_makes_the_same_bits(flat: FlatKernels) -> None:
    """Of 2 replicas and the rows of 3 ranks, against the formula; 3 elements more are the tail that was sent."""
    sums = np.stack([np.append(packed(seed), [1, 2, 3]) for seed in (1, 2, 3)]).astype(np.float32)
    total = sums[0, :-3] + sums[1, :-3] + sums[2, :-3]
    weights, mean = np.stack([packed(4), packed(5)]).astype(np.float32), packed(6).astype(np.float32)
    step, chunks = spread(total, LAYOUT, 0.5, 0.75), chunks_of(LAYOUT.size, flat.chunk)
    bits = list[bytes]()
    for workers in (1, 2, 5):
        common = CommonStep(LAYOUT, flat, np.float32)
        for _ in range(2):  # the second overwrites what the first one made
            got, where, squares = weights.copy(), mean.copy(), np.zeros(len(chunks))
            for work in common.works(got, where, sums, squares, extra=0.5, even=0.75, scale=0.25):
                threads = [threading.Thread(target=work, args=(share_of(chunks, i, workers),)) for i in range(workers)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            np.testing.assert_allclose(got, weights + step, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(where, mean + np.float32(0.25) * total + step, rtol=1e-4, atol=1e-5)
            assert squares[0] == pytest.approx(norm(total) ** 2, rel=1e-6)
            bits.append(got.tobytes() + where.tobytes())
    assert len(set(bits)) == 1


def test_of_one_rank_its_own_sums_are_taken_as_they_are(flat: FlatKernels) -> None:
    sums = np.stack([np.append(packed(1), [1, 2, 3])])
    weights, mean, before = np.stack([packed(4)]), packed(6), sums.copy()
    expected = weights[0] + spread(sums[0, :-3], LAYOUT, 0.5, 0.75)
    chunks = chunks_of(LAYOUT.size, flat.chunk)
    for work in CommonStep(LAYOUT, flat, np.float64).works(
        weights, mean, sums, np.zeros(len(chunks)), extra=0.5, even=0.75, scale=0.25
    ):
        work(chunks)
    np.testing.assert_array_equal(weights[0], expected)
    np.testing.assert_array_equal(sums, before)


def test_weight_decay_is_no_part_of_a_direction(flat: FlatKernels) -> None:
    """Of sums that have taken a share of W off the convolution, and nothing off the dense layer."""
    bare, mean = packed(1), packed(6)
    decay = mean * np.where(np.arange(LAYOUT.size) < 192, 0.3, 0.0)
    weights, where, chunks = np.stack([packed(4)]), mean.copy(), chunks_of(LAYOUT.size, flat.chunk)
    expected = spread(bare, LAYOUT, 0.5, 0.75) - 0.5 * decay
    for work in CommonStep(LAYOUT, flat, np.float64).works(
        weights, where, (bare - decay)[np.newaxis], np.zeros(len(chunks)),
        extra=0.5, even=0.75, scale=0.25, shrinks=[0.3, 0.0],
    ):  # fmt: skip
        work(chunks)
    np.testing.assert_allclose(weights[0], packed(4) + expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(where, mean + 0.25 * (bare - decay) + expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_share_what_is_no_matrix_by_chunks(flat: FlatKernels, workers: int) -> None:
    """A matrix of 512 outputs and inputs keeps its step; it reaches over chunks of every kernel set."""
    layout = Layout((span("kept", 0, (512, 512)), span("dense", 512**2, (4, 7))), decayed=0, size=512**2 + 32)
    generator = np.random.default_rng(0)
    total = layout.packed({each.name: generator.standard_normal(each.shape) for each in layout.spans}, "float32")
    weights, mean, chunks = (
        np.zeros((1, layout.size), np.float32),
        np.zeros_like(total),
        chunks_of(layout.size, flat.chunk),
    )
    for work in CommonStep(layout, flat, np.float32).works(
        weights, mean, total[np.newaxis], np.zeros(len(chunks)), extra=0.5, even=0.25, scale=0.0
    ):
        for i in range(workers):
            work(share_of(chunks, i, workers))
    np.testing.assert_array_equal(weights[0, : 512**2], np.float32(0.5) * total[: 512**2])
    np.testing.assert_allclose(weights[0], spread(total, layout, 0.5, 0.25), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(mean, weights[0])
