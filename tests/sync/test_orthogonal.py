"""Orthogonal steps: matrices by hand, what they keep, which weights have one, whoever makes them."""

from __future__ import annotations

import threading
from functools import partial
from typing import cast

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpibow.errors import ConfigError
from mpibow.graph.formats import canonical, physical
from mpibow.graph.graph import Array, Shape, Weight
from mpibow.graph.layout import Layout, Span, plan_layout
from mpibow.kernels.numpy import flat
from mpibow.kernels.passes import FlatKernels, chunks_of, share_of
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from mpibow.ops.initialisers import Constant
from mpibow.sync.orthogonal import CommonStep, Part, parts_of, spread
from mpibow.sync.orthogonal import orthogonal as orthogonals
from mpibow.sync.settings import MANY, Sma

NUMPY = cast(FlatKernels, flat)
# What five times s <- 3.4445 s - 4.7750 s^3 + 2.0315 s^5 makes of a singular value.
FIVE = {0.6: 0.7228762, 0.8: 1.1192039}


def with_reach(matrix: Array) -> tuple[Array, float]:
    """Of one matrix, which stays as it is."""
    before = matrix.copy()
    (found,), (reach,) = orthogonals(matrix[np.newaxis])
    np.testing.assert_array_equal(matrix, before)
    return found, float(reach)


def orthogonal(matrix: Array) -> Array:
    return with_reach(matrix)[0]


def values(matrix: Array) -> Array:
    return np.linalg.svd(matrix.astype(np.float64), compute_uv=False)


def norm(array: Array) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))


def matrices() -> st.SearchStrategy[Array]:
    """Of any shape, size and condition up to 30."""

    def made(rows: int, columns: int, seed: int, size: float, spread: float) -> Array:
        generator, n = np.random.default_rng(seed), min(rows, columns)
        left, right = (np.linalg.qr(generator.standard_normal((m, n)))[0] for m in (rows, columns))
        return size * (left * np.geomspace(1.0, 1.0 / spread, n)) @ right.T

    extents = st.integers(1, 20)
    return st.builds(made, extents, extents, st.integers(0, 99), st.sampled_from([1e-12, 1.0, 1e9]), st.floats(1, 30))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_orthogonal_matrix_stays(dtype: str) -> None:
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]], dtype)
    for matrix in (rotation, -3 * rotation, rotation[:1], rotation[:, :1], np.eye(3, 5, dtype=dtype)):
        found = orthogonal(matrix)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, matrix, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6)


def test_of_a_diagonal_matrix_by_hand() -> None:
    """diag(3, 4) / 5 has singular values 0.6 and 0.8, each of which takes its own way; then 5 again."""
    found = orthogonal(np.diag([3.0, -4.0]))
    whole = np.hypot(FIVE[0.6], FIVE[0.8])
    np.testing.assert_allclose(found, 5 / whole * np.diag([FIVE[0.6], -FIVE[0.8]]), rtol=1e-6)


def test_a_weak_direction_is_as_long_as_a_strong_one() -> None:
    """Of lengths 1 and 0.01."""
    found = orthogonal(np.diag([1.0, 0.01]))
    assert 0.6 < found[1, 1] / found[0, 0] < 1.7
    assert norm(found) == pytest.approx(np.hypot(1.0, 0.01))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (5, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zero_stays(shape: Shape, dtype: str) -> None:
    found = orthogonal(np.zeros(shape, dtype))
    assert found.dtype == dtype
    assert not found.any()


def test_what_is_not_finite_is_told() -> None:
    with np.errstate(invalid="ignore"):
        assert np.isnan(orthogonal(np.array([[1.0, np.nan], [0.0, 1.0]]))).all()


def test_in_float32_no_square_overflows_or_vanishes() -> None:
    for size in (1e-30, 1e30, 3e38):  # of the last one even the norm is beyond float32
        found = orthogonal(np.diag(np.array([size, size], np.float32)))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, np.diag([size, size]), rtol=1e-5)


