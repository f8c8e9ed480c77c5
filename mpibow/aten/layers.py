"""Layers, which own weights, as ATen calls them: convolutions, linear layers, norms, embeddings, recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.aten.program import Batch
from mpibow.aten.shapes import rows
from mpibow.aten.site import Held, Site, number, shape_of
from mpibow.aten.windows import both, padded
from mpibow.graph.graph import FLOAT, Tensor
from mpibow.ops.initialisers import ZERO

SHARED = "its weights are read at {} places; mpibow's layer owns its weights: give each use its own"
COMPUTED = "its weights are computed, as by a weight norm; mpibow's layer owns its weights: remove the norm"


def _owned(site: Site, *held: Any) -> None:
    """Raises ConfigError where an operator can't own these parameters."""
    if not site.owns(*held):
        uses = max((each.uses for each in held if isinstance(each, Held)), default=0)
        site.refuse(SHARED.format(uses) if uses > 1 else COMPUTED)


def convolution(
    site: Site, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Any:  # fmt: skip
    """A convolution in two dimensions, or in one: an image of one row."""
    _owned(site, weight, bias)
    x, axes = site.floats(input), len(weight.shape) - 2
    site.need(axes in (1, 2), f"a convolution of {axes} dimensions; there are those of 1 and 2")
    site.need(len(x.shape) == axes + 2, f"input {x.shape} has no batch axis")
    kernel, step, apart = both(weight.shape[2:], axes), both(stride, axes), both(dilation, axes, 1)
    if isinstance(padding, str):
        reach = [a * (k - 1) for a, k in zip(apart, kernel, strict=True)] if padding == "same" else [0, 0]
        if any(each % 2 for each in reach):
            sides = [(each // 2, each - each // 2) for each in reach][2 - axes :]
            x, reach = padded(site, x, [n for side in reversed(sides) for n in side], 0.0), [0, 0]
        around = (reach[0] // 2, reach[1] // 2)
    else:
        around = both(padding, axes, 0)
    wide = x if axes == 2 else ops.reshape(x, (*x.shape[:2], 1, x.shape[2]))
    op = ops.Conv2d(weight.shape[0], kernel, step, around, bias is not None, ZERO, int(groups), apart)
    (y,) = site.layer(op, wide, weight=weight, bias=bias)
    return y if axes == 2 else ops.reshape(y, (*y.shape[:2], y.shape[3]))


def convolution_transposed(
    site: Site, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    _owned(site, weight, bias)
    x, axes = site.floats(input), len(weight.shape) - 2
    site.need(axes in (1, 2), f"a transposed convolution of {axes} dimensions; there are those of 1 and 2")
    wide = x if axes == 2 else ops.reshape(x, (*x.shape[:2], 1, x.shape[2]))
    kernel, step = both(weight.shape[2:], axes), both(stride, axes)
    around, more, apart = both(padding, axes, 0), both(output_padding, axes, 0), both(dilation, axes, 1)
    channels = weight.shape[1] * groups
    op = ops.ConvTranspose2d(channels, kernel, step, around, more, bias is not None, ZERO, int(groups), apart)
    (y,) = site.layer(op, wide, weight=weight, bias=bias)
    return y if axes == 2 else ops.reshape(y, (*y.shape[:2], y.shape[3]))


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
    momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    x = site.floats(input)
    if weight is None or bias is None:
        site.refuse("a batch norm without weight and bias (affine=False)")
    if running_mean is None or running_var is None:
        site.refuse("a batch norm without running statistics (track_running_stats=False)")
    _owned(site, weight, bias)
    op = ops.BatchNorm(eps, momentum, frozen=not training)
    return site.layer(op, x, weight=weight, bias=bias, mean=running_mean, variance=running_var)[0]


def _scaled(site: Site, x: Tensor, weight: Any, bias: Any) -> Tensor:
    """x times a weight, plus a bias, of the shape of its last axes."""
    x = x if weight is None else x * site.floats(weight)
    return x if bias is None else x + site.floats(bias)


def layer_norm(
    site: Site, input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    x, axes = site.floats(input), len(normalized_shape)
    if weight is not None and bias is not None and site.owns(weight, bias) and axes < len(x.shape):
        return site.layer(ops.LayerNorm(axes, eps), x, weight=weight, bias=bias)[0]
    return _scaled(site, _normal(x, axes, eps), weight, bias)


def _normal(x: Tensor, axes: int, eps: float) -> Tensor:
    """x with mean 0 and variance 1 over its last axes."""
    last = list(range(-axes, 0))
    apart = x - ops.mean(x, last, keepdim=True)
    return apart / ops.sqrt(ops.mean(ops.power(apart, 2.0), last, keepdim=True) + eps)


def rms_norm(site: Site, input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: Any = None) -> Any:
    x, axes = site.floats(input), len(normalized_shape)
    if eps is None:
        site.refuse("an RMS norm without eps, which then depends on the precision: give it one, as eps=1e-6")
    if weight is not None and site.owns(weight) and axes < len(x.shape):
        return site.layer(ops.RmsNorm(axes, eps), x, weight=weight)[0]
    last = list(range(-axes, 0))
    return _scaled(site, x / ops.sqrt(ops.mean(ops.power(x, 2.0), last, keepdim=True) + eps), weight, None)


def group_norm(
    site: Site, input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    x = site.floats(input)
    if weight is not None and bias is not None and site.owns(weight, bias):
        return site.layer(ops.GroupNorm(num_groups, eps), x, weight=weight, bias=bias)[0]
    n, channels, *rest = x.shape
    y = ops.reshape(_normal(ops.reshape(x, (n, num_groups, -1)), 1, eps), x.shape)
    along = (channels, *(1 for _ in rest))
    held = (None if each is None else ops.reshape(site.floats(each), along) for each in (weight, bias))
    return _scaled(site, y, *held)


def instance_norm(
    site: Site, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool,
    momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    site.need(running_mean is None and use_input_stats, "an instance norm with running statistics")
    return group_norm(site, input, shape_of(input)[1], weight, bias, eps)


def embedding(
    site: Site, weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:  # fmt: skip
    site.need(not scale_grad_by_freq, "scale_grad_by_freq: gradients are not scaled by frequency here")
    if isinstance(weight, Held) and not len(shape_of(indices)):
        site.refuse("the indices must have an axis")
    if not site.owns(weight) or not isinstance(indices, Tensor):
        found = rows(site, site.tensor(weight), indices)
    else:
        (found,) = site.layer(ops.Embedding(weight.shape[0], weight.shape[1], ZERO), indices, weight=weight)
    if padding_idx < 0:
        return found
    site.need(isinstance(weight, Held) and not weight.array[padding_idx].any(), "the row of padding_idx must be 0")
    padding = ops.eq(site.tensor(indices), float(padding_idx))
    return ops.where(ops.reshape(padding, (*padding.shape, 1)), 0.0, found)


def dropout(site: Site, input: Any, p: float, train: bool) -> Any:
    """Dropout; a batch axis that is not the first is moved there and back."""
    x = site.floats(input)
    if not train or p == 0:
        return x
    site.need(p < 1, "p must be below 1")
    extents = [(axis, extent.times) for axis, extent in enumerate(site.call.shape or ()) if isinstance(extent, Batch)]
    if not extents:
        site.refuse("no axis of its output is the batch")
    axis, count = extents[0]
    order = [axis, *(each for each in range(len(x.shape)) if each != axis)]
    moved = ops.permute(x, *order) if axis else x
    parts = moved if count == 1 else ops.reshape(moved, (site.batch, count, *moved.shape[1:]))
    y = ops.reshape(ops.dropout(parts, float(p)), moved.shape) if count > 1 else ops.dropout(parts, float(p))
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


def lstm(
    site: Site, input: Any, hx: Sequence[Any], params: Sequence[Any], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    settings = (has_biases, num_layers, dropout if train else 0.0, bidirectional, batch_first)
    return _recurrent(site, ops.Lstm, input, list(hx), params, *settings)


def gru(
    site: Site, input: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    settings = (has_biases, num_layers, dropout if train else 0.0, bidirectional, batch_first)
    return _recurrent(site, ops.Gru, input, [hx], params, *settings)


KEYS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _recurrent(
    site: Site, kind: Any, input: Any, states: list[Any], params: Sequence[Any], biases: bool, layers: int,
    rate: float, both_ways: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """All layers and directions, each an operator with its four weights; their last states are stacked."""
    site.need(biases, "a recurrent layer without biases (bias=False)")
    site.need(len(params) == 4 * layers * (1 + both_ways), "a recurrent layer with projections (proj_size)")
    _owned(site, *params)
    x = site.floats(input)
    x = x if batch_first else ops.transpose(x, 0, 1)
    given = [] if all(number(state) == 0 for state in states) else site.tensors(states)
    last = list[Sequence[Tensor]]()
    for layer in range(layers):
        made = list[Tensor]()
        for reverse in range(1 + both_ways):
            n = layer * (1 + both_ways) + reverse
            held = dict(zip(KEYS, params[4 * n : 4 * n + 4], strict=True))
            op = kind(held["weight_hh"].shape[1], ZERO, bool(given))
            y, *ends = site.layer(op, ops.flip(x, 1) if reverse else x, *(state[n] for state in given), **held)
            made.append(ops.flip(y, 1) if reverse else y)
            last.append(ends)
        x = ops.concat(*made, axis=2) if both_ways else made[0]
        if rate and layer < layers - 1:
            x = ops.dropout(x, rate)
    whole = x if batch_first else ops.transpose(x, 0, 1)
    return [whole, *(ops.stack(*each) for each in zip(*last, strict=True))]
