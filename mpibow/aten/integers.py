"""Integers and bools, as ATen calls their arithmetic: they stay int32, and bool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.aten.order import first_place
from mpibow.aten.site import (
    WHOLE,
    Argument,
    Function,
    Result,
    Site,
    Value,
    axes_of,
    dtype_of,
    is_value,
    need,
    number,
    refuse,
)
from mpibow.graph.graph import FLOAT, Tensor
from mpibow.ops.integers import integer, integer_reduction

Axes = int | list[int] | None


def of_integers(site: Site, *values: object) -> bool:
    """Whether a call takes and gives integers; numbers beside tensors have the tensors' type."""
    kinds = {dtype_of(each) for each in values if not isinstance(each, float | int)}
    return site.call.dtype == WHOLE and FLOAT not in kinds


def whole(site: Site, value: Argument) -> Tensor:
    """An argument as a tensor of integers."""
    if isinstance(value, float | int):
        need(abs(value) < 2**31, "integers beyond int32")
        return ops.constant(np.asarray(int(value)))
    return ops.cast(site.tensor(value), WHOLE)


def truth(site: Site, value: Argument) -> Tensor:
    """An argument as a tensor of bools: whether it is not 0."""
    x = site.tensor(value)
    return x if x.dtype == "bool" else ops.ne(x, 0.0)


def arithmetic(sign: str, floats: Function) -> Function:
    """`sign` of two tensors or numbers: of integers, else `floats`."""

    def call(site: Site, self: Argument, other: Argument, alpha: float = 1) -> Result:
        if not of_integers(site, self, other):
            return floats(site.operand(self), site.operand(other), *[alpha] * (alpha != 1))
        y = whole(site, other)
        return integer(whole(site, self), sign, y if alpha == 1 else integer(y, "*", whole(site, alpha)))

    return call


def rsub(site: Site, self: Argument, other: Argument, alpha: float = 1) -> Result:
    """other - alpha self."""
    if of_integers(site, self, other):
        return integer(whole(site, other), "-", integer(whole(site, self), "*", whole(site, alpha)))
    x = site.operand(self)
    return site.operand(other) - (x if alpha == 1 else x * float(alpha))


def divided(site: Site, self: Argument, other: Argument, rounding_mode: str | None = None) -> Result:
    if of_integers(site, self, other) and rounding_mode is not None:
        if rounding_mode == "trunc":
            refuse("a quotient of integers that is rounded to 0; rounding_mode='floor' is there")
        return integer(whole(site, self), "//", whole(site, other))
    y = site.floats(self) / site.operand(other)
    if rounding_mode is None:
        return y
    return ops.floor(y) if rounding_mode == "floor" else ops.sign(y) * ops.floor(ops.abs(y))


def remainder(site: Site, self: Argument, other: Argument) -> Tensor:
    if of_integers(site, self, other):
        return integer(whole(site, self), "%", whole(site, other))
    x, y = site.floats(self), site.operand(other)
    return x - ops.floor(x / y) * y


def bitwise(sign: str, site: Site, self: Argument, other: Argument) -> Tensor:
    convert = truth if site.call.dtype == "bool" else whole
    return integer(convert(site, self), sign, convert(site, other))


def logical(sign: str, site: Site, self: Argument, other: Argument) -> Tensor:
    return integer(truth(site, self), sign, truth(site, other))


def inverted(site: Site, self: Value) -> Tensor:
    """~x, and not x of bools."""
    if dtype_of(self) == WHOLE and site.call.operator == "bitwise_not":
        return integer(whole(site, -1), "-", whole(site, self))
    return ops.eq(site.tensor(self), 0.0)


