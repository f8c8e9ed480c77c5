"""Arithmetic, comparisons, sums and products, as ATen calls them. Integers stay int32, and bools bool."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add, mul, sub
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.graph import FLOAT, Tensor
from mpibow.ops.arithmetic import broadcast
from mpibow.ops.integers import integer

from .program import BatchExtent
from .site import WHOLE, Argument, Function, Operand, Result, Site, Value, dtype_of, need, number, of_floats, refuse

SIGNS: dict[str, Callable[[Operand, Operand], Any]] = {"+": add, "-": sub, "*": mul}
TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}  # of exchanged sides


def of_integers(site: Site, *values: object) -> bool:
    """Whether a call takes and gives integers; numbers beside tensors have the tensors' type."""
    kinds = {dtype_of(each) for each in values if not isinstance(each, float | int)}
    return site.call.dtype == WHOLE and FLOAT not in kinds


def whole(site: Site, value: Argument) -> Tensor:
    """An argument as a tensor of integers."""
    value = np.asarray(int(value)) if isinstance(value, float | int) else value
    return ops.cast(site.tensor(value), WHOLE)


def truth(site: Site, value: Argument) -> Tensor:
    """An argument as a tensor of bools: whether it is not 0."""
    x = site.tensor(value)
    return x if x.dtype == "bool" else ops.ne(x, 0.0)


def arithmetic(sign: str, site: Site, self: Argument, other: Argument, alpha: float = 1) -> Result:
    """self `sign` alpha other."""
    if of_integers(site, self, other):
        y = whole(site, other)
        return integer(whole(site, self), sign, y if alpha == 1 else integer(y, "*", whole(site, alpha)))
    x = site.operand(self)
    by = site.operand(other)
    made: Tensor | float = SIGNS[sign](x, by if alpha == 1 else by * float(alpha))
    return made


def divide(site: Site, self: Argument, other: Argument, rounding_mode: str | None = None) -> Result:
    if of_integers(site, self, other) and rounding_mode is not None:
        if rounding_mode == "trunc":
            refuse("a quotient of integers that is rounded to 0; rounding_mode='floor' is there")
        return integer(whole(site, self), "//", whole(site, other))
    x = site.floats(self)
    y = site.operand(other)
    if rounding_mode == "floor":  # of x / y before it is rounded, as PyTorch's
        found = ops.floor((x - remainder(site, x, y)) / y + 0.25)
        if isinstance(y, Tensor):
            found = ops.where(ops.eq(y, 0.0), x / y, found)
        return ops.detach(found)
    ratio = x / y
    return ratio if rounding_mode is None else ops.sign(ratio) * ops.floor(ops.abs(ratio))


def remainder(site: Site, self: Argument, other: Argument) -> Tensor:
    if of_integers(site, self, other):
        return integer(whole(site, self), "%", whole(site, other))
    return ops.Remainder()(*broadcast(site.floats(self), site.floats(other)))


def power(site: Site, self: Argument, exponent: Argument) -> Tensor:
    by = number(exponent)
    if by is None or isinstance(self, float | int):
        return ops.exp(ops.log(site.floats(self)) * site.floats(exponent))
    if of_integers(site, self) and by.is_integer():
        need(by >= 1, "the exponent of integers must be at least 1")
        return reduce(lambda x, y: integer(x, "*", y), [whole(site, self)] * int(by))
    x = ops.cast(site.tensor(self))  # ONNX has roots of integers
    return x if by == 1 else ops.power(x, by)


def absolute(site: Site, self: Value) -> Tensor:
    return larger("max", site, self, negate(site, self)) if of_integers(site, self) else ops.abs(site.floats(self))


def negate(site: Site, self: Value) -> Tensor:
    if dtype_of(self) != FLOAT:
        return integer(whole(site, 0), "-", whole(site, self))
    return ops.neg(site.floats(self))


def bitwise(sign: str, site: Site, self: Argument, other: Argument) -> Tensor:
    convert = truth if site.call.dtype == "bool" or site.call.operator.startswith("logical") else whole
    return integer(convert(site, self), sign, convert(site, other))


def invert(site: Site, self: Value) -> Tensor:
    """~x, and not x of bools."""
    if dtype_of(self) == WHOLE and site.call.operator == "bitwise_not":
        return integer(whole(site, -1), "-", whole(site, self))
    return ops.eq(site.tensor(self), 0.0)


def compare(sign: str, site: Site, self: Argument, other: Argument) -> Tensor:
    x = site.operand(self)
    y = site.operand(other)
    if isinstance(y, Tensor) and not isinstance(x, Tensor):
        sign, x, y = TURNED.get(sign, sign), y, x
    made: Tensor = getattr(ops, sign)(x if isinstance(x, Tensor) else ops.full((), x), y)
    return made


