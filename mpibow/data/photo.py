"""Encoded images to arrays: decoded, made RGB, and one window of them resized."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, UnidentifiedImageError

from mpibow.data.dataset import Array

LARGEST = 1 << 26  # pixels of an image, 200 MB once decoded; whatever says that it has more is no photograph

Photo = Image.Image
Image.preinit()  # once, before threads open images


def open_photo(data: Array) -> Photo:
    """The JPEG or PNG in bytes (n,), of which only the header is read so far. Raises ValueError where that is none."""
    try:
        image = Image.open(io.BytesIO(data.data), formats=("JPEG", "PNG"))
    except UnidentifiedImageError:
        raise ValueError("it is no JPEG and no PNG") from None  # Pillow names an address in memory
    width, height = image.size
    if width * height > LARGEST:
        raise ValueError(f"it has {height} x {width} pixels, and at most {LARGEST} are decoded")
    return image


def take(image: Photo, window: Array, out: Array) -> None:
    """Resizes `window`, (top, left, height, width) in pixels, to uint8 out (3, size, size), red, green, blue.

    Pillow's bilinear filter, a triangle as wide as the scale, is the definition; libraries other than Pillow may differ
    by a few of 255 levels. Raises what Pillow raises where the bytes are damaged.
    """
    top, left, height, width = window.tolist()
    box = (left, top, min(left + width, image.width), min(top + height, image.height))  # a float's error over the edge
    photo = rgb(image).resize(out.shape[2:0:-1], Image.Resampling.BILINEAR, box=box)
    for plane, band in zip(out, photo.split(), strict=True):
        plane[...] = band


def rgb(image: Photo) -> Photo:
    """As three times 8 bits: grey is repeated, transparency ignored, of 16 bits the upper 8 are kept."""
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    image.load()  # PNG's transparency is known after that
    if image.mode == "RGB":
        return image
    image.info.pop("transparency", None)
    return image.convert("RGB")
