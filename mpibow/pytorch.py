"""PyTorch's modules in and out: imports PyTorch, and the modules that read its programs, only when it is called."""

from __future__ import annotations

import copy
import inspect
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import psutil

from .aten.net import TorchNet, check
from .comm.cgroups import memory_left
from .errors import ConfigError
from .graph.graph import ArraysByName

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.nn import Module


SAMPLES = 5  # of the module as it is exported
Examples: TypeAlias = "Sequence[Tensor] | Mapping[str, Tensor]"


def from_torch(
    module: Module,
    example_inputs: Examples,
    *,
    operators: Mapping[str, Callable[..., Any]] | None = None,
    lengths: Sequence[int] = (),
) -> TorchNet:
    """A torch.nn.Module as a net for `mpibow.fit`: its operators, and its weights and running statistics to start from.

    `example_inputs` are tensors (n, ...) as its forward takes them, n any batch size, in its order or by the names of
    its parameters. torch.export reads the module in
    training mode and leaves it as it was. A part in evaluation mode within a module in training mode, such as a frozen
    batch norm, stays in evaluation mode. `Fitted.to_torch` returns the module with the trained weights. Of a
    DataParallel or torch.compile'd module, the module inside is read.

    `operators` are functions for ATen's operators by name, such as {"special_i0": bessel}, or for those of
    torch.library, {"my.bessel": bessel}: of the tensors and numbers of a call, such as mpibow.operator makes them.

    `lengths` are shorter sequences that the net takes too: it is read anew for each, the examples' second axis cut,
    and their integers (n,), such as the sequences' lengths, no larger.

    Raises ConfigError naming operators that mpibow lacks, each with its place in the module's source. Also raises it
    where outputs, running statistics or gradients of two samples differ from the module's. These are computed in
    float64, without dropout; where memory is too short for that, a warning says so.
    """
    torch = _torch()
    from .aten.comparison import compare, untouched
    from .aten.reader import ExportReader

    module = _inner(torch, module, "from_torch")
    examples = _examples(torch, module, example_inputs)
    shorter = tuple(from_torch(module, each, operators=operators) for each in _cut(examples, lengths))
    free = psutil.virtual_memory().available
    with _silent(), untouched(module), _without_cache(module):
        _check_parts(torch, module)
        reader = ExportReader(module, _exported(torch, module, examples), operators or {})
        net = TorchNet(reader.program(), module, operators or {}, shorter)
        check(net)
        left = memory_left()
        needed = compare(net, examples, free if left is None else min(free, left))
    if needed:
        warnings.warn(
            f"from_torch: {net.program.kind} was not compared with PyTorch, which needs {needed >> 30} GiB of memory",
            stacklevel=2,
        )
    return net


def into_torch(
    module: Module, weights: ArraysByName, *, scope: str = "", strict: bool = True, buffers: ArraysByName | None = None
) -> Module:
    """`module` itself with these weights, statistics and buffers, which have its names for them behind `scope`.

    Raises ConfigError where names or shapes differ; if not `strict`, names that `weights` lack keep their values.
    """
    torch = _torch()
    inner = _inner(torch, module, "to_torch")
    kind = type(inner).__name__
    parameters = dict(inner.named_parameters(remove_duplicate=False))
    places = parameters | dict(inner.named_buffers(remove_duplicate=False))
    arrays = {
        name.removeprefix(scope): (array, what)
        for what, named in (("weight", weights), ("buffer", buffers or {}))
        for name, array in named.items()
        if name.startswith(scope)
    }
    for name, (array, what) in arrays.items():
        if name not in places:
            raise ConfigError(f"to_torch: the net has the {what} {name}, {kind} has none of that name")
        shape = tuple(places[name].shape)
        if array.shape not in (shape, (*shape[:2], 1, *shape[2:])):  # windows of one axis have two here
            raise ConfigError(f"to_torch: {name} is {array.shape}, {kind} has {shape}")
    filled = {id(places[name]) for name in arrays}
    if lacking := [name for name, each in parameters.items() if id(each) not in filled and strict]:
        raise ConfigError(
            f"to_torch: {kind} has the weight {lacking[0]}, the net has none of that name; strict=False leaves it"
        )
    with torch.no_grad():
        for name, (array, _) in arrays.items():
            places[name].copy_(torch.from_numpy(np.array(array)).reshape(places[name].shape))
    return module


