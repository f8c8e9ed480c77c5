"""PyTorch's modules in and out: the one file that imports PyTorch, and only when it is called."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mpibow.aten.net import TorchNet, check
from mpibow.aten.reader import Reader
from mpibow.errors import ConfigError
from mpibow.graph.graph import FLOAT, Array, Graph
from mpibow.graph.layout import initial_weights
from mpibow.graph.plan import choose_layout, compile_plan
from mpibow.kernels import find_kernels

CLOSE = 1e-3  # of the largest number of an output: float32's rounding errors stay below


def from_torch(module: Any, example_inputs: Sequence[Any]) -> TorchNet:
    """A torch.nn.Module as a net for `mpibow.fit`: its operators, and its weights and running statistics to start from.

    `example_inputs` are tensors (n, ...) as its forward takes them, n any batch size. torch.export reads the module in
    training mode and leaves it as it was. A part in evaluation mode within a module in training mode, such as a frozen
    batch norm, stays in evaluation mode. `Fitted.to_torch` returns the module with the trained weights.

    Raises ConfigError naming operators that mpibow lacks, each with its place in the module's source. Also raises it
    where the outputs for the examples differ from the module's in evaluation mode: its forward uses `self.training`.
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(f"from_torch: module must be a torch.nn.Module, got {type(module).__name__}")
    examples = _examples(torch, example_inputs)
    with _mode(module, training=True):
        exported = _exported(torch, module, examples)
    net = TorchNet(Reader(torch, module, exported).program(), module)
    check(net)
    _compare(torch, net, examples)
    return net


def into_torch(module: Any, weights: Mapping[str, Array], *, scope: str = "", strict: bool = True) -> Any:
    """`module` itself with these weights and statistics, which have the names of its state_dict behind `scope`.

    Raises ConfigError where names or shapes differ; if not `strict`, names that `weights` lack keep their values.
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(f"to_torch: module must be a torch.nn.Module, got {type(module).__name__}")
    kind, state = type(module).__name__, module.state_dict()
    given = {name.removeprefix(scope): array for name, array in weights.items() if name.startswith(scope)}
    if surplus := [name for name in given if name not in state]:
        raise ConfigError(f"to_torch: the net has the weight {surplus[0]}, {kind} has none of that name")
    alike = dict[int, list[str]]()
    for name, parameter in module.named_parameters(remove_duplicate=False):
        alike.setdefault(id(parameter), []).append(name)
    shared = {name: names for names in alike.values() for name in names}
    for name, array in given.items():
        if array.size != state[name].numel():
            raise ConfigError(f"to_torch: {name} is {array.shape}, {kind} has {tuple(state[name].shape)}")
        tensor = torch.from_numpy(np.array(array)).reshape(state[name].shape)
        state.update(dict.fromkeys(shared.get(name, [name]), tensor))
    found = {each for name in given for each in shared.get(name, [name])}
    if lacking := [name for name in shared if name not in found and strict]:
        raise ConfigError(
            f"to_torch: {kind} has the weight {lacking[0]}, the net has none of that name; strict=False leaves it"
        )
    module.load_state_dict(state, strict=True)
    return module


def copied(module: Any) -> Any:
    """An independent copy of the module."""
    return copy.deepcopy(module)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ConfigError("PyTorch is not installed, and its modules need it: pip install torch") from None
    return torch


def _examples(torch: Any, given: Sequence[Any]) -> tuple[Any, ...]:
    """The tensors, each of at least two samples: torch.export makes a batch of one a fixed size."""
    if isinstance(given, torch.Tensor) or not isinstance(given, tuple | list):
        raise ConfigError(f"from_torch: example_inputs must be a tuple of tensors, got {type(given).__name__}")
    if others := [type(each).__name__ for each in given if not isinstance(each, torch.Tensor)]:
        raise ConfigError(f"from_torch: example_inputs must be tensors, got {others[0]}; wrap the module to fix it")
    counts = {each.shape[0] if each.ndim else 0 for each in given}
    if len(counts) != 1 or 0 in counts:
        shapes = ", ".join(str(tuple(each.shape)) for each in given)
        raise ConfigError(f"from_torch: example_inputs must be (n, ...) with one batch size n, got {shapes or 'none'}")
    return tuple(torch.cat([each, each]) if each.shape[0] == 1 else each for each in given)


@contextmanager
def _mode(module: Any, *, training: bool) -> Iterator[None]:
    """The module in training or evaluation mode; each part's own mode is restored."""
    modes = {part: part.training for part in module.modules()}
    if module.training != training or not training:
        module.train(training)
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def _exported(torch: Any, module: Any, examples: tuple[Any, ...]) -> Any:
    batch = torch.export.Dim("batch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.export.export(module, examples, dynamic_shapes=tuple({0: batch} for _ in examples))
        except Exception as error:  # of many kinds, each with a page of advice
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise ConfigError(
                f"from_torch: torch.export cannot read {type(module).__name__}: {' '.join(lines[:2])[:400]}; forward "
                "must take any batch size, and no branch may depend on the data"
            ) from error


def _compare(torch: Any, net: TorchNet, examples: Sequence[Any]) -> None:
    """Raises ConfigError where the net's outputs for the examples differ from the module's."""
    kind = net.program.kind
    remedy = "mpibow reads forward as in training; export a module without branches on self.training"
    with _mode(net.module, training=False), torch.no_grad():
        wanted = [each.numpy() for each in torch.utils._pytree.tree_leaves(net.module(*examples))]
    given = {each.name: tensor.numpy() for each, tensor in zip(net.program.inputs, examples, strict=True)}
    found = _evaluated(net, given)
    if len(wanted) != len(found):
        raise ConfigError(
            f"from_torch: {kind} gives {len(wanted)} outputs in evaluation and {len(found)} in training; {remedy}"
        )
    for (name, ours), theirs in zip(found.items(), wanted, strict=True):
        distance, largest = np.abs(ours - theirs).max(initial=0.0), np.abs(theirs).max(initial=0.0)
        if ours.shape != theirs.shape or distance > CLOSE * max(largest, CLOSE):
            raise ConfigError(
                f"from_torch: {kind} gives another {name} in evaluation than the net that was read from it: they "
                f"differ by {distance:.3g}, the largest number is {largest:.3g}; {remedy}"
            )


def _evaluated(net: TorchNet, given: Mapping[str, Array]) -> dict[str, Array]:
    """The net's outputs (n, ...) by name for arrays (n, ...) by name, computed by NumPy in float32."""
    graph, (kernels, _) = Graph(), find_kernels("numpy", "float32", None)
    kinds = {name: FLOAT if array.dtype.kind == "f" else array.dtype.name for name, array in given.items()}
    inputs = {
        name: graph.input(name, array.shape, "int32" if kinds[name].startswith("int") else kinds[name])
        for name, array in given.items()
    }
    outputs = net(**inputs)
    for name, output in outputs.items() if isinstance(outputs, Mapping) else [("output", outputs)]:
        graph.output(name, output)
    plan = compile_plan(
        graph, choose_layout(graph, kernels, training=False), kernels, kernels.dtype("float32"), training=False
    )
    bound = plan.bind(initial_weights(plan.layout, 0, plan.weight_dtype))
    for name, array in given.items():
        np.copyto(bound.inputs[name], array, casting="same_kind" if array.dtype.kind == "f" else "unsafe")
    with np.errstate(all="ignore"):
        bound.run()
    return {name: bound.outputs[name] for name in graph.outputs}
