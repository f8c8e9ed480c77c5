"""Layers, which own weights, as ATen calls them: convolutions, linear layers, norms, embeddings, recurrent layers."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from mpibow import ops
from mpibow.graph import FLOAT, Op, Shape, Tensor
from mpibow.ops.applied import applied
from mpibow.ops.initialisers import ZERO
from mpibow.ops.integers import integer_reduction
from mpibow.ops.losses import rows_of

from .program import BatchExtent
from .shapes import Axes, reshape, unsqueeze
from .site import Function, Site, Value, combined, need, refuse
from .windows import both, by_axis, images, neighbours, padded

Weight = Value | None  # None for one that is left out


def held(
    site: Site, op: Op, x: Sequence[Tensor], weights: Mapping[str, Weight], running: Mapping[str, Value] | None = None
) -> list[Tensor]:
    """The outputs of a layer that owns its weights, or takes them as inputs: computed ones, and shared ones."""
    given = {key: each for key, each in weights.items() if each is not None}
    if site.owns(*given.values()):
        return [*site.layer(op, *x, **given, **(running or {}))]
    shapes = op.weights(*(each.shape for each in x))
    tensors = [reshape(site.floats(each), shapes[key].shape) for key, each in given.items()]
    return [*site.layer(applied(op), *x, *tensors, **(running or {}))]


def convolution(
    site: Site,
    input: Value,
    weight: Value,
    bias: Weight = None,
    stride: Axes = 1,
    padding: Axes | str = 0,
    dilation: Axes = 1,
    groups: int = 1,
    output_padding: Axes | None = None,
) -> Tensor:
    """Of images, or of volumes: images whose channels are those of neighbouring frames. Transposed with the last."""
    x = site.floats(input)
    units, inputs, *extents = weight.shape
    axes = len(weight.shape) - 2
    kernel, step, apart = (both(each, axes) for each in (extents, stride, dilation))
    if isinstance(padding, str):
        reach = [a * (k - 1) * (padding == "same") for a, k in zip(by_axis(dilation, axes), extents, strict=True)]
        sides = [(n // 2, n - n // 2) for n in reach]
    else:
        sides = [(n, n) for n in by_axis(padding, axes)]
    if axes == 3 or any(before != behind for before, behind in sides):
        x = padded(x, [n for side in reversed(sides) for n in side])
        sides = [(0, 0)] * axes
    if axes == 3:
        frames = neighbours(x, extents, stride, 0, dilation)
        x = ops.reshape(combined(partial(ops.stack, axis=2), frames), (x.shape[0], -1, *frames[0].shape[2:]))
        weight = site.floats(weight)
    around = both([before for before, _ in sides], axes, 0)
    settings = kernel, step, around, bias is not None, ZERO, groups, apart
    if output_padding is None:
        op: Op = ops.Conv2d(units, *settings)
    else:
        op = ops.ConvTranspose2d(inputs * groups, *settings, output_padding=both(output_padding, axes, 0))
    return images(x, axes, lambda x: held(site, op, [x], {"weight": weight, "bias": bias})[0])


def linear(site: Site, input: Value, weight: Value, bias: Weight = None) -> Tensor:
    """A dense layer; a matrix product where the weight is shared or computed."""
    x = site.floats(input)
    if site.owns(weight, bias) and x.ndim > 1:
        return site.layer(ops.Dense(weight.shape[0], bias is not None, ZERO), x, weight=weight, bias=bias)[0]
    y = ops.matmul(x, ops.transpose(site.floats(weight)))
    return y if bias is None else y + site.floats(bias)


def batch_norm(
    site: Site,
    input: Value,
    weight: Weight,
    bias: Weight,
    running_mean: Weight,
    running_var: Weight,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    x = site.floats(input)
    if running_mean is None or running_var is None:
        y = normal(x, [axis for axis in range(x.ndim) if axis != 1], eps)
        return scaled(site, y, channels(x), weight, bias)
    op = ops.BatchNorm(eps, momentum, frozen=not training)
    factors = np.ones(x.shape[1]) if weight is None else weight
    shifts = np.zeros(x.shape[1]) if bias is None else bias
    running = {"mean": running_mean, "variance": running_var}
    return held(site, op, [x], {"weight": factors, "bias": shifts}, running)[0]


def channels(x: Value) -> Shape:
    """The shape of a number for each channel."""
    return x.shape[1], *(1 for _ in x.shape[2:])


def normal(x: Tensor, axes: Sequence[int], eps: float, centred: bool = True) -> Tensor:
    """x with mean 0 and variance 1 over axes; divided by its root mean square alone where not `centred`."""
    y = x - ops.mean(x, axes, keepdim=True) if centred else x
    return y / ops.sqrt(ops.mean(ops.power(y, 2.0), axes, keepdim=True) + eps)


def scaled(site: Site, y: Tensor, shape: Shape, weight: Weight, bias: Weight) -> Tensor:
    """y times a weight and plus a bias of `shape`."""
    y = y if weight is None else y * reshape(site.floats(weight), shape)
    return y if bias is None else y + reshape(site.floats(bias), shape)


def normed(
    site: Site,
    op: ops.GroupNorm | ops.LayerNorm | ops.RmsNorm,
    input: Value,
    shape: Shape,
    weight: Weight,
    bias: Weight,
) -> Tensor:
    """A norm that owns a weight and a bias of `shape`; else its rows by its formula, scaled."""
    x = site.floats(input)
    complete = weight is not None and (bias is not None or not op.centred)
    if complete and site.owns(weight, bias) and len(shape) < x.ndim:
        return site.layer(op, x, weight=weight, bias=bias)[0]
    y = normal(ops.reshape(x, (op.extents(x.shape).rows, -1)), [-1], op.epsilon, op.centred)
    return scaled(site, reshape(y, x.shape), shape, weight, bias)


def layer_norm(
    site: Site,
    input: Value,
    normalized_shape: Sequence[int],
    weight: Weight = None,
    bias: Weight = None,
    eps: float = 1e-5,
) -> Tensor:
    shape = tuple(normalized_shape)
    return normed(site, ops.LayerNorm(len(shape), eps), input, shape, weight, bias)


def rms_norm(
    site: Site, input: Value, normalized_shape: Sequence[int], weight: Weight = None, eps: float | None = None
) -> Tensor:
    if eps is None:
        refuse("an RMS norm without eps, which then depends on the precision: give it one, as eps=1e-6")
    shape = tuple(normalized_shape)
    return normed(site, ops.RmsNorm(len(shape), eps), input, shape, weight, None)


def group_norm(
    site: Site, input: Value, num_groups: int, weight: Weight = None, bias: Weight = None, eps: float = 1e-5
) -> Tensor:
    return normed(site, ops.GroupNorm(num_groups, eps), input, channels(input), weight, bias)


def instance_norm(
    site: Site,
    input: Value,
    weight: Weight,
    bias: Weight,
    running_mean: Weight,
    use_input_stats: bool,
    eps: float,
    **_: object,
) -> Tensor:
    need(running_mean is None and use_input_stats, "an instance norm with running statistics")
    return group_norm(site, input, input.shape[1], weight, bias, eps)


def dropout(site: Site, input: Value, p: float, train: bool) -> Tensor:
    """Dropout; a batch axis that is not the first is moved there and back."""
    x = site.floats(input)
    if not train or p == 0:
        return x
    need(p < 1, "p must be below 1")
    axes = [axis for axis, extent in enumerate(site.call.shape or ()) if isinstance(extent, BatchExtent)]
    need(bool(axes), "no axis of its output is the batch")
    order = [axes[0], *(each for each in range(x.ndim) if each != axes[0])]
    moved = ops.permute(x, *order) if axes[0] else x
    times = () if moved.shape[0] == site.batch else (-1,)
    y = reshape(ops.dropout(reshape(moved, (site.batch, *times, *moved.shape[1:])), p), moved.shape)
    return ops.permute(y, *map(order.index, range(len(order)))) if axes[0] else y


def feature_dropout(site: Site, input: Value, p: float, train: bool) -> Tensor:
    """Dropout of whole channels."""
    x = site.floats(input)
    if not train or p == 0:
        return x
    return x * dropout(site, ops.full((x.shape[0], *channels(x)), 1.0), p, train)


def attention(
    site: Site,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Weight = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    q, k, v = map(site.floats, (query, key, value))
    if enable_gqa and k.shape[-3] != q.shape[-3]:
        count = q.shape[-3] // k.shape[-3]  # copies of each head, side by side
        k, v = (ops.expand(unsqueeze(x, -3), (*x.shape[:-2], count, *x.shape[-2:])) for x in (k, v))
        k, v = (ops.reshape(x, (*x.shape[:-4], -1, *x.shape[-2:])) for x in (k, v))
    front = np.broadcast_shapes(*(each.shape[:-2] for each in (q, k, v)))
    q, k, v = (ops.expand(each, (*front, *each.shape[-2:])) for each in (q, k, v))
    mask = None if attn_mask is None else site.tensor(attn_mask)
    if not dropout_p:
        return ops.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale)
    scores = ops.matmul(q, ops.transpose(k)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        rows, columns = (ops.constant(np.arange(extent)) for extent in scores.shape[-2:])
        scores = ops.where(ops.le(columns, ops.reshape(rows, (-1, 1))), scores, -1e30)
    some = None
    if mask is not None:  # a row with all columns hidden, by False or -inf, gives 0: its scores must not all be -inf
        seen = mask if mask.dtype != FLOAT else ops.ge(mask, float(np.finfo("float32").min))
        some = integer_reduction(seen, "|", -1, keepdim=True)
        scores = scores + ops.where(some, mask, 0.0) if mask.dtype == FLOAT else ops.where(mask, scores, -1e30)
    y = ops.matmul(dropout(site, ops.softmax(scores, -1), dropout_p, True), v)
    return y if some is None else ops.where(some, y, 0.0)


def cross_entropy(
    site: Site,
    self: Value,
    target: Value,
    weight: Weight = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Of logits (n, classes, ...) and labels; its mean is over the labels that are not ignored."""
    need(weight is None and len(target.shape) < len(self.shape), "cross-entropy of probabilities, or with weights")
    x = site.floats(self)
    rows = rows_of(x, min(1, x.ndim - 1))
    labels = site.tensor(target)
    flat = ops.reshape(labels, (-1,))
    losses = ops.softmax_cross_entropy(rows, flat, smoothing=float(label_smoothing), ignore=ignore_index)
    if reduction == 0:
        return ops.reshape(losses, labels.shape)
    if reduction == 2:
        return ops.sum(losses, 0)
    batch = site.batch if losses.shape[0] % site.batch == 0 else losses.shape[0]
    counts = ops.label_count(ops.reshape(flat, (batch, -1)), ignore_index)
    return ops.mean(ops.CountedMean(whole=True)(ops.sum(ops.reshape(losses, (batch, -1)), 1), counts), 0)


OPERATORS: dict[str, Function] = {
    "batch_norm": batch_norm,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d"), partial(convolution, output_padding=0)),
    "cross_entropy_loss": cross_entropy,
    "dropout": dropout,
    "feature_dropout": feature_dropout,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "layer_norm": layer_norm,
    "linear": linear,
    "rms_norm": rms_norm,
    "scaled_dot_product_attention": attention,
}
