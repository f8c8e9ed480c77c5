"""Layers, which own weights, as ATen calls them: convolutions, linear layers, norms, embeddings, recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from mpibow import ops
from mpibow.aten.program import BatchExtent
from mpibow.aten.shapes import reshape
from mpibow.aten.site import Function, Site, Value, need, refuse
from mpibow.aten.windows import Sizes, both, images, padded, sides_of
from mpibow.graph.graph import FLOAT, Op, Shape, Tensor
from mpibow.ops.applied import applied
from mpibow.ops.initialisers import ZERO


def held(
    site: Site,
    op: Op,
    x: Sequence[Tensor],
    weights: Mapping[str, Value | None],
    running: Mapping[str, Value] | None = None,
) -> list[Tensor]:
    """The outputs of a layer that owns its weights, or takes them as inputs: computed ones, and shared ones."""
    given = {key: each for key, each in weights.items() if each is not None}
    if site.owns(*given.values()):
        return [*site.layer(op, *x, **given, **(running or {}))]
    shapes = {key: each.shape for key, each in op.weights(*(each.shape for each in x)).items()}
    tensors = {key: reshape(site.floats(each), shapes[key]) for key, each in given.items()}
    made = applied(op)
    if running:
        return [*site.layer(made, *x, *tensors.values(), **running)]
    return [*x[0].graph.add_all(made, *x, *tensors.values())]


def convolution(
    site: Site,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    output_padding: Sizes | None = None,
) -> Tensor:
    """A convolution in two dimensions, or in one: an image of one row; transposed with an `output_padding`."""
    x, axes = site.floats(input), len(weight.shape) - 2
    kind = "a convolution" if output_padding is None else "a transposed convolution"
    need(axes in (1, 2), f"{kind} of {axes} dimensions; there are those of 1 and 2")
    kernel, step, apart = both(weight.shape[2:], axes), both(stride, axes), both(dilation, axes, 1)
    if isinstance(padding, str):
        sides = sides_of(padding, kernel, apart)
        around = sides[0][0], sides[1][0]
        if any(before != behind for before, behind in sides):
            x, around = padded(x, [n for side in reversed(sides[2 - axes :]) for n in side]), (0, 0)
    else:
        around = both(padding, axes, 0)
    settings = bias is not None, ZERO, int(groups), apart
    if output_padding is None:
        op: Op = ops.Conv2d(weight.shape[0], kernel, step, around, *settings)
    else:
        more = both(output_padding, axes, 0)
        op = ops.ConvTranspose2d(weight.shape[1] * groups, kernel, step, around, more, *settings)
    return images(x, axes, lambda x: held(site, op, [x], {"weight": weight, "bias": bias})[0])


def linear(site: Site, input: Value, weight: Value, bias: Value | None = None) -> Tensor:
    """A dense layer; a matrix product where the weight is shared or computed."""
    x = site.floats(input)
    if site.owns(weight, bias) and len(x.shape) > 1:
        op = ops.Dense(weight.shape[0], bias is not None, ZERO)
        return site.layer(op, x, weight=weight, bias=bias)[0]
    y = ops.matmul(x, ops.transpose(site.floats(weight)))
    return y if bias is None else y + site.floats(bias)


def batch_norm(
    site: Site,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    x = site.floats(input)
    channels = (x.shape[1], *(1 for _ in x.shape[2:]))
    if running_mean is None or running_var is None:
        axes = [axis for axis in range(len(x.shape)) if axis != 1]
        away = x - ops.mean(x, axes, keepdim=True)
        y = away / ops.sqrt(ops.mean(ops.power(away, 2.0), axes, keepdim=True) + eps)
        y = y if weight is None else y * reshape(site.floats(weight), channels)
        return y if bias is None else y + reshape(site.floats(bias), channels)
    op = ops.BatchNorm(eps, momentum, frozen=not training)
    factors = np.ones(x.shape[1]) if weight is None else weight
    shifts = np.zeros(x.shape[1]) if bias is None else bias
    running = {"mean": running_mean, "variance": running_var}
    return held(site, op, [x], {"weight": factors, "bias": shifts}, running)[0]


def _normed(
    site: Site,
    op: ops.GroupNorm | ops.LayerNorm | ops.RmsNorm,
    x: Tensor,
    normal: Callable[[], Tensor],
    shape: Shape,
    weight: Value | None,
    bias: Value | None = None,
) -> Tensor:
    """A norm as a layer that owns its weight and bias; else `normal`, times a weight and plus a bias of `shape`."""
    complete = weight is not None and (bias is not None or not op.centred)
    if complete and site.owns(weight, bias) and len(shape) < len(x.shape):
        return site.layer(op, x, weight=weight, bias=bias)[0]
    y = normal()
    y = y if weight is None else y * reshape(site.floats(weight), shape)
    return y if bias is None else y + reshape(site.floats(bias), shape)


def _over_root(x: Tensor, axes: int, eps: float) -> Tensor:
    """x divided by its root mean square over its last axes."""
    return x / ops.sqrt(ops.mean(ops.power(x, 2.0), range(-axes, 0), keepdim=True) + eps)


def _normal(x: Tensor, axes: int, eps: float) -> Tensor:
    """x with mean 0 and variance 1 over its last axes."""
    return _over_root(x - ops.mean(x, range(-axes, 0), keepdim=True), axes, eps)


def layer_norm(
    site: Site,
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Tensor:
    x, shape = site.floats(input), tuple(normalized_shape)
    op = ops.LayerNorm(len(shape), eps)
    return _normed(site, op, x, lambda: _normal(x, len(shape), eps), shape, weight, bias)


def rms_norm(
    site: Site, input: Value, normalized_shape: Sequence[int], weight: Value | None = None, eps: float | None = None
) -> Tensor:
    if eps is None:
        refuse("an RMS norm without eps, which then depends on the precision: give it one, as eps=1e-6")
    x, shape = site.floats(input), tuple(normalized_shape)
    return _normed(site, ops.RmsNorm(len(shape), eps), x, lambda: _over_root(x, len(shape), eps), shape, weight)


def group_norm(
    site: Site,
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Tensor:
    x = site.floats(input)
    n, channels, *rest = x.shape

    def normal() -> Tensor:
        return ops.reshape(_normal(ops.reshape(x, (n, num_groups, -1)), 1, eps), x.shape)

    shape = (channels, *(1 for _ in rest))
    return _normed(site, ops.GroupNorm(num_groups, eps), x, normal, shape, weight, bias)


def instance_norm(
    site: Site,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    need(running_mean is None and use_input_stats, "an instance norm with running statistics")
    return group_norm(site, input, input.shape[1], weight, bias, eps)


def dropout(site: Site, input: Value, p: float, train: bool) -> Tensor:
    """Dropout; a batch axis that is not the first is moved there and back."""
    x = site.floats(input)
    if not train or p == 0:
        return x
    need(p < 1, "p must be below 1")
    extents = [
        (axis, extent.times) for axis, extent in enumerate(site.call.shape or ()) if isinstance(extent, BatchExtent)
    ]
    need(bool(extents), "no axis of its output is the batch")
    axis, count = extents[0]
    order = [axis, *(each for each in range(len(x.shape)) if each != axis)]
    moved = ops.permute(x, *order) if axis else x
    y = reshape(ops.dropout(reshape(moved, (site.batch, *[count] * (count > 1), *moved.shape[1:])), p), moved.shape)
    return ops.permute(y, *(order.index(each) for each in range(len(order)))) if axis else y


def feature_dropout(site: Site, input: Value, p: float, train: bool) -> Tensor:
    """Dropout of whole channels."""
    x = site.floats(input)
    if not train or p == 0:
        return x
    ones = ops.full((*x.shape[:2], *(1 for _ in x.shape[2:])), 1.0)
    return x * dropout(site, ones, p, train)


def attention(
    site: Site,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    q, k, v = (site.floats(each) for each in (query, key, value))
    if enable_gqa and k.shape[-3] != q.shape[-3]:
        k, v = (_repeated(each, q.shape[-3]) for each in (k, v))
    front = np.broadcast_shapes(*(each.shape[:-2] for each in (q, k, v)))
    q, k, v = (ops.expand(each, (*front, *each.shape[-2:])) for each in (q, k, v))
    mask = None if attn_mask is None else site.tensor(attn_mask)
    if not dropout_p:
        return ops.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale)
    scores, hidden = ops.matmul(q, ops.transpose(k)) * (q.shape[-1] ** -0.5 if scale is None else scale), -1e30
    if mask is not None:
        scores = scores + mask if mask.dtype == FLOAT else ops.where(mask, scores, hidden)
    if is_causal:
        rows, columns = (ops.constant(np.arange(extent)) for extent in scores.shape[-2:])
        scores = ops.where(ops.le(columns, ops.reshape(rows, (-1, 1))), scores, hidden)
    if mask is not None:  # a row with all columns hidden gives 0: its scores must not all be -inf
        scores = ops.maximum(scores, ops.full(scores.shape, hidden))
    weights = ops.softmax(scores, -1)
    if mask is not None:
        weights = ops.where(ops.le(scores, hidden), 0.0, weights)
    return ops.matmul(dropout(site, weights, dropout_p, True), v)


def _repeated(x: Tensor, heads: int) -> Tensor:
    """Repeats each head, its copies side by side, until there are `heads` of them."""
    *front, few, t, d = x.shape
    each = ops.expand(ops.reshape(x, (*front, few, 1, t, d)), (*front, few, heads // few, t, d))
    return ops.reshape(each, (*front, heads, t, d))


def cross_entropy(
    site: Site,
    self: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Of logits (n, classes, ...) and labels; its mean is over the labels that are not ignored."""
    need(weight is None and len(target.shape) < len(self.shape), "cross-entropy of probabilities, or with weights")
    x, labels = site.floats(self), site.tensor(target)
    if len(x.shape) > 2:
        x = ops.permute(x, 0, *range(2, len(x.shape)), 1)
    rows, flat = ops.reshape(x, (-1, x.shape[-1])), ops.reshape(labels, (-1,))
    losses = ops.softmax_cross_entropy(rows, flat, smoothing=float(label_smoothing), ignore=ignore_index)
    if reduction == 0:
        return ops.reshape(losses, labels.shape)
    if reduction == 2:
        return ops.sum(losses, 0)
    batch = site.batch if losses.shape[0] % site.batch == 0 else losses.shape[0]
    counts = ops.label_count(ops.reshape(flat, (batch, -1)), ignore_index)
    return ops.mean(ops.counted_mean(ops.sum(ops.reshape(losses, (batch, -1)), 1), counts), 0)


OF_ANY: dict[str, Function] = {
    "batch_norm": batch_norm,
    "conv1d": convolution,
    "conv2d": convolution,
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
