"""Compares a net with the module that it was read from: outputs, running statistics and gradients of two samples."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn import Module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mpibow import ops
from mpibow.errors import ConfigError
from mpibow.graph import FLOAT, Array, Graph, Plan, Shape, choose_layout, compile_plan
from mpibow.graph.steps import trained_values
from mpibow.kernels import NUMPY

from .agreement import Arrays, largest, refuse_difference, run_plan, sizes
from .net import TorchNet
from .nodes import array_of
from .site import combined

# Two tolerances for each precision. The first is a share of the largest number of an array. The second is for gradients
# that are only rounding errors: an array below this share of the largest gradient of all is compared with that share.
# CLOSE is for float64, where PyTorch has some constants in float32, such as 1 / 6; LOOSE where it computes in float32.
CLOSE = (1e-5, 1e-4)
LOOSE = (1e-3, 1e-1)
BRANCHES = "mpibow reads forward as in training; export a module without branches on self.training"
REPLACE = "mpibow computes one of its operators in another way: please report this, and replace the operator"

Samples = Sequence[Tensor] | Mapping[str, Tensor]


@dataclass(frozen=True)
class PassResult:
    """One forward and backward: arrays by name; `exact` if all of it was computed in float64."""

    outputs: Arrays
    statistics: Arrays
    gradients: Arrays
    exact: bool = True


def compare(net: TorchNet, examples: Samples, free: int) -> int:
    """Raises ConfigError where the net's numbers differ from the module's, in training and in evaluation.

    Gradients are those of one random sum of all outputs. Where the plan needs more than half of `free` bytes, nothing
    is compared, and the bytes are returned; else 0.
    """
    kind = net.program.kind
    plan = _plan(net, training=True)
    needed = 2 * plan.arena_bytes + 40 * plan.layout.size  # PyTorch's activations as well, its weights and gradients
    if needed > free // 2:
        return needed
    by_name = examples if isinstance(examples, Mapping) else dict(enumerate(examples))
    two = {name: each[:2].detach() for name, each in by_name.items()}
    generator = np.random.default_rng(0)
    for samples in ({name: _drawn(each, generator) for name, each in two.items()}, two):
        theirs = _by_torch(net, samples, training=True)
        if not any(np.isnan(array).any() for array in (*theirs.outputs.values(), *theirs.gradients.values())):
            break
    else:
        raise ConfigError(f"from_torch: PyTorch's own outputs or gradients of {kind} are NaN for example_inputs")
    ours = _by_numpy(net, plan, samples)
    close, small = CLOSE if theirs.exact else LOOSE
    if twice := ours.statistics.keys() - theirs.statistics.keys():
        raise ConfigError(f"from_torch: {kind}: {min(twice)}: its batch norm is used twice; give each place its own")
    statistics = {name: theirs.statistics[name] for name in ours.statistics}
    gradients = {  # convolutions of one dimension have weights of two
        name: ours.gradients.get(name, np.zeros_like(array)).reshape(array.shape)
        for name, array in theirs.gradients.items()
    }
    numbers = np.concatenate([each.reshape(-1) for each in theirs.outputs.values()])
    steepest = max(largest(*theirs.gradients.values()), sizes(numbers)[0] / 100)
    for does, x, y, size in (
        ("gives another", ours.outputs, theirs.outputs, 0.0),
        ("keeps another", ours.statistics, statistics, largest(*statistics.values())),  # it may be of rounding errors
        ("has another gradient of", gradients, theirs.gradients, steepest),
    ):
        refuse_difference(f"from_torch: {kind} {does}", x, "than in PyTorch", y, REPLACE, close, small * size)
    evaluated = _by_torch(net, samples, training=False)
    if ours.statistics:
        ours = _by_numpy(net, _plan(net, training=False), samples)
    close, _ = CLOSE if evaluated.exact else LOOSE
    gives = f"from_torch: {kind} gives another"
    than = "in evaluation than the net that was read from it"
    refuse_difference(gives, ours.outputs, than, evaluated.outputs, BRANCHES, close)
    return 0


def _drawn(sample: Tensor, generator: np.random.Generator) -> Tensor:
    """Two different samples, with floats in the range of the example's, or normal where these are all one number."""
    if not sample.is_floating_point() or not sample.numel():
        return sample
    if bool((sample == sample.reshape(-1)[0]).all()):
        return torch.from_numpy(generator.standard_normal(tuple(sample.shape)))
    if torch.equal(sample[0], sample[1]):
        order = torch.from_numpy(generator.permutation(sample[1].numel()))
        return torch.stack([sample[0], sample[1].reshape(-1)[order].reshape(sample[1].shape)])
    return sample


def _direction(n: int, shape: Shape) -> Array:
    """The factors of output number n in the sum that is differentiated."""
    return np.asarray(np.random.default_rng(n).standard_normal(shape))


def _by_torch(net: TorchNet, samples: Mapping[str | int, Tensor], *, training: bool) -> PassResult:
    """The module's numbers in float64, or in float32 where its tensors of fixed types need that."""
    for precision in (torch.float64, torch.float32):
        try:
            return _in_torch(net, samples, precision, training)
        except ConfigError:
            raise
        except Exception as error:  # the module's own, of any kind
            failed = error
    raise ConfigError(f"from_torch: {net.program.kind} fails in PyTorch for example_inputs: {failed}") from failed


