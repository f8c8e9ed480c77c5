"""Image files kept, encoded again or decoded: pixels by hand and by Pillow itself."""

from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from mpibow.convert.recode import ImageHeader, ToArray, ToEncoded, header, kind_of, png
from mpibow.errors import RecordError
from tests.data.photos import encode as file
from tests.refusals import refusal_of, refuses

RANDOM = np.random.default_rng(3)
SMOOTH = np.add.outer(np.arange(20) * 6, np.arange(30) * 4)[..., None] + np.array([0, 10, 20])
PICTURE = Image.fromarray(SMOOTH.astype(np.uint8))  # 20 high, 30 wide
NOISE = RANDOM.integers(0, 256, (3, 5, 7), dtype=np.uint8)


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(data)))


def kinds(data: bytes) -> tuple[str, str]:
    image = Image.open(BytesIO(data))
    return image.format, image.mode


def refusal(data: bytes, make: ToEncoded | ToArray = ToEncoded("jpeg")) -> str:  # noqa: B008
    return refusal_of(make, data)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("jpeg", "RGB"), ("jpeg", "L"), ("png", "RGB"), ("png", "L"), ("png", "P"), ("png", "RGBA"), ("png", "1")],
)
def test_keeps_the_bytes(kind, mode):
    data = file(PICTURE.convert(mode), kind)
    assert kinds(data) == (kind.upper(), mode)
    for make in (ToEncoded(kind), ToEncoded(kind, decode=True)):
        assert make(data) == (data, "", False)


def test_keeps_a_jpeg_with_another_behind_it():
    data = file(PICTURE, "MPO", save_all=True, append_images=[PICTURE])
    assert kinds(data)[0] == "MPO"
    assert ToEncoded("jpeg")(data) == (data, "", False)
    assert kind_of(data) == "jpeg"


def test_cmyk_becomes_an_rgb_jpeg_of_high_quality():
    data = file(PICTURE.convert("CMYK"), "JPEG", quality=100, subsampling=0)
    made, remark, _ = ToEncoded("jpeg")(data)
    assert (kinds(made), remark) == (("JPEG", "RGB"), "CMYK JPEG")
    assert np.abs(pixels(made).astype(int) - SMOOTH).max() < 8
    assert Image.open(BytesIO(made)).layer[0][1:3] == (1, 1)  # 4:4:4: no component is sampled more than another
    assert max(Image.open(BytesIO(made)).quantization[0]) <= 12  # quality 95


@pytest.mark.parametrize(
    ("form", "mode", "becomes"), [("PNG", "RGB", "RGB"), ("PNG", "L", "L"), ("GIF", "P", "RGB"), ("BMP", "RGB", "RGB")]
)
def test_others_become_jpeg(form, mode, becomes):
    made, remark, _ = ToEncoded("jpeg")(file(PICTURE.convert(mode), form))
    assert (kinds(made), remark) == (("JPEG", becomes), f"{mode} {form}")


def test_others_become_png_without_loss():
    for form in ("BMP", "TIFF", "WEBP"):
        made, *_ = ToEncoded("png")(file(PICTURE, form, lossless=True))
        assert np.array_equal(pixels(made), SMOOTH)
    made, remark, _ = ToEncoded("png")(file(PICTURE, "JPEG"))
    assert remark == "RGB JPEG"
    assert np.array_equal(pixels(made), pixels(file(PICTURE, "JPEG")))


def test_arrays_have_channels_first():
    made, remark, _ = ToArray(3)(png(NOISE))
    assert remark == ""
    assert made.flags.c_contiguous
    assert np.array_equal(made, NOISE)
    grey, *_ = ToArray(1)(png(NOISE[:1]))
    assert np.array_equal(grey, NOISE[:1])
    grey, *_ = ToArray(3)(png(NOISE[:1]))
    assert np.array_equal(grey, np.repeat(NOISE[:1], 3, axis=0))


def test_sizes():
    data = png(SMOOTH.astype(np.uint8).transpose(2, 0, 1))
    stretched, *_ = ToArray(3, (10, 10))(data)
    assert stretched.shape == (3, 10, 10)
    # pixel (i, 4) has its centre at row 2 i + 0.5 and column 13: red is 6 a row and 4 a column
    assert stretched[0, 1:9, 4] == pytest.approx(6 * (2 * np.arange(1, 9) + 0.5) + 4 * 13, abs=1)
    cropped, *_ = ToArray(3, (20, 20), crop=True)(data)
    assert np.array_equal(cropped, SMOOTH.transpose(2, 0, 1)[:, :, 5:25])  # the middle, not resized
    same, *_ = ToArray(3, (20, 30))(data)
    assert np.array_equal(same, SMOOTH.transpose(2, 0, 1))
    smaller, remark, _ = ToEncoded("png", size=(4, 6))(data)
    assert pixels(smaller).shape == (4, 6, 3)
    assert remark == "RGB PNG"


def test_what_is_decoded_stands_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    data = file(PICTURE, "PNG", exif=exif)
    upright, *_ = ToArray(3)(data)
    assert np.array_equal(upright, np.rot90(SMOOTH, -1).transpose(2, 0, 1))
    assert ToEncoded("png")(data) == (data, "", True)  # decoders turn it themselves


def test_headers(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(file(PICTURE.convert("L"), "PNG"))
    assert header(path) == ImageHeader("PNG", "L", (20, 30))
    path.write_bytes(b"rubbish")
    with refuses(f"{path}: cannot be decoded: it is no image that Pillow reads", RecordError):
        header(path)
    assert [kind_of(file(PICTURE, form)) for form in ("JPEG", "PNG", "GIF")] == ["jpeg", "png", None]
    assert kind_of(b"") is None


def test_what_cannot_be_used_is_named():
    assert refusal(b"rubbish") == "cannot be decoded: it is no image that Pillow reads"
    deep = file(Image.fromarray(np.full((2, 2), 40_000, np.uint16)), "PNG")
    for make in (ToEncoded("png"), ToEncoded("jpeg"), ToArray(1)):
        assert refusal(deep, make) == "has more than 8 bits a channel (Pillow's mode I;16); convert it to 8 bits"


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_truncated_images_are_found_by_decoding(form):
    data = file(PICTURE, form)
    for size in range(0, len(data) - 20, 5):
        for make in (ToEncoded(form.lower(), decode=True), ToArray(3)):
            assert refusal(data[:size], make).startswith("cannot be decoded: ")


@given(st.binary(max_size=40), st.integers(0, 400), st.sampled_from(["JPEG", "PNG", "GIF", "BMP", "TIFF"]))
def test_any_bytes(rubbish, at, form):
    data = file(PICTURE, form)
    data = data[:at] + rubbish + data[at + len(rubbish) :]
    for make in (ToEncoded("jpeg", decode=True), ToEncoded("png", size=(2, 2)), ToArray(3)):
        try:
            assert len(make(data)[0]) > 0
        except RecordError as error:
            assert str(error)  # noqa: PT017