def reduced(sign: str, floats: Callable[..., Result], convert: Callable[[Site, Argument], Tensor] = whole) -> Function:
    """A reduction over `dim`: of integers by `sign`, of floats by `floats`."""

    def call(site: Site, self: Value, dim: Axes = None, keepdim: bool = False, **settings: Any) -> Result:
        if site.call.dtype == FLOAT or (site.call.dtype is None and dtype_of(self) == FLOAT):
            given = {key: site.floats(each) if is_value(each) else each for key, each in settings.items()}
            return floats(site.floats(self), **given, **({} if dim is None else {"dim": dim}), keepdim=keepdim)
        if settings.get("other") is not None:
            return integer(whole(site, self), sign, whole(site, settings["other"]))
        x, several = convert(site, self), site.call.dtype is None
        for axis in sorted(axes_of(x, dim), reverse=True):
            x = integer_reduction(x, sign, axis, keepdim=keepdim)
        if several and isinstance(dim, int):
            return [x, lambda: first_place(whole(site, self), dim, keepdim, largest=sign == "max")]
        return x

    return call


def no_floats(x: Tensor, **_: object) -> Result:
    return refuse("floats, where integers or bools are needed")


def cumulative(site: Site, self: Value, dim: int, **_: object) -> Tensor:
    if site.call.dtype == WHOLE:
        return integer_reduction(whole(site, self), "+", dim, running=True)
    return ops.cumsum(site.floats(self), dim)


def negated(site: Site, self: Value) -> Tensor:
    if dtype_of(self) != FLOAT:
        return integer(whole(site, 0), "-", whole(site, self))
    return ops.neg(site.floats(self))


def chosen(site: Site, condition: Tensor, x: Argument, y: Argument) -> Tensor:
    """x where the condition holds, else y."""
    if site.call.dtype == FLOAT:
        return ops.where(condition, site.operand(x), site.operand(y))
    one, zero = ops.cast(condition, WHOLE), ops.cast(ops.eq(condition, 0.0), WHOLE)
    made = integer(integer(one, "*", whole(site, x)), "+", integer(zero, "*", whole(site, y)))
    return made if site.call.dtype == WHOLE else ops.cast(made, str(site.call.dtype))


def where(site: Site, condition: Value, self: Argument, other: Argument) -> Tensor:
    return chosen(site, site.tensor(condition), self, other)


def masked_fill(site: Site, self: Value, mask: Value, value: Argument) -> Tensor:
    return chosen(site, site.tensor(mask), value, self)


def index_put(
    site: Site, self: Value, indices: Sequence[Value | None], values: Argument, accumulate: bool = False
) -> Tensor:
    """self with one number where a mask holds."""
    mask = indices[0]
    by_mask = mask is not None and dtype_of(mask) == "bool" and mask.shape == self.shape[: len(mask.shape)]
    if not by_mask or len(indices) > 1 or accumulate or (found := number(values)) is None:
        refuse("it writes at places of its own; only x[mask] = number is there, else use torch.where or index_add")
    x = site.tensor(self)
    wide = ops.reshape(site.tensor(mask), (*mask.shape, *(1 for _ in x.shape[len(mask.shape) :])))  # type: ignore[union-attr, arg-type]
    return chosen(site, wide, found, x)


def one_hot(site: Site, self: Value, num_classes: int = -1) -> Tensor:
    if num_classes < 0:
        refuse("the number of classes depends on the data; give num_classes")
    x = site.tensor(self)
    same = ops.eq(ops.reshape(x, (*x.shape, 1)), ops.constant(np.arange(num_classes)))
    return ops.cast(same, WHOLE)


def is_number(site: Site, self: Value) -> Tensor:
    x = site.floats(self)
    return ops.ne(x, x)


OF_ANY: dict[str, Function] = {
    **{f"bitwise_{name}": partial(bitwise, sign) for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))},
    **{f"logical_{name}": partial(logical, sign) for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))},
    **{f"__{name}__": partial(bitwise, sign) for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))},
    "all": reduced("&", no_floats, truth),
    "any": reduced("|", no_floats, truth),
    "bitwise_not": inverted,
    "cumsum": cumulative,
    "floor_divide": partial(divided, rounding_mode="floor"),
    "index_put": index_put,
    "isnan": is_number,
    "logical_not": inverted,
    "masked_fill": masked_fill,
    "neg": negated,
    "one_hot": one_hot,
    "remainder": remainder,
    "rsub": rsub,
    "where": where,
}
