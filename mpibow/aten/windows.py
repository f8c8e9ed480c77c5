"""Pooling, padding and resizing, as ATen calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from mpibow import ops
from mpibow.aten.shapes import along
from mpibow.aten.site import Function, Result, Site, Value, need, refuse
from mpibow.graph.graph import Array, Tensor
from mpibow.ops.upsample import Mode

Pair = tuple[int, int]
LOWEST = -1e30  # stands for -inf in padding: it must not become NaN
RESAMPLED = (
    *("_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d"),
    *("_upsample_nearest_exact3d", "upsample_bicubic2d", "upsample_linear1d", "upsample_nearest3d"),
    *("upsample_trilinear3d",),
)
Sizes = int | Sequence[int]


def both(value: Sizes, axes: int, one: int = 1) -> Pair:
    """(rows, columns) of a number or a list; `one` is the row's where there is one axis."""
    given = [value] if isinstance(value, int) else [int(each) for each in value]
    if axes == 1:
        return one, given[0]
    return (given[0], given[0]) if len(given) == 1 else (given[0], given[1])


def images(x: Tensor, axes: int, pool: Callable[[Tensor], Tensor]) -> Tensor:
    """`pool` of images (n, c, h, w); a sequence (n, c, l) is an image of one row."""
    need(len(x.shape) == axes + 2, f"input {x.shape} has no batch axis")
    if axes == 2:
        return pool(x)
    y = pool(ops.reshape(x, (*x.shape[:2], 1, x.shape[2])))
    return ops.reshape(y, (*y.shape[:2], y.shape[3]))


