"""Signs, indices, shapes and sums of tensors: NumPy's numbers and right gradients; integers by all kernel sets."""

from collections.abc import Callable
from types import FunctionType

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ShapeError
from mpibow.graph import Graph, Tensor
from mpibow.graph.infix import Infix
from mpibow.kernels import NUMPY, KernelSet, find_kernels
from mpibow.testing import check_operator
from tests.outcome import outcome
from tests.refusals import refuses

X = np.random.default_rng(1).standard_normal((4, 3, 6))
WHOLE = np.random.default_rng(2).integers(0, 3, (4, 3, 6))
FLOATS = {
    "2 - x": (lambda x: 2 - x, lambda x: 2 - x),
    "NumPy's numbers": (
        lambda x: np.float32(0.5) * x + np.float64(2) - np.int64(3) * x / np.int32(4),
        lambda x: 0.5 * x + 2 - 3 * x / 4,
    ),
    "abs(-x)": (lambda x: abs(-x), lambda x: abs(x)),
    "where and numbers": (lambda x: mb.where(x > 0, x, 0.5), lambda x: np.where(x > 0, x, 0.5)),
    "two numbers": (lambda x: mb.where(x <= 0.1, -1.0, 2) * x, lambda x: np.where(x <= 0.1, -1.0, 2) * x),
    "matrix @ vector": (lambda x: x @ x[0, 0], lambda x: x @ x[0, 0]),
    "vector @ matrices": (lambda x: x[0, 0] @ mb.transpose(x), lambda x: x[0, 0] @ x.swapaxes(1, 2)),
    "unpacked": (lambda x: mb.stack(*x)[-1] * len(x), lambda x: x[-1] * 4),
    "permuted by a tuple": (lambda x: mb.permute(x, (2, 0, -2)), lambda x: x.transpose(2, 0, 1)),
    "flipped": (lambda x: mb.flip(x, 0, -1), lambda x: x[::-1, :, ::-1]),
    "full": (lambda x: x + mb.full((3, 1), 0.5), lambda x: x + 0.5),
    "x[..., -1]": (lambda x: x[..., -1], lambda x: x[..., -1]),
    "x[:, 1:, ::2]": (lambda x: x[:, 1:, ::2], lambda x: x[:, 1:, ::2]),
    "x[None, 2, :, None]": (lambda x: x[None, 2, :, None], lambda x: x[None, 2, :, None]),
    "permute": (lambda x: mb.permute(x, 2, 0, -2), lambda x: x.transpose(2, 0, 1)),
    "stack": (lambda x: mb.stack(x, x * 2, axis=-1), lambda x: np.stack([x, 2 * x], -1)),
    "split, swapped": (lambda x: mb.concat(*mb.split(x, (1, 2), 1)[::-1]), lambda x: x[:, [1, 2, 0]]),
    "sum": (mb.sum, lambda x: x.sum((1, 2))),
    "amax, kept": (lambda x: mb.amax(x, (0, 2), keepdim=True), lambda x: x.max((0, 2), keepdims=True)),
    "centred": (lambda x: x - mb.mean(x, -1, keepdim=True), lambda x: x - x.mean(-1, keepdims=True)),
    "x @ x^T": (lambda x: x @ mb.transpose(x), lambda x: x @ x.swapaxes(-1, -2)),
    "broadcast @": (lambda x: mb.matmul(x[:1], mb.transpose(x)), lambda x: x[:1] @ x.swapaxes(-1, -2)),
    "1 / (x^2 + 1)": (lambda x: 1 / (x**2 + 1), lambda x: 1 / (x**2 + 1)),
}
INTEGERS = {
    "x + x": (lambda x: x + x, lambda x: x.astype(float) + x),
    "1 - x": (lambda x: 1 - x, lambda x: 1.0 - x),
    "x / 2": (lambda x: x / 2, lambda x: x / 2),
    "x * floats": (lambda x: mb.cast(x) * 0.5 * x, lambda x: 0.5 * x.astype(float) * x),
    "x == 2": (lambda x: x == 2, lambda x: x == 2),
    "x != x": (lambda x: x != mb.flip(x, 2), lambda x: x != x[..., ::-1]),
    "x < floats": (lambda x: x < mb.cast(x) * 0.5 + 0.6, lambda x: x < 0.5 * x + 0.6),
    "x >= 1": (lambda x: x >= 1, lambda x: x >= 1),
    "sum": (mb.sum, lambda x: x.sum((1, 2), dtype=float)),
    "mean": (lambda x: mb.mean(x, 2), lambda x: x.mean(2)),
    "amax": (lambda x: mb.amax(x, -1), lambda x: x.max(-1)),
    "count": (lambda x: mb.sum(x > 0, (1, 2)), lambda x: (x > 0).sum((1, 2))),
    "concat": (lambda x: mb.concat(x, x, axis=-1), lambda x: np.concatenate([x, x], -1)),
    "concat with floats": (lambda x: mb.concat(x, 0.5 * x), lambda x: np.concatenate([x, 0.5 * x], 1)),
    "stack": (lambda x: mb.stack(x, x, axis=1), lambda x: np.stack([x, x], 1)),
    "split": (lambda x: mb.split(x, 2, 2)[2], lambda x: x[..., 4:]),
    "slice": (lambda x: x[1, ..., ::2], lambda x: x[1, ..., ::2]),
    "flatten": (mb.flatten, lambda x: x.reshape(4, 18)),
    "gather": (lambda x: mb.gather(x, 2, x), lambda x: np.take_along_axis(x, x.astype(int), 2)),
    "where": (lambda x: mb.where(x > 1, x, x[:1]), lambda x: np.where(x > 1, x, x[:1])),
    "embedding": (lambda x: mb.sum(mb.embedding(x, 3, 1, initial=mb.Constant(2.0))), lambda x: np.full(4, 36.0)),
}


