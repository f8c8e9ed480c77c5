"""Mean and std of encoded images: by hand, of every kind that ImageNet has, on one process and on several."""

from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from mpibow.convert.conversion import spreader
from mpibow.convert.recode import evenly, histogram, moments_of
from mpibow.errors import RecordError
from tests.data.photos import encode
from tests.refusals import refuses

RANDOM = np.random.default_rng(2)


def png(array: list | np.ndarray, mode: str | None = None) -> bytes:
    image = Image.fromarray(np.array(array, np.uint8))
    return encode(image if mode is None else image.convert(mode), "PNG")


DARK = png([[[0, 10, 20], [2, 10, 20]]])  # two pixels
LIGHT = png([[[10, 10, 50]]])  # one
NOISE = Image.fromarray(RANDOM.integers(0, 256, (19, 23, 3), dtype=np.uint8))


@pytest.mark.parametrize("workers", [1, 2])
def test_every_pixel_counts_once(workers):
    with spreader(workers) as each:
        mean, std = moments_of(iter([DARK, LIGHT]), each)
    assert mean == [4, 10, 30]  # (0 + 2 + 10) / 3, and (20 + 20 + 50) / 3
    assert std == pytest.approx(
        [np.sqrt((16 + 4 + 36) / 3), 1, np.sqrt((100 + 100 + 400) / 3)]
    )  # 1: green never varies


def test_a_jpeg_is_what_it_decodes_to():
    data = encode(NOISE, "JPEG")
    pixels = np.asarray(Image.open(BytesIO(data)), np.float64).reshape(-1, 3)
    mean, std = moments_of([data, data])
    assert mean == pytest.approx(pixels.mean(axis=0))
    assert std == pytest.approx(pixels.std(axis=0))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_modes_become_rgb(mode):
    mean, _ = moments_of([png([[0, 0], [0, 255]], mode)])
    assert mean == [63.75] * 3


def test_cmyk_becomes_rgb():
    cyan = encode(Image.new("CMYK", (8, 8), (255, 0, 0, 0)), "JPEG")
    assert Image.open(BytesIO(cyan)).mode == "CMYK"
    mean, _ = moments_of([cyan])
    assert mean == pytest.approx([0, 255, 255], abs=2)


def test_a_16_bit_image_is_refused():
    data = encode(Image.fromarray(np.full((2, 2), 40_000, np.uint16)), "PNG")
    with refuses("image 1: cannot be used: it has more than 8 bits a channel (Pillow's mode I;16)", RecordError):
        moments_of([DARK, data])


def test_an_image_that_is_none_is_named():
    images, fault = [DARK, b"<html>not found</html>", b""], "cannot be decoded: it is no JPEG or PNG image"
    with refuses(f"image 1: {fault}", RecordError):
        moments_of(images)
    with refuses(f"a.bin: record 7: {fault}", RecordError):
        moments_of(images, name=lambda number: f"a.bin: record {7 * number}")


def test_truncated_images_are_named():
    for data in (encode(NOISE, "JPEG", quality=30), encode(NOISE, "PNG")):
        for size in range(0, len(data) - 20, 7):
            with pytest.raises(RecordError, match=r"^image 0: cannot be decoded: [^A-Z].*"):
                moments_of([data[:size]])


def test_no_images():
    with refuses("there are no images to take mean and std of", RecordError):
        moments_of([])


@given(st.binary(max_size=200), st.sampled_from([b"", encode(NOISE, "JPEG")[:400], DARK]), st.integers(0, 400))
def test_any_bytes(rubbish, start, at):
    data = start[:at] + rubbish + start[at + len(rubbish) :]
    assert isinstance(histogram(data), str | np.ndarray)


@given(st.integers(0, 10**7), st.integers(0, 300))
def test_a_sample_is_spread_evenly(count, wanted):
    numbers = evenly(count, wanted)
    assert len(numbers) == min(count, wanted)
    assert all(0 <= number < count for number in numbers)
    gaps = {later - earlier for earlier, later in pairwise(numbers)}
    assert not gaps or (min(gaps) >= 1 and max(gaps) - min(gaps) <= 1)
