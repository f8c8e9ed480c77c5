"""Sums, products, extrema and norms over axes, as ATen calls them."""

from collections.abc import Callable
from functools import partial

import numpy as np

from mpibow import ops
from mpibow.graph import FLOAT, Tensor
from mpibow.ops.integers import integer, integer_reduction

from .arithmetic import larger, truth, whole
from .order import gather, kept
from .shapes import Axes, along
from .site import WHOLE, Function, Result, Site, Value, combined, dtype_of, need, of_floats, of_tensors


def axes_of(x: Tensor, dim: Axes | None) -> list[int]:
    """The axes of a sum: all where none are given, as in PyTorch, whose numbers without axes have one nonetheless."""
    given = [dim] if isinstance(dim, int) else list(dim or range(x.ndim))
    return [axis % x.ndim for axis in given] if x.shape else []


def reduced(
    function: Callable[..., Tensor], x: Tensor, dim: Axes | None = None, keepdim: bool = False, **_: object
) -> Tensor:
    """A sum or the like over `dim`."""
    axes = axes_of(x, dim)
    return function(x, axes, keepdim=keepdim) if axes else x


def prod(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The product along an axis, or of all numbers."""
    x, axis = (ops.reshape(x, (-1,)), 0) if dim is None else (x, dim)
    made = combined(ops.multiply, ops.split(x, 1, axis=axis))
    return made if keepdim else along(made, axis, 0)


mean = partial(reduced, ops.mean)
REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "+": partial(reduced, ops.sum),
    "max": partial(reduced, ops.amax),
    "min": lambda x, dim, keepdim: -reduced(ops.amax, -x, dim, keepdim),
    "*": prod,
}


def reduction(sign: str, site: Site, self: Value, dim: Axes | None = None, keepdim: bool = False) -> Tensor:
    """Elements combined over `dim`, of floats, integers or bools."""
    if (site.call.dtype or dtype_of(self)) == FLOAT:
        return REDUCTIONS[sign](site.floats(self), dim, keepdim)
    x = truth(site, self) if sign in "&|" else whole(site, self)
    for axis in sorted(axes_of(x, dim), reverse=True):
        x = integer_reduction(x, sign, axis, keepdim=keepdim)
    return x


def extremum(
    sign: str, site: Site, self: Value, dim: int | None = None, keepdim: bool = False, other: Value | None = None
) -> Result:
    """max and min in their three forms; with an axis they also return places."""
    if other is not None:
        return larger(sign, site, self, other)
    if dim is None:
        return reduction(sign, site, self, None, keepdim)
    x = site.tensor(self)
    place = first_place(sign, x, dim)  # it alone takes the gradient
    return [kept(each, dim, keepdim) for each in (gather(x, dim, place), place)]


def first_place(sign: str, x: Tensor, dim: int) -> Tensor:
    """The first place along an axis of the largest element, or for "min" the smallest, or of NaN."""
    if not x.shape:
        return ops.constant(0)
    at = dim % x.ndim
    count = x.shape[dim]
    top = REDUCTIONS[sign](x, at, True) if x.dtype == FLOAT else integer_reduction(x, sign, at, keepdim=True)
    holds = integer(ops.eq(x, top), "|", ops.ne(x, x))
    numbers = ops.reshape(ops.arange(count), [-1 if axis == at else 1 for axis in range(x.ndim)])
    return integer_reduction(ops.where(holds, numbers, ops.constant(2**31 - 1)), "min", at, keepdim=True)


def places(sign: str, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """argmax and argmin."""
    if dim is not None:
        return kept(first_place(sign, x, dim), dim, keepdim)
    return ops.reshape(first_place(sign, ops.reshape(x, (-1,)), 0), (1,) * x.ndim if keepdim else ())


def cumulative(site: Site, self: Value, dim: int, **_: object) -> Tensor:
    if site.call.dtype == WHOLE:
        return integer_reduction(whole(site, self), "+", dim, running=True)
    return ops.cumsum(site.floats(self), dim)


def logsumexp(x: Tensor, dim: Axes | None, keepdim: bool = False) -> Tensor:
    top = reduced(ops.amax, x, dim, True)
    top = ops.where(ops.eq(ops.abs(top), np.inf), 0.0, top)  # a row of -inf gives -inf
    return ops.log(reduced(ops.sum, ops.exp(x - top), dim, keepdim)) + mean(top, dim, keepdim)


def var(
    x: Tensor, dim: Axes | None = None, unbiased: bool = True, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    count = np.prod([x.shape[axis] for axis in axes_of(x, dim)])
    spread = reduced(ops.sum, ops.power(x - mean(x, dim, True), 2.0), dim, keepdim)
    # Over a batch of one sample it is 0, not 0 / 0.
    return spread / max(count - float(unbiased if correction is None else correction), 1e-30)


def root(x: Tensor) -> Tensor:
    """The square root of a sum of squares; its gradient at 0 is 0."""
    some = ops.ne(x, 0.0)
    return ops.where(some, ops.sqrt(ops.where(some, x, 1.0)), 0.0)


def norm(x: Tensor, ord: float = 2, dim: Axes | None = None, keepdim: bool = False) -> Tensor:
    if ord in (1, np.inf):
        return reduced(ops.sum if ord == 1 else ops.amax, ops.abs(x), dim, keepdim)
    need(ord == 2, "norms must be of order 1, 2 or infinity")
    return root(reduced(ops.sum, ops.power(x, 2.0), dim, keepdim))


def binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1) -> Tensor:
    """Of probabilities; those below 1e-38 are 0, whose logarithm is -100 with a finite slope, as a sigmoid's is 0."""

    def log(function: Callable[[Tensor], Tensor], x: Tensor, p: Tensor) -> Tensor:
        some = ops.gt(p, 1e-38)
        return ops.where(some, function(ops.where(some, x, 0.5)), p * 1e12 - 100.0)

    losses = (target - 1.0) * log(ops.log1p, -x, 1.0 - x) - target * log(ops.log, x, x)
    losses = losses if weight is None else losses * weight
    return (lambda y: y, mean, REDUCTIONS["+"])[reduction](losses)


OPERATORS: dict[str, Function] = {
    **of_floats(
        {
            "binary_cross_entropy": binary_cross_entropy,
            "linalg_vector_norm": norm,
            "logsumexp": logsumexp,
            "mean": mean,
            "std": lambda x, **settings: root(var(x, **settings)),
            "std_mean": lambda x, **settings: [root(var(x, **settings)), mean(x, **settings)],
            "var": var,
            "var_mean": lambda x, **settings: [var(x, **settings), mean(x, **settings)],
        }
    ),
    **of_tensors({"argmax": partial(places, "max"), "argmin": partial(places, "min")}),
    "all": partial(reduction, "&"),
    "amax": partial(reduction, "max"),
    "amin": partial(reduction, "min"),
    "any": partial(reduction, "|"),
    "cumsum": cumulative,
    "max": partial(extremum, "max"),
    "min": partial(extremum, "min"),
    "prod": partial(reduction, "*"),
    "sum": partial(reduction, "+"),
}
