"""The losses of PyTorch's names against PyTorch's in float64: the batch's mean, and its gradient."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ShapeError
from mpibow.graph import Graph, Tensor
from mpibow.kernels import NUMPY
from mpibow.ops.counted import counts_of
from tests.kernels.cases import Bench, Case
from tests.oracle import pytorch
from tests.outcome import outcome
from tests.refusals import refuses

RANDOM = np.random.default_rng(4)
LABELS = RANDOM.integers(0, 3, (4, 2, 5)).astype(np.int32)


def run(loss: Callable[[Tensor, Tensor], Tensor], x, target) -> tuple:
    """The mean over the batch, and its gradient by x."""
    graph = Graph()
    kind = "float" if target.dtype.kind == "f" else target.dtype.name
    y = loss(mb.parameter(x.shape, initial=lambda *_: x), graph.input("target", target.shape, kind))
    assert y.shape == x.shape[:1]
    graph.output("loss", y)
    _, found = outcome(graph, {"target": target})
    return float(found["loss"].mean()), found["d parameter1.weight"]


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 3, 2)])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy_with_logits"])
def test_it_is_pytorchs(name, shape):
    torch = pytorch()
    x, target = RANDOM.standard_normal(shape), RANDOM.uniform(size=shape)
    close(torch, run(getattr(mb, name), x, target), getattr(torch.nn.functional, name), x, torch.from_numpy(target))


SHAPES = [((4, 3, 2, 5), 1), ((4, 2, 3, 5), 2), ((4, 2, 5, 3), -1), ((4, 3), 1), ((4, 3, 2), 1)]


@pytest.mark.torch
@pytest.mark.parametrize("weight", [None, (0.5, 2.0, 1.5)])
@pytest.mark.parametrize("ignore", [-100, 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_cross_entropy_is_pytorchs(shape, axis, smoothing, ignore, weight: Sequence[float] | None):
    """The mean is over labels that are not ignored, or their weights."""
    torch = pytorch()
    x = RANDOM.standard_normal(shape)
    rest = tuple(n for i, n in enumerate(shape) if i != axis % len(shape))
    label = RANDOM.integers(0, 3, rest).astype(np.int32)
    label.flat[:3] = ignore, ignore, 0
    settings = {"ignore_index": ignore, "label_smoothing": smoothing}
    found = run(lambda x, label: mb.cross_entropy(x, label, axis=axis, weight=weight, **settings), x, label)

    def oracle(x, label):
        given = None if weight is None else torch.tensor(weight, dtype=torch.float64)
        return torch.nn.functional.cross_entropy(x.movedim(axis, 1), label.long(), weight=given, **settings)

    close(torch, found, oracle, x, torch.from_numpy(label))


@pytest.mark.torch
def test_cross_entropy_of_probabilities_is_pytorchs():
    torch = pytorch()
    x, target = RANDOM.standard_normal((4, 3, 5)), RANDOM.dirichlet(np.ones(3), (4, 5)).swapaxes(1, 2)
    found = run(lambda x, target: mb.cross_entropy(x, target, label_smoothing=0.1), x, np.ascontiguousarray(target))

    def oracle(x, target):
        return torch.nn.functional.cross_entropy(x, target, label_smoothing=0.1)

    close(torch, found, oracle, x, torch.from_numpy(target))


def close(torch, found: tuple, oracle: Callable, x, target) -> None:
    w = torch.from_numpy(x.copy()).requires_grad_()
    expected = oracle(w, target)
    expected.backward()
    np.testing.assert_allclose(found[0], expected.item(), rtol=1e-10)
    np.testing.assert_allclose(found[1], w.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_labels_of_floats_are_refused():
    with pytest.raises(ShapeError, match="labels must be integers, target is of floats"):
        run(mb.softmax_cross_entropy, RANDOM.standard_normal((4, 3)), np.zeros(4))


def test_what_is_ignored_has_no_loss_and_no_gradient():
    label = LABELS.copy()
    label[1], label[2, 0] = -100, -100
    x = RANDOM.standard_normal((4, 3, 2, 5))
    loss, slope = run(mb.cross_entropy, x, label)
    assert not slope[1].any()
    assert not slope[2, :, 0].any()
    assert slope[2, :, 1].all()
    whole = np.log(np.exp(x).sum(1)) - np.take_along_axis(x, np.maximum(label, 0)[:, None], 1)[:, 0]
    assert loss == pytest.approx((whole * (label >= 0)).sum() / (label >= 0).sum())


def test_where_all_is_ignored_there_is_no_gradient():
    """PyTorch's is NaN, which would spoil a learner whose batch happens to have none."""
    loss, slope = run(mb.cross_entropy, RANDOM.standard_normal((4, 3, 2, 5)), np.full_like(LABELS, -100))
    assert loss == 0
    assert not slope.any()


