"""Arrays of every dtype and library at each door, fit, its data sets and predict: right, or refused by name."""

from collections.abc import Callable

import numpy as np
import pytest

import mpibow as mb
from mpibow.data import ArrayData, NamedArrays, numeric_array
from mpibow.data.items import array_of
from mpibow.errors import MpibowError, RecordError
from mpibow.job.predictor import checked
from mpibow.models.classifier import classifier
from mpibow.models.objective import objective

ONES = np.random.default_rng(0).integers(0, 2, (6, 4))
LABELS = np.arange(6) % 3
WIDE = np.repeat(ONES, 2, axis=1)


def of_labels(values):
    return ArrayData(values, LABELS).images


def by_name(values):
    return NamedArrays({"x": values}).arrays["x"]


def of_items(values):
    return np.stack([array_of("x", row) for row in values])


def predicted(values):
    graph = classifier(lambda image: mb.dense(image, 3), (4,), "float32", (0.0,) * 4, (1.0,) * 4)(1)
    return checked(graph, ["image"], values)["image"]


def torch(values, **options):
    return pytest.importorskip("torch").tensor(values, **options)


DOORS = pytest.mark.parametrize("door", [of_labels, by_name, of_items, predicted])
RIGHT = {
    **{kind: lambda kind=kind: ONES.astype(kind) for kind in (
        "?", "u1", "i1", "u2", "i2", ">i2", "u4", "i4", "u8", "i8", "f2", "f4", ">f4", "f8", "longdouble"
    )},
    "Fortran's order": lambda: np.asfortranarray(ONES.astype("f4")),
    "every second": lambda: WIDE[:, ::2].astype("u1")[:, :],
    "reversed": lambda: ONES[:, ::-1].copy()[:, ::-1],
    "nothing masked": lambda: np.ma.masked_array(ONES, mask=False),
    "lists": ONES.tolist,
    "tensors": lambda: torch(ONES.astype("f4"), requires_grad=True),
    "tensors of bool": lambda: torch(ONES.astype("?")),
    "tensors of bfloat16": lambda: torch(ONES.astype("f4")).bfloat16(),
}  # fmt: skip
WRONG = {
    "complex": (lambda: ONES.astype("c8"), "must be integers, floats or bool, got complex64"),
    "objects": (lambda: ONES.astype(object), "must be integers, floats or bool, got object"),
    "texts": (lambda: ONES.astype("U1"), "must be integers, floats or bool, got <U1"),
    "bytes": (lambda: ONES.astype("S1"), "must be integers, floats or bool, got |S1"),
    "days": (lambda: ONES.astype("m8[D]"), "must be integers, floats or bool, got timedelta64[D]"),
    "masked": (
        lambda: np.ma.masked_array(ONES, mask=ONES >= 0),
        "has masked values, which would be trained on; give array.filled(...)",
    ),
    "ragged": (lambda: [[1.0], [1.0, 2.0]], "cannot become an array: setting an array element"),
    "large": (lambda: ONES + 1e300, "must fit into float32, got 1e+300"),
}


@DOORS
@pytest.mark.parametrize("values", RIGHT.values(), ids=RIGHT.keys())
def test_numbers_of_any_kind_arrive(door: Callable, values: Callable):
    found = door(values())
    assert found.dtype in (np.uint8, np.int32, np.float32)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, ONES)


@DOORS
@pytest.mark.parametrize(("values", "fault"), WRONG.values(), ids=WRONG.keys())
def test_the_rest_is_refused_by_name(door: Callable, values: Callable, fault):
    if door is of_items and fault.startswith("cannot"):
        pytest.skip("an item is a row")
    with pytest.raises(MpibowError) as error:
        door(values())
    assert fault in str(error.value)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (LABELS > 0, [0, 1, 1, 0, 1, 1]),
        (LABELS.astype(">u8"), LABELS.tolist()),
        (LABELS.tolist(), LABELS.tolist()),
        (np.array(list("abcabc")), "arrays: labels: must be integers (np.unique(labels, return_inverse=True)[1] makes"),
        (LABELS.astype(object), "arrays: labels: must be integers (np.unique(labels, return_inverse=True)[1] makes"),
        (LABELS.astype("f4"), "arrays: labels must be integers, got float32; give labels.astype(int)"),
        (np.ma.masked_array(LABELS, mask=LABELS > 1), "arrays: labels: has masked values"),
    ],
)
def test_labels(labels, expected):
    if isinstance(expected, list):
        assert ArrayData(ONES, labels).labels.tolist() == expected
    else:
        with pytest.raises(RecordError) as error:
            ArrayData(ONES, labels)
        assert str(error.value).startswith(expected)


@pytest.mark.parametrize(("kind", "dtype", "most"), [("u1", "uint8", 255), ("i4", "int32", 2**31 - 1)])
def test_predict_wraps_no_integer(kind, dtype, most):
    graph = objective(lambda x: mb.sum(mb.cast(x), axis=1), {"x": ((4,), np.dtype(kind))})(1)
    wide = np.full((2, 4), most, "u8" if kind == "u1" else "i8")
    assert checked(graph, ["x"], wide)["x"].max() == most
    with pytest.raises(MpibowError, match=f"^x: must fit into {dtype} as in training, got {most + 1} to {most + 1}$"):
        checked(graph, ["x"], wide + wide.dtype.type(1))


def test_an_array_is_not_copied_without_need():
    values = ONES.astype("f4")
    assert ArrayData(values, LABELS).images is values
    assert numeric_array("x", values) is values


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_constant_column_has_the_spread_1(dtype):
    assert ArrayData(np.full((len(LABELS), 1), 0.1, dtype), LABELS).std == (1.0,)
