"""Arithmetic, activations, comparisons, sums and products of tensors, as ATen calls them: `x` is what it calls self."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import log

import numpy as np

from mpibow import ops
from mpibow.aten import integers
from mpibow.aten.integers import arithmetic, divided, of_integers, whole
from mpibow.aten.order import first_place
from mpibow.aten.program import BatchExtent
from mpibow.aten.site import (
    Argument,
    Filled,
    Function,
    Operand,
    Result,
    Site,
    Value,
    axes_of,
    dtype_of,
    need,
    number,
    refuse,
)
from mpibow.graph.graph import FLOAT, Tensor
from mpibow.ops.integers import integer

Axes = int | Sequence[int] | None


def add(x: Operand, other: Operand, alpha: float = 1) -> Operand:
    return x + (other if alpha == 1 else other * float(alpha))


def sub(x: Operand, other: Operand, alpha: float = 1) -> Operand:
    return x - (other if alpha == 1 else other * float(alpha))


def div(site: Site, self: Argument, other: Argument, rounding_mode: str | None = None) -> Result:
    if isinstance(self, Filled) and self.value is not None and rounding_mode is None and (by := number(other)):
        return Filled(self.shape, self.value / by)
    return divided(site, self, other, rounding_mode)


def power(site: Site, self: Argument, exponent: Argument) -> Tensor:
    by = number(exponent)
    if by is None or isinstance(self, float | int):
        refuse("the exponent must be a number, and the base a tensor")
    return site.floats(self) if by == 1 else ops.power(site.floats(self), by)


def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    low, high = float(min_val), float(max_val)
    return ops.affine(ops.clipped_relu(ops.affine(x, 1.0, -low), high - low), 1.0, low)


def hardsigmoid(x: Tensor) -> Tensor:
    return ops.clipped_relu(x + 3.0) * (1 / 6)


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    y = ops.softplus(x * float(beta)) / float(beta)
    return y if threshold >= 20 else ops.where(ops.gt(x * float(beta), float(threshold)), x, y)


def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    below = ops.exp(-ops.maximum(-x, ops.full(x.shape, 0.0)) * float(input_scale))  # exp(x) could overflow
    return ops.where(ops.gt(x, 0.0), x, (below - 1.0) * float(alpha)) * float(scale)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    values, gates = ops.split(x, x.shape[dim] // 2, axis=dim)
    return values * ops.sigmoid(gates)


def clamp(site: Site, self: Value, min: Argument | None = None, max: Argument | None = None) -> Tensor:
    if of_integers(site, self):
        for limit, pick in ((min, "max"), (max, "min")):
            self = self if limit is None else integer(whole(site, self), pick, whole(site, limit))
        return site.tensor(self)
    x = site.floats(self)
    for bound, sign in ((min, 1.0), (max, -1.0)):
        if bound is None:
            continue
        found = number(bound)
        bounds = ops.full(x.shape, sign * found) if found is not None else site.floats(bound) * sign
        x = maximum(x * sign, bounds) * sign  # of equal elements the first, x itself, receives the gradient
    return x


def maximum(x: Tensor, other: Tensor) -> Tensor:
    shape = np.broadcast_shapes(x.shape, other.shape)
    return ops.maximum(ops.expand(x, shape), ops.expand(other, shape))


TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}  # of exchanged sides


def compare(sign: str, x: Operand, other: Operand) -> Tensor:
    if isinstance(other, Tensor) and not isinstance(x, Tensor):
        return getattr(ops, TURNED.get(sign, sign))(other, x)  # type: ignore[no-any-return]
    left = x if isinstance(x, Tensor) else ops.full((), x)
    return getattr(ops, sign)(left, other)  # type: ignore[no-any-return]


def reduced(function: Callable[..., Tensor], x: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
    """A sum or the like over `dim`."""
    axes = axes_of(x, dim)
    return function(x, axes, keepdim=keepdim) if axes else x


def amin(x: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
    return -reduced(ops.amax, -x, dim, keepdim)


def largest(x: Tensor, other: Tensor | None = None, dim: int | None = None, keepdim: bool = False) -> Result:
    """max in its three forms; with an axis it also returns places."""
    if other is not None:
        return maximum(x, other)
    found = reduced(ops.amax, x, dim, keepdim)
    return found if dim is None else [found, lambda: first_place(x, dim, keepdim, largest=True)]


def smallest(x: Tensor, other: Tensor | None = None, dim: int | None = None, keepdim: bool = False) -> Result:
    """min in its three forms."""
    if other is not None:
        return -maximum(-x, -other)
    found = amin(x, dim, keepdim)
    return found if dim is None else [found, lambda: first_place(x, dim, keepdim, largest=False)]


def logsumexp(x: Tensor, dim: Axes, keepdim: bool = False) -> Tensor:
    top = reduced(ops.amax, x, dim, True)
    return ops.log(reduced(ops.sum, ops.exp(x - top), dim, keepdim)) + reduced(ops.mean, top, dim, keepdim)


def var(
    x: Tensor, dim: Axes = None, unbiased: bool = True, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    count = int(np.prod([x.shape[axis] for axis in axes_of(x, dim)]))
    less = float(unbiased) if correction is None else float(correction)
    spread = reduced(ops.sum, ops.power(x - reduced(ops.mean, x, dim, True), 2.0), dim, keepdim)
    need(count > less, f"a variance of {count} numbers, less {less:g}")
    return spread / (count - less)


def norm(x: Tensor, p: float | None = 2, dim: Axes = None, keepdim: bool = False, ord: float | None = 2) -> Tensor:
    need({p, ord} <= {2, None}, "norms must be Euclidean")
    return root(reduced(ops.sum, ops.power(x, 2.0), dim, keepdim))


def root(x: Tensor) -> Tensor:
    """The square root of a sum of squares; its gradient at 0 is 0."""
    some = ops.gt(x, 0.0)
    return ops.where(some, ops.sqrt(ops.where(some, x, 1.0)), 0.0)


def matmul(x: Tensor, other: Tensor | None = None, mat2: Tensor | None = None) -> Tensor:
    factor = mat2 if other is None else other
    assert factor is not None
    return ops.matmul(x, factor)


def addmm(x: Tensor, beta: float = 1, alpha: float = 1, **factors: Tensor) -> Tensor:
    return x * float(beta) + ops.matmul(*factors.values()) * float(alpha)


def bernoulli(site: Site, self: Value, p: float) -> Tensor:
    """1 with probability `p` in training; in evaluation its mean, p."""
    ones = site.tensor(Filled(self.shape, 1.0))
    first = (site.call.shape or (None,))[0]
    need(first == BatchExtent(1) and 0 < p < 1, "random numbers need the batch as first axis, and p in (0, 1)")
    return ops.dropout(ones, 1.0 - float(p)) * float(p)


def prod(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The product along an axis, or of all numbers."""
    if dim is None:
        x = ops.reshape(x, (-1,))
    at = (dim or 0) % len(x.shape)
    parts = ops.split(x, 1, axis=at)
    made = ops.multiply(*parts) if len(parts) > 1 else parts[0]
    return made if keepdim else ops.reshape(made, (*x.shape[:at], *x.shape[at + 1 :]))


