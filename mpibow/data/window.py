"""The part of an image that becomes a sample: a random window to train on, the centre to evaluate. Pure functions.

A window is (top, left, height, width) in pixels of the image, float64; a reader scales it to the sample's size.
"""

from __future__ import annotations

import math

import numpy as np

from mpibow.data.dataset import Array
from mpibow.ops.philox import philox, stream

ATTEMPTS = 10  # as many as torchvision makes
_NODE = stream("data.window")


def random_windows(sizes: Array, counter: Array, area: tuple[float, float], aspect: tuple[float, float]) -> Array:
    """Windows (n, 4) in images of sizes (n, 2), height and width, by the random numbers of counter (n, 4).

    The crop of Szegedy et al. (arXiv:1409.4842) as torchvision's RandomResizedCrop makes it: a share of the image's
    area uniform in `area`, width / height log-uniform in `aspect`, sides rounded, a place uniform among all; the first
    of ATTEMPTS that fits, else the largest window in the middle whose aspect is allowed. The numbers of a sample are
    those of Philox blocks of counter (block, sample low, sample high, epoch), key (seed, stream of "data.window"):
    two words an attempt, and two for the place.
    """
    n = len(sizes)
    words = _words(counter, 2 * ATTEMPTS + 2)
    height, width = sizes[:, 0].astype(np.float64), sizes[:, 1].astype(np.float64)
    windows, tries = np.zeros((n, 4)), words[:-2].reshape(ATTEMPTS, 2, n)
    logs = math.log(aspect[0]), math.log(aspect[1])
    pixels = height * width * (area[0] + (area[1] - area[0]) * tries[:, 0])  # (ATTEMPTS, n), as all until the first
    ratio = np.exp(logs[0] + (logs[1] - logs[0]) * tries[:, 1])
    rows, columns = np.rint(np.sqrt(pixels / ratio)), np.rint(np.sqrt(pixels * ratio))
    fits = (rows > 0) & (columns > 0) & (rows <= height) & (columns <= width)
    first, each = fits.argmax(axis=0), np.arange(n)
    windows[:, 2], windows[:, 3] = rows[first, each], columns[first, each]
    windows[:, 0] = np.floor(words[-2] * (height - windows[:, 2] + 1))
    windows[:, 1] = np.floor(words[-1] * (width - windows[:, 3] + 1))
    for i in np.flatnonzero(~fits.any(axis=0)):
        shape = min(max(width[i] / height[i], aspect[0]), aspect[1])
        tall, wide = min(height[i], np.rint(width[i] / shape)), min(width[i], np.rint(height[i] * shape))
        windows[i] = (height[i] - tall) // 2, (width[i] - wide) // 2, tall, wide
    return windows


def centre_windows(sizes: Array, resize: int, size: int) -> Array:
    """Windows (n, 4): the middle `size` x `size` of images whose shorter side is scaled to `resize` first.

    Rounded as torchvision does: the longer side down, the window's corner to the nearest even.
    """
    scaled = (sizes * resize) // sizes.min(axis=1, keepdims=True)
    corner = np.rint((scaled - size) / 2)
    scale = sizes / scaled
    return np.concatenate([corner * scale, size * scale], axis=1)


def _words(counter: Array, count: int) -> Array:
    """Random numbers (count, n) in [0, 1), of 32 bits each."""
    n, blocks = len(counter), -(-count // 4)
    seed, epoch, low, high = counter.astype(np.uint64).T
    words = np.empty((4, blocks, n), np.uint64)
    words[0] = np.arange(blocks)[:, None]
    words[1], words[2], words[3] = low, high, epoch
    flat = words.reshape(4, -1)
    philox(flat, np.tile(seed, blocks), _NODE, np.empty((2, blocks * n), np.uint64))
    return words.transpose(1, 0, 2).reshape(-1, n)[:count] / 2.0**32
