"""Encoded records as samples of one shape: the window of an image that becomes a sample, and who decodes it.

A window is (top, left, height, width) in pixels of the image, float64: a random one to train on, the centre to
evaluate. A reader scales it to the sample's size.
"""

import math

import numpy as np

from mpibow.ops.philox import philox, stream

from .damage import Damages, Intact, decoding
from .dataset import Array, Derived
from .image_header import sides_of
from .photo import take
from .readers import DrawingReader
from .recordset import RecordSet
from .sample_settings import Image

LABELLED = ("image", "label")  # arrays of a slot
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
    height = sizes[:, 0].astype(np.float64)
    width = sizes[:, 1].astype(np.float64)
    windows = np.zeros((n, 4))
    tries = words[:-2].reshape(ATTEMPTS, 2, n)
    logs = math.log(aspect[0]), math.log(aspect[1])
    pixels = height * width * (area[0] + (area[1] - area[0]) * tries[:, 0])  # (ATTEMPTS, n), as all until the first
    ratio = np.exp(logs[0] + (logs[1] - logs[0]) * tries[:, 1])
    rows = np.rint(np.sqrt(pixels / ratio))
    columns = np.rint(np.sqrt(pixels * ratio))
    fits = (rows > 0) & (columns > 0) & (rows <= height) & (columns <= width)
    first = fits.argmax(axis=0)
    each = np.arange(n)
    windows[:, 2] = rows[first, each]
    windows[:, 3] = columns[first, each]
    windows[:, 0] = np.floor(words[-2] * (height - windows[:, 2] + 1))
    windows[:, 1] = np.floor(words[-1] * (width - windows[:, 3] + 1))
    for i in np.flatnonzero(~fits.any(axis=0)):
        shape = min(max(width[i] / height[i], aspect[0]), aspect[1])
        tall = min(height[i], np.rint(width[i] / shape))
        wide = min(width[i], np.rint(height[i] * shape))
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
    n = len(counter)
    blocks = -(-count // 4)
    seed, epoch, low, high = counter.astype(np.uint64).T
    words = np.empty((4, blocks, n), np.uint64)
    words[0] = np.arange(blocks)[:, None]
    words[1] = low
    words[2] = high
    words[3] = epoch
    philox(words.reshape(4, -1), np.tile(seed, blocks), _NODE, np.empty((2, blocks * n), np.uint64))
    return words.transpose(1, 0, 2).reshape(-1, n)[:count] / 2.0**32


class Decoded(Derived):
    """The images of `records`, decoded and resized: a `Dataset` of samples (3, size, size) uint8.

    `read` returns the centre of every image, to evaluate. Training takes a window of a random share of the
    image's area in `area` and of a random width / height in `aspect`; the centre as well where `area` is None.
    """

    def __init__(
        self,
        records: RecordSet,
        image: Image,
        area: tuple[float, float] | None = None,
        aspect: tuple[float, float] = (3 / 4, 4 / 3),
    ):
        super().__init__(records)
        self.records = records
        self.image = image
        self.area = area
        self.aspect = aspect
        self.shape = (3, image.size, image.size)
        self.dtype = np.dtype(np.uint8)

    def read(self, samples: Array, images: Array, labels: Array, counters: Array | None = None) -> None:
        """Decodes samples (n,) int64 into images (n, 3, size, size) uint8 and labels (n,) int32.

        With a slot's counters (n, 4) samples are to train on, otherwise to evaluate. Raises DamagedRecord naming the
        first that cannot be read or decoded; the arrays' contents are undefined then.
        """
        numbers = samples.tolist()
        stored, sizes, orientations = zip(*map(self._stored, numbers), strict=True)
        sides = np.array(sizes)
        windows = self.centre(sides) if counters is None else self.windows(sides, counters)
        for row, number in enumerate(numbers):
            with decoding(self.records, number):
                take(stored[row], orientations[row], sides[row], windows[row], images[row])
            labels[row] = self.records.label(number)

    def draw(self, samples: Array, counters: Array, images: Array, labels: Array) -> None:
        """To train on."""
        self.read(samples, images, labels, counters)

    def strata(self) -> Array:
        """The strata for `data.split`."""
        return self.records.labels()

    def part(self, rows: Array) -> "Decoded":
        """Samples `rows` (n,) as a data set; mean and std stay those of all, measured at conversion."""
        return Decoded(self.records.part(rows), self.image, self.area, self.aspect)

    def number(self, sample: int) -> int:
        """The sample's number in the whole data set."""
        return self.records.number(sample)

    def _stored(self, sample: int) -> tuple[Array, tuple[int, int], int]:
        """A sample's bytes (n,), and its image's sides and orientation."""
        with decoding(self.records, sample):
            data = self.records.encoded(sample)
            return data, *sides_of(data)

    def centre(self, sizes: Array) -> Array:
        """The windows (n, 4) to evaluate in images of `sizes` (n, 2), height and width."""
        return centre_windows(sizes, self.image.shorter, self.image.size)

    def windows(self, sizes: Array, counter: Array) -> Array:
        """The windows (n, 4) to train on, by the random numbers of counter (n, 4)."""
        return self.centre(sizes) if self.area is None else random_windows(sizes, counter, self.area, self.aspect)


def decoding_reader(data: Decoded, damages: Damages, threads: int) -> DrawingReader:
    """Decodes samples into slots on `threads` threads, which hold no lock while they do."""
    intact = Intact(data, damages)
    return DrawingReader(lambda samples, counters, *arrays: intact.read(samples, *arrays, counters), LABELLED, threads)
