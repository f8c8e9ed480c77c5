"""Ratings of items by users as records: each a raw image of three numbers, user, item and rating."""

import numpy as np

from mpibow.errors import RecordError

from .dataset import Array, NamedArrays
from .readers import Resident
from .records import RecordForm
from .recordset import RecordSet

FORM = RecordForm("raw", "float32", (3, 1, 1))
MOST = 2**24  # users, and items: float32 has all integers up to it


def record_of(user: int, item: int, rating: float) -> tuple[Array, int]:
    """The image of FORM and the label, which is unused, of a rating. User and item count from 0, below MOST."""
    return np.array([user, item, rating], np.float32).reshape(FORM.shape), 0


def ratings(records: RecordSet) -> NamedArrays:
    """All of `records` in memory, as arrays user and item, int32, and rating, float32, each (n,).

    Raises RecordError where they are no ratings, and where one is damaged, whatever data.on_corrupt is: an epoch
    without it would differ.
    """
    if records.manifest.form != FORM:
        raise RecordError(
            f"{records.folder}: has records {records.manifest.form}, ratings are {FORM}; "
            "convert them with mpibow convert ratings"
        )
    user, item, rating = Resident(records, 1).images.reshape(-1, 3).T
    for name, numbers in (("user", user), ("item", item)):
        wrong = (numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= MOST)
        if wrong.any():
            sample = int(wrong.argmax())
            raise RecordError(
                f"{records.where(sample)}: {name} must be an integer in [0, {MOST}), got {numbers[sample]:g}"
            )
    return NamedArrays(
        {"user": user.astype(np.int32), "item": item.astype(np.int32), "rating": rating}, name=records.name
    )
