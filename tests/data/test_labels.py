"""Labels are numbered from 0, and a test set is set aside that has its share of every class."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpibow.data.labels import numbered, remapped, stratified
from mpibow.errors import RecordError


def array(*values: int, dtype: str = "i8") -> np.ndarray:
    return np.array(values, dtype)


def test_classes_that_all_occur() -> None:
    assert numbered({"a": array(2, 0), "b": array(1, 1)}) == 3
    assert numbered({"a": array(2, 0)}, classes=7) == 7


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ({"a": array(0, -1)}, None, "a: record 1: label is -1, it must be 0 or more; pass --remap"),
        ({"a": array(0, 1), "b": array(5)}, 5, "b: record 0: label is 5, it must be in [0, 5); pass --remap"),
        (
            {"a": array(1, 2)},
            None,
            "a: labels go to 2, but none is 0; pass --remap to number those that occur, or --classes 3 to keep them",
        ),
        (
            {"a": array(0, 2**40), "b": array(1)},
            None,
            "a and b: labels go to 1099511627776, but none is 2; "
            "pass --remap to number those that occur, or --classes 1099511627777 to keep them",
        ),
    ],
)
def test_labels_that_do_not_count_from_0(labels: dict[str, np.ndarray], classes: int | None, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        numbered(labels, classes=classes)
    assert str(caught.value) == message


def test_any_integers_are_numbered_in_their_order() -> None:
    labels, names = remapped({"a": array(7, -3, 7), "b": array(2**64 - 1, 7, dtype="u8")})
    assert labels["a"].tolist() == [1, 0, 1]
    assert labels["b"].tolist() == [2, 1]
    assert labels["b"].dtype == np.int64
    assert names == ("-3", "7", "18446744073709551615")


def test_a_tenth_by_hand() -> None:
    labels = np.repeat([0, 1, 2], [100, 25, 5])  # shares 10, 2.5, 0.5: 13 in all, the one to round up is class 1's
    aside = stratified(labels, 0.1, seed=1)
    assert np.bincount(labels[aside], minlength=3).tolist() == [10, 3, 0]
    assert np.array_equal(aside, stratified(labels, 0.1, seed=1))
    other = stratified(labels, 0.1, seed=2)
    assert not np.array_equal(aside, other)
    assert np.flatnonzero(aside)[:10].tolist() != list(range(10))  # not simply the first ones


def test_a_class_keeps_its_last_record() -> None:
    assert not stratified(array(0, 1, 1, 1), 0.9, seed=1)[0]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), st.floats(0.01, 0.99), st.integers(0, 9))
def test_every_class_has_its_share(labels: list[int], fraction: float, seed: int) -> None:
    values = np.array(labels)
    counts, taken = (
        np.bincount(values),
        np.bincount(values[stratified(values, fraction, seed)], minlength=max(labels) + 1),
    )
    assert (np.abs(taken - counts * fraction) < 1 + 1e-9).all()
    assert (taken < np.maximum(counts, 1)).all()
    assert (
        abs(taken.sum() - len(labels) * fraction) <= 0.5 + 1e-9 or (taken[counts > 0] + 1 >= counts[counts > 0]).any()
    )
