"""ONNX's layers: convolutions, products, norms, pooling, resizing and recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.aten import OPERATORS
from mpibow.aten.program import BatchExtent
from mpibow.aten.site import ModuleArray, Result, Value, need, number
from mpibow.graph.graph import Shape, Tensor
from mpibow.onnx.nodes import NodeSite, Translation, constant, single

Sides = Sequence[tuple[int, int]]  # the padding in front of each axis behind the channels, and behind it


def _windows(
    site: NodeSite, extents: Shape, kernel: Sequence[int], most: int | None = None
) -> tuple[dict[str, list[int]], Sides]:
    """ATen's settings of windows, and the padding to add before where it is not alike or not at `most` a share."""
    count, mode = len(kernel), site.get("auto_pad", "NOTSET")
    step, apart = (list(site.get(name, [1] * count)) for name in ("strides", "dilations"))
    pads = site.get("pads", [0, 0] * count)
    sides: Sides = list(zip(pads[:count], pads[count:], strict=True))
    if mode.startswith("SAME"):
        reach = [gap * (window - 1) + 1 for gap, window in zip(apart, kernel, strict=True)]
        ends = [(-(-extent // by) - 1) * by - extent for extent, by in zip(extents, step, strict=True)]
        sides = [_halves(max(end + window, 0), mode) for end, window in zip(ends, reach, strict=True)]
    limits = [window // most if most else front for window, (front, _) in zip(kernel, sides, strict=True)]
    alike = all(front == behind <= limit for (front, behind), limit in zip(sides, limits, strict=True))
    padding = [front if alike else 0 for front, _ in sides]
    return {"stride": step, "dilation": apart, "padding": padding}, [] if alike else sides


def _halves(total: int, mode: str) -> tuple[int, int]:
    less, more = total // 2, total - total // 2
    return (less, more) if mode == "SAME_UPPER" else (more, less)


def _padded(site: NodeSite, x: Value, sides: Sides, value: float = 0.0) -> Value:
    pads = [n for side in reversed(sides) for n in side]
    return site.aten("constant_pad_nd", self=x, pad=pads, value=value) if pads else x


def convolution(site: NodeSite, x: Value, weight: Value, bias: Value | None = None) -> Tensor:
    kernel = weight.shape[2:]
    settings, sides = _windows(site, x.shape[2:], kernel)
    given = {"input": _padded(site, x, sides), "weight": weight, "bias": bias, "groups": site.get("group", 1)}
    return site.aten(f"conv{len(kernel)}d", **given, **settings)


def transposed_convolution(site: NodeSite, x: Value, weight: Value, bias: Value | None = None) -> Tensor:
    kernel, mode = weight.shape[2:], site.get("auto_pad", "NOTSET")
    settings, sides = _windows(site, x.shape[2:], kernel)
    need(not sides and mode in ("NOTSET", "VALID") and not site.get("output_shape", ()), "padding that is not alike")
    given = {"input": x, "weight": weight, "bias": bias, "groups": site.get("group", 1)}
    more = site.get("output_padding", [0] * len(kernel))
    return site.aten(f"conv_transpose{len(kernel)}d", output_padding=more, **given, **settings)


def product(site: NodeSite, x: Value, weight: Value, bias: Value | None = None) -> Tensor:
    """Gemm; a dense layer where it is one."""
    scale, share = site.get("alpha", 1.0), site.get("beta", 1.0)
    first, second = site.get("transA", 0), site.get("transB", 0)
    if (first, second, scale, share) == (0, 1, 1, 1) and (bias is None or bias.shape == weight.shape[:1]):
        return site.aten("linear", input=x, weight=weight, bias=bias)
    a, b = site.floats(x), site.floats(weight)
    y = ops.matmul(ops.transpose(a) if first else a, ops.transpose(b) if second else b) * scale
    return y if bias is None else y + site.floats(bias) * share


def pool(name: str, site: NodeSite, x: Value) -> Tensor:
    """Max or average pooling; padding of which the mean of a window is not aware is added to ones as well."""
    kernel: list[int] = site.get("kernel_shape", [])
    settings, sides = _windows(site, x.shape[2:], kernel, 2)
    known: dict[str, Any] = {"kernel_size": kernel, "ceil_mode": bool(site.get("ceil_mode", 0)), **settings}
    operator = f"{name}_pool{len(kernel)}d"
    if name == "max":
        return site.aten(operator, self=_padded(site, x, sides, float("-inf")), **known)
    need(set(known.pop("dilation")) == {1}, "averages of windows with dilation")
    counted = bool(site.get("count_include_pad", 0)) or not any([*known["padding"], *sides])
    y = site.aten(operator, self=_padded(site, x, sides), count_include_pad=counted, **known)
    if counted or not sides:
        return y
    return y / site.aten(operator, self=_padded(site, ops.full(x.shape, 1.0), sides), **known)


def pool_all(function: Callable[..., Tensor]) -> Translation:
    def translate(site: NodeSite, x: Value) -> Tensor:
        return function(site.floats(x), range(2, len(x.shape)), keepdim=True)

    return translate


def batch_norm(site: NodeSite, x: Value, weight: Value, bias: Value, mean: Value, variance: Value) -> Tensor:
    need(not site.get("training_mode", 0), "training_mode=1: export the model for inference, it is trained here anyway")
    need(isinstance(mean, ModuleArray) and isinstance(variance, ModuleArray), "its statistics must be initialisers")
    held = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": variance}
    momentum, eps = round(1.0 - site.get("momentum", 0.9), 7), site.get("epsilon", 1e-5)
    return site.aten("batch_norm", input=x, training=True, momentum=momentum, eps=eps, **held)


def group_norm(site: NodeSite, x: Value, weight: Value, bias: Value) -> Tensor:
    """Also InstanceNormalization, which has a group a channel."""
    groups, eps = site.get("num_groups", x.shape[1]), site.get("epsilon", 1e-5)
    return site.aten("group_norm", input=x, num_groups=groups, weight=weight, bias=bias, eps=eps)


def last_axes_norm(name: str, site: NodeSite, x: Value, weight: Value, *bias: Value | None) -> Tensor:
    shape, eps = x.shape[site.get("axis", -1) % len(x.shape) :], site.get("epsilon", 1e-5)
    held = {"weight": weight, **({"bias": bias[0]} if bias else {})}
    return site.aten(name, input=x, normalized_shape=shape, eps=eps, **held)


def local_response_norm(site: NodeSite, x: Value) -> Tensor:
    size = site.get("size", 1)
    need(size % 2 == 1, f"size must be odd, got {size}")
    alpha, beta, k = site.get("alpha", 1e-4), site.get("beta", 0.75), site.get("bias", 1.0)
    return ops.local_response_norm(site.floats(x), size, alpha=alpha, beta=beta, k=k)


def dropout(site: NodeSite, x: Value, ratio: Value | None = None, training: Value | None = None) -> Tensor:
    need(training is None or not single(training, "training_mode"), "training_mode is true: export for inference")
    rate = 0.5 if ratio is None else single(ratio, "the ratio")
    need(x.shape[0] % site.batch == 0, "its first axis must be the batch")
    site.call = replace(site.call, shape=(BatchExtent(x.shape[0] // site.batch),))
    return site.aten("dropout", input=x, p=rate, train=True)


def resize(
    site: NodeSite, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
) -> Tensor:
    """Any interpolation is a product with a matrix along each axis, which ONNX's own definition gives."""
    for key, usual in (("coordinate_transformation_mode", "half_pixel"), ("keep_aspect_ratio_policy", "stretch")):
        need((mode := site.get(key, usual)) not in ("tf_crop_and_resize", "not_larger", "not_smaller"), f"{key}={mode}")
    axes = [axis % len(x.shape) for axis in site.get("axes", range(len(x.shape)))]
    scaled = scales is not None and constant(scales).size > 0
    numbers = constant(scales if scaled else sizes)
    y = site.floats(x)
    for number_of_axis, axis in enumerate(axes):
        extent, other, shape = x.shape[axis], 0 if axis else 1, [1] * len(x.shape)
        if numbers[number_of_axis] == (1 if scaled else extent):
            continue
        shape[axis] = shape[other] = extent
        alone = np.array([1 if scaled else shape[each] for each in axes], numbers.dtype)
        alone[number_of_axis] = numbers[number_of_axis]
        parts = (None, alone) if scaled else (None, None, alone)
        (image,) = site.node.fold(np.eye(extent).reshape(shape), *parts)
        matrix = ops.constant(np.moveaxis(image, (other, axis), (0, 1)).reshape(extent, -1))
        y = ops.transpose(ops.matmul(ops.transpose(y, axis, -1), matrix), axis, -1)
    return y


GATES = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2)}  # of PyTorch's gates, the numbers in ONNX
ACTIVATIONS = {"lstm": ["Sigmoid", "Tanh", "Tanh"], "gru": ["Sigmoid", "Tanh"]}


def recurrent(
    kind: str, site: NodeSite, x: Value, weight: Value, inner: Value, bias: Value | None = None,
    lengths: Value | None = None, *states: Value | None,
) -> Result:  # fmt: skip
    """A recurrent layer of one or both directions; its weights' gates are put into PyTorch's order."""
    both, count = site.get("direction", "forward") == "bidirectional", 2 if kind == "lstm" else 1
    usual = {"activations": ACTIVATIONS[kind] * (1 + both), "linear_before_reset": 2 - count, "layout": 0, "clip": 0}
    usual |= {"direction": "bidirectional" if both else "forward", "input_forget": 0}
    unusual = [key for key, value in usual.items() if site.get(key, 0 if key[0] == "l" else value) != value]
    need(not unusual and not states[count:], f"a layer with {', '.join(unusual) or 'peepholes'} of its own")
    need(lengths is None or number(constant(lengths)) == x.shape[0], "sequences of different lengths")
    begin = [np.zeros(()) if each is None else each for each in (*states, None, None)[:count]]
    tensors = site.tensors([each for each in (weight, inner, bias) if each is not None])

    def params(n: int) -> list[Tensor]:
        parts = [part for each in tensors for part in ops.split(each[n], weight.shape[1], 0)]
        return [
            ops.concat(*(ops.split(each, inner.shape[2], 0)[gate] for gate in GATES[kind]), axis=0) for each in parts
        ]

    site.call = replace(site.call, operator=kind)
    result: Any = OPERATORS[kind](
        site, input=site.tensor(x), hx=begin, params=[each for n in range(1 + both) for each in params(n)],
        has_biases=bias is not None, num_layers=1, dropout=0.0, train=False, bidirectional=both, batch_first=False,
    )  # fmt: skip
    steps, *last = result
    return [ops.permute(ops.reshape(steps, (*steps.shape[:2], 1 + both, -1)), 0, 2, 1, 3), *last]


TRANSLATIONS: dict[str, Translation] = {
    "AveragePool": partial(pool, "avg"),
    "BatchNormalization": batch_norm,
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Dropout": dropout,
    "GRU": partial(recurrent, "gru"),
    "Gemm": product,
    "GlobalAveragePool": pool_all(ops.mean),
    "GlobalMaxPool": pool_all(ops.amax),
    "GroupNormalization": group_norm,
    "InstanceNormalization": group_norm,
    "LRN": local_response_norm,
    "LSTM": partial(recurrent, "lstm"),
    "LayerNormalization": partial(last_axes_norm, "layer_norm"),
    "MaxPool": partial(pool, "max"),
    "RMSNormalization": partial(last_axes_norm, "rms_norm"),
    "Resize": resize,
}
