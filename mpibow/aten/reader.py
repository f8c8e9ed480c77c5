"""Reads the result of torch.export as a program; imports nothing of PyTorch, which is passed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mpibow.aten import OPERATORS
from mpibow.aten.nodes import array_of, dtype_name, name_of, one_memory, place_of, writes
from mpibow.aten.program import Argument, BatchExtent, ModuleInput, OperatorCall, Ref, SourcePlace, TorchProgram, refs
from mpibow.errors import ConfigError
from mpibow.graph.graph import Buffer

if TYPE_CHECKING:
    from torch import SymInt, Tensor
    from torch._ops import OpOverload
    from torch.export import ExportedProgram
    from torch.export.graph_signature import InputSpec
    from torch.fx import Graph, Node
    from torch.nn import Module

# Arguments that do not change the values of a tensor, such as its place in memory; types are read off the result.
WHEREABOUTS = (
    *("layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "generator", "requires_grad"),
    *("dtype", "half_to_float", "cudnn_enable", "cudnn_enabled", "sparse", "sparse_grad", "implicit"),
)
CHECKS = ("_assert", "sym_constrain", "_local_scalar", "sym_size")  # prefixes of calls that compute nothing


class ExportReader:
    """Reads an exported graph in order: a node that depends on no input is computed, any other becomes a call."""

    def __init__(self, torch: ModuleType, module: Module, exported: ExportedProgram) -> None:
        self.torch, self.exported, self.kind = torch, exported, type(module).__name__
        self.parameters: dict[str, Tensor] = {}
        self.buffers = dict[str, Buffer]()
        self.values: dict[Node, object] = {}  # a Ref, a constant tensor, a number or a list of these
        self.named: dict[Node, str] = {}  # buffers that calls read unchanged
        self.calls = list[OperatorCall]()
        self.inputs = list[ModuleInput]()

    def program(self) -> TorchProgram:
        graph, signature = self.exported.graph, self.exported.graph_signature
        specs = {spec.arg.name: spec for spec in signature.input_specs}
        state = {**self.exported.state_dict, **self.exported.constants}
        outputs: list[Node | None] = []
        self._check_buffers(graph, specs)
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

    def _check_buffers(self, graph: Graph, specs: Mapping[str, InputSpec]) -> None:
        """Raises ConfigError where the module reads a buffer that its forward writes: here buffers stay as they are."""
        tensors = [node for node in graph.nodes if isinstance(node.meta.get("val"), self.torch.Tensor)]
        for buffer in tensors:
            if buffer.op != "placeholder" or specs[buffer.name].kind.name != "BUFFER":
                continue
            alike = [node for node in tensors if one_memory(node.meta["val"], buffer.meta["val"])]
            writers = [user for node in alike for user in node.users if writes(name_of(user.target))]
            readers = {user for node in alike for user in node.users} - {*alike, *writers}
            if readers and any(user.args[0] in alike for user in writers):
                raise ConfigError(
                    f"from_torch: {name_of(writers[0].target)} in {place_of(writers[0], self.kind)}: writes into the "
                    f"buffer {specs[buffer.name].target}, which forward reads; the buffers of a net are constants"
                )

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
            self.values[node] = self._widened(tensor.clone())

    def _node(self, node: Node, name: str, place: SourcePlace) -> None:
        value = node.meta.get("val")
        target = name_of(node.target)
        if isinstance(value, self.torch.SymInt | int) and not isinstance(value, bool):
            self.values[node] = self._extent(value)
            return
        if target.startswith(CHECKS):
            return
        if node.op == "get_attr":  # a constant, or a graph within the graph
            found = getattr(node.graph.owning_module, node.target)
            tensor = isinstance(found, self.torch.Tensor)
            self.values[node] = self._widened(found.detach().clone()) if tensor else str(node.target)
            return
        if target == "view" and node.target._overloadname == "dtype":  # constants too: here they are wider
            raise ConfigError(f"from_torch: {target} in {place}: a view as another type; x.to(dtype) converts numbers")
        arguments = self._arguments(node)
        random = self.torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if self._constant(arguments) and not random:
            args, settings = (self._widened(self._values(each)) for each in (node.args, node.kwargs))
            self.values[node] = self._widened(node.target(*args, **settings))
            return
        changes = writes(target)
        operator = target.rstrip("_") if changes else target
        if operator not in OPERATORS and (parts := self._parts(node)) is not None:
            self.values[node] = self._inlined(parts, node, name, place)
        else:
            if operator in OPERATORS and isinstance(value, self.torch.Tensor) and value.is_complex():
                raise ConfigError(f"from_torch: {target} in {place}: gives complex numbers")
            given = {key: self._argument(each) for key, each in arguments.items()}
            self.calls.append(OperatorCall(name, operator, given, place, *self._made(value)))
            self.values[node] = Ref(name)
        if changes:
            self._changed(node, place)

    def _made(self, value: object) -> tuple[str | None, tuple[int | BatchExtent, ...] | None]:
        if not isinstance(value, self.torch.Tensor):
            return None, None
        return dtype_name(value.dtype), tuple(self._extent(n) for n in value.shape)

    def _arguments(self, node: Node) -> dict[str, object]:
        """A node's arguments by ATen's names, without WHEREABOUTS."""
        if hasattr(node.target, "_schema"):
            names = [argument.name for argument in self._anew(node.target)._schema.arguments]
        else:
            names = (
                ["values", "place"] if name_of(node.target) == "getitem" else [f"x{i}" for i in range(len(node.args))]
            )
        found = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        return {key: each for key, each in found.items() if key not in WHEREABOUTS}

    def _anew(self, target: OpOverload) -> OpOverload:
        """`relu` for `relu_`, an operator that writes in place; its arguments may have other names."""
        packet = getattr(self.torch.ops.aten, name_of(target).rstrip("_"), None) if writes(name_of(target)) else None
        other = getattr(packet, target._overloadname, target)
        return other if len(other._schema.arguments) == len(target._schema.arguments) else target

    def _widened(self, values: Any) -> Any:
        """Constants in float64, as the net may be computed in it."""
        torch = self.torch

        def wide(value: object) -> object:
            if isinstance(value, torch.dtype):
                return torch.float64 if value.is_floating_point else value
            return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

        return torch.utils._pytree.tree_map(wide, values)

    def _constant(self, arguments: Mapping[str, object]) -> bool:
        """Whether these depend on no input, parameter or batch size."""
        return all(not isinstance(each, Ref | BatchExtent) for each in self._leaves(self._values(arguments)))

    def _values(self, arguments: Any) -> Any:
        """The arguments of a node with the values of other nodes in place of these."""
        return self.torch.fx.node.map_arg(arguments, self.values.__getitem__)

    def _leaves(self, arguments: object) -> list[Node]:
        leaves: list[Node] = self.torch.utils._pytree.tree_leaves(arguments)
        return leaves

    def _argument(self, value: Any) -> Argument:
        """A node, or a list of nodes and numbers, as an argument of a call."""
        torch = self.torch
        if isinstance(value, torch.fx.Node):
            if value in self.named:
                return Ref(self.named[value])
            return self._argument(self.values[value])
        if isinstance(value, torch.Tensor):
            return array_of(value)
        if isinstance(value, list | tuple):
            return [self._argument(each) for each in value]
        if isinstance(value, torch.SymInt):
            return self._extent(value)
        return dtype_name(value) if isinstance(value, torch.dtype) else value

    def _extent(self, value: int | SymInt) -> int | BatchExtent:
        """A size as a number, or as a multiple of the batch size."""
        if isinstance(value, int):
            return value
        expression = value.node.expr
        symbols = list(expression.free_symbols)
        if not symbols:
            return int(expression)
        two, three = (int(expression.subs(dict.fromkeys(symbols, n))) for n in (2, 3))
        if len(symbols) > 1 or two != 2 * (three - two):
            raise ConfigError(
                f"from_torch: {self.kind} has a size of {expression}: sizes must be multiples of the batch size"
            )
        return BatchExtent(three - two)

    def _parts(self, node: Node) -> Graph | None:
        """An operator without a counterpart as a graph of operators that have one; None where there is none."""
        torch = self.torch
        if not hasattr(node.target, "_schema"):
            return None
        pytree = torch.utils._pytree
        found = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
        flat, spec = pytree.tree_flatten(found)
        places = [i for i, each in enumerate(flat) if isinstance(each, torch.Tensor)]

        def apply(*tensors: Tensor) -> object:
            values = dict(zip(places, tensors, strict=True))
            args, settings = pytree.tree_unflatten([values.get(i, each) for i, each in enumerate(flat)], spec)
            return self._anew(node.target)(*args, **settings)

        table = torch._decomp.core_aten_decompositions()
        try:
            with flat[places[0]].fake_mode:
                graph = torch.fx.experimental.proxy_tensor.make_fx(apply, decomposition_table=table)(
                    *[flat[i] for i in places]
                ).graph
        except Exception:  # no decomposition: the caller names the operator as lacking
            return None
        for each in graph.nodes:
            name, value = name_of(each.target), each.meta.get("val")
            known = name in OPERATORS or name.rstrip("_") in OPERATORS or name.startswith(CHECKS)
            if each.op == "call_function" and not known and not isinstance(value, torch.SymInt | int | float):
                return None
        return graph

    def _inlined(self, graph: Graph, node: Node, name: str, place: SourcePlace) -> object:
        nodes = [each for each in self._leaves((node.args, node.kwargs)) if isinstance(each, self.torch.fx.Node)]
        outer = [each for each in nodes if isinstance(each.meta.get("val"), self.torch.Tensor)]
        found: object = None
        for each in graph.nodes:
            if each.op == "placeholder":
                source = outer.pop(0)
                self.values[each] = self.values[source]
                if source in self.named:
                    self.named[each] = self.named[source]
            elif each.op == "output":
                found = self._values(each.args[0])
            else:
                self._node(each, f"{name}.{each.name}", place)
        return found

    def _changed(self, node: Node, place: SourcePlace) -> None:
        """Makes later readers of an input that an operator writes into read the operator's result."""
        target, torch = node.args[0], self.torch
        first = target.meta["val"]
        for other in list(self.values):
            tensor = other.meta.get("val")
            if other is node or not isinstance(tensor, torch.Tensor) or not one_memory(first, tensor):
                continue
            later = [user for user in other.users if user not in self.values and user is not node]
            alike = (tensor.shape, tensor.stride(), tensor.storage_offset()) == (
                first.shape,
                first.stride(),
                first.storage_offset(),
            )
            if alike and not isinstance(self.values[other], torch.Tensor):
                self.values[other] = self.values[node]
            elif later:
                raise ConfigError(
                    f"from_torch: {name_of(node.target)} in {place}: writes into a part of a tensor, or a buffer, "
                    "that is read later; build the tensor of its parts by torch.cat, or by torch.where"
                )

    def _outputs(self, given: Sequence[Node | None]) -> Ref | Mapping[str, Ref]:
        pytree = self.torch.utils._pytree
        values = [None if node is None else self._argument(node) for node in given]
        if not all(value is None or isinstance(value, Ref) for value in values):
            raise ConfigError(f"from_torch: an output of {self.kind} depends on no input")
        found = pytree.tree_unflatten(values, self.exported.call_spec.out_spec)
        if isinstance(found, Ref):
            return found
        if is_dataclass(found):
            found = {each.name: getattr(found, each.name) for each in fields(found)}
        elif isinstance(found, tuple | list):
            found = {f"output{i}": each for i, each in enumerate(found)}
        several = {key: each for key, each in found.items() if each is not None} if isinstance(found, Mapping) else {}
        if not several or not all(isinstance(each, Ref) for each in several.values()):
            raise ConfigError(f"from_torch: {self.kind} must give a tensor, a tuple of tensors, or tensors by name")
        return several
