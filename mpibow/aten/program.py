"""A module of PyTorch as a list of calls of its operators, without PyTorch: plain records and NumPy arrays."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter, Signature
from typing import Any, TypeAlias

from mpibow import ops
from mpibow.errors import ConfigError, ShapeError
from mpibow.graph import Array, Buffer, Tensor

LISTED = 16  # places that an error names


@dataclass(frozen=True)
class Ref:
    """The value of the input, parameter, buffer or earlier call of this name."""

    name: str


@dataclass(frozen=True)
class BatchExtent:
    """An extent that is a multiple of the batch size."""

    times: int


# An argument of a call, as a program has it.
Argument: TypeAlias = "Ref | BatchExtent | Array | float | str | list[Argument] | None"


@dataclass(frozen=True)
class SourcePlace:
    """The place of a call in the module's source: the part's path and class, FILE:LINE and that line."""

    part: str
    kind: str
    source: str = ""
    line: str = ""

    def __str__(self) -> str:
        part = f"{self.part} ({self.kind})" if self.part else self.kind
        return f"{part}, {self.source}: {self.line}" if self.source else part


@dataclass(frozen=True)
class OperatorCall:
    """An operator applied: its name as `conv2d`, arguments by ATen's names, and the NumPy type of its result.

    `shape` is None where a call returns several values.
    """

    name: str
    operator: str
    arguments: Mapping[str, Argument]
    place: SourcePlace
    dtype: str | None = None
    shape: tuple[int | BatchExtent, ...] | None = None


@dataclass(frozen=True)
class ModuleInput:
    """An argument of the module's forward: its extents behind the batch, and its NumPy type."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def lines_of(places: Sequence[str]) -> str:
    """An error's lines about places: the first ones, and how many there are more."""
    more = [f"and {len(places) - LISTED} more"] * (len(places) > LISTED)
    return "\n".join(f"  {each}" for each in [*places[:LISTED], *more])


def signature_of(inputs: Iterable[ModuleInput]) -> Signature:
    return Signature([Parameter(each.name, Parameter.POSITIONAL_OR_KEYWORD) for each in inputs])


def named_inputs(
    net: str, wanted: Sequence[ModuleInput], inputs: Sequence[Tensor], named: Mapping[str, Tensor], like: str = ""
) -> dict[str, Tensor]:
    """The tensors of a call of `net` by its inputs' names. Raises ShapeError where they do not fit."""
    names = [each.name for each in wanted]
    given = dict(zip(names, inputs, strict=False)) | dict(named)
    if len(inputs) > len(names) or set(given) != set(names):
        raise ShapeError(f"{net}: takes {', '.join(names)}, got {len(inputs) + len(named)} tensors")
    tensors = {}
    for each in wanted:
        tensor = given[each.name]
        if tensor.shape[1:] != each.shape:
            shape = ", ".join(map(str, ("n", *each.shape)))
            raise ShapeError(f"{net}: takes {each.name} ({shape}){like}, got {tensor.name} {tensor.shape}")
        tensors[each.name] = ops.cast(tensor, each.dtype)
    return tensors


@dataclass(frozen=True)
class TorchProgram:
    """The whole program: `kind` is the module's class. `outputs` have names where there are several.

    `frozen` are the parameters that are not trained, as their requires_grad is false.
    """

    kind: str
    inputs: tuple[ModuleInput, ...]
    parameters: Mapping[str, Array]
    buffers: Mapping[str, Buffer]
    calls: tuple[OperatorCall, ...]
    outputs: Ref | Mapping[str, Ref]
    frozen: tuple[str, ...] = ()


def refs(value: object) -> Iterator[str]:
    """The names in an argument, one for each reference."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from refs(each)


def needed(calls: Sequence[OperatorCall], outputs: Ref | Mapping[str, Ref]) -> tuple[OperatorCall, ...]:
    """The calls that the outputs depend on."""
    names = set(refs(outputs))
    kept = []
    for call in reversed(calls):
        if call.name in names:
            names.update(refs(call.arguments))
            kept.append(call)
    return tuple(reversed(kept))


def named_outputs(found: Any, kind: str) -> Ref | Mapping[str, Ref]:
    """A module's output as one value, or as several by name. Raises ConfigError for another."""
    if isinstance(found, Ref):
        return found
    if is_dataclass(found):
        found = {each.name: getattr(found, each.name) for each in fields(found)}
    elif isinstance(found, tuple | list):
        found = {f"output{i}": each for i, each in enumerate(found)}
    several = {key: each for key, each in found.items() if each is not None} if isinstance(found, Mapping) else {}
    if not several or not all(isinstance(each, Ref) for each in several.values()):
        raise ConfigError(f"from_torch: {kind} must give a tensor, a tuple of tensors, or tensors by name")
    return several