def maximum(*values: Tensor) -> Tensor:
    """The larger of two; each takes half of the gradient where they are equal."""
    x, y = broadcast(*values)
    return ops.add(ops.maximum(x, y), ops.maximum(y, x), coefficients=(0.5, 0.5))


def larger(sign: str, site: Site, self: Value, other: Value) -> Tensor:
    """The larger of two, or for "min" the smaller."""
    if of_integers(site, self, other):
        return integer(whole(site, self), sign, whole(site, other))
    x = site.floats(self)
    y = site.floats(other)
    return maximum(x, y) if sign == "max" else -maximum(-x, -y)


def clamp(site: Site, self: Value, min: Argument | None = None, max: Argument | None = None) -> Tensor:
    if of_integers(site, self):
        for limit, pick in ((min, "max"), (max, "min")):
            self = self if limit is None else integer(whole(site, self), pick, whole(site, limit))
        return site.tensor(self)
    x = site.floats(self)
    for limit, beyond in ((min, ops.lt), (max, ops.gt)):
        if limit is not None:
            bound = site.operand(limit)
            x = ops.where(beyond(x, bound), bound, x)
    return x


def choose(site: Site, condition: Value, self: Argument, other: Argument) -> Tensor:
    """self where the condition holds, else other."""
    convert = {FLOAT: Site.operand, WHOLE: whole}.get(str(site.call.dtype), truth)
    return ops.where(site.tensor(condition), convert(site, self), convert(site, other))


def index_put(
    site: Site, self: Value, indices: Sequence[Value | None], values: Argument, accumulate: bool = False
) -> Tensor:
    """self with one number where a mask holds."""
    mask, *others = indices
    fill = number(values)
    more = bool(others) or accumulate
    if more or fill is None or mask is None or dtype_of(mask) != "bool" or mask.shape != self.shape[: len(mask.shape)]:
        refuse("it writes at places of its own; only x[mask] = number is there, else use torch.where or index_add")
    x = site.tensor(self)
    return choose(
        site, ops.reshape(site.tensor(mask), (*mask.shape, *(1 for _ in x.shape[len(mask.shape) :]))), fill, x
    )


def bernoulli(site: Site, self: Value, p: float) -> Tensor:
    """1 with probability `p` in training; in evaluation its mean, p."""
    first = (site.call.shape or (None,))[0]
    need(first == BatchExtent(1) and 0 < p < 1, "random numbers need the batch as first axis, and p in (0, 1)")
    return ops.dropout(ops.full(self.shape, 1.0), 1.0 - float(p)) * float(p)


def cast(site: Site, self: Value, **_: object) -> Value:
    wanted = site.call.dtype or FLOAT
    return self if dtype_of(self) == wanted else ops.cast(site.tensor(self), wanted)


OPERATORS: dict[str, Function] = {
    **of_floats(
        {
            "addmm": lambda x, beta=1, alpha=1, **factors: (
                x * float(beta) + ops.matmul(*factors.values()) * float(alpha)
            ),
            "isnan": lambda x: ops.ne(x, x),
            **dict.fromkeys(("bmm", "matmul", "mm"), lambda x, **factor: ops.matmul(x, *factor.values())),
        }
    ),
    **{name: partial(compare, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{
        form.format(name): partial(bitwise, sign)
        for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))
        for form in ("bitwise_{}", "logical_{}", "__{}__")
    },
    "_to_copy": cast,
    "abs": absolute,
    "add": partial(arithmetic, "+"),
    "bernoulli": bernoulli,
    "bitwise_not": invert,
    **dict.fromkeys(("clamp", "clamp_max", "clamp_min"), clamp),
    "detach": lambda site, self: ops.detach(site.tensor(self)) if dtype_of(self) == FLOAT else self,
    "div": divide,
    "index_put": index_put,
    "logical_not": invert,
    "masked_fill": lambda site, self, mask, value: choose(site, mask, value, self),
    "maximum": partial(larger, "max"),
    "minimum": partial(larger, "min"),
    "mul": partial(arithmetic, "*"),
    "neg": negate,
    "pow": power,
    "relu": lambda site, self: clamp(site, self, 0) if of_integers(site, self) else ops.relu(site.floats(self)),
    "remainder": remainder,
    "sign": lambda site, self: ops.sign(ops.cast(site.tensor(self))),
    "sub": partial(arithmetic, "-"),
    "to": cast,
    "where": choose,
}
