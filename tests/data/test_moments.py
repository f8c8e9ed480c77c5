"""The mean image: every image once, whatever is read at once; told when it takes long."""

import numpy as np
import pytest

from mpibow.data import ArrayData, moments, open_records, write_records
from mpibow.data.moments import mean_image

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 2, 3, 4), dtype=np.uint8)
LABELS = np.zeros(23, int)


def test_by_hand():
    images = np.array([[[0, 255], [1, 7]], [[0, 255], [2, 8]]], np.uint8).reshape(2, 1, 2, 2)
    found = mean_image(ArrayData(images, np.zeros(2, int)))
    assert (found.dtype, found.tolist()) == (np.float64, [[[0.0, 255.0], [1.5, 7.5]]])


@pytest.mark.parametrize("at_once", [1, 2, 5, 22, 23, 24, 1000])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_it_is_the_mean_however_many_are_read_at_once(monkeypatch, at_once, dtype):
    images = IMAGES.astype(dtype)
    monkeypatch.setattr(moments, "PART", at_once * images[0].nbytes)
    notes = []
    found = mean_image(ArrayData(images, LABELS), notes.append)
    np.testing.assert_allclose(found, IMAGES.mean(axis=0, dtype=np.float64), rtol=1e-15)
    assert notes == []


def test_of_records_and_rows(tmp_path):
    write_records(tmp_path / "data", zip(IMAGES, LABELS.tolist(), strict=True), classes=2)
    np.testing.assert_array_equal(mean_image(open_records(tmp_path / "data")), mean_image(ArrayData(IMAGES, LABELS)))
    rows = ArrayData(IMAGES.reshape(23, 24), LABELS)
    np.testing.assert_allclose(mean_image(rows), rows.mean, rtol=1e-15)


def test_an_image_larger_than_what_is_read_at_once(monkeypatch):
    monkeypatch.setattr(moments, "PART", 3)
    np.testing.assert_allclose(mean_image(ArrayData(IMAGES, LABELS)), IMAGES.mean(axis=0), rtol=1e-15)


def test_what_takes_long_is_told_now_and_then(monkeypatch):
    monkeypatch.setattr(moments, "PART", 2 * 24)
    seconds = iter(range(100))
    monkeypatch.setattr(moments.time, "monotonic", lambda: float(next(seconds)))
    notes = []
    mean_image(ArrayData(IMAGES, LABELS, name="bars"), notes.append, patience=2.5)
    assert notes == [
        f"data.normalise: {done} of 23 images of bars are in the mean image"
        for done in (6, 12, 22)  # after 3, 6 and 11 seconds: patience doubles
    ]
