"""Encoded images for tests: made on the spot, or of the ImageNet sample where it is."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from mpibow.data import Array, RecordSet, open_records, write_records
from mpibow.kernels.numpy.resize import resize

SAMPLE = Path(__file__).parents[2].parent / "shared/data/imagenet-sample/imagenet-1000class-400smallest.tar"
MOMENTS = ([120.0, 115.0, 105.0], [60.0, 59.0, 61.0])


def encode(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def picture(height: int, width: int, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """Smooth colours, so that JPEG keeps them, that differ from place to place."""
    rows, columns = np.mgrid[:height, :width]
    phase = np.random.default_rng(seed).uniform(0, 6, 3)
    waves = [np.sin(rows / 9 + phase[c]) + np.cos(columns / (7 + c) - phase[c]) for c in range(3)]
    pixels = np.stack([127 + 60 * wave for wave in waves], axis=-1).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def bars(count: int, classes: int = 3, side: int = 24, kind: str = "JPEG") -> list[tuple[bytes, int]]:
    """Images with a bright bar whose place is the class."""
    found = []
    for n in range(count):
        pixels = np.asarray(picture(side + n % 5, side + n % 7, seed=n)).copy() // 2
        at = (n % classes) * side // classes
        pixels[at : at + side // classes] += 100
        found.append((encode(Image.fromarray(pixels), kind), n % classes))
    return found


def records(folder: Path, images: Sequence[tuple[bytes, int]], encoding: str = "jpeg", classes: int = 3) -> RecordSet:
    write_records(folder, images, classes=classes, encoding=encoding, moments=MOMENTS)
    return open_records(folder)


def scaled(image: Image.Image, window: Sequence[float], size: int) -> Array:
    """By the reference, (3, size, size): of the whole image, in one go."""
    pixels, out = np.asarray(image.convert("RGB")), np.zeros((3, size, size), np.uint8)
    sides = np.array(pixels.shape[:2])
    resize(pixels, np.array([0, 0, *sides]), sides, np.array(window), out)
    return out


def resized(image: Image.Image, window: Sequence[float], size: int) -> Array:
    """By Pillow alone, which differs from the reference by one level at most."""
    top, left, height, width = window
    box = (left, top, min(left + width, image.width), min(top + height, image.height))
    seen = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(seen).transpose(2, 0, 1)


def sample(limit: int) -> list[tuple[str, bytes]]:
    """The first JPEGs of the ImageNet sample by name."""
    with tarfile.open(SAMPLE) as tar:
        members = sorted((m for m in tar if m.name.endswith(".JPEG")), key=lambda m: m.name)[:limit]
        return [(m.name, tar.extractfile(m).read()) for m in members]
