"""ONNX's layers: convolutions, products, norms, pooling, resizing and recurrent layers."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.aten.program import BatchExtent
from mpibow.aten.site import ModuleArray, Result, Value, need, number
from mpibow.aten.windows import resized
from mpibow.graph import Tensor

from .nodes import NodeSite, Setting, Translation, constant, single


def _windows(
    site: NodeSite,
    x: Value,
    kernel: Sequence[int],
    value: float = 0.0,
    *,
    half: bool = False,
    auto_pad: str = "NOTSET",
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    **_: object,
) -> tuple[Value, dict[str, Sequence[int]]]:
    """ATen's settings of windows, and x: padded by `value` where the sides differ, or with `half` exceed half a window.

    The settings have no padding then.
    """
    axes = len(kernel)
    extents = np.array(x.shape[2:])
    window = np.array(kernel)
    step = strides or [1] * axes
    apart = dilations or [1] * axes
    front, behind = np.reshape(pads or [0, 0] * axes, (2, axes))
    if auto_pad.startswith("SAME"):
        total = np.maximum((-(-extents // step) - 1) * step + (window - 1) * apart + 1 - extents, 0)
        lower = auto_pad == "SAME_LOWER"  # what is odd is in front
        front = (total + lower) // 2
        behind = (total + 1 - lower) // 2
    settings = {"stride": step, "dilation": apart, "padding": front.tolist()}
    if (front == behind).all() and not (half and (front > window // 2).any()):
        return x, settings
    around = np.stack([front, behind], 1)[::-1].reshape(-1)
    return site.aten("constant_pad_nd", self=x, pad=around.tolist(), value=value), settings | {"padding": [0] * axes}


def convolution(
    name: str,
    site: NodeSite,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    group: int = 1,
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    **window: Any,
) -> Tensor:
    kernel = weight.shape[2:]
    wide, settings = _windows(site, x, kernel, auto_pad=auto_pad, **window)
    if name == "conv_transpose":
        alike = wide is x and auto_pad in ("NOTSET", "VALID") and not output_shape
        need(alike, "padding that is not alike")
        settings["output_padding"] = output_padding or [0] * len(kernel)
    return site.aten(f"{name}{len(kernel)}d", input=wide, weight=weight, bias=bias, groups=group, **settings)


def product(
    site: NodeSite,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """Gemm; a dense layer where it is one."""
    if (transA, transB, alpha, beta) == (0, 1, 1, 1) and (bias is None or bias.shape == weight.shape[:1]):
        return site.aten("linear", input=x, weight=weight, bias=bias)
    a = site.floats(x)
    b = site.floats(weight)
    y = ops.matmul(ops.transpose(a) if transA else a, ops.transpose(b) if transB else b) * alpha
    return y if bias is None else y + site.floats(bias) * beta


def pool(
    name: str,
    site: NodeSite,
    x: Value,
    *,
    kernel_shape: list[int],
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    **window: Any,
) -> Tensor:
    """Max or average pooling; padding of which the mean of a window is not aware is added to ones as well."""

    def pooled(x: Value) -> tuple[Tensor, bool]:
        wide, settings = _windows(site, x, kernel_shape, float("-inf") if name == "max" else 0.0, half=True, **window)
        known: dict[str, Any] = {"kernel_size": kernel_shape, "ceil_mode": bool(ceil_mode), **settings}
        if name == "avg":
            need({*known.pop("dilation")} == {1}, "averages of windows with dilation")
            known["count_include_pad"] = bool(count_include_pad) or not any(settings["padding"])
        return site.aten(f"{name}_pool{len(kernel_shape)}d", self=wide, **known), wide is x

    y, whole = pooled(x)
    return y if name == "max" or whole or count_include_pad else y / pooled(ops.full(x.shape, 1.0))[0]


def pool_all(operator: str, site: NodeSite, x: Value) -> Tensor:
    return site.aten(operator, self=x, dim=[*range(2, len(x.shape))], keepdim=True)


def batch_norm(
    site: NodeSite,
    x: Value,
    weight: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Tensor:
    need(not training_mode, "training_mode=1: export the model for inference, it is trained here anyway")
    own = all(isinstance(each, ModuleArray) and each.uses == 1 for each in (mean, variance))
    need(own, "its statistics must be initialisers that no other node reads")
    return site.aten(
        "batch_norm",
        input=x, weight=weight, bias=bias, running_mean=mean, running_var=variance,
        training=True, momentum=round(1.0 - momentum, 7), eps=epsilon,
    )  # fmt: skip


def group_norm(
    site: NodeSite, x: Value, weight: Value, bias: Value, *, epsilon: float = 1e-5, num_groups: int = 0, **_: object
) -> Tensor:
    """Also InstanceNormalization, which has a group a channel."""
    return site.aten("group_norm", input=x, num_groups=num_groups or x.shape[1], weight=weight, bias=bias, eps=epsilon)


def last_axes_norm(
    name: str, site: NodeSite, x: Value, *held: Value | None, axis: int = -1, epsilon: float = 1e-5, **_: object
) -> Tensor:
    weights = dict(zip(("weight", "bias"), held, strict=False))
    shape = x.shape[axis % len(x.shape) :]
    need(all(each is None or each.shape == shape for each in held), "weights of another shape than the last axes")
    return site.aten(name, input=x, normalized_shape=shape, eps=epsilon, **weights)


def local_response_norm(
    site: NodeSite, x: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    need(size % 2 == 1, f"size must be odd, got {size}")
    return ops.local_response_norm(site.floats(x), size, alpha=alpha, beta=beta, k=bias)


def dropout(
    site: NodeSite, x: Value, ratio: Setting | None = None, training: Setting | None = None, **_: object
) -> Tensor:
    need(training is None or not single(training, "training_mode"), "training_mode is true: export for inference")
    rate = 0.5 if ratio is None else single(ratio, "the ratio")
    need(x.shape[0] % site.batch == 0, "its first axis must be the batch")
    site.call = replace(site.call, shape=(BatchExtent(x.shape[0] // site.batch),))
    return site.aten("dropout", input=x, p=rate, train=True)


def resize(
    site: NodeSite,
    x: Value,
    roi: Value | None = None,
    scales: Setting | None = None,
    sizes: Setting | None = None,
    *,
    axes: Sequence[int] = (),
    coordinate_transformation_mode: str = "half_pixel",
    keep_aspect_ratio_policy: str = "stretch",
    **_: object,
) -> Tensor:
    """Any interpolation is a product with a matrix along each axis, which ONNX's own definition gives."""
    need(coordinate_transformation_mode != "tf_crop_and_resize", "coordinate_transformation_mode=tf_crop_and_resize")
    need(keep_aspect_ratio_policy == "stretch", f"keep_aspect_ratio_policy={keep_aspect_ratio_policy}")
    rank = len(x.shape)
    scaled = scales is not None and constant(scales).size > 0
    numbers = constant(scales if scaled else sizes)
    wanted = dict(zip([axis % rank for axis in axes or range(rank)], numbers, strict=True))
    whole = not scaled or all(x.shape[axis] * float(n) % 1 < 1e-4 for axis, n in wanted.items())
    fits = whole or coordinate_transformation_mode != "align_corners"
    need(fits, "align_corners with scales that give no whole lengths")
    matrices = []
    for axis, extent in enumerate(x.shape):
        unchanged = 1 if scaled else (not axis and site.fixed) or extent
        if wanted.get(axis, unchanged) == unchanged:
            matrices.append(np.eye(extent))
            continue
        other = 0 if axis else 1
        shape = [extent if each in (axis, other) else 1 for each in range(rank)]
        alone = [wanted[each] if each == axis else 1 if scaled else shape[each] for each in wanted]
        (image,) = site.node.fold(
            np.eye(extent).reshape(shape), *[None] * (1 if scaled else 2), np.array(alone, numbers.dtype)
        )
        matrices.append(np.moveaxis(image, (axis, other), (0, 1)).reshape(-1, extent).T)
    return resized(None, site, x, matrices)


