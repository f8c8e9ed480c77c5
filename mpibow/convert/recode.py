"""The conversion of an image file for records, kept as it is, encoded again or decoded; moments of encoded images."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from PIL import Image, ImageOps

from mpibow.data import Array
from mpibow.data.image_header import sides_of, turned
from mpibow.data.photo import decodable, open_photo, orientation, why
from mpibow.errors import RecordError

from .conversion import Each, watched

BYTES_A_VALUE = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"}  # Pillow's modes that fit uint8


def evenly(count: int, wanted: int) -> list[int]:
    """`wanted` numbers spread evenly over [0, `count`), or all of them where there are fewer."""
    wanted = min(count, wanted)
    return [number * count // wanted for number in range(wanted)]


def moments_of(
    images: Iterable[bytes],
    each: Each = map,
    *,
    total: int | None = None,
    name: Callable[[int], str] = "image {}".format,
) -> tuple[list[float], list[float]]:
    """Mean and std per channel R, G, B over all pixels, in 0 to 255, decoded by `each` (`conversion.spreader`).

    An image counts by its pixels; grey and CMYK ones are converted. The sums are whole numbers, so the result depends
    neither on `each` nor on the order. Where a channel never varies its std is 1, to divide by. `total` is for the
    progress bar only. Raises RecordError for the first image that cannot be decoded, naming it `name(its number)`.
    """
    found = np.zeros((3, 256), np.int64)
    for number, values in enumerate(watched(each(histogram, images), total, "mean and std", " images")):
        if isinstance(values, str):
            raise RecordError(f"{name(number)}: {values}")
        found += values
    if not found.any():
        raise RecordError("there are no images to take mean and std of")
    values = np.arange(256)
    pixels = found.sum(axis=1)
    mean = found @ values / pixels
    spread = np.sqrt(((values - mean[:, None]) ** 2 * found).sum(axis=1) / pixels)
    return mean.tolist(), np.where(spread > 0, spread, 1.0).tolist()


def histogram(data: bytes) -> Array | str:
    """How often each value occurs, (3, 256) int64 for R, G, B; or, in words, the reason why it cannot be decoded."""
    try:
        with open_photo(data) as image:
            if image.mode not in BYTES_A_VALUE:
                return f"cannot be used: it has more than 8 bits a channel (Pillow's mode {image.mode})"
            return np.array(image.convert("RGB").histogram(), np.int64).reshape(3, 256)
    except Exception as error:  # Pillow raises errors of any type for damaged files
        return f"cannot be decoded: {why(error)}"


Stored = TypeVar("Stored", bytes, Array)
KINDS = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}
GREY = {"1", "L", "LA"}  # Pillow's modes
FORMATS = {"jpeg": ("JPEG", "MPO"), "png": ("PNG",)}  # Pillow's names; MPO: a camera's JPEG with another one behind it
# All decoders agree on these; Pillow, libjpeg-turbo and nvJPEG each decode four channels differently.
FINE = {"jpeg": ("L", "RGB"), "png": ("1", "L", "LA", "P", "RGB", "RGBA")}
OPTIONS = {"jpeg": {"quality": 95, "subsampling": 0}, "png": {}}  # subsampling 0: 4:4:4


class ImageHeader(NamedTuple):
    """The header of an image: Pillow's names of format (JPEG, PNG, GIF, ...) and mode; height, width once upright."""

    format: str
    mode: str
    size: tuple[int, int]


class Recoded(NamedTuple, Generic[Stored]):
    """An image as records hold it; the original kind of one that was changed, else ""; whether it lies by its Exif
    orientation: encoded images are turned by those who decode them."""

    image: Stored
    remark: str = ""
    lying: bool = False


@dataclass(frozen=True)
class ToEncoded:
    """Leaves images of `kind` as they are, and encodes others as `kind`; all of them where a `size` is given.

    With `decode` every image is decoded, to find the damaged ones.
    """

    kind: str  # jpeg or png
    decode: bool = False
    size: tuple[int, int] | None = None  # height, width
    crop: bool = False

    def __call__(self, data: bytes) -> Recoded[bytes]:
        """The bytes to store. Raises RecordError without a name."""
        with _opened(data) as image:
            if self.size is None and image.format in FORMATS[self.kind] and image.mode in FINE[self.kind]:
                if self.decode:
                    image.load()
                return Recoded(data, lying=sides_of(data)[1] > 1)
            file = BytesIO()
            _plain(image, None, self.size, self.crop).save(file, self.kind, **OPTIONS[self.kind])
            return Recoded(file.getvalue(), f"{image.mode} {image.format}", orientation(image) > 1)


@dataclass(frozen=True)
class ToArray:
    """Arrays (channels, height, width) uint8; `size` None keeps that of the image."""

    channels: int  # 1 or 3
    size: tuple[int, int] | None = None
    crop: bool = False

    def __call__(self, data: bytes) -> Recoded[Array]:
        """The array, without a remark. Raises RecordError without a name."""
        with _opened(data) as image:
            pixels = np.asarray(_plain(image, self.channels, self.size, self.crop))
            array = np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], self.channels).transpose(2, 0, 1))
            return Recoded(array, lying=orientation(image) > 1)


def kind_of(data: bytes | memoryview) -> str | None:
    """jpeg or png by its first bytes, None where it is neither."""
    return next((kind for magic, kind in KINDS.items() if bytes(data[: len(magic)]) == magic), None)


def header(path: Path) -> ImageHeader:
    """Reads no pixel. Raises RecordError, naming the file, where it is no image that Pillow reads."""
    with decodable(f"{path}: "), open_photo(path, formats=None) as image:
        sides = (image.height, image.width)
        return ImageHeader(image.format or "", image.mode, sides[::-1] if orientation(image) > 4 else sides)


def png(array: Array, level: int = -1) -> bytes:
    """A PNG of (1 or 3, h, w) uint8, from which the same values come back; `level` is zlib's."""
    file = BytesIO()
    image = Image.fromarray(array[0] if len(array) == 1 else np.ascontiguousarray(array.transpose(1, 2, 0)))
    image.save(file, "PNG", compress_level=level)
    return file.getvalue()


@contextmanager
def _opened(data: bytes) -> Iterator[Image.Image]:
    with decodable(), open_photo(data, formats=None) as image:
        if image.mode not in BYTES_A_VALUE:
            raise RecordError(f"has more than 8 bits a channel (Pillow's mode {image.mode}); convert it to 8 bits")
        yield image


def _plain(image: Image.Image, channels: int | None, size: tuple[int, int] | None, crop: bool) -> Image.Image:
    """Grey or RGB, upright: Exif data are not kept."""
    grey = channels == 1 or (channels is None and image.mode in GREY)
    plain = image.convert("L" if grey else "RGB")
    if orientation(image) > 1:
        plain = Image.fromarray(turned(np.asarray(plain), orientation(image)))
    # Pillow's BILINEAR averages where it makes smaller
    return plain if size is None else scaled(plain, size, crop, Image.Resampling.BILINEAR)


def scaled(image: Image.Image, size: Sequence[int], crop: bool, resampling: Image.Resampling) -> Image.Image:
    """The image of these sides, height and width; with `crop` of its largest part in the middle of their ratio."""
    height, width = size
    if (height, width) == (image.height, image.width):
        return image
    return ImageOps.fit(image, (width, height), resampling) if crop else image.resize((width, height), resampling)
