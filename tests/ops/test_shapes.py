"""The operators' shapes and names, and what they refuse, in full."""

import numpy as np
import pytest

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import Graph, Tensor
from mpibow.ops.reshape import View
from mpibow.ops.wide import WideDropout
from tests.outcome import outcome
from tests.refusals import refuses


def image(graph: Graph) -> Tensor:
    return graph.input("image", (2, 6, 7, 8))


def vector(graph: Graph, batch: int = 2) -> Tensor:
    return graph.input(f"x{batch}", (batch, 3))


def label(graph: Graph) -> Tensor:
    return graph.input("label", (2,), "int32")


SHAPES = {
    "concat along the last axis": (lambda g, x: ops.concat(x, x, axis=-1), "concat1", (2, 6, 7, 16)),
    "padded channels": (lambda g, x: ops.pad_channels(x, 9), "pad_channels1", (2, 9, 7, 8)),
    "augment": (lambda g, x: ops.augment(x, pad=6), "augment1", (2, 6, 7, 8)),
    "augment to a crop": (lambda g, x: ops.augment(x, crop=(3, 8), flip=True), "augment1", (2, 6, 3, 8)),
    "centre crop": (lambda g, x: ops.centre_crop(x, (7, 2)), "centre_crop1", (2, 6, 7, 2)),
    "cutout": (lambda g, x: ops.cutout(x, 9), "cutout1", (2, 6, 7, 8)),
    "conv in groups": (lambda g, x: ops.conv2d(x, 4, 3, groups=2), "conv1", (2, 4, 5, 6)),
    "dilated conv": (lambda g, x: ops.conv2d(x, 1, 3, dilation=(3, 2)), "conv1", (2, 1, 1, 4)),
    "max pool": (lambda g, x: ops.max_pool2d(x, 3, stride=2, padding=1), "max_pool1", (2, 6, 4, 4)),
    "max pool, ceil": (lambda g, x: ops.max_pool2d(x, 3, stride=2, ceil=True), "max_pool1", (2, 6, 3, 4)),
    "avg pool": (lambda g, x: ops.avg_pool2d(x, (2, 3), padding=(1, 0)), "avg_pool1", (2, 6, 4, 2)),
    "a last window that would start in the padding": (
        lambda g, x: ops.avg_pool2d(x, 2, stride=4, padding=1, ceil=True),
        "avg_pool1",
        (2, 6, 2, 3),
    ),
    "adaptive pool": (lambda g, x: ops.adaptive_avg_pool2d(x, (9, 3)), "adaptive_avg_pool1", (2, 6, 9, 3)),
    "adaptive pool to a square": (lambda g, x: ops.adaptive_avg_pool2d(x, 6), "adaptive_avg_pool1", (2, 6, 6, 6)),
    "global pool": (lambda g, x: ops.global_avg_pool2d(x), "global_avg_pool1", (2, 6)),
    "top 3 of 3": (lambda g, x: ops.accuracy(vector(g), label(g), 3), "accuracy1", (2,)),
}


@pytest.mark.parametrize("case", SHAPES)
def test_name_and_shape(case):
    make, name, shape = SHAPES[case]
    graph = Graph()
    tensor = make(graph, image(graph))
    assert (tensor.name, tensor.shape) == (name, shape)


