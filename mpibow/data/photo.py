"""Encoded images to arrays: decoded by Pillow, made RGB, and one window of them scaled."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from mpibow.errors import MpibowError, RecordError
from mpibow.kernels.numpy.resize import reach, resize as reference

from .dataset import Array
from .image_header import PNG, orientation_of, stored_part, turned

Scale = Callable[[Array, Array, Array, Array, Array], None]  # kernels.numpy.resize.resize
Photo = Image.Image

# Once, before threads open images. For ImageNet's JPEG files alone Pillow warns dozens of times, of Exif data that
# are not read here; warnings.catch_warnings is not for threads.
Image.preinit()
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")


def open_photo(data: Array | bytes | Path, formats: tuple[str, ...] | None = ("JPEG", "PNG")) -> Photo:
    """The image in bytes (n,) or in a file, of which only the header is read so far. Closed, a file is closed too.

    `formats` are Pillow's names, None for all it knows. Raises ValueError where the image is in none of them, and any
    error of Pillow's about a damaged header; decoding it does the same.
    """
    file = data if isinstance(data, Path) else BytesIO(data if isinstance(data, bytes) else data.data)
    try:
        return Image.open(file, formats=formats)
    except UnidentifiedImageError:  # its own message names an address in memory
        kind = f"{' or '.join(formats)} image" if formats else "image that Pillow reads"
        raise ValueError(f"it is no {kind}") from None


def why(error: Exception) -> str:
    """The fault of an image, for a message: that of a ValueError of ours, or of any error of Pillow's."""
    text = str(error)
    return (text if isinstance(error, ValueError) else text.lower()) or type(error).__name__


@contextmanager
def decodable(name: str = "", remedy: str = "") -> Iterator[None]:
    """Turns an error about the image `name` into a RecordError: Pillow raises any type for damaged ones."""
    try:
        yield
    except MpibowError:
        raise
    except Exception as error:
        raise RecordError(f"{name}cannot be decoded: {why(error)}{remedy}") from error


def orientation(image: Photo) -> int:
    """Exif's, 1 to 8, of an image in any format as it was opened. Pillow itself turns a TIFF, for which this is 1."""
    return orientation_of(image.info.get("exif", b"").removeprefix(b"Exif\0\0"))


def take(data: Array, orientation: int, sides: Array, window: Array, out: Array) -> None:
    """Decodes bytes (n,) of an image, turns it, and scales a window to `out`.

    `sides`, height and width, are those of `imagesize.sides_of`, upright as `window`, (top, left, height, width) in
    pixels, and uint8 out (3, size, size) are: red, green, blue. `kernels.numpy.resize` is the definition, and computes
    where numba is not installed: the same bits, slower. Raises ValueError where the bytes are no image or one of other
    sides, and Pillow's error where they are damaged.
    """
    image = open_photo(data)
    stored = sides[::-1] if orientation > 4 else sides
    if (image.height, image.width) != tuple(stored):
        raise ValueError(f"its pixels are {image.height} x {image.width}, its header has {stored[0]} x {stored[1]}")
    (part,) = reach(window[None], sides[None], out.shape[1])
    top, left, height, width = stored_part(part, sides, orientation).tolist()
    pixels = turned(np.asarray(rgb(image.crop((left, top, left + width, top + height)))), orientation)
    scale()(pixels, part, sides, window, out)


def alike(data: Array) -> Array:
    """Bytes (n,) that all decoders decode alike: a PNG of 16 bits a channel becomes one of its upper 8."""
    if bytes(data[:8]) != PNG or bytes(data[24:25]) != b"\x10":
        return data
    file = BytesIO()
    rgb(open_photo(data)).save(file, "PNG", compress_level=0)  # without Exif data: those of `data` are known
    return np.frombuffer(file.getvalue(), np.uint8)


def rgb(image: Photo) -> Photo:
    """The image in RGB of 8 bits: grey is repeated, transparency ignored, and the upper 8 of 16 bits are kept."""
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    image.load()  # PNG's transparency is known after that
    if image.mode == "RGB":
        return image
    image.info.pop("transparency", None)
    return image.convert("RGB")


@cache
def scale() -> Scale:
    """The function that scales: compiled, so that it holds no lock, where numba is installed."""
    if find_spec("numba") is None:
        return reference
    from mpibow.kernels.compiled.resize import scale as compiled

    return compiled
