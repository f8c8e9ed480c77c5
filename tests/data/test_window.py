"""Windows: inside the image, distributed as they should be, and a pure function of the counter."""

import numpy as np
from hypothesis import given, strategies as st

from mpibow.data.decoded import centre_windows, random_windows
from mpibow.data.slots import fill_counter

AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)


def counters(n: int, seed: int = 1, epoch: int = 0, first: int = 0) -> np.ndarray:
    counter = np.zeros((n, 4), np.uint32)
    fill_counter(counter, seed, epoch, np.arange(first, first + n))
    return counter


def sizes(n: int, height: int, width: int) -> np.ndarray:
    return np.tile(np.array([height, width]), (n, 1))


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_a_window_is_whole_pixels_inside_the_image(height, width, seed):
    windows = random_windows(sizes(8, height, width), counters(8, seed), AREA, ASPECT)
    top, left, rows, columns = windows.T
    assert (windows == np.floor(windows)).all()
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (rows >= 1).all()
    assert (columns >= 1).all()
    assert (top + rows <= height).all()
    assert (left + columns <= width).all()


def test_shares_aspects_and_places_are_uniform():
    n = 20_000
    top, left, rows, columns = random_windows(sizes(n, 1000, 1000), counters(n), (0.1, 0.5), ASPECT).T
    share, log = rows * columns / 1e6, np.log(columns / rows) / np.log(4 / 3)
    for values, low, high in (
        (share, 0.1, 0.5),
        (log, -1, 1),
        (top / (1001 - rows), 0, 1),
        (left / (1001 - columns), 0, 1),
    ):
        tally = np.histogram(values, 10, (low - 0.002, high + 0.002))[0]
        assert abs(tally / n - 0.1).max() < 0.01
    assert abs(np.corrcoef([share, log, top / (1001 - rows), left / (1001 - columns)]) - np.eye(4)).max() < 0.03


def test_only_the_counter_decides():
    whole = random_windows(sizes(6, 300, 400), counters(6), AREA, ASPECT)
    np.testing.assert_array_equal(random_windows(sizes(2, 300, 400), counters(2, first=3), AREA, ASPECT), whole[3:5])
    for other in (counters(6, seed=2), counters(6, epoch=1), counters(6, first=1 << 32)):
        assert (random_windows(sizes(6, 300, 400), other, AREA, ASPECT) != whole).any(axis=1).all()


def test_the_whole_image_where_nothing_else_is_allowed():
    windows = random_windows(sizes(3, 50, 50), counters(3), (1, 1), (1, 1))
    assert windows.tolist() == [[0, 0, 50, 50]] * 3


def test_an_image_too_narrow_for_any_attempt_gives_its_middle():
    """1000 x 10: an aspect of at least 3/4 allows 13 rows, which are 1.3 % of the area."""
    assert random_windows(sizes(1, 1000, 10), counters(1), AREA, ASPECT).tolist() == [[493, 0, 13, 10]]
    assert random_windows(sizes(1, 10, 1000), counters(1), AREA, ASPECT).tolist() == [[0, 493, 10, 13]]


def test_the_centre():
    """300 x 400 is scaled to 256 x 341; rows 16 to 240 and columns 58 (58.5, to even) to 282 are left."""
    (window,) = centre_windows(sizes(1, 300, 400), 256, 224)
    np.testing.assert_allclose(window, [16 * 300 / 256, 58 * 400 / 341, 224 * 300 / 256, 224 * 400 / 341])
    assert centre_windows(sizes(1, 224, 224), 224, 224).tolist() == [[0, 0, 224, 224]]
