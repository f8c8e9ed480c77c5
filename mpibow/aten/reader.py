"""Reads the result of torch.export as a program."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec
from torch.fx import Graph, Node
from torch.nn import Module
from torch.utils import _pytree as pytree

from mpibow.aten import OPERATORS
from mpibow.errors import ConfigError
from mpibow.graph import Buffer

from .decomposition import anew, matrices_of, parts_of
from .folding import SIZES, ByBatch, at, extent_of, formula_of, joined
from .nodes import (
    CHECKS,
    WRAPPERS,
    array_of,
    check_buffers,
    dtype_name,
    elements_of,
    is_random,
    name_of,
    one_memory,
    place_of,
    widened,
    writes,
)
from .program import (
    Argument,
    BatchExtent,
    ModuleInput,
    OperatorCall,
    Ref,
    SourcePlace,
    TorchProgram,
    named_outputs,
    needed,
)

# Arguments that do not change the values of a tensor, such as its place in memory; types are read off the result.
WHEREABOUTS = (
    "layout",
    "device",
    "pin_memory",
    "memory_format",
    "non_blocking",
    "copy",
    "generator",
    "requires_grad",
    "dtype",
    "half_to_float",
    "cudnn_enable",
    "cudnn_enabled",
    "sparse",
    "sparse_grad",
    "implicit",
)


class ExportReader:
    """Reads an exported graph in order: a node that depends on no input is computed, any other becomes a call."""

    def __init__(self, module: Module, exported: ExportedProgram, operators: Iterable[str]):
        self.exported = exported
        self.kind = type(module).__name__
        self.known = {*OPERATORS, *operators}
        self.place = SourcePlace("", self.kind)  # of the node that is read
        self.parameters = dict[str, Tensor]()
        self.buffers = dict[str, Buffer]()
        self.values = dict[Node, Any]()  # a Ref, a constant (ByBatch) tensor, a number or a list of these
        self.folded = dict[ByBatch, Argument]()  # the arguments that these became
        self.named = dict[Node, str]()  # buffers that calls read unchanged
        self.calls = list[OperatorCall]()
        self.inputs = list[ModuleInput]()

    def program(self) -> TorchProgram:
        graph = self.exported.graph
        specs = {spec.arg.name: spec for spec in self.exported.graph_signature.input_specs}
        state = {**self.exported.state_dict, **self.exported.constants}
        check_buffers(graph, specs, self.place)
        for node in graph.find_nodes(op="placeholder"):
            self._place(node, specs[node.name], state)
        made = self._outputs(self._read(graph, ":"))  # other names than those of weights
        arrays = {name: array_of(tensor) for name, tensor in self.parameters.items()}
        frozen = tuple(name for name, tensor in self.parameters.items() if not tensor.requires_grad)
        return TorchProgram(self.kind, tuple(self.inputs), arrays, self.buffers, needed(self.calls, made), made, frozen)

    def _read(self, graph: Graph, prefix: str = "") -> Any:
        """Reads the nodes of a graph behind its inputs; returns its outputs."""
        around = self.place
        outputs = None
        for node in graph.nodes:
            self.place = place_of(node, around)
            if node.op == "output":
                outputs = node.args[0]
            elif node.op != "placeholder":
                self.values[node] = self._value(node, prefix + node.name)
        self.place = around
        return outputs

    def _refuse(self, node: Node, rule: str) -> NoReturn:
        raise ConfigError(f"from_torch: {name_of(node.target)} in {self.place}: {rule}")

    def _place(self, node: Node, spec: InputSpec, state: Mapping[str, Tensor]) -> None:
        kind = spec.kind.name
        target = spec.target
        if kind == "USER_INPUT":
            value = node.meta["val"]
            self.inputs.append(ModuleInput(node.name, tuple(map(int, value.shape[1:])), dtype_name(value.dtype)))
            self.values[node] = Ref(f":{node.name}")
        elif kind == "PARAMETER":
            self.parameters[target] = state[target]
            self.values[node] = Ref(target)
        else:
            tensor = state[target].detach()
            if kind == "BUFFER":
                self.buffers[target] = Buffer(array_of(tensor), bool(spec.persistent))
                self.named[node] = target
            self.values[node] = widened(tensor.clone())

    def _value(self, node: Node, name: str) -> Any:
        """The value of a node: a constant, or the result of calls, which have this name."""
        value = node.meta.get("val")
        target = name_of(node.target)
        if isinstance(value, torch.SymInt | int) and not isinstance(value, bool):
            return extent_of(value, self.kind)
        if target.startswith(CHECKS):
            return None
        if isinstance(value, Tensor) and any(isinstance(n, int) and n == 0 for n in value.shape):
            extents = [extent_of(n, self.kind) for n in value.shape]  # without elements: torch.cat leaves it out
            return torch.zeros([n if isinstance(n, int) else SIZES[0] for n in extents])
        if node.op == "get_attr":  # a constant, or a graph within the graph
            held = getattr(node.graph.owning_module, node.target)
            return widened(held.detach().clone()) if isinstance(held, Tensor) else held
        if target in WRAPPERS:
            return self._wrapped(node, name)
        if target == "view" and node.target._overloadname == "dtype":  # constants too: here they are wider
            self._refuse(node, "a view as another type; x.to(dtype) converts numbers")
        if target == "getitem" and isinstance(values := self.values[node.args[0]], list | tuple):
            return values[node.args[1]]
        arguments = self._arguments(node)
        if not is_random(node) and not any(
            isinstance(each, Ref) for each in pytree.tree_leaves(self._values(arguments))
        ):
            return self._computed(node)
        operator = target.rstrip("_") if writes(target) else target
        if operator not in self.known and (parts := parts_of(node, self.known)) is not None:
            made = self._inlined(parts, pytree.tree_leaves((node.args, node.kwargs)), name)
        else:
            if operator in self.known and isinstance(value, Tensor) and value.is_complex():
                self._refuse(node, "gives complex numbers")
            given = {key: self._argument(each) for key, each in arguments.items()}
            if "upsample" in operator:
                given = {"self" if key == "input" else key: each for key, each in given.items()}
                given["matrices"] = matrices_of(node)
            made = self._call(name, operator, given, *self._made(value))
        if writes(target):
            self._change(node, made, name)
        return made

    def _computed(self, node: Node) -> object:
        """The value of a node that depends on no input."""
        if writes(name_of(node.target)):
            self.folded.clear()  # calls that made what is written now
        given = widened(self._values((node.args, node.kwargs)))
        if not any(isinstance(each, ByBatch | BatchExtent) for each in pytree.tree_leaves(given)):
            return self._applied(node, *given)
        if writes(name_of(node.target)) and not isinstance(self.values[node.args[0]], ByBatch):
            self._refuse(node, "writes what depends on the batch size into a constant")
        return joined(
            [self._applied(node, *pytree.tree_map(lambda each, n=n: at(each, n), given)) for n in range(len(SIZES))]
        )

    def _applied(self, node: Node, args: Sequence[Any], settings: Mapping[str, Any]) -> Any:
        """The result of a node's function for constants; room for numbers is filled with 0."""
        made = widened(node.target(*args, **settings))
        return made.zero_() if "empty" in name_of(node.target) else made

    def _wrapped(self, node: Node, name: str) -> object:
        """A part of forward under torch.no_grad or autocast."""
        count = 1 if name_of(node.target) == WRAPPERS[0] else 4
        settings = node.args[:count]
        inner = self.values[node.args[count]]
        if count > 1 and settings[2]:
            raise ConfigError(f"from_torch: autocast in {self.place}: leave it out, precision is a setting of the run")
        made = self._inlined(inner.graph, node.args[count + 1 :], name)
        if count > 1 or settings[0]:
            return made
        return [
            self._call(f"{name}.detached{n}", "detach", {"self": each}) if isinstance(each, Ref) else each
            for n, each in enumerate(made)
        ]

    def _call(
        self,
        name: str,
        operator: str,
        arguments: Mapping[str, Argument],
        dtype: str | None = None,
        shape: Sequence[int | BatchExtent] | None = None,
    ) -> Ref:
        """Adds a call; its result."""
        self.calls.append(
            OperatorCall(name, operator, arguments, self.place, dtype, None if shape is None else tuple(shape))
        )
        return Ref(name)

    def _made(self, value: object) -> tuple[str | None, list[int | BatchExtent] | None]:
        """The type and extents of a call's result."""
        if not isinstance(value, Tensor):
            return None, None
        extents = [extent_of(n, self.kind) for n in value.shape]
        shape = [each for each in extents if not isinstance(each, ByBatch)]
        if len(shape) < len(extents):
            raise ConfigError(
                f"from_torch: {self.kind} has a tensor of {tuple(value.shape)}: extents must be multiples of the "
                "batch size, or fixed"
            )
        return dtype_name(value.dtype), shape

    def _arguments(self, node: Node) -> dict[str, object]:
        """A node's arguments by ATen's names, without WHEREABOUTS."""
        names = ["values", "place"]  # of getitem
        if hasattr(node.target, "_schema"):
            names = [each.name for each in anew(node.target)._schema.arguments]
        found = dict(zip(names, node.args, strict=False)) | node.kwargs
        return {key: each for key, each in found.items() if key not in WHEREABOUTS}

    def _values(self, arguments: Any) -> Any:
        """The arguments of a node with the values of other nodes in place of these."""
        return torch.fx.node.map_arg(arguments, self.values.__getitem__)

    def _argument(self, value: Any) -> Argument:
        """A node, or a list of nodes and numbers, as an argument of a call."""
        if isinstance(value, Node):
            return Ref(self.named[value]) if value in self.named else self._argument(self.values[value])
        if isinstance(value, Tensor):
            return array_of(value)
        if isinstance(value, list | tuple):
            return [self._argument(each) for each in value]
        if isinstance(value, torch.SymInt):
            return self._argument(extent_of(value, self.kind))
        if isinstance(value, ByBatch):
            if value not in self.folded:
                self.folded[value] = self._folded(value)
            return self.folded[value]
        return dtype_name(value) if isinstance(value, torch.dtype) else value

    def _folded(self, value: ByBatch) -> Argument:
        """A value that depends on the batch size, as the result of a call that makes it for any."""
        tensors = all(isinstance(each, Tensor) for each in value.values)
        formula = formula_of([array_of(each) for each in value.values]) if tensors else None
        if formula is None:
            raise ConfigError(
                f"from_torch: {self.place}: a value depends on the batch size in another way than by samples"
            )
        return self._call(
            f"folded{len(self.calls)}", "by_sample", formula, dtype_name(value.values[0].dtype), formula["size"]
        )

    def _inlined(self, graph: Graph, sources: Sequence[object], name: str) -> Any:
        """The results of a graph within the graph, whose inputs are these."""
        for each, source in zip(graph.find_nodes(op="placeholder"), sources, strict=True):
            self.values[each] = self._values(source)
            if isinstance(source, Node) and source in self.named:
                self.named[each] = self.named[source]
        return self._values(self._read(graph, f"{name}."))

    def _change(self, node: Node, made: object, name: str) -> None:
        """Makes later readers of an input that an operator writes into read the operator's result."""
        first = node.args[0].meta["val"]
        wholes = self._wholes(node, made, name)
        for other in list(self.values):
            tensor = other.meta.get("val")
            if not isinstance(tensor, Tensor) or not one_memory(first, tensor):
                continue
            written = [value for whole, value in wholes if elements_of(whole) == elements_of(other)]
            if written and not (isinstance(self.values[other], Tensor) and other.op == "placeholder"):
                self.values[other] = written[0]
            elif any(user not in self.values and user is not node for user in other.users):
                self._refuse(
                    node,
                    "writes into a part of a tensor, or a buffer, that is read later; build the tensor of its parts "
                    "by torch.cat, or by torch.where",
                )

    def _wholes(self, node: Node, made: object, name: str) -> list[tuple[Node, object]]:
        """The target of a write, and the tensors that it is a part of, with the result in its place."""
        part = node.args[0]
        value = self._argument(made)
        found: list[tuple[Node, object]] = [(part, made)]
        while (operator := f"{name_of(part.target)}_scatter") in OPERATORS:
            whole = part.args[0]
            given = {key: self._argument(each) for key, each in self._arguments(part).items()} | {"src": value}
            value = self._call(f"{name}.{len(found) - 1}", operator, given, *self._made(whole.meta["val"]))
            part = whole
            found.append((part, value))
        return found

    def _outputs(self, given: Sequence[Node | None]) -> Ref | Mapping[str, Ref]:
        values = [None if node is None else self._argument(node) for node in given]
        if not all(value is None or isinstance(value, Ref) for value in values):
            raise ConfigError(f"from_torch: an output of {self.kind} depends on no input")
        return named_outputs(pytree.tree_unflatten(values, self.exported.call_spec.out_spec), self.kind)