def mean(x: Tensor, dim: Axes = None, keepdim: bool = False, **_: object) -> Tensor:
    return reduced(ops.mean, x, dim, keepdim)


def detach(site: Site, self: Value) -> Value:
    return ops.detach(site.tensor(self)) if dtype_of(self) == FLOAT else self


def cast(site: Site, self: Value, **_: object) -> Value:
    wanted = site.call.dtype or FLOAT
    return self if dtype_of(self) == wanted else ops.cast(site.tensor(self), wanted)


# By the functions' arguments: two tensors or numbers; tensors as floats; anything, and the call's site.
OF_OPERANDS: dict[str, Function] = {
    **{sign: partial(compare, sign) for sign in ("lt", "le", "gt", "ge", "eq", "ne")},
}

OF_FLOATS: dict[str, Function] = {
    "abs": ops.abs,
    "addmm": addmm,
    "baddbmm": addmm,
    "bmm": matmul,
    "celu": lambda x, alpha=1: elu(x, alpha, input_scale=1 / alpha),
    "cos": ops.cos,
    "erf": ops.erf,
    "elu": elu,
    "exp": ops.exp,
    "exp2": lambda x: ops.exp(x * log(2.0)),
    "expm1": lambda x: ops.exp(x) - 1.0,
    "floor": ops.floor,
    "ceil": lambda x: -ops.floor(-x),
    "gelu": lambda x, approximate="none": ops.gelu(x, tanh=approximate == "tanh"),
    "glu": glu,
    "hardsigmoid": hardsigmoid,
    "hardswish": lambda x: x * hardsigmoid(x),
    "hardtanh": hardtanh,
    "leaky_relu": lambda x, negative_slope=0.01: ops.leaky_relu(x, float(negative_slope)),
    "linalg_vector_norm": norm,
    "log": ops.log,
    "log10": lambda x: ops.log(x) / log(10.0),
    "log1p": ops.log1p,
    "log2": lambda x: ops.log(x) / log(2.0),
    "log_sigmoid": lambda x: -ops.softplus(-x),
    "log_softmax": lambda x, dim: ops.log_softmax(x, dim),
    "logsumexp": logsumexp,
    "matmul": matmul,
    "maximum": maximum,
    "mean": partial(reduced, ops.mean),
    "minimum": lambda x, other: -maximum(-x, -other),
    "mish": lambda x: x * ops.tanh(ops.softplus(x)),
    "mm": matmul,
    "norm": norm,
    "prod": prod,
    "reciprocal": lambda x: ops.power(x, -1.0),
    "relu": ops.relu,
    "relu6": ops.clipped_relu,
    "rsqrt": lambda x: ops.power(ops.sqrt(x), -1.0),
    "selu": lambda x: elu(x, 1.6732632423543772, 1.0507009873554805),
    "sigmoid": ops.sigmoid,
    "sign": ops.sign,
    "silu": ops.silu,
    "sin": ops.sin,
    "softmax": lambda x, dim: ops.softmax(x, dim),
    "softplus": softplus,
    "sqrt": ops.sqrt,
    "square": lambda x: ops.power(x, 2.0),
    "std": lambda x, **settings: root(var(x, **settings)),
    "std_mean": lambda x, **settings: [root(var(x, **settings)), mean(x, **settings)],
    "tanh": ops.tanh,
    "threshold": lambda x, threshold, value: ops.where(ops.gt(x, float(threshold)), x, float(value)),
    "var": var,
    "var_mean": lambda x, **settings: [var(x, **settings), mean(x, **settings)],
}

OF_ANY: dict[str, Function] = {
    "_to_copy": cast,
    "add": arithmetic("+", add),
    "amax": integers.reduced("max", partial(reduced, ops.amax)),
    "amin": integers.reduced("min", amin),
    "bernoulli": bernoulli,
    "clamp": clamp,
    "clamp_max": clamp,
    "clamp_min": clamp,
    "detach": detach,
    "div": div,
    "max": integers.reduced("max", largest),
    "min": integers.reduced("min", smallest),
    "mul": arithmetic("*", lambda x, other: x * other),
    "sub": arithmetic("-", sub),
    "sum": integers.reduced("+", partial(reduced, ops.sum)),
    "pow": power,
    "to": cast,
    "type_as": cast,
}
