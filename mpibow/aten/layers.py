"""Layers, which own weights, as ATen calls them: convolutions, linear layers, norms, embeddings, recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.aten.program import Batch
from mpibow.aten.shapes import reshape, rows
from mpibow.aten.site import Function, Held, Site, need, number, refuse, shape_of
from mpibow.aten.windows import both, images, padded
from mpibow.graph.graph import FLOAT, Op, Shape, Tensor
from mpibow.ops.initialisers import ZERO
from mpibow.ops.norms import Norm
from mpibow.ops.recurrent import KEYS, layered

SHARED = "its weights are read at {} places; mpibow's layer owns its weights: give each use its own"
COMPUTED = "its weights are computed, as by a weight norm; mpibow's layer owns its weights: remove the norm"


def _owned(site: Site, *held: Any) -> None:
    """Raises ConfigError where an operator can't own these parameters."""
    if not site.owns(*held):
        uses = max((each.uses for each in held if isinstance(each, Held)), default=0)
        refuse(SHARED.format(uses) if uses > 1 else COMPUTED)


def convolution(
    site: Site, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, output_padding: Any = None,
) -> Tensor:  # fmt: skip
    """A convolution in two dimensions, or in one: an image of one row; transposed with an `output_padding`."""
    _owned(site, weight, bias)
    x, axes, transposed = site.floats(input), len(weight.shape) - 2, output_padding is not None
    kind = "a transposed convolution" if transposed else "a convolution"
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
    settings: dict[str, Any] = {"bias": bias is not None, "initial": ZERO, "groups": int(groups), "dilation": apart}
    if transposed:
        more = both(output_padding, axes, 0)
        op: Op = ops.ConvTranspose2d(weight.shape[1] * groups, kernel, step, around, more, **settings)
    else:
        op = ops.Conv2d(weight.shape[0], kernel, step, around, **settings)
    return images(x, axes, lambda x: site.layer(op, x, weight=weight, bias=bias)[0])


def convolution_transposed(site: Site, output_padding: Any = 0, **arguments: Any) -> Tensor:
    return convolution(site, output_padding=output_padding, **arguments)


def linear(site: Site, input: Any, weight: Any, bias: Any = None) -> Any:
    """A dense layer; a matrix product where the weight is shared or computed."""
    x = site.floats(input)
    if site.owns(weight, bias) and len(x.shape) > 1:
        op = ops.Dense(weight.shape[0], bias is not None, ZERO)
        return site.layer(op, x, weight=weight, bias=bias)[0]
    y = ops.matmul(x, ops.transpose(site.floats(weight)))
    return y if bias is None else y + site.floats(bias)


def batch_norm(
    site: Site, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool,
    momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    need(weight is not None and bias is not None, "a batch norm without weight and bias (affine=False)")
    kept = running_mean is not None and running_var is not None
    need(kept, "a batch norm without running statistics (track_running_stats=False)")
    _owned(site, weight, bias)
    op = ops.BatchNorm(eps, momentum, frozen=not training)
    return site.layer(op, site.floats(input), weight=weight, bias=bias, mean=running_mean, variance=running_var)[0]


def _normed(
    site: Site, op: Norm, x: Tensor, normal: Callable[[], Tensor], shape: Shape, weight: Any, bias: Any = None
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
    site: Site, input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    x, shape = site.floats(input), tuple(normalized_shape)
    op = ops.LayerNorm(len(shape), eps)
    return _normed(site, op, x, lambda: _normal(x, len(shape), eps), shape, weight, bias)


def rms_norm(site: Site, input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: Any = None) -> Tensor:
    need(eps is not None, "an RMS norm without eps, which then depends on the precision: give it one, as eps=1e-6")
    x, shape = site.floats(input), tuple(normalized_shape)
    return _normed(site, ops.RmsNorm(len(shape), eps), x, lambda: _over_root(x, len(shape), eps), shape, weight)


def group_norm(
    site: Site, input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    x = site.floats(input)
    n, channels, *rest = x.shape

    def normal() -> Tensor:
        return ops.reshape(_normal(ops.reshape(x, (n, num_groups, -1)), 1, eps), x.shape)

    shape = (channels, *(1 for _ in rest))
    return _normed(site, ops.GroupNorm(num_groups, eps), x, normal, shape, weight, bias)


def instance_norm(
    site: Site, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool,
    momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    need(running_mean is None and use_input_stats, "an instance norm with running statistics")
    return group_norm(site, input, shape_of(input)[1], weight, bias, eps)


def embedding(
    site: Site, weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False,
) -> Any:  # fmt: skip
    need(not scale_grad_by_freq, "scale_grad_by_freq: gradients are not scaled by frequency here")
    need(bool(shape_of(indices)) or not isinstance(weight, Held), "the indices must have an axis")
    if not site.owns(weight) or not isinstance(indices, Tensor):
        found = rows(site, site.tensor(weight), indices)
    else:
        (found,) = site.layer(ops.Embedding(weight.shape[0], weight.shape[1], ZERO), indices, weight=weight)
    if padding_idx < 0:
        return found
    need(isinstance(weight, Held) and not weight.array[padding_idx].any(), "the row of padding_idx must be 0")
    padding = ops.eq(site.tensor(indices), float(padding_idx))
    return ops.where(ops.reshape(padding, (*padding.shape, 1)), 0.0, found)


def dropout(site: Site, input: Any, p: float, train: bool) -> Any:
    """Dropout; a batch axis that is not the first is moved there and back."""
    x = site.floats(input)
    if not train or p == 0:
        return x
    need(p < 1, "p must be below 1")
    extents = [(axis, extent.times) for axis, extent in enumerate(site.call.shape or ()) if isinstance(extent, Batch)]
    need(bool(extents), "no axis of its output is the batch")
    axis, count = extents[0]
    order = [axis, *(each for each in range(len(x.shape)) if each != axis)]
    moved = ops.permute(x, *order) if axis else x
    y = reshape(ops.dropout(reshape(moved, (site.batch, *[count] * (count > 1), *moved.shape[1:])), p), moved.shape)
    return ops.permute(y, *(order.index(each) for each in range(len(order)))) if axis else y


def feature_dropout(site: Site, input: Any, p: float, train: bool) -> Any:
    """Dropout of whole channels."""
    x = site.floats(input)
    if not train or p == 0:
        return x
    ones = ops.full((*x.shape[:2], *(1 for _ in x.shape[2:])), 1.0)
    return x * dropout(site, ones, p, train)


def attention(
    site: Site, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
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
    site: Site, input: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> list[Tensor]:  # fmt: skip
    """All layers and directions, each an operator with its four weights; their last states are stacked."""
    need(has_biases, "a recurrent layer without biases (bias=False)")
    need(len(params) == 4 * num_layers * (1 + bidirectional), "a recurrent layer with projections (proj_size)")
    _owned(site, *params)
    kind, states = (ops.Lstm, list(hx)) if site.call.operator == "lstm" else (ops.Gru, [hx])
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
    "conv_transpose1d": convolution_transposed,
    "conv_transpose2d": convolution_transposed,
    "dropout": dropout,
    "embedding": embedding,
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
