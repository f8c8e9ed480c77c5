"""The site of an operator in a program: its arguments as tensors, its weights, its place in the source."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import numpy as np

from mpibow import ops
from mpibow.errors import ConfigError
from mpibow.graph import FLOAT, Array, Graph, Op, Shape, Tensor, prefix
from mpibow.ops.initialisers import Given
from mpibow.ops.integers import integer

from .program import OperatorCall

WHOLE = "int32"  # the type of all integers of a net


@dataclass(frozen=True, eq=False)
class ModuleArray:
    """An array that the module holds under this name, and the number of its readers; a parameter where `trained`."""

    name: str
    array: Array
    uses: int
    trained: bool

    @property
    def shape(self) -> Shape:
        return tuple(self.array.shape)


@dataclass(frozen=True)
class Filled:
    """A tensor of one repeated number, made only where it is needed."""

    shape: Shape
    value: float
    dtype: str = FLOAT


@dataclass(frozen=True, eq=False)
class BySample:
    """Numbers of samples along `axis`: first + step n for sample n, made only where they are needed."""

    first: Array
    step: Array
    axis: int
    shape: Shape


Value = Tensor | ModuleArray | Filled | BySample | Array
Argument = Value | float
Operand = Tensor | float
Result = Value | float | Sequence[Tensor | Callable[[], Tensor] | None]  # a function: made if it is read


@dataclass
class Site:
    """A call of a program as it is added to `graph`; `made` are the parameters that are tensors already."""

    graph: Graph
    call: OperatorCall
    batch: int
    made: dict[str, Tensor] = field(default_factory=dict)

    def tensor(self, value: Argument) -> Tensor:
        """An argument as a tensor of the graph."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Filled):
            return filled(value.shape, value.value, value.dtype)
        if isinstance(value, BySample):
            numbers = ops.arange(value.shape[value.axis])
            numbers = ops.reshape(numbers, [-1 if each == value.axis else 1 for each in range(len(value.shape))])
            first = ops.constant(value.first)
            step = ops.constant(value.step)
            whole = dtype_of(value) != FLOAT
            made = integer(first, "+", integer(step, "*", numbers)) if whole else first + step * numbers
            return ops.expand(made, value.shape)
        if isinstance(value, ModuleArray) and value.trained:
            if value.name not in self.made:
                op = ops.Parameter(
                    value.shape, Given(value.array), decay=len(value.shape) > 1
                )  # biases and norms do not
                self.made[value.name] = self.layer(op, weight=value)[0]
            return self.made[value.name]
        array = value.array if isinstance(value, ModuleArray) else np.asarray(value)
        need(array.dtype.kind != "i" or not (np.abs(array.astype(float)) >= 2.0**31).any(), "integers beyond int32")
        return ops.constant(array)

    def tensors(self, values: Sequence[Argument]) -> list[Tensor]:
        return [self.tensor(value) for value in values]

    def floats(self, value: Argument) -> Tensor:
        """An argument as a tensor of the plan's precision, which is too small for integers that are to stay such."""
        need({self.call.dtype, dtype_of(value)} != {WHOLE}, "it is not computed of integers here; cast them to floats")
        return ops.cast(self.tensor(value))

    def operand(self, value: Argument) -> Operand:
        """A tensor, or a number; a constant tensor without axes is a number."""
        found = number(value) if isinstance(value, float | int) or not value.shape else None
        return self.tensor(value) if found is None else found

    def owns(self, *values: Value | None) -> bool:
        """Whether an operator may own these (None is skipped): parameters that nothing else reads."""
        return all(
            value is None or (isinstance(value, ModuleArray) and value.trained and value.uses == 1) for value in values
        )

    def layer(self, op: Op, *x: Tensor, **held: Value | None) -> tuple[Tensor, ...]:
        """The outputs of an operator that owns these parameters and statistics by their keys."""
        given = {key: each for key, each in held.items() if isinstance(each, ModuleArray)}
        if not given:
            return self.graph.add_all(op, *x)
        first = next(iter(given.values())).name
        owner = first.rpartition(".")[0] or first
        while f"{prefix()}{owner}" in self.graph.tensors:
            owner += "_"
        taken = set(self.graph.weight_names)
        if twice := [each.name for each in given.values() if f"{prefix()}{each.name}" in taken]:
            refuse(f"{twice[0]}: the net has weights of that name; a net of PyTorch can be applied once")
        names = {key: each.name for key, each in given.items()}
        initial = {key: Given(each.array) for key, each in given.items()}
        return self.graph.add_all(op, *x, name=owner, names=names, initial=initial)


def filled(shape: Shape, value: float, dtype: str) -> Tensor:
    """A tensor of one number; integers are not rounded to floats."""
    if dtype == FLOAT:
        return ops.full(shape, value)
    return ops.expand(ops.constant(np.asarray(int(value), dtype)), shape)


Function = Callable[..., Result]  # site, arguments by ATen's names -> a tensor, or a list of them


def of_tensors(
    functions: Mapping[str, Function], convert: Callable[[Site, Value], Tensor] = Site.tensor
) -> dict[str, Function]:
    """Functions of tensors as ATen's operators: the first argument by place, the others by ATen's names, converted."""

    def each(site: Site, value: object) -> object:
        if isinstance(value, list):
            return [each(site, one) for one in value]
        return convert(site, value) if is_value(value) else value  # type: ignore[arg-type]

    def operator(function: Function) -> Function:
        def call(site: Site, **arguments: object) -> Result:
            first = next(name for name in ("self", "input", "tensors") if name in arguments)
            return function(
                each(site, arguments.pop(first)), **{name: each(site, value) for name, value in arguments.items()}
            )

        return call

    return {name: operator(function) for name, function in functions.items()}


of_floats = partial(of_tensors, convert=Site.floats)  # tensors of the plan's precision


def is_value(value: object) -> bool:
    """Whether an argument is a tensor or an array."""
    return isinstance(value, Tensor | ModuleArray | Filled | BySample | np.ndarray)


def combined(function: Callable[..., Tensor], parts: Sequence[Tensor]) -> Tensor:
    """A function of two or more tensors, or the only one."""
    return function(*parts) if len(parts) > 1 else parts[0]


def refuse(rule: str) -> NoReturn:
    raise ConfigError(rule)


def need(holds: bool, rule: str) -> None:
    if not holds:
        refuse(rule)


def dtype_of(value: object) -> str:
    """FLOAT, or the NumPy name of other numbers."""
    if isinstance(value, Tensor | Filled):
        return value.dtype
    if isinstance(value, ModuleArray | BySample):
        return dtype_of(value.array if isinstance(value, ModuleArray) else value.first)
    return {"f": FLOAT, "b": "bool"}.get(np.asarray(value).dtype.kind, WHOLE)


def number(value: object) -> float | None:
    """The number in every element of an argument; None where elements differ or depend on data."""
    if isinstance(value, float | int):
        return float(value)
    if isinstance(value, Filled):
        return value.value
    if isinstance(value, np.ndarray) and value.size and (value == value.flat[0]).all():
        return float(value.flat[0])
    return None