@hypothesis.settings(max_examples=100, deadline=None)
@given(matrices())
def test_all_directions_are_nearly_as_long_and_the_whole_as_long_as_it_was(matrix: Array) -> None:
    found = orthogonal(matrix)
    assert norm(found) == pytest.approx(norm(matrix), rel=1e-12)
    lengths = values(found)
    assert lengths.max() / lengths.min() < 1.21 / 0.67  # five iterations take [0.0015, 1] to [0.68, 1.203]
    # The nearest orthogonal matrix is that of the singular vectors: none of it points the other way.
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    assert (left.T @ found @ right.T).diagonal().min() > 0
    np.testing.assert_allclose(orthogonal(matrix.T), found.T, rtol=1e-9, atol=1e-9 * norm(matrix))
    np.testing.assert_allclose(orthogonal(-2 * matrix), -2 * found, rtol=1e-9, atol=1e-9 * norm(matrix))
    single = orthogonal(matrix.astype(np.float32))
    np.testing.assert_allclose(single, found, rtol=1e-3, atol=1e-3 * norm(matrix))


@hypothesis.settings(max_examples=100, deadline=None)
@given(matrices())
def test_the_reach_is_what_the_strongest_direction_allows(matrix: Array) -> None:
    lengths, n = values(matrix), min(matrix.shape)
    exact = lengths.max() * n**0.5 / norm(matrix)
    _, reach = with_reach(matrix)
    assert exact * (1 - 1e-9) <= reach <= exact * n**0.125 * (1 + 1e-9)
    assert reach >= 1 - 1e-9


def test_the_reach_by_hand() -> None:
    assert with_reach(np.diag([2.0, 0.0]))[1] == pytest.approx(2**0.5)  # one direction of two
    assert with_reach(np.diag([5.0, 5.0]))[1] == pytest.approx(2**0.125)  # all that there are
    assert with_reach(np.diag([3.0, 4.0]))[1] == pytest.approx((0.6**8 + 0.8**8) ** 0.125 * 2**0.5)
    assert with_reach(np.zeros((2, 2)))[1] == 1.0


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


def test_parts_are_all_elements_the_costliest_first() -> None:
    conv, dense = 4 * 25 * 12 + 36 * 125, 4 * 16 * 7 + 36 * 64  # of 18 products of squares, and 2 with the matrix
    assert parts_of(LAYOUT) == (
        Part(0, 0, LAYOUT.spans[:1]),
        Part(208, 208, LAYOUT.spans[2:]),
        Part(192, 208),
        Part(236, 240),
    )
    assert [part.cost for part in parts_of(LAYOUT)] == [conv, dense, 16, 4]


def packed(seed: int) -> Array:
    generator = np.random.default_rng(seed)
    return LAYOUT.packed({each.name: generator.standard_normal(each.shape) for each in LAYOUT.spans}, "float64")


def test_matrices_are_made_orthogonal_wherever_they_lie_and_padding_stays_0() -> None:
    step = packed(1)
    before, made = LAYOUT.unpacked(step), spread(step, parts_of(LAYOUT))
    after = LAYOUT.unpacked(made)
    np.testing.assert_array_equal(after["bias"], before["bias"])
    np.testing.assert_array_equal(after["dense"], orthogonal(before["dense"]))
    np.testing.assert_array_equal(after["conv"].reshape(5, 12), orthogonal(before["conv"].reshape(5, 12)))
    np.testing.assert_array_equal(made[step == 0], 0)
    assert (step == 0).sum() == 11 * 12 + 11 + 4
    np.testing.assert_array_equal(step, packed(1))  # nothing in place


def test_matrices_have_a_factor_of_their_own_within_their_reach() -> None:
    parts, step = parts_of(LAYOUT), packed(1)
    plain = LAYOUT.unpacked(spread(step, parts))
    reach = {name: with_reach(plain_of(step, name))[1] for name in ("conv", "dense")}
    for gain, even in ((15.0, 15.0), (20.0, 15.0), (3.0, 15.0), (1.0, 1e9), (0.0, 15.0)):
        made = LAYOUT.unpacked(spread(step, parts, gain, even))
        np.testing.assert_array_equal(made["bias"], gain * plain["bias"])
        for name, own in reach.items():
            assert 1.0 < own < 2.0
            np.testing.assert_allclose(made[name], min(even, gain * own) * plain[name], rtol=1e-15)