def sets() -> list[KernelSet]:
    fast, _ = find_kernels("auto", "float32", None)
    return [NUMPY] if fast.name == NUMPY.name else [NUMPY, fast]


def computed(made: Callable[[Tensor], Tensor], x, kernels: KernelSet, dtype: str = "float32"):
    graph = Graph()
    kind = "float" if x.dtype.kind == "f" else x.dtype.name
    graph.output("y", made(graph.input("x", x.shape, kind)))
    return outcome(graph, {"x": x}, kernels, dtype, training=False)[1]["y"]


@pytest.mark.parametrize("case", FLOATS)
def test_floats(case):
    ours, theirs = FLOATS[case]
    np.testing.assert_allclose(computed(ours, X, NUMPY, "float64"), theirs(X), rtol=1e-12, atol=1e-14)
    check_operator(ours, X)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("case", INTEGERS)
def test_integers(case, dtype):
    """No set takes their bits for those of floats."""
    ours, theirs = INTEGERS[case]
    x = WHOLE.astype(dtype)
    for kernels in sets():
        np.testing.assert_allclose(computed(ours, x, kernels), theirs(x), rtol=1e-6, err_msg=kernels.name)


@pytest.mark.parametrize("case", ["concat", "stack", "split", "slice", "flatten", "gather", "where"])
def test_what_moves_integers_keeps_their_type(case):
    x = Graph().input("x", X.shape, "int32")
    assert INTEGERS[case][0](x).dtype == "int32"


def test_what_takes_floats_only_names_the_remedy():
    x = Graph().input("x", (2, 3), "int32")
    with refuses("softmax1 (softmax of x (2, 3)): takes floats, x is of int32; mb.cast(x) makes them", ShapeError):
        mb.softmax(x)


def test_cast_to_its_own_type_is_the_tensor():
    x = Graph().input("x", (2, 3))
    assert mb.cast(x) is x


@pytest.mark.parametrize("wrong", ["1", None, True, [1.0], 1j])
def test_what_is_no_operand(wrong):
    x = Graph().input("x", (2, 3))
    for sign in (lambda: x + wrong, lambda: wrong * x, lambda: x < wrong):
        with pytest.raises(TypeError, match=f"{type(wrong).__name__}: the other must be a tensor or a number"):
            sign()