def copied(module: Module) -> Module:
    """An independent copy of the module; weights that PyTorch computes before each forward are copied as numbers."""
    computed = [each for part in module.modules() for each in vars(part).values() if hasattr(each, "grad_fn")]
    return copy.deepcopy(module, {id(each): each.detach().clone() for each in computed if each.grad_fn is not None})


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ConfigError("PyTorch is not installed, and its modules need it: pip install torch") from None
    return torch


def _examples(torch: ModuleType, module: Module, given: Examples) -> dict[str, Tensor] | tuple[Tensor, ...]:
    """The tensors, each of at least two samples: torch.export makes a batch of one a fixed size."""
    if isinstance(given, Mapping):  # in forward's order
        first = [name for name in inspect.signature(module.forward).parameters if name in given]
        given = {name: given[name] for name in [*first, *(name for name in given if name not in first)]}
    elif isinstance(given, torch.Tensor) or not isinstance(given, tuple | list):
        raise ConfigError(
            f"from_torch: example_inputs must be a tuple of tensors or tensors by name, got {type(given).__name__}"
        )
    tensors = [*given.values()] if isinstance(given, Mapping) else [*given]
    if others := [type(each).__name__ for each in tensors if not isinstance(each, torch.Tensor)]:
        raise ConfigError(f"from_torch: example_inputs must be tensors, got {others[0]}; wrap the module to fix it")
    counts = {each.shape[0] if each.ndim else 0 for each in tensors}
    if len(counts) != 1 or 0 in counts:
        shapes = ", ".join(str(tuple(each.shape)) for each in tensors)
        raise ConfigError(f"from_torch: example_inputs must be (n, ...) with one batch size n, got {shapes or 'none'}")
    twice = tuple(torch.cat([each, each]) if each.shape[0] == 1 else each for each in tensors)
    return dict(zip(given, twice, strict=True)) if isinstance(given, Mapping) else twice


def _cut(examples: dict[str, Tensor] | tuple[Tensor, ...], lengths: Sequence[int]) -> Iterator[Examples]:
    """The examples with shorter sequences: those are the tensors whose second extent is the first such tensor's.

    Integers of one axis may be the lengths of the sequences, and become no larger than the cut ones.
    """
    tensors = [*examples.values()] if isinstance(examples, Mapping) else [*examples]
    whole = next((x.shape[1] for x in tensors if x.ndim > 1), 0)
    for length in lengths:
        if isinstance(length, bool) or not isinstance(length, int) or not 0 < length < whole:
            raise ConfigError(f"from_torch: lengths must be from 1 to {whole - 1}, below the example's, got {length}")
        cut = [x[:, :length] if x.ndim > 1 and x.shape[1] == whole else x for x in tensors]
        cut = [x.clamp(max=length) if x.ndim == 1 and str(x.dtype).startswith("torch.int") else x for x in cut]
        yield dict(zip(examples, cut, strict=True)) if isinstance(examples, Mapping) else tuple(cut)


@contextmanager
def _without_cache(module: Module) -> Iterator[None]:
    """Language models of transformers return keys and values for generation, unless their config says otherwise."""
    configs = {id(each): each for part in module.modules() if (each := getattr(part, "config", None)) is not None}
    before = [(each, each.use_cache) for each in configs.values() if getattr(each, "use_cache", None)]
    for each, _ in before:
        each.use_cache = False
    try:
        yield
    finally:
        for each, value in before:
            each.use_cache = value