ERRORS = {
    "add of different shapes": (
        lambda g, x: ops.add(vector(g), vector(g), vector(g, 3)),
        "add1 (add of x2 (2, 3), x2 (2, 3), x3 (3, 3)): all inputs must have one shape",
    ),
    "too few coefficients": (
        lambda g, x: ops.add(x, x, x, coefficients=[1.0, 2.0]),
        "add1 (add of image (2, 6, 7, 8), image (2, 6, 7, 8), image (2, 6, 7, 8)): "
        "coefficients must be one finite number an input, got (1.0, 2.0)",
    ),
    "add of one": (
        lambda g, x: ops.Add((1.0,))(x),
        "add1 (add of image (2, 6, 7, 8)): there must be 1 inputs, as many as the operator has, and at least 2, got 1",
    ),
    "maximum of more than it says": (
        lambda g, x: ops.Maximum(2)(x, x, x),
        "maximum1 (maximum of image (2, 6, 7, 8), image (2, 6, 7, 8), image (2, 6, 7, 8)): "
        "there must be 2 inputs, as many as the operator has, and at least 2, got 3",
    ),
    "concat of different batches": (
        lambda g, x: ops.concat(vector(g), vector(g, 3)),
        "concat1 (concat of x2 (2, 3), x3 (3, 3)): all inputs must have one shape but for axis 1",
    ),
    "concat along what is not there": (
        lambda g, x: ops.concat(vector(g), vector(g), axis=2),
        "axis 2 must be one of the 2 of x2 (2, 3)",
    ),
    "fewer channels than there are": (
        lambda g, x: ops.pad_channels(x, 5),
        "pad_channels1 (pad_channels of image (2, 6, 7, 8)): channels must be at least the 6 of the input, got 5",
    ),
    "augmenting what is no image": (
        lambda g, x: ops.augment(vector(g), pad=1, crop=(2, 2)),
        "augment1 (augment of x2 (2, 3), counter (2, 4)): input must be (batch, channels, height, width)",
    ),
    "padding as large as the crop": (
        lambda g, x: ops.augment(x, pad=3, crop=(3, 5)),
        "augment1 (augment of image (2, 6, 7, 8), counter (2, 4)): "
        "pad must be at least 0 and below the crop (3, 5), got 3",
    ),
    "a crop that is too large": (
        lambda g, x: ops.centre_crop(x, (7, 9)),
        "centre_crop1 (centre_crop of image (2, 6, 7, 8)): crop (7, 9) must be at least 1 and at most the image's 7x8",
    ),
    "cutting out nothing": (
        lambda g, x: ops.cutout(x, 0),
        "cutout1 (cutout of image (2, 6, 7, 8), counter (2, 4)): length must be at least 1, got 0",
    ),
    "a brightness below 0": (
        lambda g, x: ops.jitter(x, brightness=-0.1),
        "jitter1 (jitter of image (2, 6, 7, 8), counter (2, 4)): brightness must be at least 0, got -0.1",
    ),
    "saturation of six channels": (
        lambda g, x: ops.jitter(x, saturation=0.4),
        "jitter1 (jitter of image (2, 6, 7, 8), counter (2, 4)): saturation is of 3 channels, got 6",
    ),
    "shares of no counter": (
        lambda g, x: ops.mix_shares(vector(g), 0.2),
        "mix_shares1 (mix_shares of x2 (2, 3)): the counter must be (batch, 4)",
    ),
    "shares of a beta distribution that is none": (
        lambda g, x: ops.mix_shares(g.input("counter", (2, 4), "uint32"), 0.0),
        "mix_shares1 (mix_shares of counter (2, 4)): alpha must be above 0, got 0.0",
    ),
    "shares of another batch": (
        lambda g, x: ops.mix(x, vector(g)),
        "mix1 (mix of image (2, 6, 7, 8), x2 (2, 3)): shares must be (batch,)",
    ),
    "one hot of images": (
        lambda g, x: ops.one_hot(vector(g), 4),
        "one_hot1 (one_hot of x2 (2, 3)): labels must be (batch,)",
    ),
    "groups that do not divide the input": (
        lambda g, x: ops.conv2d(x, 8, 3, groups=4),
        "conv1 (conv of image (2, 6, 7, 8)): "
        "groups must divide the 6 channels of the input and the 8 of the output, got 4",
    ),
    "dilation 0": (
        lambda g, x: ops.conv2d(x, 8, 3, dilation=0),
        "conv1 (conv of image (2, 6, 7, 8)): dilation (0, 0) must be at least 1",
    ),
    "more padding than half a window": (
        lambda g, x: ops.max_pool2d(x, 3, padding=(1, 2)),
        "max_pool1 (max_pool of image (2, 6, 7, 8)): padding (1, 2) must be at most half of kernel (3, 3)",
    ),
    "adaptive pool to nothing": (
        lambda g, x: ops.adaptive_avg_pool2d(x, 0),
        "adaptive_avg_pool1 (adaptive_avg_pool of image (2, 6, 7, 8)): size (0, 0) must be at least 1",
    ),
    "a slope below 0": (
        lambda g, x: ops.leaky_relu(x, -0.1),
        "leaky_relu1 (leaky_relu of image (2, 6, 7, 8)): slope must be at least 0, got -0.1",
    ),
    "a ceiling of 0": (
        lambda g, x: ops.clipped_relu(x, 0.0),
        "clipped_relu1 (clipped_relu of image (2, 6, 7, 8)): ceiling must be above 0, got 0.0",
    ),
    "no neighbours": (
        lambda g, x: ops.local_response_norm(x, 0),
        "local_response_norm1 (local_response_norm of image (2, 6, 7, 8)): size must be at least 1, got 0",
    ),
    "k of 0": (
        lambda g, x: ops.local_response_norm(x, k=0.0),
        "local_response_norm1 (local_response_norm of image (2, 6, 7, 8)): "
        "alpha and beta must be at least 0 and k above 0, got alpha 0.0001, beta 0.75, k 0.0",
    ),
    "local response of what has no channels": (
        lambda g, x: ops.local_response_norm(label(g)),
        "local_response_norm1 (local_response_norm of label (2,)): input must be (batch, channels, ...)",
    ),
    "layer norm over the batch": (
        lambda g, x: ops.layer_norm(vector(g), 2),
        "layer_norm1 (layer_norm of x2 (2, 3)): axes must be between 1 and 1, all but the batch, got 2",
    ),
    "layer norm with epsilon 0": (
        lambda g, x: ops.layer_norm(x, epsilon=0.0),
        "layer_norm1 (layer_norm of image (2, 6, 7, 8)): epsilon must be above 0, got 0.0",
    ),
    "softmax along what is not there": (
        lambda g, x: ops.softmax(vector(g), -3),
        "axis -3 must be one of the 2 of x2 (2, 3)",
    ),
    "smoothing 1": (
        lambda g, x: ops.softmax_cross_entropy(vector(g), label(g), smoothing=1.0),
        "softmax_cross_entropy1 (softmax_cross_entropy of x2 (2, 3), label (2,)): smoothing must be in [0, 1), got 1.0",
    ),
    "soft targets that are labels": (
        lambda g, x: ops.soft_cross_entropy(vector(g), label(g)),
        "soft_cross_entropy1 (soft_cross_entropy of x2 (2, 3), label (2,)): "
        "logits and targets must both be (batch, classes)",
    ),
    "more guesses than classes": (
        lambda g, x: ops.accuracy(vector(g), label(g), 4),
        "accuracy1 (accuracy of x2 (2, 3), label (2,)): k must be between 1 and the number of classes, got 4",
    ),
    "ratings for fewer": (
        lambda g, x: ops.matrix_factorisation(label(g), label(g), g.input("rating", (1,)), users=3, items=3, factors=2),
        "matrix_factorisation1 (matrix_factorisation of label (2,), label (2,), rating (1,)): "
        "users, items and ratings must be (batch,)",
    ),
    "batch norm that may divide by zero": (
        lambda g, x: ops.batch_norm(x, epsilon=0.0),
        "batch_norm of image: epsilon must be above 0 and momentum in (0, 1], got 0.0 and 0.1",
    ),
    "a view of more than there is": (
        lambda g, x: View((2, 4))(vector(g)),
        "view1 (view of x2 (2, 3)): (2, 4) must have as many elements as the input",
    ),
    "dropout of two replicas with one's counters": (
        lambda g, x: WideDropout(0.5, replicas=2)(x, g.input("counter", (2, 4), "uint32")),
        "wide_dropout1 (wide_dropout of image (2, 6, 7, 8), counter (2, 4)): the counters must be (batch, 8)",
    ),
    "sums along what is not there": (
        lambda g, x: ops.cumsum(vector(g), 2),
        "axis 2 must be one of the 2 of x2 (2, 3)",
    ),
    "an order along what is not there": (
        lambda g, x: ops.argsort(vector(g), -3),
        "axis -3 must be one of the 2 of x2 (2, 3)",
    ),
    "places along what is not there": (
        lambda g, x: ops.scatter_add(vector(g), 4, g.input("i", (2, 3), "int32"), (2, 3)),
        "axis 4 must be one of the 2 of x2 (2, 3)",
    ),
    "places of floats": (
        lambda g, x: ops.gather(vector(g), 1, vector(g)),
        "x2: positions must be integers, it is of floats",
    ),
    "integers beyond int32": (
        lambda g, x: ops.constant([0, 2**31]),
        "constant: integers must fit int32, got 0 to 2147483648",
    ),
    "a number for a tensor": (
        lambda g, x: ops.maximum(vector(g), 0.0),
        "maximum1: takes tensors, got 0.0; mb.constant makes one of numbers",
    ),
    "a tensor for an exponent": (
        lambda g, x: x**x,
        "power of image: the exponent must be a number; x**y is mb.exp(y * mb.log(x))",
    ),
    "dropout of what is no batch": (
        lambda g, x: ops.dropout(vector(g, 3)),
        "dropout of x3 (3, 3): the first axis must be the 2 samples of a batch",
    ),
    "a number for a start": (
        lambda g, x: ops.dense(vector(g), 5, initial=0),
        "initial: must be a function, such as mb.Constant(0), got 0",
    ),
    "an axis behind a list": (
        lambda g, x: ops.concat([vector(g)], 1),
        "concat, stack: take tensors or a list of them, and axis by its name, got [Tensor(name='x2', shape=(2, 3), "
        "dtype='float'), 1]",
    ),
    "no tensors": (
        lambda g, x: ops.stack([]),
        "concat, stack: take tensors or a list of them, and axis by its name, got []",
    ),
    "no factors": (
        lambda g, x: ops.matrix_factorisation(label(g), label(g), label(g), users=3, items=3, factors=0),
        "matrix_factorisation1 (matrix_factorisation of label (2,), label (2,), label (2,)): "
        "3 users, 3 items, 0 factors: each must be at least 1",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_error(case):
    make, message = ERRORS[case]
    graph = Graph()
    with refuses(message, ShapeError):
        make(graph, image(graph))


def test_weights_of_groups_and_tables_and_their_fans():
    graph = Graph()
    ops.conv2d(image(graph), 4, (3, 2), groups=2)
    ops.matrix_factorisation(label(graph), label(graph), graph.input("r", (2,)), users=3, items=4, factors=5)
    ops.layer_norm(image(graph), 2)
    conv, tables, norm = (node.weights for node in graph.nodes)
    assert [(w.shape, w.fan_in, w.fan_out) for w in conv.values()] == [((4, 3, 3, 2), 18, 24), ((4,), 18, 24)]
    assert [(key, w.shape, w.decay) for key, w in tables.items()] == [("user", (3, 5), True), ("item", (4, 5), True)]
    assert [(key, w.shape, w.decay) for key, w in norm.items()] == [("weight", (7, 8), False), ("bias", (7, 8), False)]


def test_tensors_in_a_list():
    graph = Graph()
    assert ops.concat([vector(graph), vector(graph)]).shape == (2, 6)
    assert ops.stack([vector(graph), vector(graph)], axis=1).shape == (2, 2, 3)


def test_dropout_of_several_rows_a_sample_draws_each():
    graph = Graph()
    x = graph.input("x", (2, 8, 4))
    y = graph.output("y", ops.dropout(ops.reshape(x + ops.parameter(4), (16, 4)), 0.5))
    graph.output("loss", ops.sum(ops.reshape(y, (2, 32)), 1))
    counter = np.array([[1, 0, sample, 0] for sample in range(2)], np.uint32)
    kept = outcome(graph, {"x": np.ones((2, 8, 4)), "counter": counter}, training=True)[0].outputs["y"]
    assert len(np.unique(kept, axis=0)) > 8