def max_pool(
    axes: int,
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    if set(both(dilation, axes)) != {1}:
        need(not ceil_mode, "windows with dilation that hang over the end (ceil_mode)")
        return images(x, axes, partial(_apart, axes, kernel_size, stride or kernel_size, padding, dilation))
    window, step, around = _window(axes, kernel_size, stride, padding)
    return images(x, axes, partial(ops.max_pool2d, kernel=window, stride=step, padding=around, ceil=ceil_mode))


def elements(x: Tensor, kernel: Pair, stride: Pair, dilation: Pair) -> list[Tensor]:
    """For every element of the window, row by row, its values in all windows, (n, c, rows, columns)."""
    counts = [
        (extent - apart * (size - 1) - 1) // step + 1
        for extent, apart, size, step in zip(x.shape[2:], dilation, kernel, stride, strict=True)
    ]

    def line(place: int, axis: int) -> slice:
        first = place * dilation[axis]
        return slice(first, first + (counts[axis] - 1) * stride[axis] + 1, stride[axis])

    return [x[:, :, line(i, 0), line(j, 1)] for i in range(kernel[0]) for j in range(kernel[1])]


def _apart(axes: int, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, x: Tensor) -> Tensor:
    """Maxima of windows whose elements are `dilation` apart."""
    down, across = both(padding, axes, 0)
    parts = elements(
        padded(x, [across, across, down, down], LOWEST), both(kernel, axes), both(stride, axes), both(dilation, axes)
    )
    return ops.maximum(*parts) if len(parts) > 1 else parts[0]


def columns(x: Tensor, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Tensor:
    """torch.nn.functional.unfold: the elements of each window as a column."""
    down, across = both(padding, 2)
    wide = padded(x, [across, across, down, down])
    parts = elements(wide, both(kernel_size, 2), both(stride, 2), both(dilation, 2))
    return ops.reshape(ops.stack(*parts, axis=2), (x.shape[0], x.shape[1] * len(parts), -1))


def from_columns(
    x: Tensor, output_size: Sizes, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Tensor:
    """torch.nn.functional.fold: the sum of the columns' elements at their places in the image."""
    (rows, across), (down, right) = both(kernel_size, 2), both(padding, 2)
    height, width = (extent + 2 * pad for extent, pad in zip(both(output_size, 2), (down, right), strict=True))
    apart, step = both(dilation, 2), both(stride, 2)
    lines = [
        np.arange(size)[:, None] * gap + np.arange(0, extent - gap * (size - 1), by)
        for size, gap, extent, by in zip((rows, across), apart, (height, width), step, strict=True)
    ]
    places = lines[0][:, None, :, None] * width + lines[1][None, :, None, :]
    channels = x.shape[1] // (rows * across)
    flat = ops.reshape(x, (x.shape[0] * channels, -1))
    index = ops.expand(ops.constant(places.reshape(1, -1)), flat.shape)
    image = ops.scatter_add(flat, 1, index, (flat.shape[0], height * width))
    whole = ops.reshape(image, (x.shape[0], channels, height, width))
    return whole[:, :, down : height - down, right : width - right]


def avg_pool(
    axes: int,
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    window, step, around = _window(axes, kernel_size, stride, padding)
    if divisor_override is not None:
        need(not ceil_mode, "divisor_override where windows hang over the end (ceil_mode)")
        count_include_pad = True
    pool = partial(ops.avg_pool2d, kernel=window, stride=step, padding=around, ceil=ceil_mode)
    y = images(x, axes, partial(pool, count_padding=count_include_pad))
    return y if divisor_override is None else y * (window[0] * window[1] / divisor_override)


def _window(axes: int, kernel: Sizes, stride: Sizes, padding: Sizes) -> tuple[Pair, Pair, Pair]:
    return both(kernel, axes), both(stride or kernel, axes), both(padding, axes, 0)


def adaptive_avg_pool(axes: int, x: Tensor, output_size: Sizes) -> Tensor:
    def whole(x: Tensor) -> Tensor:
        size = both(output_size, axes)
        if size == (1, 1):
            return ops.reshape(ops.global_avg_pool2d(x), (*x.shape[:2], 1, 1))
        return x if size == x.shape[2:] else ops.adaptive_avg_pool2d(x, size)

    return images(x, axes, whole)


def adaptive_max_pool(axes: int, x: Tensor, output_size: Sizes) -> Result:
    def whole(x: Tensor) -> Tensor:
        rows, columns = both(output_size, axes)
        need(not x.shape[2] % rows and not x.shape[3] % columns, "windows of different sizes")
        return ops.max_pool2d(x, (x.shape[2] // rows, x.shape[3] // columns))

    return [images(x, axes, whole), None]


def sides_of(padding: str, kernel: Sequence[int], dilation: Sequence[int]) -> list[Pair]:
    """The zeros before and behind each axis of a convolution by the word "same" or "valid"."""
    reach = [a * (k - 1) if padding == "same" else 0 for a, k in zip(dilation, kernel, strict=True)]
    return [(each // 2, each - each // 2) for each in reach]


def padded(x: Tensor, sides: Sequence[int], value: float = 0.0, mode: str = "constant") -> Tensor:
    """x padded by `sides` elements in front and behind, the last axis first, as in torch.nn.functional.pad."""
    for n in range(len(sides) // 2):
        before, behind = sides[2 * n], sides[2 * n + 1]
        axis = len(x.shape) - 1 - n
        middle = along(x, axis, slice(max(0, -before), x.shape[axis] - max(0, -behind)))
        parts = [_side(x, axis, before, value, mode, True), middle, _side(x, axis, behind, value, mode, False)]
        found = [part for part in parts if part is not None]
        x = ops.concat(*found, axis=axis) if len(found) > 1 else found[0]
    return x


def _side(x: Tensor, axis: int, count: int, value: float, mode: str, front: bool) -> Tensor | None:
    """The padding in front of x along `axis`, or behind it; None for no padding."""
    if count <= 0:
        return None
    extent, shape = x.shape[axis], (*x.shape[:axis], count, *x.shape[axis + 1 :])
    match mode:
        case "constant":
            return ops.full(shape, value)
        case "reflect":
            first = 1 if front else extent - 1 - count
            return ops.flip(along(x, axis, slice(first, first + count)), axis)
        case "replicate":
            return ops.expand(along(x, axis, slice(0, 1) if front else slice(extent - 1, extent)), shape)
        case "circular":
            return along(x, axis, slice(extent - count, extent) if front else slice(0, count))
    return refuse(f"padding of mode {mode!r}")


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    return padded(x, [int(each) for each in pad], float(value or 0.0), mode)


def interpolate(
    mode: Mode,
    axes: int,
    site: Site,
    self: Value,
    output_size: Sequence[int] | None = None,
    align_corners: bool = False,
    scale_factors: Sequence[float] = (),
    matrices: Sequence[Array] = (),
    **_: object,
) -> Tensor:
    """Enlarges by whole numbers, separate for rows and columns; else by `matrices`, an axis each."""

    def whole(x: Tensor) -> Tensor:
        if output_size is None:
            scales = [1.0] * (2 - axes) + [float(each) for each in scale_factors]
        else:
            sizes = [1] * (2 - axes) + [int(each) for each in output_size]
            scales = [size / extent for size, extent in zip(sizes, x.shape[2:], strict=True)]
        if align_corners or not all(each >= 1 and float(each).is_integer() for each in scales):
            return resized(x, matrices)
        return ops.upsample(x, (int(scales[0]), int(scales[1])), mode=mode)

    return images(site.floats(self), axes, whole)


def resampled(site: Site, self: Value, matrices: Sequence[Array], **_: object) -> Tensor:
    return resized(site.floats(self), matrices)


def resized(x: Tensor, matrices: Sequence[Array]) -> Tensor:
    """Each of the last axes times a matrix: resizing in all modes, as PyTorch has computed it for one axis."""
    need(bool(matrices), "resizing")
    for n, matrix in enumerate(matrices):
        axis = len(x.shape) - len(matrices) + n
        if matrix.shape[0] != matrix.shape[1] or not np.array_equal(matrix, np.eye(len(matrix))):
            last = ops.transpose(x, axis, -1) if axis < len(x.shape) - 1 else x
            y = ops.matmul(last, ops.constant(np.ascontiguousarray(matrix.T)))
            x = ops.transpose(y, axis, -1) if axis < len(x.shape) - 1 else y
    return x


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    (n, c, h, w), r = x.shape, upscale_factor
    parts = ops.permute(ops.reshape(x, (n, c // (r * r), r, r, h, w)), 0, 1, 4, 2, 5, 3)
    return ops.reshape(parts, (n, c // (r * r), h * r, w * r))


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    (n, c, h, w), r = x.shape, downscale_factor
    parts = ops.permute(ops.reshape(x, (n, c, h // r, r, w // r, r)), 0, 1, 3, 5, 2, 4)
    return ops.reshape(parts, (n, c * r * r, h // r, w // r))


OF_FLOATS: dict[str, Function] = {
    "pixel_unshuffle": pixel_unshuffle,
    **{f"adaptive_avg_pool{axes}d": partial(adaptive_avg_pool, axes) for axes in (1, 2)},
    **{f"adaptive_max_pool{axes}d": partial(adaptive_max_pool, axes) for axes in (1, 2)},
    **{f"avg_pool{axes}d": partial(avg_pool, axes) for axes in (1, 2)},
    "col2im": from_columns,
    "constant_pad_nd": pad,
    "im2col": columns,
    **{f"max_pool{axes}d": partial(max_pool, axes) for axes in (1, 2)},
    # The form that also returns indices, which nothing may read.
    "max_pool2d_with_indices": lambda x, **settings: [max_pool(2, x, **settings), None],
    "pad": pad,
    "pixel_shuffle": pixel_shuffle,
}

OF_ANY: dict[str, Function] = {
    **dict.fromkeys(RESAMPLED, resampled),
    "upsample_bilinear2d": partial(interpolate, "bilinear", 2),
    "upsample_nearest1d": partial(interpolate, "nearest", 1),
    "upsample_nearest2d": partial(interpolate, "nearest", 2),
}