@contextmanager
def _silent() -> Iterator[None]:
    """Silences PyTorch's log and warnings, of operators that it can't decompose and the like."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _inner(torch: ModuleType, module: Module, caller: str) -> Module:
    """The module in a wrapper that computes the same. Raises ConfigError, which begins with `caller`."""
    parallel = torch.nn.parallel
    while isinstance(module, parallel.DataParallel | parallel.DistributedDataParallel) or hasattr(module, "_orig_mod"):
        module = getattr(module, "_orig_mod", None) or module.module
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(f"{caller}: module must be a torch.nn.Module, got {type(module).__name__}")
    return module


def _check_parts(torch: ModuleType, module: Module) -> None:
    """Raises ConfigError where a part changes buffers by its own rule in each forward of a training."""
    for name, weight in module.named_parameters():
        if weight._backward_hooks or weight._post_accumulate_grad_hooks:
            raise ConfigError(f"from_torch: {name} has a hook on its gradient, which would not be called; remove it")
    for name, part in module.named_modules():
        hooks = part._forward_pre_hooks.values()
        if part.training and any(type(each).__name__.lstrip("_") == "SpectralNorm" for each in (part, *hooks)):
            raise ConfigError(
                f"from_torch: {name or type(module).__name__} has a spectral norm, whose vectors change in each "
                "forward; remove it (torch.nn.utils.parametrize.remove_parametrizations), or freeze it by eval()"
            )
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.momentum is None and part.training:
            raise ConfigError(
                f"from_torch: {name or type(module).__name__} is a batch norm of momentum=None, which averages all "
                "batches alike; give it a momentum, as 0.1"
            )


def _exported(torch: ModuleType, module: Module, examples: Examples) -> ExportedProgram:
    from .aten import packed

    batch = {0: torch.export.Dim("batch")}

    def several(x: Tensor) -> Tensor:
        """As many samples as no check has: what takes their number for a constant is found by that."""
        return x[torch.arange(SAMPLES) % x.shape[0]]

    parameters = inspect.signature(module.forward).parameters
    shapes: Any
    if isinstance(examples, Mapping):
        rest = next((name for name, each in parameters.items() if each.kind is Parameter.VAR_KEYWORD), None)
        inner = {name: batch for name in examples if name not in parameters}
        shapes = {name: batch for name in examples if name in parameters} | ({rest: inner} if rest and inner else {})
        args = ()
        settings = {name: several(each) for name, each in examples.items()}
    else:
        kinds = [each.kind for each in parameters.values()]
        named = kinds.index(Parameter.VAR_POSITIONAL) if Parameter.VAR_POSITIONAL in kinds else len(examples)
        more = [tuple(batch for _ in examples[named:])] * (named < len(examples))
        shapes = (*(batch for _ in examples[:named]), *more)
        args = tuple(map(several, examples))
        settings = {}
    try:
        if not module.training:
            module.train()
        with packed.readable():
            return torch.export.export(module, args, settings, dynamic_shapes=shapes)
    except Exception as error:  # of many kinds, each with a page of advice
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        frames = traceback.extract_tb(error.__traceback__)
        ours = (Path(str(torch.__file__)).parent, Path(__file__).parent)
        places = [
            f" in {each.filename}:{each.lineno}: {each.line}"
            for each in frames
            if not any(Path(each.filename).is_relative_to(path) for path in ours)
        ]
        remedy = "forward must take any batch size (x.shape[0], not len(x)), and no branch may depend on the data"
        if any(each.filename == packed.__file__ for each in frames) or "Packed" in str(error):
            remedy = (
                "packed sequences need lengths as a tensor, and are read by LSTM, GRU, RNN and "
                "pad_packed_sequence(..., total_length=x.shape[1]) alone"
            )
        raise ConfigError(
            f"from_torch: torch.export cannot read {type(module).__name__}: {' '.join(lines[:2])[:400]}"
            f"{places[-1] if places else ''}; {remedy}"
        ) from error
