"""Exif's orientation: read from any bytes, and pixels turned as Pillow turns them."""

import struct
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image, ImageOps

from mpibow.cuda.feed.decoder import OnDevice, scaled
from mpibow.data import Image as Size
from mpibow.data.dali_decoders import DaliBatch
from mpibow.data.decoded import Decoded
from mpibow.data.image_header import orientation_of, sides_of, stored_part, turned
from mpibow.data.items import array_of
from mpibow.data.sheet import sheet
from tests.cuda.device.simulated import SimDriver
from tests.cuda.feed.test_feeder import feeder_on
from tests.data.photos import encode, exif, picture, records
from tests.data.slots import image_slot

PIXELS = np.random.default_rng(3).integers(0, 256, (5, 8, 3), dtype=np.uint8)
ORIENTATIONS = range(1, 9)


def tiff(value: int, kind: int = 3, order: str = "<", tag: int = 0x0112) -> bytes:
    """A folder of two entries, the second with the orientation."""
    number = struct.pack(order + {1: "Bxxx", 3: "Hxx", 4: "I"}[kind], value)
    entries = struct.pack(order + "HHIHxx", 0x0100, 3, 1, 7) + struct.pack(order + "HHI", tag, kind, 1) + number
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, 2) + entries


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", [3, 4])
@pytest.mark.parametrize("value", ORIENTATIONS)
def test_the_tag(value, kind, order):
    assert orientation_of(tiff(value, kind, order)) == value


@pytest.mark.parametrize(
    "data",
    [b"", b"II", b"XX*\0" + tiff(6)[4:], tiff(0), tiff(9), tiff(6, 1), tiff(6, tag=0x0113), tiff(6)[:-1], tiff(6)[:20],
     tiff(6)[:4] + b"\xff\xff\xff\xff" + tiff(6)[8:]],
)  # fmt: skip
def test_damaged_data_turn_nothing(data):
    assert orientation_of(data) == 1


@given(st.binary(max_size=60), st.integers(0, 33), st.binary(max_size=4))
def test_any_bytes(rubbish, at, change):
    whole = tiff(6)
    for data in (b"II*\0" + rubbish, whole[:at] + change + whole[at + len(change) :]):
        assert 1 <= orientation_of(data) <= 8


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_pixels_and_their_places(kind, orientation):
    data = encode(Image.fromarray(PIXELS), kind, exif=exif(orientation))
    lossless = encode(Image.fromarray(PIXELS), "PNG", exif=exif(orientation))
    upright = np.asarray(ImageOps.exif_transpose(Image.open(BytesIO(lossless))))
    assert sides_of(data) == (upright.shape[:2], orientation)
    assert np.array_equal(turned(PIXELS, orientation), upright)
    top, left, height, width = stored_part(np.array([1, 0, 3, 4]), np.array(upright.shape[:2]), orientation)
    assert np.array_equal(turned(PIXELS[top : top + height, left : left + width], orientation), upright[1:4, :4])


def test_only_the_first_exif_data_count():
    data = encode(Image.fromarray(PIXELS), exif=exif(6))
    segment = b"\xff\xe1" + struct.pack(">H", 8 + len(tiff(3))) + b"Exif\0\0"
    for before, orientation in ((b"", 6), (segment + tiff(3), 3), (segment + bytes(len(tiff(3))), 1)):
        assert sides_of(data[:2] + before + data[2:])[1] == orientation
    whole = encode(Image.fromarray(PIXELS), "PNG", exif=exif(6))
    chunk = whole.index(b"eXIf") - 4
    length = 12 + int.from_bytes(whole[chunk : chunk + 4], "big")
    behind = whole[:chunk] + whole[chunk + length : -12] + whole[chunk : chunk + length] + whole[-12:]
    assert sides_of(behind) == ((8, 5), 6)  # behind the pixels, too


@pytest.mark.parametrize("kind", ["jpeg", "png"])
def test_samples_and_sheets_are_upright(tmp_path, kind):
    stored = [encode(picture(40, 60), kind.upper(), exif=exif(n)) for n in ORIENTATIONS]
    upright = [encode(ImageOps.exif_transpose(Image.open(BytesIO(data))), "PNG") for data in stored]
    found = []
    for name, images, encoding in (("lying", stored, kind), ("upright", upright, "png")):
        data = records(tmp_path / name, [(image, 0) for image in images], encoding)
        arrays = np.zeros((8, 3, 24, 24), np.uint8), np.zeros(8, np.int32)
        Decoded(data, Size(24)).read(np.arange(8), *arrays)
        found.append((arrays[0].tolist(), np.asarray(sheet(data, range(8))).tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("mode", ["RGB", "L", "P"])
def test_items_that_pillow_opened(mode):
    """What a program did to a picture is its own business."""
    lying = encode(Image.fromarray(PIXELS).convert(mode), "PNG", exif=exif(6))
    pixels = array_of("image", Image.open(BytesIO(lying)))
    assert np.array_equal(pixels, array_of("image", ImageOps.exif_transpose(Image.open(BytesIO(lying)))))
    assert array_of("image", Image.open(BytesIO(lying)).convert("RGB")).shape == (3, 5, 8)


@pytest.mark.dali
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_the_graph_of_a_gpu_on_a_cpu(orientation):
    """The window of an image that lies is that of the upright one, but for the order of DALI's two passes."""
    from nvidia.dali import Pipeline, fn, types

    def window_of(pixels: np.ndarray, number: int, sides: tuple[int, int]) -> np.ndarray:
        run = DaliBatch.of([image_slot(1, (3, 8, 8))])
        run.sides[0], run.orientations[0] = sides, number
        window = np.array([[3.0, 2.5, 20.0, 30.0]])
        OnDevice(lambda sides, counter: window, 8, feeder_on(SimDriver())).plan(run)
        ((top, left, height, width),) = run.inputs["parts"].tolist()
        pipe = Pipeline(batch_size=1, num_threads=1, device_id=None, exec_dynamic=True)
        with pipe:
            image = fn.external_source(name="image", dtype=types.UINT8, ndim=3)
            corners = fn.external_source(name="corners", dtype=types.FLOAT, ndim=1)
            transposed = fn.external_source(name="transposed", dtype=types.UINT8, ndim=0)
            pipe.set_outputs(scaled(fn, types, image, corners, transposed, 8))
        pipe.build()
        pipe.feed_input("image", [np.ascontiguousarray(pixels[top : top + height, left : left + width])])
        for name in ("corners", "transposed"):
            pipe.feed_input(name, run.inputs[name])
        (outputs,) = pipe.run()
        return np.array(outputs[0])

    stored = np.asarray(picture(40, 60))
    upright = turned(stored, orientation)
    found = window_of(stored, orientation, upright.shape[:2]).astype(int)
    assert np.abs(found - window_of(upright, 1, upright.shape[:2])).max() <= 1
