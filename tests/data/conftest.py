"""Samples of every form."""

import numpy as np
import pytest

from mpibow.data import ArrayData, Image, NamedArrays, Samples, open_records, write_records
from mpibow.data.decoded import Decoded
from tests.data.photos import bars, records


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> dict[str, Samples]:
    """Of raw images 1,000 bytes, of arrays in memory 16."""
    folder = tmp_path_factory.mktemp("data")
    write_records(folder / "raw", [(np.full((1, 10, 10), n, np.uint8), n % 3) for n in range(10)], classes=3)
    encoded = Decoded(records(folder / "encoded", bars(9)), Image(8))
    arrays = ArrayData(np.zeros((4, 1, 2, 2), np.uint8), np.zeros(4, int))
    named = NamedArrays({"user": np.zeros(4, int)})
    return {"raw": open_records(folder / "raw"), "encoded": encoded, "arrays": arrays, "named": named}
