"""The same slots from every pipeline, to the bit, for the same position: host, DALI on CPUs, and resident."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from mpibow.data import Image as Size, Samples, fixed, open_records, write_records
from mpibow.data.damage import Damages
from mpibow.data.decoded import Decoded
from mpibow.data.pipeline import Pipeline
from mpibow.data.pipeline_choice import PipelineChoice, open_reader
from mpibow.data.sample_settings import Kind
from tests.data.photos import SAMPLE, bars, encode, exif, picture, records, sample
from tests.data.test_photo import png

SEED, AREA = 5, (0.08, 1.0)
Slots = list[dict[str, bytes]]


def slots_of(kind: Kind, data: Samples, *, batch: int, iterations: int, limit: int = 0) -> Slots:
    """What two ranks see from somewhere within an epoch on; each has a learner more, or less, half-way."""
    timelines = [fixed(batch, (1, 2), 7, 3)]
    ranks = []
    for rank in (0, 1):
        reader = open_reader(PipelineChoice(kind, ""), data, Damages(data.name, data.count, limit), 1 + rank)
        ranks.append(Pipeline(data, reader, lambda: timelines[-1], rank=rank, iteration=7, seed=SEED, prefetch=2))
    found = []
    try:
        for iteration in range(iterations):
            for slot in (slot for rank in ranks for slot in rank.next()):
                found.append({name: array.tobytes() for name, array in slot.arrays.items()})
                slot.release()
            if iteration == iterations // 2:
                timelines.append(timelines[-1].announce(iteration + 7 + 3, (2, 1)))
    finally:
        for rank in ranks:
            rank.close()
    return found


def check(kinds: Sequence[Kind], data: Samples, *, batch: int, iterations: int, limit: int = 0) -> None:
    found = [slots_of(kind, data, batch=batch, iterations=iterations, limit=limit) for kind in kinds]
    for one, other in pairwise(found):
        assert one == other
    assert len({slot["image"] for slot in found[0]}) == len(found[0])  # they are not all alike


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("other", ["resident", pytest.param("dali", marks=pytest.mark.dali)])
def test_raw_images(tmp_path, dtype, other: Kind):
    pixels = np.random.default_rng(0).integers(0, 256, (41, 3, 5, 4)).astype(dtype)
    write_records(tmp_path / "raw", zip(pixels, np.arange(41) % 3, strict=True), classes=3, shard_size=500)
    check(("host", other), open_records(tmp_path / "raw"), batch=4, iterations=12)


@pytest.mark.dali
@pytest.mark.skipif(not SAMPLE.exists(), reason=f"{SAMPLE} is not there")
@pytest.mark.parametrize("area", [AREA, None], ids=["windows", "centres"])
def test_photographs(tmp_path, area):
    """Some of ImageNet's at 224 x 224, grey ones among them."""
    images = [(data, number % 3) for number, (_, data) in enumerate(sample(90)[::2])]
    data = Decoded(records(tmp_path / "train", images), Size(224), area)
    check(("host", "dali"), data, batch=4, iterations=8)


def of_every_kind(kind: str) -> list[bytes]:
    if kind == "jpeg":
        made = [encode(picture(41, 50, mode=mode)) for mode in ("L", "RGB", "CMYK", "YCbCr")]
        made += [encode(picture(33, 47), subsampling=each) for each in ("4:4:4", "4:2:2", "4:2:0", "4:1:1")]
        made += [encode(picture(30, 20), progressive=True), encode(picture(30, 20), keep_rgb=True)]
        made += [encode(picture(40, 50), exif=exif(n)) for n in range(1, 9)]
        made += [encode(picture(40, 50, mode="L"), exif=exif(6)).replace(b"Exif\0\0II", b"Exif\0\0I!")]  # damaged
        return [*made, encode(picture(1, 1)), encode(picture(2, 90), exif=exif(5))]
    made = [encode(picture(41, 50).convert(mode), "PNG") for mode in ("1", "L", "LA", "P", "RGB", "RGBA")]
    made += [encode(picture(41, 50).convert("P"), "PNG", transparency=bytes(range(256)))]
    made += [encode(picture(41, 50).quantize(4), "PNG", bits=2)]
    made += [encode(picture(40, 50), "PNG", exif=exif(n)) for n in range(2, 9)]
    for colour, channels in ((0, 1), (2, 3), (4, 2), (6, 4)):  # of 16 bits
        values = np.random.default_rng(colour).integers(0, 1 << 16, (9, 8 * channels)).astype(">u2")
        made.append(png(8, 9, 16, colour, b"".join(b"\0" + row.tobytes() for row in values)))
    turned = encode(picture(1, 1), "PNG", exif=exif(6))
    chunk = turned[turned.index(b"eXIf") - 4 : turned.index(b"IDAT") - 4]
    return [*made, made[-1][:33] + chunk + made[-1][33:]]  # behind the header


@pytest.mark.dali
@pytest.mark.parametrize("kind", ["jpeg", "png"])
def test_images_of_every_kind(tmp_path, kind):
    images = [(data, number % 3) for number, data in enumerate(of_every_kind(kind))]
    data = Decoded(records(tmp_path / "train", images, kind), Size(24), AREA)
    check(("host", "dali"), data, batch=3, iterations=10)


@pytest.mark.dali
def test_damaged_images_are_replaced_alike(tmp_path):
    images = bars(20)
    broken = {4: b"no image", 5: images[5][0][:400], 11: images[11][0][:-40], 19: b"\xff\xd8\xff"}
    for number, damaged in broken.items():
        images[number] = damaged, 0
    data = Decoded(records(tmp_path / "train", images), Size(8), AREA)
    check(("host", "dali"), data, batch=3, iterations=9, limit=4)