def _in_torch(net: TorchNet, samples: Mapping[str | int, Tensor], precision: torch.dtype, training: bool) -> PassResult:
    """The module's numbers for samples, which are its arguments by name, or by their number in its order."""

    def cast(tensor: Tensor) -> Tensor:
        return tensor.detach().to(precision, copy=True) if tensor.is_floating_point() else tensor.detach().clone()

    module = net.module
    kind = net.program.kind
    means = Means(precision)
    known = net.program.parameters  # of tied ones, the last has the gradient
    named = {each: name for name, each in module.named_parameters(remove_duplicate=False) if name in known}
    weights = {name: cast(each).requires_grad_(each.requires_grad) for each, name in named.items()}
    buffers = {name: cast(each) for name, each in module.named_buffers()}
    given = {name: cast(each) for name, each in samples.items()}
    in_order = [each for name, each in given.items() if isinstance(name, int)]
    with untouched(module), torch.set_grad_enabled(training), means:
        if not (training and module.training):
            module.train(training)
        made = torch.func.functional_call(module, weights | buffers, tuple(in_order), {} if in_order else given)
        outputs = [each for each in tree_leaves(made) if each is not None]
        if len(outputs) != len(net.outputs):
            raise ConfigError(
                f"from_torch: {kind} gives {len(outputs)} outputs in evaluation and {len(net.outputs)} in training; "
                f"{BRANCHES}"
            )
        if means.bits < 32:
            raise ConfigError(f"from_torch: {kind} casts to 16 bits; leave that out, precision is a setting of the run")
        wanted = {name: each for name, each in weights.items() if each.requires_grad and training}
        parts = [
            (each * torch.from_numpy(_direction(n, tuple(each.shape))).to(each.dtype)).sum()
            for n, each in enumerate(outputs)
            if each.requires_grad
        ]
        arrays = [torch.zeros_like(each) for each in wanted.values()]
        if wanted and parts:
            arrays = torch.autograd.grad(sum(parts), [*wanted.values()], allow_unused=True, materialize_grads=True)
    return PassResult(
        {name: array_of(each) for name, each in zip(net.outputs, outputs, strict=True)},
        {name: each.numpy() for name, each in buffers.items()},
        {name: each.numpy() for name, each in zip(wanted, arrays, strict=True)},
        means.bits == 64,
    )


class Means(TorchDispatchMode):  # type: ignore[misc]
    """Random masks are their means, so that dropout does nothing, and float32 is `precision`.

    `bits` are the fewest of a float.
    """

    def __init__(self, precision: torch.dtype):
        super().__init__()
        self.precision = precision
        self.bits = 64

    def __torch_dispatch__(
        self,
        function: OpOverload,
        types: object,
        args: Sequence[Tensor] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if function.overloadpacket is torch.ops.aten.bernoulli_:
            return args[0].fill_(args[1] if len(args) > 1 else 0.5)  # PyTorch leaves out what is the default
        settings = dict(kwargs or {})
        if settings.get("dtype") is torch.float32:
            settings["dtype"] = self.precision
        made = function(*args, **settings)
        if isinstance(made, Tensor) and made.is_floating_point():
            self.bits = min(self.bits, 8 * made.itemsize)
        return made


@contextmanager
def untouched(module: Module) -> Iterator[None]:
    """The modes and attributes of the module and its parts are restored: hooks keep computed weights there."""
    before = [(part, dict(vars(part)), dict(part._buffers)) for part in module.modules()]
    held = [(each, each.clone()) for each in module.buffers()]  # torch.utils.checkpoint writes them
    attention = torch.backends.mha
    fast = attention.get_fastpath_enabled()
    attention.set_fastpath_enabled(False)  # it gives 0 for padded places, in evaluation alone
    try:
        yield
    finally:
        attention.set_fastpath_enabled(fast)
        for part, attributes, buffers in before:
            vars(part).update(attributes)
            part._buffers.update(buffers)
        for each, array in held:
            if not each.equal(array):  # what is not written may be expanded, and take no copy
                each.copy_(array)


def _plan(net: TorchNet, *, training: bool) -> Plan:
    """The plan by NumPy for two samples, in training without dropout, and with the sum of all outputs as its loss."""
    graph = Graph()
    outputs = [*net.built(graph, 2).values()]
    for n, output in enumerate(outputs):
        graph.output(f"output {n}", output)
    for n, node in enumerate(graph.nodes):
        if isinstance(node.op, ops.Dropout):
            graph.nodes[n] = replace(node, op=ops.Dropout(0.0))
    trained = trained_values(graph)
    parts = [
        ops.reshape(output * graph.input(f"direction {n}", output.shape), (1, -1))
        for n, output in enumerate(outputs)
        if output.name in trained and output.dtype == FLOAT
    ]
    training = training and bool(parts)
    if training:
        graph.output("loss", ops.sum(combined(partial(ops.concat, axis=1), parts)))
    layout = choose_layout(graph, NUMPY, training=training)
    return compile_plan(graph, layout, NUMPY, "float64", training=training)


def _by_numpy(net: TorchNet, plan: Plan, samples: Mapping[str | int, Tensor]) -> PassResult:
    inputs = {each.name: array_of(x) for each, x in zip(net.program.inputs, samples.values(), strict=True)}
    for n in range(len(net.outputs)):
        if (name := f"direction {n}") in plan.graph.inputs:
            inputs[name] = _direction(n, plan.graph.tensors[name].shape)
    gradients = np.zeros(plan.layout.size)
    outputs, statistics = run_plan(plan, inputs, gradients)
    return PassResult(
        {name: outputs[f"output {n}"] for n, name in enumerate(net.outputs)},
        statistics,
        plan.layout.unpacked(gradients),
    )
