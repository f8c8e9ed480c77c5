"""Pooling, padding and resizing, as ATen calls them, of sequences, images and volumes."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product, starmap

import numpy as np

from mpibow import ops
from mpibow.graph import Array, Tensor
from mpibow.ops.upsample import Mode

from .shapes import Axes, along, listed
from .site import Function, Result, Site, Value, combined, filled, need, of_floats, of_tensors, refuse

Pair = tuple[int, int]
LOWEST = -1e30  # stands for -inf in padding: it must not become NaN


def by_axis(value: Axes, axes: int) -> list[int]:
    """A number for each axis, of a list or of one for all."""
    return [int(each) for each in np.broadcast_to(value, axes)]


def both(value: Axes, axes: int, one: int = 1) -> Pair:
    """(rows, columns) of the numbers of so many axes, of which frames come first; `one` is the row's of a sequence."""
    *_, rows, columns = [one, *by_axis(value, axes)]
    return rows, columns


def check_batch(x: Tensor, axes: int) -> None:
    need(x.ndim == axes + 2, f"input {x.shape} has no batch axis")


def images(x: Tensor, axes: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """`function` of images (n, c, h, w): a sequence (n, c, l) is one of one row, a volume (n, c, t, h, w) has t."""
    check_batch(x, axes)
    if axes == 2:
        return function(x)
    n, c, extent, *rest = x.shape
    if axes == 1:
        y = function(ops.reshape(x, (n, c, 1, extent)))
        return ops.reshape(y, (*y.shape[:2], y.shape[3]))
    y = function(ops.reshape(ops.permute(x, 0, 2, 1, 3, 4), (n * extent, c, *rest)))
    return ops.permute(ops.reshape(y, (n, extent, *y.shape[1:])), 0, 2, 1, 3, 4)


def elements(
    shape: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[slice, ...]]:
    """For every element of a window over the axes behind the channels, row by row, its places in all windows."""
    lines = [
        [slice(first, first + extent - apart * (size - 1), step) for first in range(0, size * apart, apart)]
        for extent, size, step, apart in zip(shape[2:], kernel, stride, dilation, strict=False)
    ]
    return [(slice(None), slice(None), *place) for place in product(*lines)]


def neighbours(
    x: Tensor, kernel: Axes, stride: Axes, padding: Axes, dilation: Axes = 1, outside: float = 0.0
) -> list[Tensor]:
    """For every frame of a window of frames, its values in all windows (n, c, windows, h, w)."""
    size, step, around, apart = (listed(each)[:1] for each in (kernel, stride, padding, dilation))
    x = padded(x, [0, 0, 0, 0, *around, *around], value=outside)
    return [x[place] for place in elements(x.shape, size, step, apart)]


def max_pool(
    axes: int,
    x: Tensor,
    kernel_size: Axes,
    stride: Axes = (),
    padding: Axes = 0,
    dilation: Axes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    step = stride or kernel_size
    down, across = both(padding, axes, 0)
    kernel, by, apart = (both(each, axes) for each in (kernel_size, step, dilation))

    def pool(x: Tensor) -> Tensor:
        if apart == (1, 1):
            return ops.max_pool2d(x, kernel, stride=by, padding=(down, across), ceil=ceil_mode)
        x = padded(x, [across, across, down, down], value=LOWEST)
        return combined(ops.maximum, [x[place] for place in elements(x.shape, kernel, by, apart)])

    need(not ceil_mode or apart == (1, 1), "windows with dilation that hang over the end (ceil_mode)")
    y = images(x, axes, pool)
    if axes < 3:
        return y
    need(not ceil_mode, "a pool of volumes with ceil_mode")
    return combined(ops.maximum, neighbours(y, kernel_size, step, padding, dilation, LOWEST))


def avg_pool(
    axes: int,
    x: Tensor,
    kernel_size: Axes,
    stride: Axes = (),
    padding: Axes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    need(divisor_override is None or not ceil_mode, "divisor_override where windows hang over the end (ceil_mode)")
    kernel = both(kernel_size, axes)
    step = stride or kernel_size
    pool = partial(
        ops.avg_pool2d,
        kernel=kernel,
        stride=both(step, axes),
        padding=both(padding, axes, 0),
        ceil=ceil_mode,
        count_padding=count_include_pad or divisor_override is not None,
    )
    y = images(x, axes, pool)
    count = kernel[0] * kernel[1]
    if axes == 3:
        need(not ceil_mode and count_include_pad, "a pool of volumes with ceil_mode, or with count_include_pad=False")
        frames = neighbours(y, kernel_size, step, padding)
        y = combined(ops.add, frames)
        if len(frames) > 1:
            y *= 1 / len(frames)
        count *= len(frames)
    return y if divisor_override is None else y * (count / divisor_override)


def adaptive_avg_pool(axes: int, x: Tensor, output_size: Axes) -> Tensor:
    if axes == 3:
        return avg_pool(axes, x, even_windows(axes, x, output_size))

    def pool(x: Tensor) -> Tensor:
        size = both(output_size, axes)
        if size == (1, 1):
            return ops.reshape(ops.global_avg_pool2d(x), (*x.shape[:2], 1, 1))
        return x if size == x.shape[2:] else ops.adaptive_avg_pool2d(x, size)

    return images(x, axes, pool)


def adaptive_max_pool(axes: int, x: Tensor, output_size: Axes) -> Result:
    return [max_pool(axes, x, even_windows(axes, x, output_size)), None]


def even_windows(axes: int, x: Tensor, output_size: Axes) -> list[int]:
    """The extents of windows that lie side by side, as many as an adaptive pool gives."""
    check_batch(x, axes)
    sizes = list(starmap(divmod, zip(x.shape[2:], by_axis(output_size, axes), strict=True)))
    need(not any(rest for _, rest in sizes), "windows of different sizes")
    return [size for size, _ in sizes]


def columns(x: Tensor, kernel_size: Axes, dilation: Axes, padding: Axes, stride: Axes) -> Tensor:
    """torch.nn.functional.unfold: the elements of each window as a column."""
    kernel, apart, (down, across), step = (both(each, 2) for each in (kernel_size, dilation, padding, stride))
    wide = padded(x, [across, across, down, down])
    parts = [wide[place] for place in elements(wide.shape, kernel, step, apart)]
    return ops.reshape(ops.stack(*parts, axis=2), (x.shape[0], x.shape[1] * len(parts), -1))


def from_columns(
    x: Tensor, output_size: Axes, kernel_size: Axes, dilation: Axes, padding: Axes, stride: Axes
) -> Tensor:
    """torch.nn.functional.fold: the sum of the columns' elements at their places in the image."""
    size, kernel, apart, pads, step = (both(each, 2) for each in (output_size, kernel_size, dilation, padding, stride))
    height, width = (extent + 2 * pad for extent, pad in zip(size, pads, strict=True))
    numbers = np.arange(height * width).reshape(1, 1, height, width)
    places = [numbers[place].ravel() for place in elements(numbers.shape, kernel, step, apart)]
    flat = ops.reshape(x, (x.shape[0] * x.shape[1] // len(places), -1))
    index = ops.expand(ops.constant(np.concatenate(places)[None]), flat.shape)
    whole = ops.reshape(
        ops.scatter_add(flat, 1, index, (flat.shape[0], height * width)), (x.shape[0], -1, height, width)
    )
    return padded(whole, [-pads[1], -pads[1], -pads[0], -pads[0]])


def padded(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """x with elements more in front of each axis and behind it, the last axis first; negative numbers cut."""
    for n, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
        axis = x.ndim - n
        middle = along(x, axis, slice(max(0, -before), x.shape[axis] - max(0, -behind)))
        parts = [_side(x, axis, before, value, mode, True), middle, _side(x, axis, behind, value, mode, False)]
        x = combined(partial(ops.concat, axis=axis), [part for part in parts if part is not None])
    return x


def _side(x: Tensor, axis: int, count: int, value: float | None, mode: str, front: bool) -> Tensor | None:
    """The padding in front of x along `axis`, or behind it; None for no padding."""
    if count <= 0:
        return None
    extent = x.shape[axis]
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    match mode:
        case "constant":
            return filled(shape, float(value or 0.0), x.dtype)
        case "reflect":
            first = 1 if front else extent - 1 - count
            return ops.flip(along(x, axis, slice(first, first + count)), axis)
        case "replicate":
            return ops.expand(along(x, axis, slice(0, 1) if front else slice(extent - 1, extent)), shape)
        case "circular":
            return along(x, axis, slice(extent - count, extent) if front else slice(0, count))
    return refuse(f"padding of mode {mode!r}")


def resized(
    mode: Mode | None,
    site: Site,
    self: Value,
    matrices: Sequence[Array],
    align_corners: bool = False,
    scale_factors: Sequence[float] | None = None,
    **_: object,
) -> Tensor:
    """Enlarges by whole numbers in a mode of mpibow; else each of the last axes times a matrix, as PyTorch does it."""
    x = site.floats(self)
    axes = len(matrices)
    times = [matrix.shape[1] / len(matrix) for matrix in matrices]
    whole = all(float(each).is_integer() for each in [*times, *(scale_factors or ())])
    if mode is not None and whole and not align_corners:
        return images(x, axes, partial(ops.upsample, scale=both([int(each) for each in times], axes), mode=mode))
    for axis, matrix in enumerate(matrices, x.ndim - axes):
        if not np.array_equal(matrix, np.eye(len(matrix))):
            turned = axis < x.ndim - 1
            y = ops.matmul(ops.transpose(x, axis, -1) if turned else x, ops.constant(matrix))
            x = ops.transpose(y, axis, -1) if turned else y
    return x


MATRICES_ALONE = (
    "_upsample_bicubic2d_aa",
    "_upsample_bilinear2d_aa",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_bicubic2d",
    "upsample_linear1d",
    "upsample_nearest3d",
    "upsample_trilinear3d",
)
OPERATORS: dict[str, Function] = {
    **of_floats(
        {
            **{
                f"{pool.__name__}{axes}d": partial(pool, axes)
                for pool in (adaptive_avg_pool, avg_pool, max_pool)
                for axes in (1, 2, 3)
            },
            **{f"adaptive_max_pool{axes}d": partial(adaptive_max_pool, axes) for axes in (1, 2)},
            "col2im": from_columns,
            "im2col": columns,
            # The form that also returns indices, which nothing may read.
            "max_pool2d_with_indices": lambda x, **settings: [max_pool(2, x, **settings), None],
        }
    ),
    **of_tensors({"constant_pad_nd": lambda x, pad, value=0.0: padded(x, pad, value=value), "pad": padded}),
    **dict.fromkeys(MATRICES_ALONE, partial(resized, None)),
    "upsample_bilinear2d": partial(resized, "bilinear"),
    "upsample_nearest1d": partial(resized, "nearest"),
    "upsample_nearest2d": partial(resized, "nearest"),
}
