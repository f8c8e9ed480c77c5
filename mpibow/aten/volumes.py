"""Convolutions and pools in three dimensions, as ATen calls them: of frames, then over neighbouring frames."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mpibow import ops
from mpibow.aten.shapes import along, listed, unsqueeze
from mpibow.aten.site import Function, Site, Value, need, refuse
from mpibow.aten.windows import LOWEST, Sizes, avg_pool, max_pool, padded, sides_of
from mpibow.graph.graph import Tensor
from mpibow.ops.applied import applied
from mpibow.ops.initialisers import ZERO


def triple(value: Sizes) -> list[int]:
    """(frames, rows, columns) of a number or a list."""
    numbers = listed(value)
    return numbers * 3 if len(numbers) == 1 else numbers


def volumes(
    site: Site,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution in three dimensions: of images whose channels are those of neighbouring frames."""
    step, apart = triple(stride), triple(dilation)
    kernel = weight.shape[2:]
    sides = sides_of(padding, kernel, apart) if isinstance(padding, str) else [(each, each) for each in triple(padding)]
    x = padded(site.floats(input), [n for side in reversed(sides) for n in side])
    n, c, t, h, w = x.shape
    frames = (t - apart[0] * (kernel[0] - 1) - 1) // step[0] + 1
    starts = [k * apart[0] for k in range(kernel[0])]
    parts = [along(x, 2, slice(first, first + (frames - 1) * step[0] + 1, step[0])) for first in starts]
    merged = ops.permute(ops.stack(*parts, axis=2) if len(parts) > 1 else unsqueeze(parts[0], 2), 0, 3, 1, 2, 4, 5)
    flat = ops.reshape(merged, (n * frames, c * kernel[0], h, w))
    o = weight.shape[0]
    wide = ops.reshape(site.floats(weight), (o, weight.shape[1] * kernel[0], *kernel[1:]))
    op = ops.Conv2d(o, (kernel[1], kernel[2]), (step[1], step[2]), (0, 0), bias is not None, ZERO, groups,
                    (apart[1], apart[2]))  # fmt: skip
    weights = [wide] if bias is None else [wide, site.floats(bias)]
    y = flat.graph.add(applied(op), flat, *weights)
    return ops.permute(ops.reshape(y, (n, frames, *y.shape[1:])), 0, 2, 1, 3, 4)


def pool_volumes(
    pool: Callable[..., Tensor],
    mean: bool,
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    **settings: Any,
) -> Tensor:
    """A pool in three dimensions: of each frame, then over neighbouring frames."""
    kernel, step, around = triple(kernel_size), triple(stride or kernel_size), triple(padding)
    need(not settings.get("ceil_mode"), "a pool of volumes with ceil_mode")
    need(settings.get("divisor_override") is None, "a pool of volumes with divisor_override")
    need(settings.get("count_include_pad", True) is True, "a pool of volumes with count_include_pad=False")
    need(set(listed(settings.get("dilation", 1))) == {1}, "a pool of volumes with dilation")
    n, c, t, *_ = x.shape
    frames = ops.reshape(ops.permute(x, 0, 2, 1, 3, 4), (n * t, c, *x.shape[3:]))
    y = pool(2, frames, kernel[1:], step[1:], around[1:])
    y = ops.permute(ops.reshape(y, (n, t, *y.shape[1:])), 0, 2, 1, 3, 4)
    y = padded(y, [0, 0, 0, 0, around[0], around[0]], 0.0 if mean else LOWEST)
    count = (y.shape[2] - kernel[0]) // step[0] + 1
    parts = [along(y, 2, slice(k, k + (count - 1) * step[0] + 1, step[0])) for k in range(kernel[0])]
    if len(parts) == 1:
        return parts[0]
    return ops.add(*parts) * (1 / kernel[0]) if mean else ops.maximum(*parts)


def adaptive_avg_volumes(x: Tensor, output_size: Sizes) -> Tensor:
    size = triple(output_size)
    if any(extent % wanted for extent, wanted in zip(x.shape[2:], size, strict=True)):
        refuse("windows of different sizes")
    kernel = [extent // wanted for extent, wanted in zip(x.shape[2:], size, strict=True)]
    return pool_volumes(avg_pool, True, x, kernel)


OF_FLOATS: dict[str, Function] = {
    "adaptive_avg_pool3d": adaptive_avg_volumes,
    "avg_pool3d": partial(pool_volumes, avg_pool, True),
    "max_pool3d": partial(pool_volumes, max_pool, False),
}
OF_ANY: dict[str, Function] = {"conv3d": volumes}