GATES = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2)}  # of PyTorch's gates, the numbers in ONNX
ACTIVATIONS = {"lstm": [b"Sigmoid", b"Tanh", b"Tanh"], "gru": [b"Sigmoid", b"Tanh"]}
USUAL: dict[str, object] = {"clip": 0, "input_forget": 0, "layout": 0}


def recurrent(
    kind: str,
    site: NodeSite,
    x: Value,
    weight: Value,
    inner: Value,
    bias: Value | None = None,
    lengths: Setting | None = None,
    *states: Value | None,
    **settings: Any,
) -> Result:
    """A recurrent layer of one or both directions; its weights' gates are put into PyTorch's order."""
    settings = {"direction": "forward", "linear_before_reset": 0} | settings
    order = GATES[kind]
    both = settings["direction"] == "bidirectional"
    count = 2 if kind == "lstm" else 1
    usual = USUAL | {
        "direction": "bidirectional" if both else "forward",
        "linear_before_reset": 2 - count,
        "activations": ACTIVATIONS[kind] * (1 + both),
    }
    unusual = [key for key, value in usual.items() if settings.get(key, value) != value]
    need(not unusual and not states[count:], f"a layer with {', '.join(unusual) or 'peepholes'} of its own")
    need(lengths is None or number(constant(lengths)) == x.shape[0], "sequences of different lengths")
    begin = [np.zeros(()) if each is None else each for each in (*states, None, None)[:count]]
    params = []
    tensors = site.tensors([each for each in (weight, inner, bias) if each is not None])
    for direction in range(1 + both):
        for each in tensors:
            parts = ops.split(each[direction], inner.shape[2], 0)
            for first in range(0, len(parts), len(order)):  # a bias is two of PyTorch's
                params.append(ops.concat(*(parts[first + gate] for gate in order), axis=0))
    steps, *last = site.results(
        kind,
        input=site.tensor(x),
        hx=begin,
        params=params,
        has_biases=bias is not None,
        num_layers=1,
        dropout=0.0,
        train=False,
        bidirectional=both,
        batch_first=False,
    )
    return [ops.permute(ops.reshape(steps, (*steps.shape[:2], 1 + both, -1)), 0, 2, 1, 3), *last]


TRANSLATIONS: dict[str, Translation] = {
    "AveragePool": partial(pool, "avg"),
    "BatchNormalization": batch_norm,
    "Conv": partial(convolution, "conv"),
    "ConvTranspose": partial(convolution, "conv_transpose"),
    "Dropout": dropout,
    "GRU": partial(recurrent, "gru"),
    "Gemm": product,
    "GlobalAveragePool": partial(pool_all, "mean"),
    "GlobalMaxPool": partial(pool_all, "amax"),
    "GroupNormalization": group_norm,
    "InstanceNormalization": group_norm,
    "LRN": local_response_norm,
    "LSTM": partial(recurrent, "lstm"),
    "LayerNormalization": partial(last_axes_norm, "layer_norm"),
    "MaxPool": partial(pool, "max"),
    "RMSNormalization": partial(last_axes_norm, "rms_norm"),
    "Resize": resize,
}
