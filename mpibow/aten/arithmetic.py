"""Arithmetic, activations, comparisons, sums and products of tensors, as ATen calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.aten.program import Batch
from mpibow.aten.site import Filled, Site, dtype_of, number, shape_of
from mpibow.graph.graph import FLOAT, Tensor

Axes = int | Sequence[int] | None


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _operand(site: Site, value: Any) -> Tensor | float:
    """A tensor, or a number; a constant tensor without axes is a number."""
    if _is_number(value):
        return float(value)
    if not shape_of(value) and (found := number(value)) is not None:
        return found
    return site.tensor(value)


def add(site: Site, self: Any, other: Any, alpha: float = 1) -> Any:
    x, y = _operand(site, self), _operand(site, other)
    if alpha == 1:
        return x + y
    return x + y * float(alpha)


def sub(site: Site, self: Any, other: Any, alpha: float = 1) -> Any:
    x, y = _operand(site, self), _operand(site, other)
    return x - (y if alpha == 1 else y * float(alpha))


def rsub(site: Site, self: Any, other: Any, alpha: float = 1) -> Any:
    return sub(site, other, self, alpha)


def mul(site: Site, self: Any, other: Any) -> Any:
    return _operand(site, self) * _operand(site, other)


def div(site: Site, self: Any, other: Any, rounding_mode: str | None = None) -> Any:
    site.need(rounding_mode is None, f"rounding_mode={rounding_mode!r}: quotients are not rounded here")
    if isinstance(self, Filled) and self.value is not None and (by := number(other)):
        return Filled(self.shape, self.value / by)
    return _operand(site, self) / _operand(site, other)


def power(site: Site, self: Any, exponent: Any) -> Any:
    by = number(exponent)
    if by is None or _is_number(self):
        site.refuse("the exponent must be a number, and the base a tensor")
    return site.floats(self) if by == 1 else ops.power(site.floats(self), by)


def square(site: Site, self: Any) -> Any:
    return ops.power(site.floats(self), 2.0)


def rsqrt(site: Site, self: Any) -> Any:
    return ops.power(ops.sqrt(site.floats(self)), -1.0)


def reciprocal(site: Site, self: Any) -> Any:
    return ops.power(site.floats(self), -1.0)


def unary(function: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """An ATen operator of one tensor that equals a function of mpibow."""
    return lambda site, self: function(site.floats(self))


def gelu(site: Site, self: Any, approximate: str = "none") -> Any:
    return ops.gelu(site.floats(self), tanh=approximate == "tanh")


def leaky_relu(site: Site, self: Any, negative_slope: float = 0.01) -> Any:
    return ops.leaky_relu(site.floats(self), float(negative_slope))


def hardtanh(site: Site, self: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    low, high = float(min_val), float(max_val)
    return ops.affine(ops.clipped_relu(ops.affine(site.floats(self), 1.0, -low), high - low), 1.0, low)


def hardsigmoid(site: Site, self: Any) -> Any:
    return ops.clipped_relu(site.floats(self) + 3.0) * (1 / 6)


def hardswish(site: Site, self: Any) -> Any:
    x = site.floats(self)
    return x * hardsigmoid(site, x)


def softplus(site: Site, self: Any, beta: float = 1, threshold: float = 20) -> Any:
    x = site.floats(self)
    y = ops.softplus(x * float(beta)) / float(beta)
    return y if threshold >= 20 else ops.where(ops.gt(x * float(beta), float(threshold)), x, y)


def mish(site: Site, self: Any) -> Any:
    x = site.floats(self)
    return x * ops.tanh(ops.softplus(x))


def detach(site: Site, self: Any) -> Any:
    """The same numbers without a gradient, by a cast, which has none."""
    return site.graph.add(ops.Cast(FLOAT), site.floats(self))


def elu(site: Site, self: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    x = site.floats(self)
    below = ops.exp(-ops.maximum(-x, ops.full(x.shape, 0.0)) * float(input_scale))  # exp(x) could overflow
    return ops.where(ops.gt(x, 0.0), x, (below - 1.0) * float(alpha)) * float(scale)


def selu(site: Site, self: Any) -> Any:
    return elu(site, self, 1.6732632423543772, 1.0507009873554805)


def celu(site: Site, self: Any, alpha: float = 1) -> Any:
    return elu(site, self, alpha, input_scale=1 / alpha)


def threshold(site: Site, self: Any, threshold: float, value: float) -> Any:
    x = site.floats(self)
    return ops.where(ops.gt(x, float(threshold)), x, float(value))


def log_sigmoid(site: Site, self: Any) -> Any:
    return -ops.softplus(-site.floats(self))


def glu(site: Site, self: Any, dim: int = -1) -> Any:
    x = site.floats(self)
    values, gates = ops.split(x, x.shape[dim] // 2, axis=dim)
    return values * ops.sigmoid(gates)


def clamp(site: Site, self: Any, min: float | None = None, max: float | None = None) -> Any:
    x = site.floats(self)
    for bound, sign in ((min, 1.0), (max, -1.0)):
        if bound is None:
            continue
        found = number(bound)
        limit = ops.full(x.shape, sign * found) if found is not None else site.floats(bound) * sign
        shape = np.broadcast_shapes(x.shape, limit.shape)
        # Of equal elements the first, x itself, receives the gradient.
        x = ops.maximum(ops.expand(x * sign, shape), ops.expand(limit, shape)) * sign
    return x


def maximum(site: Site, self: Any, other: Any) -> Any:
    shape = np.broadcast_shapes(shape_of(self), shape_of(other))
    return ops.maximum(*(ops.expand(site.floats(each), shape) for each in (self, other)))


def minimum(site: Site, self: Any, other: Any) -> Any:
    return -maximum(site, -site.floats(self), -site.floats(other))


def compare(sign: str, site: Site, self: Any, other: Any) -> Any:
    made = getattr(ops, sign)
    if _is_number(self):
        turned = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(sign, sign)
        return getattr(ops, turned)(site.tensor(other), float(self))
    return made(site.tensor(self), _operand(site, other))


def where(site: Site, condition: Any, self: Any, other: Any) -> Any:
    return ops.where(site.tensor(condition), _operand(site, self), _operand(site, other))


def masked_fill(site: Site, self: Any, mask: Any, value: Any) -> Any:
    return ops.where(site.tensor(mask), _operand(site, value), site.tensor(self))


def logical_not(site: Site, self: Any) -> Any:
    return ops.eq(site.tensor(self), 0.0)


def logical_and(site: Site, self: Any, other: Any) -> Any:
    return ops.ne(site.floats(self) * site.floats(other), 0.0)


def logical_or(site: Site, self: Any, other: Any) -> Any:
    return ops.gt(ops.abs(site.floats(self)) + ops.abs(site.floats(other)), 0.0)


def _every(x: Tensor, dim: Axes) -> list[int]:
    """The axes of a sum: all where none are given, as in PyTorch, whose numbers without axes have one nonetheless."""
    given = [dim] if isinstance(dim, int) else list(dim or range(len(x.shape)))
    return [axis % len(x.shape) for axis in given] if x.shape else []


def _over(function: Callable[..., Tensor], x: Tensor, dim: Axes, keepdim: bool = False) -> Tensor:
    """A sum or the like over `dim`."""
    axes = _every(x, dim)
    return function(x, axes, keepdim=keepdim) if axes else x


def reduced(function: Callable[..., Tensor], site: Site, self: Any, dim: Axes = None, keepdim: bool = False,
            dtype: Any = None) -> Any:  # fmt: skip
    return _over(function, site.floats(self), dim, keepdim)


def amin(site: Site, self: Any, dim: Axes = None, keepdim: bool = False) -> Any:
    return -_over(ops.amax, -site.floats(self), dim, keepdim)


def largest(site: Site, self: Any, other: Any = None, dim: Axes = None, keepdim: bool = False) -> Any:
    """max in its three forms; with an axis it also returns indices, which nothing may read (shapes.item)."""
    if other is not None:
        return maximum(site, self, other)
    found = _over(ops.amax, site.floats(self), dim, keepdim)
    return found if dim is None else [found, None]


def logsumexp(site: Site, self: Any, dim: Axes, keepdim: bool = False) -> Any:
    x = site.floats(self)
    top = _over(ops.amax, x, dim, True)
    return ops.log(_over(ops.sum, ops.exp(x - top), dim, keepdim)) + _over(ops.mean, top, dim, keepdim)


def var(site: Site, self: Any, dim: Axes = None, unbiased: bool = True, correction: float | None = None,
        keepdim: bool = False) -> Any:  # fmt: skip
    x = site.floats(self)
    count = int(np.prod([x.shape[axis] for axis in _every(x, dim)]))
    less = float(unbiased) if correction is None else float(correction)
    spread = _over(ops.sum, ops.power(x - _over(ops.mean, x, dim, True), 2.0), dim, keepdim)
    site.need(count > less, f"a variance of {count} numbers, less {less:g}")
    return spread / (count - less)


def std(site: Site, self: Any, **settings: Any) -> Any:
    return _root(var(site, self, **settings))


def norm(site: Site, self: Any, p: Any = 2, dim: Axes = None, keepdim: bool = False, dtype: Any = None,
         ord: Any = 2) -> Any:  # fmt: skip
    site.need(number(2 if p is None else p) == 2 and number(2 if ord is None else ord) == 2, "norms must be Euclidean")
    x = site.floats(self)
    return _root(_over(ops.sum, ops.power(x, 2.0), dim, keepdim))


def _root(x: Tensor) -> Tensor:
    """The square root of a sum of squares; its gradient at 0 is 0."""
    some = ops.gt(x, 0.0)
    return ops.where(some, ops.sqrt(ops.where(some, x, 1.0)), 0.0)


def softmax(function: Callable[..., Tensor], site: Site, self: Any, dim: int, dtype: Any = None,
            half_to_float: bool = False) -> Any:  # fmt: skip
    return function(site.floats(self), dim)


def matmul(site: Site, self: Any, other: Any = None, mat2: Any = None) -> Any:
    return ops.matmul(site.floats(self), site.floats(mat2 if other is None else other))


def addmm(site: Site, self: Any, beta: float = 1, alpha: float = 1, **factors: Any) -> Any:
    a, b = (site.floats(each) for each in factors.values())
    return site.floats(self) * float(beta) + ops.matmul(a, b) * float(alpha)


def bernoulli(site: Site, self: Any, p: float, generator: Any = None) -> Any:
    """1 with probability `p` in training; in evaluation its mean, p."""
    ones = site.tensor(Filled(shape_of(self), 1.0))
    first = (site.call.shape or (None,))[0]
    site.need(first == Batch(1) and 0 < p < 1, "random numbers need the batch as first axis, and p in (0, 1)")
    return ops.dropout(ones, 1.0 - float(p)) * float(p)


def cast(site: Site, self: Any, dtype: Any = None, **_: Any) -> Any:
    """Casts to another type: `dtype` is a NumPy name, None, or a tensor of that type."""
    wanted = site.call.dtype or FLOAT
    if dtype_of(self) == wanted:
        return self
    return ops.cast(site.tensor(self), wanted)


COMPARISONS = {sign: partial(compare, sign) for sign in ("lt", "le", "gt", "ge", "eq", "ne")}