def test_what_is_no_number_is_never_equal():
    x = Graph().input("x", (2, 3))
    assert (x == None) is False  # noqa: E711
    assert (x != "x") is True
    assert x not in [None, ...]
    with pytest.raises(TypeError, match="x == bool: the other must be a tensor or a number"):
        x == True  # noqa: B015, E712


def test_an_array_is_no_operand():
    """It would become an array of tensors."""
    x = Graph().input("x", (2, 3))
    for sign in (lambda: np.ones(3) * x, lambda: x + np.ones(3)):
        with pytest.raises(TypeError, match=r"x [*+] ndarray: the other must be a tensor or a number"):
            sign()


def test_there_is_no_truth_in_a_tensor():
    x = Graph().input("x", (2, 3))
    with refuses("compare1: a net's tensor has no truth value; choose by mb.where, compare objects by `is`", TypeError):
        bool(x > 0)
    assert {x: 1}[x] == 1
    with pytest.raises(TypeError, match="x: has no axes, so no length"):
        len(Graph().input("x", ()))


def test_division_by_zero():
    with pytest.raises(ShapeError, match="x / 0: the number must not be 0"):
        Graph().input("x", (2, 3)) / 0


@pytest.mark.parametrize("loss", ["mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy_with_logits"])
def test_a_loss_does_not_broadcast(loss):
    graph = Graph()
    x, target = graph.input("x", (4, 1)), graph.input("target", (4,))
    with refuses(f"{loss} of x (4, 1), target (4,): must have one shape; mb.reshape one of them", ShapeError):
        getattr(mb, loss)(x, target)


def test_split_has_the_right_gradients():
    check_operator(lambda x: mb.split(x, 2, axis=1), (2, 5))


@pytest.mark.parametrize(
    ("index", "fault"),
    [
        (4, "x (4, 3, 6): index 4 of axis 0 must be a slice or within it"),
        ("a", "x (4, 3, 6): index 'a' of axis 0 must be a slice or within it"),
        (slice(None, None, -1), "x (4, 3, 6): slices go forwards; mb.flip turns axis 0 round"),
        ((0, 0, 0, 0), "x (4, 3, 6): it has 3 axes, an index takes at most that many and one ..."),
    ],
)
def test_an_index_that_does_not_fit(index, fault):
    with refuses(fault, ShapeError):
        Graph().input("x", X.shape)[index]


def test_a_tensor_is_no_index():
    graph = Graph()
    with refuses("x (4, 3, 6): i is not an index; mb.gather and mb.embedding take tensors", ShapeError):
        graph.input("x", X.shape)[:, graph.input("i", (2,), "int32")]


def test_numpys_integers_are_indices():
    x = Graph().input("x", X.shape)
    assert x[np.int64(1), :, : np.int32(2)].shape == (3, 2)


@pytest.mark.parametrize("shape", [(5, -1), (-1, -1), (4, 3, 7), (0, -1)])
def test_a_shape_of_other_elements(shape):
    with refuses(f"reshape of x (4, 3, 6): {shape} must have as many elements, and at most one -1", ShapeError):
        mb.reshape(Graph().input("x", X.shape), shape)


def test_functions_and_methods_are_named_as_they_are_called():
    made = {key: each for key, each in vars(mb.ops).items() if isinstance(each, FunctionType)}
    assert {key: (each.__name__, each.__qualname__) for key, each in made.items()} == {key: (key, key) for key in made}
    assert {"eq", "ge", "gt", "le", "lt", "ne", "relu"} <= {*made}
    turned = {"__radd__": "__add__", "__rmul__": "__mul__"}
    methods = {key: each for key, each in vars(Infix).items() if isinstance(each, FunctionType)}
    for key, each in methods.items():
        own = turned.get(key, key)
        assert (each.__name__, each.__qualname__) == (own, f"Infix.{own}")
