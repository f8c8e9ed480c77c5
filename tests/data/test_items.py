"""Items of the user's own data sets become arrays by name, and what fits none is refused by sample."""

import numpy as np
import pytest
from PIL import Image

from mpibow.data.items import Items, array_of, generator, named
from mpibow.errors import RecordError
from tests.data.owned import Pairs, numbered
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ((1, 2), {"x": 1, "target": 2}),
        ([1, 2], {"x": 1, "target": 2}),
        ((1, 2, 3), {"x": 1, "y": 2, "target": 3}),
        (((1, 2), 3), {"x": 1, "y": 2, "target": 3}),
        (({"a": 1}, 3), {"a": 1, "target": 3}),
        (({"a": 1}, {"b": 3}), {"a": 1, "b": 3}),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}),
    ],
)
def test_names(sample, expected):
    assert named(sample, ("x", "y"), "target") == expected


@pytest.mark.parametrize("sample", [{"img": 1, "label": 2}, {"labels": 2, "pixel_values": 1}, (1, 2)])
def test_names_of_a_classifier(sample):
    assert named(sample, ("image",), "label") == {"image": 1, "label": 2}


@pytest.mark.parametrize(
    ("sample", "fault"),
    [
        (None, "must be (input, target) or values by name, got None"),
        (np.zeros(3), "must be (input, target) or values by name, got ndarray"),
        ((1,), "must be (input, target) or values by name, got tuple"),
        ((1, 2, 3, 4), "has 3 inputs and a target, the net takes x, y"),
    ],
)
def test_what_is_no_sample(sample, fault):
    with refuses(fault, RecordError):
        named(sample, ("x", "y"), "target")


@pytest.mark.parametrize(
    ("value", "shape", "dtype"),
    [
        (3, (), "int32"),
        (3.5, (), "float32"),
        ([1, 2], (2,), "int32"),
        (np.zeros((2, 3), np.float64), (2, 3), "float32"),
        (np.zeros(2, np.uint8), (2,), "uint8"),
        (np.int64(5), (), "int32"),
        (Image.new("RGB", (4, 2)), (3, 2, 4), "uint8"),
        (Image.new("L", (4, 2)), (1, 2, 4), "uint8"),
        (Image.new("RGBA", (4, 2)), (3, 2, 4), "uint8"),
    ],
)
def test_arrays(value, shape, dtype):
    found = array_of("x", value)
    assert (found.shape, found.dtype) == (shape, dtype)


def test_a_label_of_a_classifier_is_int32():
    assert array_of("label", np.uint8(3), label=True).dtype == np.int32


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("x", "text", "x: must be a number or an array, got str; let transform make or drop it"),
        ("x", None, "x: must be a number or an array, got None; let transform make or drop it"),
        ("x", 2**31, "x: must fit into int32, got 2147483648 to 2147483648"),
        ("x", np.zeros(2, complex), "x: must be integers, floats or bool, got complex128"),
        ("x", Image.new("I", (4, 2)), "x: has Pillow's mode I, more than 8 bits; give it as an array"),
        ("x", Image.new("I;16", (4, 2)), "x: has Pillow's mode I;16, more than 8 bits; give it as an array"),
        ("counter", 1, "counter: is the name of the random numbers' input; give it another"),
    ],
)
def test_what_is_no_array(name, value, fault):
    with refuses(fault, RecordError):
        array_of(name, value)


def test_random_numbers_depend_on_seed_epoch_and_sample_alone():
    items = Items("train", Pairs(), ("x",), "target", seed=3, transform=numbered)
    first = [float(items.sample(n, epoch)["target"]) for epoch in (0, 1) for n in range(4)]
    again = [float(items.sample(n, epoch)["target"]) for epoch in (0, 1) for n in range(4)]
    assert first == again
    assert len(set(first)) == 8
    assert first[5] == np.float32(generator(3, 1, 1).random())
    part = items.part(np.array([2, 3]))
    assert float(part.sample(1, 0)["target"]) == first[3]  # by its number in the whole


def test_evaluation_has_a_transform_of_its_own():
    items = Items("train", Pairs(), ("x",), "target", transform=numbered)
    assert items.sample(0, None)["target"] in (0, 1)
    assert Items("train", Pairs(), ("x",), "target", evaluated=numbered).sample(0, None)["target"].dtype == np.float32
