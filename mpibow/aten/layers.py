"""Layers, which own weights, as ATen calls them: convolutions, linear layers, norms, embeddings, recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from mpibow import ops
from mpibow.aten.program import BatchExtent
from mpibow.aten.shapes import reshape
from mpibow.aten.site import Function, ModuleArray, Result, Site, Value, need, number, refuse
from mpibow.aten.windows import Sizes, both, images, padded
from mpibow.graph.graph import FLOAT, Op, Shape, Tensor
from mpibow.ops.initialisers import ZERO
from mpibow.ops.norms import Norm
from mpibow.ops.recurrent import KEYS, layered

SHARED = "its weights are read at {} places; mpibow's layer owns its weights: give each use its own"
COMPUTED = "its weights are computed, as by a weight norm; mpibow's layer owns its weights: remove the norm"


def _owned(site: Site, *held: Value | None) -> None:
    """Raises ConfigError where an operator can't own these parameters."""
    if not site.owns(*held):
        uses = max((each.uses for each in held if isinstance(each, ModuleArray)), default=0)
        refuse(SHARED.format(uses) if uses > 1 else COMPUTED)


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
    _owned(site, weight, bias)
    x, axes = site.floats(input), len(weight.shape) - 2
    kind = "a convolution" if output_padding is None else "a transposed convolution"
    need(axes in (1, 2), f"{kind} of {axes} dimensions; there are those of 1 and 2")
    kernel, step, apart = both(weight.shape[2:], axes), both(stride, axes), both(dilation, axes, 1)
    if isinstance(padding, str):
        reach = [a * (k - 1) for a, k in zip(apart, kernel, strict=True)] if padding == "same" else [0, 0]
        if any(each % 2 for each in reach):
            sides = [(each // 2, each - each // 2) for each in reach][2 - axes :]
            x, reach = padded(x, [n for side in reversed(sides) for n in side]), [0, 0]
        around = (reach[0] // 2, reach[1] // 2)
    else:
        around = both(padding, axes, 0)
    settings = bias is not None, ZERO, int(groups), apart
    if output_padding is None:
        op: Op = ops.Conv2d(weight.shape[0], kernel, step, around, *settings)
    else:
        more = both(output_padding, axes, 0)
        op = ops.ConvTranspose2d(weight.shape[1] * groups, kernel, step, around, more, *settings)
    return images(x, axes, lambda x: site.layer(op, x, weight=weight, bias=bias)[0])


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
    need(weight is not None and bias is not None, "a batch norm without weight and bias (affine=False)")
    kept = running_mean is not None and running_var is not None
    need(kept, "a batch norm without running statistics (track_running_stats=False)")
    _owned(site, weight, bias)
    op = ops.BatchNorm(eps, momentum, frozen=not training)
    return site.layer(op, site.floats(input), weight=weight, bias=bias, mean=running_mean, variance=running_var)[0]


def _normed(
    site: Site,
    op: Norm,
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


def recurrent(
    site: Site,
    input: Value,
    hx: Value | list[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Result:
    """All layers and directions, each an operator with its four weights; their last states are stacked."""
    need(has_biases, "a recurrent layer without biases (bias=False)")
    need(len(params) == 4 * num_layers * (1 + bidirectional), "a recurrent layer with projections (proj_size)")
    _owned(site, *params)
    kind = ops.Lstm if site.call.operator == "lstm" else ops.Gru
    states = hx if isinstance(hx, list) else [hx]
    given = [] if all(number(state) == 0 for state in states) else site.tensors(states)

    def add(n: int, *inputs: Tensor) -> Sequence[Tensor]:
        held = dict(zip(KEYS, params[4 * n : 4 * n + 4], strict=True))
        return site.layer(kind(held["weight_hh"].shape[1], ZERO, bool(given)), *inputs, **held)

    def turned(x: Tensor) -> Tensor:
        return x if batch_first else ops.transpose(x, 0, 1)

    rate = dropout if train else 0.0
    y, last = layered(add, turned(site.floats(input)), given, num_layers, bidirectional, rate)
    return [turned(y), *last]


OF_ANY: dict[str, Function] = {
    "batch_norm": batch_norm,
    "conv1d": convolution,
    "conv2d": convolution,
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d"), partial(convolution, output_padding=0)),
    "dropout": dropout,
    "feature_dropout": feature_dropout,
    "group_norm": group_norm,
    "gru": recurrent,
    "instance_norm": instance_norm,
    "layer_norm": layer_norm,
    "linear": linear,
    "lstm": recurrent,
    "rms_norm": rms_norm,
    "scaled_dot_product_attention": attention,
}
