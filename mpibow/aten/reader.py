"""Reads the result of torch.export as a program; imports nothing of PyTorch, which is passed in."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mpibow.aten import OPERATORS
from mpibow.aten.decomposition import anew, matrices_of, parts_of
from mpibow.aten.folding import SIZES, ByBatch, at, calls_of, extent_of, folded, joined
from mpibow.aten.nodes import (
    CHECKS,
    array_of,
    check_buffers,
    dtype_name,
    elements_of,
    name_of,
    one_memory,
    place_of,
    widened,
    writes,
)
from mpibow.aten.program import (
    Argument,
    BatchExtent,
    ModuleInput,
    OperatorCall,
    Ref,
    SourcePlace,
    TorchProgram,
    named_outputs,
    refs,
)
from mpibow.errors import ConfigError
from mpibow.graph.graph import Buffer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.export.graph_signature import InputSpec
    from torch.fx import Graph, Node
    from torch.nn import Module

# Arguments that do not change the values of a tensor, such as its place in memory; types are read off the result.
WHEREABOUTS = (
    *("layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "generator", "requires_grad"),
    *("dtype", "half_to_float", "cudnn_enable", "cudnn_enabled", "sparse", "sparse_grad", "implicit"),
)
WRAPPERS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")  # calls of a graph within the graph


class ExportReader:
    """Reads an exported graph in order: a node that depends on no input is computed, any other becomes a call."""

    def __init__(
        self, torch: ModuleType, module: Module, exported: ExportedProgram, operators: Container[str] = ()
    ) -> None:
        self.torch, self.exported, self.kind, self.operators = torch, exported, type(module).__name__, operators
        self.parameters: dict[str, Tensor] = {}
        self.buffers = dict[str, Buffer]()
        self.values: dict[Node, Any] = {}  # a Ref, a constant (ByBatch) tensor, a number or a list of these
        self.folded: dict[ByBatch, Argument] = {}  # the arguments that these became
        self.named: dict[Node, str] = {}  # buffers that calls read unchanged
        self.calls = list[OperatorCall]()
        self.inputs = list[ModuleInput]()

    def program(self) -> TorchProgram:
        graph, signature = self.exported.graph, self.exported.graph_signature
        specs = {spec.arg.name: spec for spec in signature.input_specs}
        state = {**self.exported.state_dict, **self.exported.constants}
        outputs: list[Node | None] = []
        check_buffers(self.torch, self.kind, graph, specs)
        for node in graph.nodes:
            if node.op == "placeholder":
                self._place(node, specs[node.name], state)
            elif node.op == "output":
                outputs = list(node.args[0])
            else:
                self._node(node, node.name, place_of(node, self.kind))
        arrays = {name: array_of(tensor) for name, tensor in self.parameters.items()}
        frozen = tuple(name for name, tensor in self.parameters.items() if not tensor.requires_grad)
        made = self._outputs(outputs)
        return TorchProgram(self.kind, tuple(self.inputs), arrays, self.buffers, self._needed(made), made, frozen)

    def _needed(self, outputs: Ref | Mapping[str, Ref]) -> tuple[OperatorCall, ...]:
        """The calls that the outputs depend on."""
        needed, calls = set(refs(outputs)), list[OperatorCall]()
        for call in reversed(self.calls):
            if call.name in needed:
                needed.update(refs(call.arguments))
                calls.insert(0, call)
        return tuple(calls)

    def _place(self, node: Node, spec: InputSpec, state: Mapping[str, Tensor]) -> None:
        kind, target = spec.kind.name, spec.target
        if kind == "USER_INPUT":
            value = node.meta["val"]
            self.inputs.append(ModuleInput(node.name, tuple(int(n) for n in value.shape[1:]), dtype_name(value.dtype)))
            self.values[node] = Ref(node.name)
        elif kind == "PARAMETER":
            self.parameters[target] = state[target]
            self.values[node] = Ref(target)
        else:
            tensor = state[target].detach()
            if kind == "BUFFER":
                self.buffers[target], self.named[node] = Buffer(array_of(tensor), bool(spec.persistent)), target
            self.values[node] = widened(self.torch, tensor.clone())

    def _node(self, node: Node, name: str, place: SourcePlace) -> None:
        value = node.meta.get("val")
        target = name_of(node.target)
        if isinstance(value, self.torch.SymInt | int) and not isinstance(value, bool):
            self.values[node] = extent_of(value, self.kind)
            return
        if target.startswith(CHECKS):
            return
        if isinstance(value, self.torch.Tensor) and any(isinstance(n, int) and n == 0 for n in value.shape):
            extents = [extent_of(n, self.kind) for n in value.shape]  # without elements: torch.cat leaves it out
            self.values[node] = self.torch.zeros([n if isinstance(n, int) else SIZES[0] for n in extents])
            return
        if node.op == "get_attr":  # a constant, or a graph within the graph
            found = getattr(node.graph.owning_module, node.target)
            tensor = isinstance(found, self.torch.Tensor)
            self.values[node] = widened(self.torch, found.detach().clone()) if tensor else found
            return
        if target in WRAPPERS:
            self._wrapped(node, name, place)
            return
        if target == "view" and node.target._overloadname == "dtype":  # constants too: here they are wider
            raise ConfigError(f"from_torch: {target} in {place}: a view as another type; x.to(dtype) converts numbers")
        if target == "getitem" and isinstance(values := self.values[node.args[0]], list | tuple):
            self.values[node] = values[node.args[1]]
            return
        arguments = self._arguments(node)
        random = self.torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if self._constant(arguments) and not random:
            self.values[node] = self._computed(node, place)
            return
        changes = writes(target)
        operator = target.rstrip("_") if changes else target
        if not self._known(operator) and (parts := parts_of(self.torch, node, self._known)) is not None:
            leaves = [each for each in self._leaves((node.args, node.kwargs)) if isinstance(each, self.torch.fx.Node)]
            sources = [each for each in leaves if isinstance(each.meta.get("val"), self.torch.Tensor)]
            self.values[node] = self._inlined(parts, sources, name, place)
        else:
            if self._known(operator) and isinstance(value, self.torch.Tensor) and value.is_complex():
                raise ConfigError(f"from_torch: {target} in {place}: gives complex numbers")
            given = {key: self._argument(each, place) for key, each in arguments.items()}
            if "upsample" in operator:
                given = {"self" if key == "input" else key: each for key, each in given.items()}
                given["matrices"] = list(matrices_of(self.torch, node))
            self.calls.append(OperatorCall(name, operator, given, place, *self._made(value)))
            self.values[node] = Ref(name)
        if changes:
            self._changed(node, name, place)

    def _computed(self, node: Node, place: SourcePlace) -> object:
        """The value of a node that depends on no input."""
        given = tuple(widened(self.torch, self._values(each)) for each in (node.args, node.kwargs))
        if not any(isinstance(each, ByBatch | BatchExtent) for each in self._leaves(given)):
            args, settings = given
            return self._called(node, args, settings)
        if writes(name_of(node.target)) and not isinstance(self.values[node.args[0]], ByBatch):
            raise ConfigError(
                f"from_torch: {name_of(node.target)} in {place}: writes what depends on the batch size into a constant"
            )
        results = list[object]()
        for n in range(len(SIZES)):
            args, settings = self.torch.utils._pytree.tree_map(lambda each, n=n: at(each, n), given)
            results.append(self._called(node, args, settings))
        return joined(results)

    def _called(self, node: Node, args: Sequence[Any], settings: Mapping[str, Any]) -> Any:
        """The result of a node's function for constants; room for numbers is filled with 0."""
        made = widened(self.torch, node.target(*args, **settings))
        return made.zero_() if "empty" in name_of(node.target) else made

    def _wrapped(self, node: Node, name: str, place: SourcePlace) -> None:
        """A part of forward under torch.no_grad or autocast."""
        count = 1 if name_of(node.target) == WRAPPERS[0] else 4
        settings, inner, sources = node.args[:count], self.values[node.args[count]], node.args[count + 1 :]
        if count > 1 and settings[2]:
            raise ConfigError(f"from_torch: autocast in {place}: leave it out, precision is a setting of the run")
        made = self._inlined(inner.graph, sources, name, None)
        if count > 1 or settings[0]:
            self.values[node] = made
            return

        def constant(value: Ref, n: int) -> Ref:
            call = OperatorCall(f"{name}.detached{n}", "detach", {"self": value}, place)
            self.calls.append(call)
            return Ref(call.name)

        self.values[node] = [constant(each, n) if isinstance(each, Ref) else each for n, each in enumerate(made)]

    def _made(self, value: object) -> tuple[str | None, tuple[int | BatchExtent, ...] | None]:
        if not isinstance(value, self.torch.Tensor):
            return None, None
        extents = [extent_of(n, self.kind) for n in value.shape]
        shape = tuple(each for each in extents if not isinstance(each, ByBatch))
        if len(shape) < len(extents):
            raise ConfigError(
                f"from_torch: {self.kind} has a tensor of {tuple(value.shape)}: extents must be multiples of the "
                "batch size, or fixed"
            )
        return dtype_name(value.dtype), shape

    def _arguments(self, node: Node) -> dict[str, object]:
        """A node's arguments by ATen's names, without WHEREABOUTS."""
        if hasattr(node.target, "_schema"):
            names = [argument.name for argument in anew(self.torch, node.target)._schema.arguments]
        else:
            names = (
                ["values", "place"] if name_of(node.target) == "getitem" else [f"x{i}" for i in range(len(node.args))]
            )
        found = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        return {key: each for key, each in found.items() if key not in WHEREABOUTS}

    def _constant(self, arguments: Mapping[str, object]) -> bool:
        """Whether these depend on no input and no parameter."""
        return all(not isinstance(each, Ref) for each in self._leaves(self._values(arguments)))

    def _values(self, arguments: Any) -> Any:
        """The arguments of a node with the values of other nodes in place of these."""
        return self.torch.fx.node.map_arg(arguments, self.values.__getitem__)

    def _leaves(self, arguments: object) -> list[Node]:
        leaves: list[Node] = self.torch.utils._pytree.tree_leaves(arguments)
        return leaves

    def _argument(self, value: Any, place: SourcePlace) -> Argument:
        """A node, or a list of nodes and numbers, as an argument of a call."""
        torch = self.torch
        if isinstance(value, torch.fx.Node):
            if value in self.named:
                return Ref(self.named[value])
            return self._argument(self.values[value], place)
        if isinstance(value, torch.Tensor):
            return array_of(value)
        if isinstance(value, list | tuple):
            return [self._argument(each, place) for each in value]
        if isinstance(value, torch.SymInt):
            return self._argument(extent_of(value, self.kind), place)
        if isinstance(value, ByBatch):
            if value not in self.folded:
                self.folded[value] = self._folded(value, place)
            return self.folded[value]
        return dtype_name(value) if isinstance(value, torch.dtype) else value

    def _folded(self, value: ByBatch, place: SourcePlace) -> Argument:
        """A value that depends on the batch size, as the result of calls that make it for any."""
        tensors = all(isinstance(each, self.torch.Tensor) for each in value.values)
        array = folded([array_of(each) for each in value.values]) if tensors else None
        if array is None:
            raise ConfigError(f"from_torch: {place}: a value depends on the batch size in another way than by samples")
        dtype = dtype_name(value.values[0].dtype)

        def add(operator: str, arguments: Mapping[str, Argument], size: Sequence[int | BatchExtent]) -> Argument:
            name = f"folded{len(self.calls)}"
            self.calls.append(OperatorCall(name, operator, arguments, place, dtype, tuple(size)))
            return Ref(name)

        return calls_of(array, add)

    def _known(self, operator: str) -> bool:
        return operator in OPERATORS or operator in self.operators

    def _inlined(self, graph: Graph, sources: Sequence[object], name: str, place: SourcePlace | None) -> Any:
        """The results of a graph within the graph, whose inputs are these; `place` is that of all its calls."""
        given = iter(sources)
        found: object = None
        for each in graph.nodes:
            if each.op == "placeholder":
                source = next(given)
                self.values[each] = self._values(source)
                if source in self.named:
                    self.named[each] = self.named[source]
            elif each.op == "output":
                found = self._values(each.args[0])
            else:
                self._node(each, f"{name}.{each.name}", place or place_of(each, self.kind))
        return found

    def _changed(self, node: Node, name: str, place: SourcePlace) -> None:
        """Makes later readers of an input that an operator writes into read the operator's result."""
        torch, target = self.torch, node.args[0]
        first = target.meta["val"]
        written = {target: self.values[node]} | self._around(node, name, place)
        for other in list(self.values):
            tensor = other.meta.get("val")
            if other is node or not isinstance(tensor, torch.Tensor) or not one_memory(first, tensor):
                continue
            later = [user for user in other.users if user not in self.values and user is not node]
            alike = [each for each in written if elements_of(each.meta["val"]) == elements_of(tensor)]
            if alike and not (isinstance(self.values[other], torch.Tensor) and other.op == "placeholder"):
                self.values[other] = written[alike[0]]
            elif later:
                raise ConfigError(
                    f"from_torch: {name_of(node.target)} in {place}: writes into a part of a tensor, or a buffer, "
                    "that is read later; build the tensor of its parts by torch.cat, or by torch.where"
                )

    def _around(self, node: Node, name: str, place: SourcePlace) -> dict[Node, object]:
        """The tensors that the target of a write is a part of, with the result in its place."""
        found, part, value = dict[Any, object](), node.args[0], self._argument(node, place)
        while (operator := f"{name_of(part.target)}_scatter") in OPERATORS:
            arguments = self._arguments(part)
            whole: Any = arguments.pop("self")
            given = {key: self._argument(each, place) for key, each in arguments.items()}
            given |= {"self": self._argument(whole, place), "src": value}
            call = OperatorCall(f"{name}.{len(found)}", operator, given, place, *self._made(whole.meta["val"]))
            self.calls.append(call)
            part, value = whole, Ref(call.name)
            found[part] = value
        return found

    def _outputs(self, given: Sequence[Node | None]) -> Ref | Mapping[str, Ref]:
        pytree = self.torch.utils._pytree
        place = SourcePlace("", self.kind, "", "")
        values = [None if node is None else self._argument(node, place) for node in given]
        if not all(value is None or isinstance(value, Ref) for value in values):
            raise ConfigError(f"from_torch: an output of {self.kind} depends on no input")
        found = pytree.tree_unflatten(values, self.exported.call_spec.out_spec)
        return named_outputs(found, self.kind)
