"""Encoded images as arrays: what Pillow decodes, whatever colours and shapes, scaled by the reference to the bit."""

import struct
import subprocess
import sys
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageOps

from mpibow.data import Array, photo
from mpibow.data.decoded import centre_windows, random_windows
from mpibow.data.image_header import sides_of
from mpibow.data.photo import alike, open_photo, take
from tests.data.photos import SAMPLE, encode, exif, picture, resized, sample, scaled

SIZE = 24


def seen(data: bytes, window: tuple[float, float, float, float], size: int = SIZE) -> Array:
    out = np.zeros((3, size, size), np.uint8)
    sides, orientation = sides_of(data)
    take(np.frombuffer(data, np.uint8), orientation, np.array(sides), np.array(window, np.float64), out)
    return out


@pytest.mark.parametrize("window", [(0, 0, 60, 80), (5, 11, 31, 20), (10.5, 3.25, 24, 24), (59, 79, 1, 1)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_window_is_resized(window, kind):
    image = picture(60, 80)
    data = encode(image, kind)
    if kind == "JPEG":
        image = Image.open(BytesIO(data))
    np.testing.assert_array_equal(seen(data, window), scaled(image, window, SIZE))


def test_pixels_by_hand():
    """Rows and columns are not taken for each other; a triangle twice as wide as the scale reaches over the window."""
    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[0, 0], pixels[1, 1], pixels[:, 2:] = (200, 0, 40), (0, 100, 0), 255
    whole, left = encode(Image.fromarray(pixels), "PNG"), encode(Image.fromarray(pixels[:, :2]), "PNG")
    same = seen(left, (0, 0, 2, 2), 2)
    assert same[0].tolist() == [[200, 0], [0, 0]]
    assert same[1].tolist() == [[0, 0], [0, 100]]
    assert seen(left, (0, 0, 2, 2), 1)[:, 0, 0].tolist() == [50, 25, 10]  # the mean of four pixels
    # Columns 0, 1, 2 weigh 3/4, 3/4, 1/4: row 0 is (150 + 64) / 1.75 = 122, row 1 64 / 1.75 = 36.
    assert seen(whole, (0, 0, 2, 2), 1)[0, 0, 0] == 79


@pytest.mark.parametrize("mode", ["L", "CMYK", "YCbCr"])
def test_jpegs_that_are_not_rgb(mode):
    data = encode(picture(40, 50, mode=mode))
    out = seen(data, (0, 0, 40, 50))
    expected = scaled(picture(40, 50, mode="L" if mode == "L" else "RGB"), (0, 0, 40, 50), SIZE)
    assert np.abs(out.astype(int) - expected).max() < 16  # JPEG's loss
    assert (np.ptp(out, axis=0) == 0).all() == (mode == "L")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA"])
def test_pngs_that_are_not_rgb(mode):
    image = picture(40, 50).convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(7)  # ignored: nothing is laid over anything
    out = seen(encode(image, "PNG"), (0, 0, 40, 50))
    np.testing.assert_array_equal(out, scaled(image, (0, 0, 40, 50), SIZE))


def test_a_palette_with_transparency(recwarn):
    image = picture(40, 50).convert("P")
    out = seen(encode(image, "PNG", transparency=bytes(range(256))), (0, 0, 40, 50))
    np.testing.assert_array_equal(out, scaled(image, (0, 0, 40, 50), SIZE))
    assert not recwarn.list


def png(width: int, height: int, depth: int, colour: int, rows: bytes) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (2, 3)])
def test_of_16_bits_the_upper_8_are_kept(colour, channels):
    values = np.array([[0x1234, 0xFFFF], [0x00FF, 0x8000]], ">u2").repeat(channels, axis=1)
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    out = seen(png(2, 2, 16, colour, rows), (0, 0, 2, 2), 2)
    assert out.tolist() == [[[0x12, 0xFF], [0x00, 0x80]]] * 3


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_16_bits_become_8_that_all_decoders_read_alike(colour, channels):
    values = np.random.default_rng(0).integers(0, 1 << 16, (5, 7 * channels)).astype(">u2")
    data = png(7, 5, 16, colour, b"".join(b"\0" + row.tobytes() for row in values))
    made = alike(np.frombuffer(data, np.uint8)).tobytes()
    assert (made[24], sides_of(made)[0]) == (8, (5, 7))
    np.testing.assert_array_equal(seen(made, (0, 0, 5, 7)), seen(data, (0, 0, 5, 7)))


def test_all_others_pass_as_they_are():
    for data in (encode(picture(5, 7), "PNG"), encode(picture(5, 7)), b"\x89PNG\r\n\x1a\n", bytes(24) + b"\x10"):
        stored = np.frombuffer(data, np.uint8)
        assert alike(stored) is stored


