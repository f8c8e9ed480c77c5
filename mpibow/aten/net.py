"""A program of PyTorch's operators as a net: a function from tensors to tensors, for `mpibow.fit`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from mpibow import ops
from mpibow.aten import OPERATORS
from mpibow.aten.program import Argument, BatchExtent, OperatorCall, Ref, SourcePlace, TorchProgram, refs
from mpibow.aten.site import ModuleArray, Site, dtype_of
from mpibow.errors import ConfigError, ShapeError
from mpibow.graph.graph import FLOAT, Array, Graph, Tensor, prefix

if TYPE_CHECKING:
    from torch.nn import Module

LISTED = 8  # calls that an error names
PAGE = "docs/pytorch.md has the list"


@dataclass(frozen=True, repr=False)
class TorchNet:
    """A module of PyTorch as a net of mpibow, with the module's weights to start from. Made by `mpibow.from_torch`.

    It takes tensors (n, ...) as the module's forward does, and returns the same outputs.
    """

    program: TorchProgram
    module: Module

    def __repr__(self) -> str:
        return f"TorchNet({self.program.kind}: {len(self.program.calls)} operators, {self.weight_count:,} weights)"

    @property
    def __signature__(self) -> Signature:
        names = [each.name for each in self.program.inputs]
        return Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])

    @property
    def weight_count(self) -> int:
        """The number of trained numbers."""
        return sum(array.size for array in self.program.parameters.values())

    @property
    def weights(self) -> dict[str, Array]:
        """The module's weights and running statistics by their names in its state_dict."""
        statistics = {name: each.array for name, each in self.program.buffers.items() if name in self._statistics}
        return {name: array.copy() for name, array in {**self.program.parameters, **statistics}.items()}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its outputs."""
        return ("output",) if isinstance(self.program.outputs, Ref) else tuple(self.program.outputs)

    @cached_property
    def _statistics(self) -> set[str]:
        """The names of the buffers of norms."""
        keys = ("running_mean", "running_var")
        found = [c.arguments.get(key) for c in self.program.calls if c.operator == "batch_norm" for key in keys]
        return {each.name for each in found if isinstance(each, Ref)}

    @cached_property
    def _uses(self) -> Counter[str]:
        """How many times each value is read."""
        return Counter(name for call in self.program.calls for name in refs(call.arguments))

    def __call__(self, *inputs: Tensor, **named: Tensor) -> Tensor | dict[str, Tensor]:
        """The outputs for tensors (n, ...) of the graph that is being built: one, or several by their names."""
        given = self._given(inputs, named)
        first = next(iter(given.values()))
        batch, made = first.shape[0], dict[str, Tensor]()
        values: dict[str, Any] = dict(given)
        for name, array in self.program.parameters.items():
            values[name] = ModuleArray(name, array, self._uses[name], True)
        for name, buffer in self.program.buffers.items():
            values[name] = ModuleArray(name, buffer.array, self._uses[name], False)
            if name not in self._statistics:
                first.graph.buffers[f"{prefix()}{name}"] = buffer
        first.graph.frozen += [f"{prefix()}{name}" for name in self.program.frozen]
        for call in self.program.calls:
            values[call.name] = self._called(call, values, Site(first.graph, call, batch, made))
        outputs = self.program.outputs
        last = Site(
            first.graph, OperatorCall("output", "output", {}, SourcePlace("", self.program.kind, "", "")), batch, made
        )
        if isinstance(outputs, Ref):
            return last.tensor(values[outputs.name])
        return {name: last.tensor(values[each.name]) for name, each in outputs.items()}

    def _given(self, inputs: Sequence[Tensor], named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs by name, as the module was exported for them."""
        wanted = self.program.inputs
        names = [each.name for each in wanted]
        given = dict(zip(names, inputs, strict=False)) | dict(named)
        if len(inputs) > len(wanted) or set(given) != set(names):
            raise ShapeError(f"{self.program.kind}: takes {', '.join(names)}, got {len(inputs) + len(named)} tensors")
        for each in wanted:
            tensor = given[each.name]
            if tensor.shape[1:] != each.shape:
                shape = ", ".join(map(str, ("n", *each.shape)))
                raise ShapeError(
                    f"{self.program.kind}: takes {each.name} ({shape}) as in example_inputs, "
                    f"got {tensor.name} {tensor.shape}"
                )
            dtype = FLOAT if each.dtype.startswith("float") else "bool" if each.dtype == "bool" else "int32"
            if dtype == FLOAT or tensor.dtype == FLOAT:
                given[each.name] = ops.cast(tensor, dtype)
        return given

    def _called(self, call: OperatorCall, values: Mapping[str, Any], site: Site) -> Any:
        arguments = {name: _resolved(value, values, site.batch) for name, value in call.arguments.items()}
        try:
            found: Any = OPERATORS[call.operator](site, **arguments)
            whole = call.dtype is not None and call.dtype not in (FLOAT, dtype_of(found))
            return ops.cast(site.tensor(found), str(call.dtype)) if whole else found
        except (ShapeError, ConfigError) as error:
            raise ConfigError(f"from_torch: {call.operator} in {call.place}: {error}") from None
        except Exception as error:  # settings that the operator's counterpart lacks
            raise ConfigError(
                f"from_torch: {call.operator} in {call.place}: is not read with these arguments: {error}"
            ) from error


def _resolved(value: Argument, values: Mapping[str, Any], batch: int) -> Any:
    if isinstance(value, Ref):
        return values[value.name]
    if isinstance(value, BatchExtent):
        return value.times * batch
    if isinstance(value, list | tuple):
        return [_resolved(each, values, batch) for each in value]
    return value


def check(net: TorchNet) -> None:
    """Raises ConfigError where an operator has no counterpart, naming its places in the module's source."""
    lacking = [call for call in net.program.calls if call.operator not in OPERATORS]
    if lacking:
        lines = [f"  {call.operator} in {call.place}" for call in lacking[:LISTED]]
        lines += [f"  and {len(lacking) - LISTED} more"] * (len(lacking) > LISTED)
        raise ConfigError(
            f"from_torch: {net.program.kind} uses operators that mpibow lacks:\n" + "\n".join(lines) + "\n"
            f"replace them in the module by others ({PAGE}), or write that part with mpibow's operators"
        )
    for batch in (2, 3):
        graph = Graph()
        inputs = [
            graph.input(each.name, (batch, *each.shape), FLOAT if each.dtype.startswith("float") else each.dtype)
            for each in net.program.inputs
        ]
        net(*inputs)
