"""scikit-learn's 1,797 handwritten digits as records: 8 x 8 pixels, small enough to come with a package."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mpibow.data import manifest
from mpibow.errors import RecordError, install
from mpibow.system import StrPath

from .aside import folder_aside
from .dataset import Array
from .recordset import write_records

SOURCE = (
    "scikit-learn's digits: the test set of UCI's optical recognition of handwritten digits (Alpaydin and Kaynak, 1998)"
)
TEST_EVERY = 5  # images 0, 5, 10, ... are the test set


def write_digits(directory: StrPath, *, overwrite: bool = False) -> None:
    """Writes `directory`/train and `directory`/test: uint8 (1, 8, 8), 0 to 16, ten classes; both or nothing.

    Raises RecordError where scikit-learn is missing, or `directory` exists and `overwrite` is false.
    """
    images, labels = _load(Path(directory))
    test = np.arange(len(labels)) % TEST_EVERY == 0
    with folder_aside(Path(directory), overwrite=overwrite) as folder:
        for name, chosen in (("train", ~test), ("test", test)):
            samples: Iterator[tuple[Array, int]] = zip(images[chosen], labels[chosen].tolist(), strict=True)
            write_records(folder / name, samples, classes=10, source=SOURCE)


def ensure_digits(directory: StrPath) -> tuple[Path, Path]:
    """The folders of the training and the test set, written if they are not there; any number of processes may call."""
    train = Path(directory, "train")
    test = Path(directory, "test")

    def there() -> bool:
        return (train / manifest.FILE).exists() and (test / manifest.FILE).exists()

    if not there():
        try:
            write_digits(directory)
        except RecordError:
            if not there():  # else another process was first, and its files are as good
                raise
    return train, test


def _load(directory: Path) -> tuple[Array, Array]:
    try:
        digits = importlib.import_module("sklearn.datasets").load_digits()
    except ImportError:
        raise RecordError(
            f"{directory}: the digits are part of scikit-learn, which is not installed; {install('demo')}"
        ) from None
    return digits.images.astype(np.uint8)[:, None], digits.target  # (n, 1, 8, 8), (n,)
