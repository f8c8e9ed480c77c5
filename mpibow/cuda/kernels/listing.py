"""Which cuDNN graphs an operator needs, and all that a model's graph does: pure functions of shapes and precision."""

import math

from mpibow.errors import ShapeError
from mpibow.graph import Graph, Shape, Shapes
from mpibow.graph.rewrite import fuse
from mpibow.ops import BatchNorm, Conv2d, Dense
from mpibow.ops.fused import ConvNormAddRelu, ConvRelu, NormAddRelu, with_norm, with_relu

from .operands import SIZES, Precision
from .specs import (
    ConvData,
    ConvForward,
    ConvGeometry,
    ConvWeights,
    CudnnSpecs,
    NormBackward,
    NormForward,
    NormInference,
    Product,
    ReluBackward,
    Spec,
)

FROZEN = "device cuda has no gradients of a frozen batch norm: set device=onednn, or device=numpy"
VECTOR = 16  # bytes: cuDNN norms channels in vectors of that, and has no engine for channels that do not fill them


def rewrite(graph: Graph, training: bool) -> Graph:
    """`graph` with each chain of nodes that one graph of cuDNN computes replaced by one node."""
    return fuse(graph, (with_relu,) if training else (with_norm, with_relu), longest=4)


def convolution(op: Conv2d | ConvRelu | ConvNormAddRelu, shapes: Shapes, precision: Precision) -> CudnnSpecs:
    """forward, and in training: relu (dy through relu, and the bias's gradient) where it needs that, weights, data."""
    conv = op if isinstance(op, Conv2d) else op.conv
    w = (conv.channels, shapes.x[0][1] // conv.groups, *conv.kernel)
    window = ConvGeometry(shapes.x[0], w, shapes.y, conv.stride, conv.padding, conv.dilation)
    if isinstance(op, ConvNormAddRelu):
        return {"forward": ConvForward(window, precision, conv.bias, op.norm.epsilon, op.added, op.relu)}
    relu = isinstance(op, ConvRelu)
    found: CudnnSpecs = {"forward": ConvForward(window, precision, conv.bias, relu=relu)}
    if shapes.training:
        if relu or conv.bias:
            found["relu"] = ReluBackward(shapes.y, precision, relu, conv.bias)
        found["weights"] = ConvWeights(window, precision)
        if shapes.wanted:
            found["data"] = ConvData(window, precision)
    return found


def norm(op: BatchNorm | NormAddRelu, shapes: Shapes, precision: Precision) -> CudnnSpecs:
    """forward, and backward in training.

    Raises ShapeError where cuDNN has no engine for that number of channels, for gradients of a norm that is frozen, and
    in training for a norm of a rank.
    """
    parts, added = (op.norm, op.added) if isinstance(op, NormAddRelu) else (op, False)
    relu, shape = isinstance(op, NormAddRelu), shapes.y
    if len(shape) != 4:
        shape = (*shape[:2], math.prod(shape[2:]), 1)  # positions are all one to a norm
    if parts.frozen and shapes.wanted:
        raise ShapeError(FROZEN)
    if parts.frozen or not shapes.training:
        return {"forward": NormInference(shape, precision, parts.epsilon, relu, added)}
    if parts.sync == "rank":
        raise ShapeError("device cuda has no kernel for training with sync='rank': set device=onednn, or device=numpy")
    vector = VECTOR // SIZES[precision.io]
    if shape[1] % vector:
        raise ShapeError(
            f"cuDNN's batch norm needs a multiple of {vector} channels in {precision.name}, got {shape[1]}: "
            "change the layer's channels"
        )
    return {
        "forward": NormForward(shape, precision, parts.epsilon, parts.momentum, relu, added),
        "backward": NormBackward(shape, precision, relu, added),
    }


def dense(op: Dense, shapes: Shapes, precision: Precision) -> CudnnSpecs:
    """forward, and in training weights, data, and relu where there is a bias: the sum of dy over all rows.

    Products have no engine without tensor cores, so that exact float32 goes by a convolution of one pixel. dw of a
    product is float32, whatever the precision. Replicas of a wide layer are one product, or groups.
    """
    k, io, units, *front = getattr(op, "replicas", 1), precision.io, op.units, *shapes.x[0][:-1]
    n, features = math.prod(front), shapes.x[0][-1] // k
    x = (n, k * features, 1, 1)
    y = (n, k * units, 1, 1)
    w = (k * units, features, 1, 1)
    found: CudnnSpecs
    if precision.tensor_cores:
        of_x, of_y = (features, k * features, 1), (units, k * units, 1)
        of_w = (features * units, features, 1)
        bias = (units, units, 1) if op.bias else None
        found = {"forward": Product(k, n, features, units, of_x, turned(of_w), of_y, io, precision, bias)}
        weights: Spec = Product(k, units, n, features, turned(of_y), of_x, of_w, "float32", precision)
        data: Spec = Product(k, n, units, features, of_y, of_w, of_x, io, precision)
    else:
        pixel = ConvGeometry(x, w, y, (1, 1), (0, 0), (1, 1))
        found = {"forward": ConvForward(pixel, precision, op.bias)}
        weights = ConvWeights(pixel, precision)
        data = ConvData(pixel, precision)
    if shapes.training:
        found |= {"relu": ReluBackward(y, precision, relu=False, sums=True)} if op.bias else {}
        found |= {"weights": weights} | ({"data": data} if shapes.wanted else {})
    return found


def turned(strides: Shape) -> Shape:
    """Strides of the transposed matrices."""
    return (strides[0], strides[2], strides[1])
