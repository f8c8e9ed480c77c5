"""Pooling, padding and resizing, as ATen calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mpibow import ops
from mpibow.aten.shapes import along
from mpibow.aten.site import Function, Result, need, refuse
from mpibow.graph.graph import Tensor
from mpibow.ops.upsample import Mode

Pair = tuple[int, int]
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
    need(set(both(dilation, axes)) == {1}, "windows with dilation")
    window, step, around = _window(axes, kernel_size, stride, padding)
    return images(x, axes, partial(ops.max_pool2d, kernel=window, stride=step, padding=around, ceil=ceil_mode))


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
    need(divisor_override is None, "divisor_override: windows are divided by their own sizes")
    window, step, around = _window(axes, kernel_size, stride, padding)
    pool = partial(ops.avg_pool2d, kernel=window, stride=step, padding=around, ceil=ceil_mode)
    return images(x, axes, partial(pool, count_padding=count_include_pad))


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
    x: Tensor,
    output_size: Sequence[int] | None = None,
    align_corners: bool = False,
    scale_factors: Sequence[float] = (),
    **_: object,
) -> Tensor:
    """Enlarges by whole numbers, separate for rows and columns."""
    need(not align_corners, "interpolation with align_corners")

    def whole(x: Tensor) -> Tensor:
        if output_size is None:
            scales = [1.0] * (2 - axes) + [float(each) for each in scale_factors]
        else:
            sizes = [1] * (2 - axes) + [int(each) for each in output_size]
            scales = [size / extent for size, extent in zip(sizes, x.shape[2:], strict=True)]
        need(all(each >= 1 and each.is_integer() for each in scales), "interpolation by no whole number")
        return ops.upsample(x, (int(scales[0]), int(scales[1])), mode=mode)

    return images(x, axes, whole)


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    (n, c, h, w), r = x.shape, upscale_factor
    parts = ops.permute(ops.reshape(x, (n, c // (r * r), r, r, h, w)), 0, 1, 4, 2, 5, 3)
    return ops.reshape(parts, (n, c // (r * r), h * r, w * r))


OF_FLOATS: dict[str, Function] = {
    **{f"adaptive_avg_pool{axes}d": partial(adaptive_avg_pool, axes) for axes in (1, 2)},
    **{f"adaptive_max_pool{axes}d": partial(adaptive_max_pool, axes) for axes in (1, 2)},
    **{f"avg_pool{axes}d": partial(avg_pool, axes) for axes in (1, 2)},
    "constant_pad_nd": pad,
    **{f"max_pool{axes}d": partial(max_pool, axes) for axes in (1, 2)},
    # The form that also returns indices, which nothing may read.
    "max_pool2d_with_indices": lambda x, **settings: [max_pool(2, x, **settings), None],
    "pad": pad,
    "pixel_shuffle": pixel_shuffle,
    "upsample_bilinear2d": partial(interpolate, "bilinear", 2),
    "upsample_nearest1d": partial(interpolate, "nearest", 1),
    "upsample_nearest2d": partial(interpolate, "nearest", 2),
}