@pytest.mark.parametrize("weight", [None, (1.0, 1.0, 1.0)])
@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_label_that_is_no_class_gives_nan(wrong, weight: Sequence[float] | None):
    """Without weights other samples keep their gradients."""
    label = np.array([0, wrong, 2, 1], np.int32)
    loss, slope = run(lambda x, label: mb.cross_entropy(x, label, weight=weight), np.zeros((4, 3)), label)
    assert np.isnan([loss, *slope[1]]).all()
    assert weight or np.isfinite(slope[[0, 2, 3]]).all()


@pytest.mark.parametrize("weight", [None, (1.0, 2.0, 1.0)])
def test_a_class_that_is_masked_out_costs_nothing(weight: Sequence[float] | None):
    """Its logit is minus infinity: as in PyTorch, a loss of other classes stays finite."""
    x = np.zeros((2, 3))
    x[:, 1] = -np.inf
    loss, slope = run(lambda x, label: mb.cross_entropy(x, label, weight=weight), x, np.array([0, 2], np.int32))
    assert loss == pytest.approx(np.log(2))
    np.testing.assert_allclose(slope, [[-0.25, 0, 0.25], [0.25, 0, -0.25]], atol=1e-15)


@pytest.mark.parametrize("weight", [(1.0, 2.0), (1.0, -1.0, 1.0), (1.0, np.nan, 1.0)])
def test_weights_that_are_none(weight: Sequence[float]):
    graph = Graph()
    x, label = graph.input("x", (4, 3)), graph.input("label", (4,), "int32")
    with refuses(
        "cross_entropy of x (4, 3), label (4,): weight must be 3 numbers, one a class, for integer labels, "
        f"got {weight}",
        ShapeError,
    ):
        mb.cross_entropy(x, label, weight=weight)


@pytest.mark.parametrize("training", [False, True])
def test_a_counted_mean(training):
    """The batch's sum over its count in training; each sample's in evaluation, 0 where nothing counts."""
    bench = Bench(Case(mb.CountedMean(), ((4,),) * 2), NUMPY.operators[mb.CountedMean], "float64", training=training)
    bench.x[0][:], bench.x[1][:] = [3.0, 0.0, 2.0, 4.0], [2.0, 0.0, 1.0, 5.0]
    expected = np.array([3.0, 0.0, 2.0, 4.0]) / 2 if training else [1.5, 0.0, 2.0, 0.8]
    np.testing.assert_allclose(bench.forward(), expected, rtol=1e-15)


def test_the_counts_of_a_loss():
    graph = Graph()
    x, label = graph.input("x", (4, 3)), graph.input("label", (4,), "int32")
    loss = mb.cross_entropy(x, label)
    counts = counts_of(loss)
    assert counts.name == "label_count1"
    assert counts_of(0.5 * loss) is counts
    assert counts_of(loss + mb.mean(x)) is None
    assert counts_of(mb.softmax_cross_entropy(x, label)) is None


def test_labels_of_another_shape():
    graph = Graph()
    x, label = graph.input("x", (4, 3, 2)), graph.input("label", (4, 3), "int32")
    with refuses(
        "cross_entropy of x (4, 3, 2), label (4, 3): labels must have the logits' shape but for axis 1, the classes, "
        "which is not the batch",
        ShapeError,
    ):
        mb.cross_entropy(x, label)
