"""Pooling, padding and resizing, as ATen calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpibow import ops
from mpibow.aten.site import Site
from mpibow.graph.graph import Tensor

Pair = tuple[int, int]


def both(value: Any, axes: int, one: int = 1) -> Pair:
    """(rows, columns) of a number or a list; `one` is the row's where there is one axis."""
    given = [value] if isinstance(value, int) else [int(each) for each in value]
    if axes == 1:
        return one, given[0]
    return (given[0], given[0]) if len(given) == 1 else (given[0], given[1])


def _images(site: Site, x: Tensor, axes: int, pool: Callable[[Tensor], Tensor]) -> Tensor:
    """`pool` of images (n, c, h, w); a sequence (n, c, l) is an image of one row."""
    site.need(len(x.shape) == axes + 2, f"input {x.shape} has no batch axis")
    if axes == 2:
        return pool(x)
    y = pool(ops.reshape(x, (*x.shape[:2], 1, x.shape[2])))
    return ops.reshape(y, (*y.shape[:2], y.shape[3]))


def max_pool(axes: int) -> Callable[..., Any]:
    def pool(
        site: Site, self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        site.need(set(both(dilation, axes)) == {1}, "windows with dilation")
        window, step, around = _window(axes, kernel_size, stride, padding)
        return _images(
            site, site.floats(self), axes,
            lambda x: ops.max_pool2d(x, window, stride=step, padding=around, ceil=ceil_mode),
        )  # fmt: skip

    return pool


def max_pool_indices(axes: int) -> Callable[..., Any]:
    """The form that also returns indices, which nothing may read."""
    return lambda site, **settings: [max_pool(axes)(site, **settings), None]


def avg_pool(axes: int) -> Callable[..., Any]:
    def pool(
        site: Site, self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        site.need(divisor_override is None, "divisor_override: windows are divided by their own sizes")
        window, step, around = _window(axes, kernel_size, stride, padding)
        return _images(
            site, site.floats(self), axes,
            lambda x: ops.avg_pool2d(
                x, window, stride=step, padding=around, ceil=ceil_mode, count_padding=count_include_pad
            ),
        )  # fmt: skip

    return pool


def _window(axes: int, kernel: Any, stride: Any, padding: Any) -> tuple[Pair, Pair, Pair]:
    return both(kernel, axes), both(stride or kernel, axes), both(padding, axes, 0)


def adaptive_avg_pool(axes: int) -> Callable[..., Any]:
    def pool(site: Site, self: Any, output_size: Any) -> Any:
        def whole(x: Tensor) -> Tensor:
            given = output_size if isinstance(output_size, int) else list(output_size)
            rows, columns = both(given, axes)
            if (rows, columns) == (1, 1):
                return ops.reshape(ops.global_avg_pool2d(x), (*x.shape[:2], 1, 1))
            return x if (rows, columns) == x.shape[2:] else ops.adaptive_avg_pool2d(x, (rows, columns))

        return _images(site, site.floats(self), axes, whole)

    return pool


def adaptive_max_pool(axes: int) -> Callable[..., Any]:
    def pool(site: Site, self: Any, output_size: Any) -> Any:
        def whole(x: Tensor) -> Tensor:
            rows, columns = both(output_size, axes)
            site.need(not x.shape[2] % rows and not x.shape[3] % columns, "windows of different sizes")
            window = (x.shape[2] // rows, x.shape[3] // columns)
            return ops.max_pool2d(x, window, stride=window)

        return [_images(site, site.floats(self), axes, whole), None]

    return pool


def padded(site: Site, x: Tensor, sides: Sequence[int], value: float, mode: str = "constant") -> Tensor:
    """x padded by `sides` elements in front and behind, the last axis first, as in torch.nn.functional.pad."""
    for n in range(len(sides) // 2):
        before, behind = sides[2 * n], sides[2 * n + 1]
        axis = len(x.shape) - 1 - n
        parts = [_side(site, x, axis, before, value, mode, True), x, _side(site, x, axis, behind, value, mode, False)]
        if min(before, behind) < 0:
            cut = slice(max(0, -before), x.shape[axis] - max(0, -behind))
            parts[1] = x[(slice(None),) * axis + (cut,)]
        found = [part for part in parts if part is not None]
        x = ops.concat(*found, axis=axis) if len(found) > 1 else found[0]
    return x


def _side(site: Site, x: Tensor, axis: int, count: int, value: float, mode: str, front: bool) -> Tensor | None:
    """The padding in front of x along `axis`, or behind it; None for no padding."""
    if count <= 0:
        return None
    extent = x.shape[axis]

    def part(start: int, stop: int) -> Tensor:
        return x[(slice(None),) * axis + (slice(start, stop),)]

    match mode:
        case "constant":
            return ops.full((*x.shape[:axis], count, *x.shape[axis + 1 :]), value)
        case "reflect":
            return ops.flip(part(1, count + 1) if front else part(extent - 1 - count, extent - 1), axis)
        case "replicate":
            edge = part(0, 1) if front else part(extent - 1, extent)
            return ops.expand(edge, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
        case "circular":
            return part(extent - count, extent) if front else part(0, count)
    return site.refuse(f"padding of mode {mode!r}")


def pad(site: Site, self: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    return padded(site, site.floats(self), [int(each) for each in pad], float(value or 0.0), mode)


def interpolate(mode: Any, axes: int = 2) -> Callable[..., Any]:
    """Enlarges by whole numbers, separate for rows and columns."""

    def resize(
        site: Site, input: Any = None, self: Any = None, output_size: Any = None, align_corners: bool = False,
        scale_factors: Any = None, **_: Any,
    ) -> Any:  # fmt: skip
        site.need(not align_corners, "interpolation with align_corners")

        def whole(x: Tensor) -> Tensor:
            if output_size is None:
                scales = [1.0] * (2 - axes) + [float(each) for each in scale_factors]
            else:
                sizes = [1] * (2 - axes) + [int(each) for each in output_size]
                scales = [size / extent for size, extent in zip(sizes, x.shape[2:], strict=True)]
            site.need(all(each >= 1 and each.is_integer() for each in scales), "interpolation by no whole number")
            return ops.upsample(x, (int(scales[0]), int(scales[1])), mode=mode)

        return _images(site, site.floats(self if input is None else input), axes, whole)

    return resize


def pixel_shuffle(site: Site, self: Any, upscale_factor: int) -> Any:
    x, r = site.floats(self), upscale_factor
    n, c, h, w = x.shape
    parts = ops.permute(ops.reshape(x, (n, c // (r * r), r, r, h, w)), 0, 1, 4, 2, 5, 3)
    return ops.reshape(parts, (n, c // (r * r), h * r, w * r))