def plain_of(step: Array, name: str) -> Array:
    array = LAYOUT.unpacked(step)[name]
    return array.reshape(len(array), -1)


@pytest.mark.parametrize(
    ("model", "shape", "kept", "gigaflop"),
    [
        ("lenet", (1, 28, 28), {(1024, 1024)}, 0.0236),
        ("resnet20", (3, 32, 32), set(), 0.124),
        ("vgg16_cifar", (3, 32, 32), {(512, 256), (512, 512)}, 3.61),
    ],
)
def test_which_matrices_take_part_and_what_they_cost(
    model: str, shape: Shape, kept: set[Shape], gigaflop: float
) -> None:
    layout = plan_layout(classifier(partial(MODELS[model], classes=10), shape, "float")(1))
    parts = parts_of(layout)
    lengths = [part.stop - part.start + sum(each.size for each in part.matrices) for part in parts]
    assert sum(lengths) == layout.size
    taken = {each.name for part in parts for each in part.matrices}
    left = {each.shape[:2] for each in layout.spans if len(each.shape) > 1 and each.name not in taken}
    assert left == kept
    assert sum(part.cost for part in parts if part.matrices) / 1e9 == pytest.approx(gigaflop, rel=0.02)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_any_number_of_threads_makes_the_same_bits(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2 replicas and the rows of 3 ranks, against the formula; 3 elements more are the tail that was sent."""
    sums = np.stack([np.append(packed(seed), [1, 2, 3]) for seed in (1, 2, 3)]).astype(np.float32)
    total = sums[0, :-3] + sums[1, :-3] + sums[2, :-3]
    weights, mean = np.stack([packed(4), packed(5)]).astype(np.float32), packed(6).astype(np.float32)
    step, squares = spread(total, parts_of(LAYOUT), 0.5, 0.75), np.zeros(1)
    expected = [row + step for row in weights]
    centre = mean + np.float32(0.25) * total + step
    monkeypatch.setattr("mpibow.sync.orthogonal.SHARE", 1)  # so little is one thread's else
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(5)))
    common = CommonStep(LAYOUT, NUMPY, np.float32)
    for _ in range(2):  # the second overwrites what the first one made
        got, where = weights.copy(), mean.copy()
        for work in common.works(got, where, sums, squares, gain=0.5, even=0.75, scale=0.25):
            chunks = chunks_of(LAYOUT.size, flat.chunk)
            threads = [threading.Thread(target=work, args=(share_of(chunks, i, workers),)) for i in range(workers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_allclose(where, centre, rtol=1e-6)
        assert squares[0] == pytest.approx(norm(total) ** 2, rel=1e-6)


# The setting


def test_settings_that_have_no_such_step() -> None:
    with pytest.raises(ConfigError) as error:
        Sma(common="orthogonal", gain="none")
    assert str(error.value) == (
        "common: orthogonal is a common step's, which gain none has not; set gain to auto, or common to mean"
    )
    with pytest.raises(ConfigError) as error:
        Sma(common="orthogonal", delay=1)
    assert str(error.value) == (
        "common: orthogonal wants delay 0, got 1: of sums that come late its matrices would have to be worked out "
        "while learners compute; set delay to 0, or common to mean"
    )


def test_who_says_nothing_has_one_from_many_learners_on() -> None:
    assert [Sma().orthogonal(k) for k in (1, MANY - 1, MANY, 99)] == [False, False, True, True]
    for settings in (Sma(gain="none"), Sma(gain=3.0), Sma(delay=1), Sma(common="mean")):
        assert not settings.orthogonal(99)
    assert Sma(common="orthogonal").orthogonal(2)
