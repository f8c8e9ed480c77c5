"""A program of PyTorch's operators as a net: a function from tensors to tensors, for `mpibow.fit`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import Signature
from typing import TYPE_CHECKING, Any

from mpibow import ops
from mpibow.aten import OPERATORS
from mpibow.errors import ConfigError, ShapeError
from mpibow.graph import FLOAT, Array, Graph, Tensor, prefix

from .program import (
    Argument,
    BatchExtent,
    OperatorCall,
    Ref,
    SourcePlace,
    TorchProgram,
    lines_of,
    named_inputs,
    refs,
    signature_of,
)
from .site import ModuleArray, Site, dtype_of, is_value

if TYPE_CHECKING:
    from torch.nn import Module

LossNet = Callable[..., Tensor]
PAGE = "docs/pytorch.md has the list"


@dataclass(frozen=True, repr=False)
class TorchNet:
    """A module of PyTorch as a net of mpibow, with the module's weights to start from. Made by `mpibow.from_torch`.

    It takes tensors (n, ...) as the module's forward does, and returns the same outputs.
    """

    program: TorchProgram
    module: "Module"
    operators: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    shorter: "tuple[TorchNet, ...]" = ()  # the module as it takes shorter sequences

    def __repr__(self) -> str:
        return f"TorchNet({self.program.kind}: {len(self.program.calls)} operators, {self.weight_count:,} weights)"

    @property
    def __signature__(self) -> Signature:
        return signature_of(self.program.inputs)

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
        return tuple(self._named)

    @property
    def _named(self) -> Mapping[str, Ref]:
        outputs = self.program.outputs
        return {"output": outputs} if isinstance(outputs, Ref) else outputs

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
        net = self._fitting(dict(zip(self.inputs, inputs, strict=False)) | named)
        found = net._outputs(net._given(inputs, named))
        return found["output"] if isinstance(self.program.outputs, Ref) else found

    def losses(self) -> LossNet:
        """A net of the output `loss`, as transformers' models have it where they take labels; it shows the others."""

        def losses(**tensors: Tensor) -> Tensor:
            net = self._fitting(tensors)
            given = net._given((), {name: each for name, each in tensors.items() if name in self.inputs})
            outputs = net._outputs(given)
            loss = outputs.pop("loss")
            batch = next(iter(given.values())).shape[0]
            for name, output in outputs.items():
                if output.shape[:1] == (batch,):
                    output.graph.output(name, output)
            return by_samples(loss, batch)

        losses.__signature__ = self.__signature__  # type: ignore[attr-defined]
        return losses

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of its inputs."""
        return tuple(each.name for each in self.program.inputs)

    def lengths(self, names: Sequence[str]) -> tuple[int, ...]:
        """The lengths that it takes the inputs of these names at, in rising order; () where it has none of them."""
        inputs = [each for net in (*self.shorter, self) for each in net.program.inputs]
        return tuple(sorted({each.shape[0] for each in inputs if each.name in names and each.shape}))

    def _fitting(self, tensors: Mapping[str, Tensor]) -> "TorchNet":
        """The net that takes sequences of this length; itself where none does."""
        shapes = {name: each.shape[1:] for name, each in tensors.items()}
        fitting = (net for net in self.shorter if all(shapes.get(x.name) == x.shape for x in net.program.inputs))
        return next(fitting, self)

    def built(self, graph: Graph, batch: int, refusals: list[str] | None = None) -> dict[str, Tensor]:
        """The outputs by name for inputs that are added to the graph. With `refusals`, errors of calls go there."""
        inputs = {each.name: graph.input(each.name, (batch, *each.shape), each.dtype) for each in self.program.inputs}
        return self._outputs(inputs, refusals)

    @property
    def known(self) -> set[str]:
        """The operators that can be read."""
        return {*OPERATORS, *self.operators}

    def _outputs(self, given: Mapping[str, Tensor], refusals: list[str] | None = None) -> dict[str, Tensor]:
        """The outputs by name. With `refusals`, errors of calls are added to it, and inputs take the calls' places."""
        first = next(iter(given.values()))
        graph = first.graph
        batch = first.shape[0]
        made = dict[str, Tensor]()
        values: dict[str, Any] = {f":{name}": each for name, each in given.items()}
        for name, array in self.program.parameters.items():
            values[name] = ModuleArray(name, array, self._uses[name], True)
        for name, buffer in self.program.buffers.items():
            values[name] = ModuleArray(name, buffer.array, self._uses[name], False)
            if name not in self._statistics:
                graph.buffers[f"{prefix()}{name}"] = buffer
        graph.frozen += [f"{prefix()}{name}" for name in self.program.frozen]
        for call in self.program.calls:
            if refusals is not None and not all(name in values for name in refs(call.arguments)):
                continue  # of values that were refused
            try:
                values[call.name] = self._called(call, values, Site(graph, call, batch, made))
            except ConfigError as error:
                if refusals is None:
                    raise
                refusals.append(str(error).removeprefix("from_torch: "))
                if call.shape is not None and call.dtype is not None and 0 not in call.shape:
                    shape = tuple(_resolved(extent, values, batch) for extent in call.shape)
                    values[call.name] = graph.input(f"refused {call.name}", shape, call.dtype)
        last = Site(graph, OperatorCall("output", "output", {}, SourcePlace("", self.program.kind)), batch, made)
        return {name: last.tensor(values[each.name]) for name, each in self._named.items() if each.name in values}

    def _given(self, inputs: Sequence[Tensor], named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs by name, as the module was exported for them."""
        return named_inputs(self.program.kind, self.program.inputs, inputs, named, " as in example_inputs")

    def _called(self, call: OperatorCall, values: Mapping[str, Any], site: Site) -> Any:
        where = f"from_torch: {call.operator} in {call.place}"
        if call.operator not in self.known:
            raise ConfigError(where)
        arguments = {name: _resolved(value, values, site.batch) for name, value in call.arguments.items()}
        try:
            if function := self.operators.get(call.operator):
                tensors = [site.tensor(each) if is_value(each) else each for each in arguments.values()]
                found: Any = function(*tensors)
            else:
                found = OPERATORS[call.operator](site, **arguments)
            whole = call.dtype is not None and call.dtype not in (FLOAT, dtype_of(found))
            return ops.cast(site.tensor(found), str(call.dtype)) if whole else found
        except (ShapeError, ConfigError) as error:
            raise ConfigError(f"{where}: {error}") from None
        except Exception as error:  # settings that the operator's counterpart lacks
            raise ConfigError(f"{where}: is not read with these arguments: {error}") from error


def by_samples(loss: Tensor, batch: int) -> Tensor:
    """Losses (n,) whose mean is `loss`, a number: those that it, but for a factor, is the mean of, or itself for each
    sample."""
    graph = loss.graph
    found = loss
    factor = 1.0
    nodes = {node.name: node for node in graph.nodes}
    while found.shape != (batch,):
        node = nodes.get(found.name)
        match node and node.op:
            case ops.View() | ops.ReduceMean() | ops.Cast():
                pass
            case ops.Affine(scale, 0.0):
                factor *= scale
            case ops.DivideBy(number):
                factor /= number
            case _:
                return ops.expand(ops.reshape(loss, (1,)), (batch,))
        assert node is not None
        found = graph.tensors[node.inputs[0]]
    for i, each in enumerate(graph.nodes):
        if isinstance(each.op, ops.CountedMean) and each.name == found.name:  # evaluation weighs samples by counts
            graph.nodes[i] = replace(each, op=ops.CountedMean())
    return found if factor == 1 else found * factor


def _resolved(value: Argument, values: Mapping[str, Any], batch: int) -> Any:
    if isinstance(value, Ref):
        return values[value.name]
    if isinstance(value, BatchExtent):
        return value.times * batch
    if isinstance(value, list | tuple):
        return [_resolved(each, values, batch) for each in value]
    return value


def check(net: TorchNet) -> None:
    """Raises ConfigError where an operator has no counterpart, naming all such places in the module's source."""
    for batch in (2, 3):
        refusals = list[str]()
        net.built(Graph(), batch, refusals)
        lacking = any(call.operator not in net.known for call in net.program.calls)
        if len(refusals) == 1 and not lacking:
            raise ConfigError(f"from_torch: {refusals[0]}")
        if refusals:
            what = "uses operators that mpibow lacks" if lacking else "has operators that cannot be read"
            raise ConfigError(
                f"from_torch: {net.program.kind} {what}:\n{lines_of([*dict.fromkeys(refusals)])}\n"
                f"replace them in the module by others ({PAGE}), or write that part with mpibow's operators"
            )
