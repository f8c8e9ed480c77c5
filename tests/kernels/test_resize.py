"""Windows scaled to one size: by hand, Pillow's pixels, and the compiled kernel's bits are the reference's."""

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from mpibow.graph import Array
from mpibow.kernels.numpy.resize import BITS, reach, resize, taps

SIDES, TARGETS = st.integers(1, 60), st.integers(1, 24)


def scaled(image: Array, window, size: int) -> Array:
    out, sides = np.zeros((3, size, size), np.uint8), np.array(image.shape[:2])
    resize(image, np.array([0, 0, *sides]), sides, np.array(window, float), out)
    return out


@st.composite
def images(draw) -> tuple[Array, Array]:
    """An image, and a window in it: whole pixels or parts of them."""
    height, width = draw(SIDES), draw(SIDES)
    pixels = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, (height, width, 3)).astype(np.uint8)
    window = np.zeros(4)
    for axis, side in enumerate((height, width)):
        length = draw(st.integers(1, side) | st.floats(0.5, side))
        window[axis], window[axis + 2] = draw(st.integers(0, int(side - length)) | st.floats(0, side - length)), length
    return pixels, window


def test_taps_of_a_half_and_of_a_double():
    """Four pixels to two: triangles 4 wide around 1 and 3. Two to four: neighbours by 3 to 1."""
    one = 1 << BITS
    lows, weights = taps(0, 4, 2, 4)
    assert lows.tolist() == [0, 1]
    np.testing.assert_array_equal(weights, np.rint(np.array([[3, 3, 1], [1, 3, 3]]) * one / 7))
    lows, weights = taps(0, 2, 4, 2)
    assert lows.tolist() == [0, 0, 0, 1]
    np.testing.assert_array_equal(weights, np.array([[4, 0], [3, 1], [1, 3], [4, 0]]) * one / 4)


def test_a_window_that_is_the_target_is_copied():
    image = np.arange(5 * 6 * 3, dtype=np.uint8).reshape(5, 6, 3)
    np.testing.assert_array_equal(scaled(image, (1, 2, 3, 3), 3), image[1:4, 2:5].transpose(2, 0, 1))


def test_one_colour_stays():
    image = np.full((50, 31, 3), (0, 255, 128), np.uint8)
    out = scaled(image, (3.3, 1.7, 44.4, 25.2), 7)
    assert np.unique(out.reshape(3, -1), axis=1).tolist() == [[0], [255], [128]]


@given(images(), TARGETS)
def test_pillow_agrees(case: tuple[Array, Array], size):
    """To a bit, as it rounds a box to float32 and takes rows first for some shapes."""
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install -e '.[dev]'")
    image, window = case
    top, left, height, width = window.astype(np.float32).tolist()
    box = (left, top, min(left + width, image.shape[1]), min(top + height, image.shape[0]))
    theirs = np.asarray(pillow.fromarray(image).resize((size, size), pillow.Resampling.BILINEAR, box=box))
    ours = scaled(image, window.astype(np.float32), size)
    assert abs(ours.astype(int) - theirs.transpose(2, 0, 1)).max() <= 1


NEARLY = (
    np.array([[[10, 92, 218], [151, 11, 100]]], np.uint8),
    np.array([0, float.fromhex("0x1.00000001c5f68p-23"), 1, 1]),
)


@example([NEARLY], 10)  # a weight lies within a rounding of a whole number
@given(st.lists(images(), min_size=1, max_size=3), TARGETS)
def test_the_compiled_kernel_reads_a_part_and_gives_the_same_bits(cases: list[tuple[Array, Array]], size):
    pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    from mpibow.kernels.compiled.resize import resize as compiled

    sides = np.array([image.shape[:2] for image, _ in cases])
    windows = np.array([window for _, window in cases])
    parts = reach(windows, sides, size)
    cut = [
        np.ascontiguousarray(image[top : top + rows, left : left + columns])
        for (image, _), (top, left, rows, columns) in zip(cases, parts, strict=True)
    ]
    assert [list(each.shape[:2]) for each in cut] == parts[:, 2:].tolist()  # inside the image
    guarded = np.full((len(cases), 3 * size * size + 16), 7, np.uint8)
    sources, targets = np.array([each.ctypes.data for each in cut]), np.array([row[8:].ctypes.data for row in guarded])
    compiled(size, sources, parts, sides, windows, targets)()
    assert (guarded[:, :8] == 7).all()
    assert (guarded[:, -8:] == 7).all()
    for (image, window), out in zip(cases, guarded[:, 8:-8], strict=True):
        np.testing.assert_array_equal(out.reshape(3, size, size), scaled(image, window, size))


@given(images(), TARGETS)
def test_a_part_is_enough(case: tuple[Array, Array], size):
    """To the reference and to the compiled one, of one image."""
    pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    from mpibow.kernels.compiled.resize import scale

    image, window = case
    sides = np.array(image.shape[:2])
    (part,) = reach(window[None], sides[None], size)
    top, left, height, width = part
    cut = np.ascontiguousarray(image[top : top + height, left : left + width])
    for function in (resize, scale):
        out = np.zeros((3, size, size), np.uint8)
        function(cut, part, sides, window, out)
        np.testing.assert_array_equal(out, scaled(image, window, size))


@given(st.lists(images(), min_size=1, max_size=3), TARGETS)
def test_the_compiled_kernel_reads_nothing_but_that_part(cases: list[tuple[Array, Array]], size):
    """Pixels of weight 0 as well: they are read, so they must be there."""
    pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    from mpibow.kernels.compiled.resize import taps

    for image, window in cases:
        (part,) = reach(window[None], np.array([image.shape[:2]]), size)
        for axis in (0, 1):
            lows, weights = taps(window[axis], window[axis + 2], size, image.shape[axis])
            assert part[axis] <= lows.min()
            assert lows.max() + weights.shape[1] <= part[axis] + part[axis + 2]
            assert (np.diff(lows) >= 0).all()
            assert abs(weights.sum(axis=1) - (1 << BITS)).max() <= weights.shape[1] // 2 + 1