def test_without_numba_the_bits_are_the_same(monkeypatch):
    data, windows = encode(picture(60, 80)), [(0, 0, 60, 80), (5, 11, 31, 20), (10.5, 3.25, 24, 24)]
    found = [seen(data, window) for window in windows]
    monkeypatch.setattr(photo, "find_spec", lambda name: None)
    photo.scale.cache_clear()
    try:
        assert photo.scale() is photo.reference
        for window, out in zip(windows, found, strict=True):
            np.testing.assert_array_equal(seen(data, window), out)
    finally:
        photo.scale.cache_clear()


def test_pillows_warnings_do_not_reach_the_terminal():
    """Of Exif data cut off, of which a photograph is right all the same."""
    exif = b"\xff\xe1\x00\x1aExif\0\0II*\0\x08\0\0\0\x02\0\x1a\x01\x05\0\x01\0\0\0"
    bad = encode(picture(40, 50))
    bad = bad[:2] + exif + bad[20:]  # in the place of JFIF's header
    with pytest.warns(UserWarning, match="Corrupt EXIF data"):
        open_photo(np.frombuffer(bad, np.uint8))
    program = (
        "import sys; from mpibow.convert.recode import ToEncoded, histogram;"
        "image = sys.stdin.buffer.read(); print(histogram(image).sum(), len(ToEncoded('jpeg')(image)[0]) == len(image))"
    )
    done = subprocess.run([sys.executable, "-c", program], input=bad, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"6000 True\n", b"")


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_windows_are_those_of_the_upright_image(kind, orientation):
    data = encode(picture(40, 50), kind, exif=exif(orientation))
    upright = ImageOps.exif_transpose(Image.open(BytesIO(data)))
    for window in ((0, 0, 40, 40), (3.5, 7.25, 30, 20), (0, 0, upright.height, upright.width)):
        np.testing.assert_array_equal(seen(data, window), scaled(upright, window, SIZE))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 700), (900, 2), (3, 5)])
def test_tiny_and_long_images(height, width):
    data, sizes = encode(picture(height, width), "PNG"), np.array([[height, width]])
    windows = [centre_windows(sizes, 27, SIZE)[0]]
    for sample_number in range(20):
        counter = np.array([[1, 0, sample_number, 0]], np.uint32)
        windows.append(random_windows(sizes, counter, (0.08, 1.0), (3 / 4, 4 / 3))[0])
    for window in windows:
        np.testing.assert_array_equal(seen(data, tuple(window)), scaled(picture(height, width), window, SIZE))


@pytest.mark.parametrize(("height", "width"), [(256, 256), (375, 500), (333, 251), (64, 1000), (90, 60)])
def test_the_centre_is_torchvisions(height, width):
    """Resize(256) and CenterCrop(224), as it is written there with Pillow: two roundings more, one level."""
    image = picture(height, width)
    short = min(height, width)
    scaled = image.resize((256 * width // short, 256 * height // short), Image.Resampling.BILINEAR)
    left, top = round((scaled.width - 224) / 2.0), round((scaled.height - 224) / 2.0)
    expected = np.asarray(scaled.crop((left, top, left + 224, top + 224))).transpose(2, 0, 1)
    window = centre_windows(np.array([[height, width]]), 256, 224)[0]
    assert np.abs(seen(encode(image, "PNG"), tuple(window), 224).astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    "data", [b"\0", b"BM" + bytes(100), b"\xff\xd8\xff", b"GIF89a" + bytes(20), encode(picture(9, 9), "BMP")]
)
def test_what_is_no_image(data):
    with pytest.raises(ValueError, match=r"^it is no JPEG or PNG image$"):
        open_photo(np.frombuffer(data, np.uint8))


def test_other_sides_than_those_of_the_window():
    with pytest.raises(ValueError, match=r"^its pixels are 9 x 7, its header has 9 x 8$"):
        take(np.frombuffer(encode(picture(9, 7)), np.uint8), 1, np.array([9, 8]), np.zeros(4), np.zeros((3, 2, 2)))


def test_cut_off():
    for kind in ("JPEG", "PNG"):
        data = encode(picture(60, 80), kind)
        with pytest.raises(OSError, match=r"(?i)truncated"):
            seen(data[: len(data) // 2], (0, 0, 60, 80))


@pytest.mark.skipif(not SAMPLE.exists(), reason=f"{SAMPLE} is not there")
def test_photographs():
    """The first of the ImageNet sample, among them grey ones: Pillow's own resize is one level away at most."""
    grey = 0
    for number, (name, data) in enumerate(sample(120)):
        image, counter = Image.open(BytesIO(data)), np.array([[5, 2, number, 0]], np.uint32)
        window = random_windows(np.array([[image.height, image.width]]), counter, (0.08, 1.0), (3 / 4, 4 / 3))[0]
        grey += image.mode == "L"
        out = seen(data, window, 224)
        np.testing.assert_array_equal(out, scaled(image, window, 224), name)
        assert np.abs(out.astype(int) - resized(image, window, 224)).max() <= 1, name
    assert grey > 0
