"""Labels are numbered from 0, and a test set is set aside that has its share of every class, whatever the order."""

import hashlib
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.convert.labels import numbered, ranks, remapped, set_aside
from mpibow.errors import RecordError
from tests.refusals import refuses


def array(*values: int, dtype: str = "i8") -> np.ndarray:
    return np.array(values, dtype)


def test_classes_that_all_occur():
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
            "a: the highest label is 2, but no label is 0; pass --remap to number those that occur, or "
            "--classes 3 to keep them",
        ),
        (
            {"a": array(0, 2**40), "b": array(1)},
            None,
            "a and b: the highest label is 1099511627776, but no label is 2; "
            "pass --remap to number those that occur, or --classes 1099511627777 to keep them",
        ),
    ],
)
def test_labels_that_do_not_count_from_0(labels: dict[str, np.ndarray], classes, message):
    with refuses(message, RecordError):
        numbered(labels, classes=classes)


def test_any_integers_are_numbered_in_their_order():
    labels, names = remapped({"a": array(7, -3, 7), "b": array(2**64 - 1, 7, dtype="u8")})
    assert labels["a"].tolist() == [1, 0, 1]
    assert labels["b"].tolist() == [2, 1]
    assert labels["b"].dtype == np.int64
    assert names == ("-3", "7", "18446744073709551615")


def test_every_array_is_sorted_once(monkeypatch):
    """Sorting is what renumbering millions of labels costs."""
    sizes = []
    unique = np.unique

    def counted(values: np.ndarray, **options):
        sizes.append(len(values))
        return unique(values, **options)

    monkeypatch.setattr(np, "unique", counted)
    remapped({"a": array(7, -3, 7), "b": array(7, 9)})
    assert sizes == [3, 2]


def test_a_tenth_by_hand():
    """Of 100, 25 and 5 images 10, 3 (of 2.5) and 1 (of 0.5), the lowest of what sha256sum says of 1/0, 1/1, ..."""
    labels = np.repeat([0, 1, 2], [100, 25, 5])
    aside = set_aside(range(130), labels, 0.1, 1, "mine")["test"]
    assert np.bincount(labels[aside]).tolist() == [10, 3, 1]
    hashes = [hashlib.sha256(f"1/{number}".encode()).hexdigest() for number in range(130)]
    assert aside[:10].tolist() == sorted(sorted(range(100), key=hashes.__getitem__)[:10])
    assert not np.array_equal(aside, set_aside(range(130), labels, 0.1, 2, "mine")["test"])


def test_ranks():
    assert ranks(array(5, 3, 9, 3), array(1, 0, 1, 0)).tolist() == [0, 0, 1, 1]


def test_a_class_keeps_its_last_image():
    assert set_aside("abcd", array(0, 1, 1, 1), 0.9, 1, "mine")["test"].size == 2


@pytest.mark.parametrize(("labels", "fraction"), [((0, 0, 0), 0.1), ((0, 1, 2), 0.9)])
def test_nothing_to_test(labels, fraction):
    with refuses(f"mine: --test-fraction {fraction} of 3 images is none; take more", RecordError):
        set_aside(range(3), array(*labels), fraction, 1, "mine")


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40), st.floats(0.2, 0.99), st.integers(0, 5), st.randoms())
def test_a_share_of_every_class(labels, fraction, seed, random: Random):
    """Whatever the order; one image more moves at most one other."""
    labels = [*labels, 0, 0, 0]  # three of 0.2 or more: one at least
    named = list(enumerate(labels))

    def chosen(images: list[tuple[int, int]]) -> set[int]:
        names, values = zip(*images, strict=True)
        aside = set_aside(names, np.array(values), fraction, seed, "mine")["test"]
        return {names[place] for place in aside}

    test = chosen(named)
    for label in set(labels):
        count, found = labels.count(label), sum(labels[name] == label for name in test)
        assert found == min(int(np.floor(count * fraction + 0.5)), count - 1)
    random.shuffle(named)
    assert chosen(named) == test
    assert len(test - chosen([*named, (len(labels), labels[0])])) <= 1
