"""Encoded images (JPEG, PNG): mean and standard deviation of their pixels once decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from mpibow.convert.conversion import Each, watched
from mpibow.data.dataset import Array
from mpibow.data.photo import open_photo, why
from mpibow.errors import RecordError

BYTES_A_VALUE = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"))  # Pillow's modes that fit uint8


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
    values, pixels = np.arange(256), found.sum(axis=1)
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
