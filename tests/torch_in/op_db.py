"""Every operator's samples in PyTorch's own tests, through from_torch: equal, or refused by name.

    python -m tests.torch_in.op_db [--samples 8] [--float64] [--part 0/2] [NAME ...]

Each sample becomes a module of four forms: its tensors are weights; the same, written in place; its tensors are inputs,
with their first axis as the batch; and a function of mpibow's own in its place. Values and gradients are compared in
float64 by NumPy, and in float32 by oneDNN. An operator of which the first samples are refused as lacking is left then.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import mpibow as mb
from mpibow.errors import ConfigError, ShapeError
from mpibow.graph.graph import FLOAT, Array, Graph
from mpibow.graph.layout import initial_weights
from mpibow.graph.plan import choose_layout, compile_plan
from mpibow.graph.steps import trained_values
from mpibow.kernels import find_kernels
from mpibow.ops.initialisers import Given

SECONDS = 10
ENOUGH = 3  # samples in a row that are refused as lacking
TOLERANCE = {torch.float64: 1e-5, torch.float32: 2e-3}  # of the largest number of an array
NOTHING = {torch.float64: 1e-6, torch.float32: 1e-1}  # of the largest output: the same where all gradients are 0
SMALL = 1e-2  # of the largest gradient of a sample: below, an array is compared with this
LACKS = ("uses operators that mpibow lacks", "torch.export cannot read")
DIRECT: dict[str, Callable[..., Any]] = {
    "abs": mb.abs, "add": mb.add, "amax": lambda x, dim=(), keepdim=False: mb.amax(x, _axes(x, dim), keepdim=keepdim),
    "bmm": mb.matmul, "cat": lambda xs, dim=0: mb.concat(*xs, axis=dim), "div.no_rounding_mode": mb.divide, "eq": mb.eq,
    "exp": mb.exp, "expand": mb.expand, "flip": lambda x, dims: mb.flip(x, *dims), "gather": mb.gather, "ge": mb.ge,
    "gt": mb.gt, "le": mb.le, "log": mb.log, "log_softmax": mb.log_softmax, "lt": mb.lt, "matmul": mb.matmul,
    "max.binary": mb.maximum, "maximum": mb.maximum,
    "mean": lambda x, dim=(), keepdim=False: mb.mean(x, _axes(x, dim), keepdim=keepdim), "mm": mb.matmul,
    "mul": mb.multiply, "ne": mb.ne, "neg": mb.neg,
    "nn.functional.avg_pool2d": lambda x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True:
        mb.avg_pool2d(x, kernel_size, stride=stride, padding=padding, ceil=ceil_mode, count_padding=count_include_pad),
    "nn.functional.gelu": lambda x, approximate="none": mb.gelu(x, tanh=approximate == "tanh"),
    "nn.functional.leaky_relu": lambda x, negative_slope=0.01: mb.leaky_relu(x, negative_slope),
    "nn.functional.local_response_norm": mb.local_response_norm,
    "nn.functional.max_pool2d": lambda x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, **rest:
        mb.max_pool2d(x, kernel_size, stride=stride, padding=padding, ceil=ceil_mode, **_without(dilation, rest)),
    "nn.functional.relu": mb.relu, "nn.functional.relu6": mb.clipped_relu, "nn.functional.silu": mb.silu,
    "nn.functional.scaled_dot_product_attention": lambda q, k, v, attn_mask=None, dropout_p=0.0, **rest:
        mb.scaled_dot_product_attention(q, k, v, attn_mask, **_without(1 + dropout_p, rest)),
    "permute": mb.permute, "reshape": mb.reshape, "sigmoid": mb.sigmoid,
    "softmax": mb.softmax, "split": lambda x, size, dim=0: mb.split(x, size, dim), "sqrt": mb.sqrt,
    "stack": lambda xs, dim=0: mb.stack(*xs, axis=dim), "sub": lambda x, y: x - y,
    "sum": lambda x, dim=(), keepdim=False: mb.sum(x, _axes(x, dim), keepdim=keepdim), "tanh": mb.tanh,
    "transpose": mb.transpose, "true_divide": mb.divide, "where": lambda x, condition, y: mb.where(condition, x, y),
}  # fmt: skip
WRONG = ("than in PyTorch", "in evaluation than")


class Weights(nn.Module):
    """Applies an operator to parameters: the float tensors of its arguments; other tensors are buffers."""

    def __init__(self, op: Callable[..., Any], arguments: Any, in_place: bool = False) -> None:
        super().__init__()
        self.op, self.in_place = op, in_place
        self.leaves, self.spec = pytree.tree_flatten(arguments)
        for n, each in enumerate(self.leaves):
            if isinstance(each, torch.Tensor):
                if each.is_floating_point():
                    self.register_parameter(f"p{n}", nn.Parameter(each.detach().clone()))
                else:
                    self.register_buffer(f"p{n}", each.detach().clone())
                self.leaves[n] = None

    def forward(self, x: Any) -> tuple[Any, ...]:
        leaves = [getattr(self, f"p{n}") if hasattr(self, f"p{n}") else each for n, each in enumerate(self.leaves)]
        input, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        if self.in_place:
            input = input * 1.0
        return tuple(x[:, :1] + each.reshape(1, -1) for each in _tensors(self.op(input, *args, **kwargs)))


class Inputs(nn.Module):
    """Applies an operator to inputs, the tensors of its arguments, the float ones times a weight."""

    def __init__(self, op: Callable[..., Any], arguments: Any) -> None:
        super().__init__()
        self.op, self.scale = op, nn.Parameter(torch.ones(()))
        self.leaves, self.spec = pytree.tree_flatten(arguments)
        self.places = [n for n, each in enumerate(self.leaves) if isinstance(each, torch.Tensor)]
        self.scale.data = (
            self.scale.to(self.leaves[self.places[0]].dtype)
            if self.leaves[self.places[0]].is_floating_point()
            else self.scale.data
        )
        self.examples = tuple(self.leaves[n].detach() for n in self.places)
        self.leaves = [None if n in self.places else each for n, each in enumerate(self.leaves)]

    def forward(self, *tensors: Any) -> tuple[Any, ...]:
        scaled = [each * self.scale if each.is_floating_point() else each for each in tensors]
        given = dict(zip(self.places, scaled, strict=True))
        input, args, kwargs = pytree.tree_unflatten(
            [given.get(n, each) for n, each in enumerate(self.leaves)], self.spec
        )
        return tuple(each * 1 for each in _tensors(self.op(input, *args, **kwargs)))


def _axes(x: Any, dim: Any) -> Any:
    """All where none are given, as in PyTorch; mpibow leaves out the batch."""
    return dim if dim or isinstance(dim, int) else range(len(x.shape))


def _without(one: Any, rest: Mapping[str, Any]) -> Mapping[str, Any]:
    """`rest`, where a setting that mpibow's function lacks is not used."""
    if set(pytree.tree_leaves(one)) != {1}:
        raise TypeError("a setting that the function lacks")
    return {key: each for key, each in rest.items() if key not in ("return_indices", "enable_gqa") or each}


def _tensors(made: Any) -> list[Any]:
    """The floats; indices beside them are left out."""
    tensors = [each for each in pytree.tree_leaves(made) if isinstance(each, torch.Tensor)]
    return [each for each in tensors if each.is_floating_point()] or tensors


@dataclass
class Found:
    """The results of one operator by kind, and an example of each that is not equal."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    slowest: float = 0.0


def forms(opinfo: Any, sample: Any) -> Iterator[tuple[str, nn.Module, tuple[Any, ...]]]:
    """Modules of a sample, each with the inputs of its forward."""
    arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))
    tensors = [each for each in pytree.tree_leaves(arguments) if isinstance(each, torch.Tensor)]
    if not tensors or any(
        each.is_complex() or not each.numel() or each.layout is not torch.strided for each in tensors
    ):
        return
    floats = [each for each in tensors if each.is_floating_point()]
    x = torch.zeros(2, 1, dtype=floats[0].dtype if floats else torch.float64)
    yield "weights", Weights(opinfo.op, arguments), (x,)
    in_place = opinfo.inplace_variant is not None and not sample.broadcasts_input
    if in_place and isinstance(sample.input, torch.Tensor) and sample.input.is_floating_point():
        yield "in place", Weights(opinfo.inplace_variant, arguments, in_place=True), (x,)
    if all(each.ndim and each.shape[0] == tensors[0].shape[0] for each in tensors):
        module = Inputs(opinfo.op, arguments)
        yield "inputs", module, module.examples


def computed(build: Callable[[Graph], Any], inputs: Mapping[str, Any], dtype: Any) -> tuple[list[Array], Any, Graph]:
    """The outputs of a net, and the gradients of the sum of their squares by weights' names."""
    name = str(dtype).removeprefix("torch.")
    kernels, _ = find_kernels("numpy" if dtype is torch.float64 else "onednn", name, None)
    graph = Graph()
    made = build(graph)
    outputs = list(made.values()) if isinstance(made, dict) else [*made] if isinstance(made, tuple | list) else [made]
    trained = trained_values(graph)
    parts = [mb.reshape(y * y, (1, -1)) for y in outputs if y.name in trained and y.dtype == FLOAT]
    for n, y in enumerate(outputs):
        graph.output(f"output {n}", y)
    if parts:
        graph.output("loss", mb.sum(mb.concat(*parts, axis=1) if len(parts) > 1 else parts[0]))
    layout = choose_layout(graph, kernels, training=bool(parts))
    plan = compile_plan(graph, layout, kernels, kernels.dtype(name), training=bool(parts))
    gradients = np.zeros(plan.layout.size, plan.weight_dtype)
    bound = plan.bind(initial_weights(plan.layout, 0, plan.weight_dtype), gradients)
    for key, x in inputs.items():
        np.copyto(bound.inputs[key], x.numpy(), casting="unsafe")
    with np.errstate(all="ignore"):
        bound.run()
    return [bound.outputs[f"output {n}"] for n in range(len(outputs))], plan.layout.unpacked(gradients), graph


def differ(ours: Array, theirs: Array, tolerance: float, least: float = 0.0) -> bool:
    x, y = np.asarray(ours, float), np.asarray(theirs, float)
    if x.shape != y.shape:
        return True
    with np.errstate(all="ignore"):
        gap = np.abs(np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, x - y)).max(initial=0.0)
    return not gap <= tolerance * max(_largest(y), least, 1e-30)


def _largest(array: Array) -> float:
    return float(np.abs(np.asarray(array[np.isfinite(array)], float)).max(initial=0.0))


def off(ours: Sequence[Array], gradients: Mapping[str, Array], theirs: Sequence[Any], weights: Mapping[str, Any],
        dtype: Any) -> str:  # fmt: skip
    """The first difference of outputs and of the gradients of the sum of their squares, '' for none."""
    for n, (x, y) in enumerate(zip(ours, theirs, strict=True)):
        if differ(x, y.detach().double().numpy(), TOLERANCE[dtype]):
            return f"output {n}: {x.reshape(-1)[:4]} not {y.detach().double().numpy().reshape(-1)[:4]}"
    parts = [(y * y).sum() for y in theirs if y.requires_grad]
    found = torch.autograd.grad(sum(parts), [*weights.values()], allow_unused=True) if parts and weights else ()
    wanted = {name: dy.numpy() for name, dy in zip(weights, found, strict=False) if dy is not None}
    largest = max(map(_largest, wanted.values()), default=0.0)
    least = max(SMALL * largest, NOTHING[dtype] * max(map(_largest, ours), default=0.0))
    for name, y in wanted.items():
        x = gradients.get(name, np.zeros_like(y)).reshape(y.shape)
        if differ(x, y, TOLERANCE[dtype], least):
            return f"gradient of {name}: {x.reshape(-1)[:4]} not {y.reshape(-1)[:4]}"
    return ""


class Direct:
    """An operator's sample for a function of mpibow's; float tensors are weights."""

    def __init__(self, opinfo: Any, function: Callable[..., Any], arguments: Any) -> None:
        self.op, self.function = opinfo.op, function
        self.leaves, self.spec = pytree.tree_flatten(arguments)
        self.weights = {
            f"p{n}.weight": each.detach().requires_grad_()
            for n, each in enumerate(self.leaves)
            if isinstance(each, torch.Tensor) and each.is_floating_point()
        }

    def build(self, graph: Graph) -> Any:
        leaves = list[Any]()
        for n, each in enumerate(self.leaves):
            weight = self.weights.get(f"p{n}.weight")
            if weight is not None:
                initial = Given(weight.detach().numpy())
                each = mb.parameter(tuple(weight.shape), initial=initial, name=f"p{n}")
            leaves.append(mb.constant(each.numpy()) if isinstance(each, torch.Tensor) else each)
        input, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(input, *args, **kwargs)

    def theirs(self) -> list[Any]:
        leaves = [self.weights.get(f"p{n}.weight", each) for n, each in enumerate(self.leaves)]
        input, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return _tensors(self.op(input, *args, **kwargs))


def direct(sample: Direct, dtype: Any) -> tuple[str, str]:
    """The kind of result of a function of mpibow's, and its message."""
    try:
        ours, gradients, _ = computed(sample.build, {}, dtype)
    except (ConfigError, ShapeError, TypeError) as error:  # arguments that it lacks
        return "refused: by rule", str(error)
    except Exception as error:
        return "trace", f"{type(error).__name__}: {error}"
    difference = off(ours, gradients, sample.theirs(), sample.weights, dtype)
    return ("wrong in silence", difference) if difference else ("equal", "")


def tried(module: nn.Module, inputs: tuple[Any, ...], dtype: Any) -> tuple[str, str]:
    """The kind of result of one module, and its message."""
    inputs = tuple(torch.cat([x, x]) if len(x) == 1 else x for x in inputs)  # as from_torch does
    try:
        net = mb.from_torch(module, inputs)
    except ConfigError as error:
        text = str(error).replace("\n", " ")
        if any(each in text for each in WRONG):
            return "wrong, and refused for it", text
        return "refused: lacks" if any(each in text for each in LACKS) else "refused: by rule", text
    except Exception as error:
        return "trace", f"{type(error).__name__}: {error}"
    try:
        names = [each.name for each in net.program.inputs]

        def build(graph: Graph) -> Any:
            return net(*(graph.input(each.name, (len(x), *each.shape), each.dtype)
                         for each, x in zip(net.program.inputs, inputs, strict=True)))  # fmt: skip

        ours, gradients, graph = computed(build, dict(zip(names, inputs, strict=True)), dtype)
        weights = {name: each for name, each in module.named_parameters() if each.requires_grad}
        dropped = any(node.op.kind == "dropout" for node in graph.nodes)
        difference = "" if dropped else off(ours, gradients, module(*inputs), weights, dtype)
    except (ConfigError, ShapeError) as error:
        return "refused: by rule", str(error)
    except Exception as error:
        return "trace", f"{type(error).__name__}: {error}"
    return ("wrong in silence", difference) if difference else ("equal", "")


def _late(*_: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def timed(module: nn.Module, inputs: tuple[Any, ...], dtype: Any, seconds: int) -> tuple[str, str]:
    """As `tried`, or that it took too long, if there are seconds."""
    signal.alarm(seconds)
    try:
        return tried(module, inputs, dtype)
    except TimeoutError as error:
        return "slow", str(error)
    finally:
        signal.alarm(0)


class Several(nn.Module):
    """The modules of several samples side by side, as one is read in hardly less time."""

    def __init__(self, modules: Sequence[nn.Module], counts: Sequence[int]) -> None:
        super().__init__()
        self.parts, self.counts = nn.ModuleList(modules), counts

    def forward(self, *tensors: Any) -> tuple[Any, ...]:
        rest, made = iter(tensors), list[Any]()
        for part, count in zip(self.parts, self.counts, strict=True):
            made += part(*islice(rest, count))
        return tuple(made)


def name_of(opinfo: Any) -> str:
    return ".".join(filter(None, (opinfo.name, opinfo.variant_test_name)))


def run(opinfo: Any, dtype: Any, samples: int | None, enough: int, seconds: int = 0) -> Found:
    """All samples of an operator: first one by one, until one is not refused as lacking, then those alike together."""
    found, groups, lacking = Found(), dict[Any, list[tuple[str, str, nn.Module, tuple[Any, ...]]]](), 0
    torch.manual_seed(0)
    for number, sample in enumerate(islice(opinfo.sample_inputs("cpu", dtype, requires_grad=False), samples)):
        for form, module, inputs in forms(opinfo, sample):
            if form == "weights" and 0 <= lacking < enough:
                kind, _ = timed(module, inputs, dtype, seconds)
                lacking = lacking + 1 if kind == "refused: lacks" else -1
            group = groups.setdefault((form, len(inputs[0])), [])
            group.append((form, f"sample {number}", module, inputs))
        if lacking >= enough:
            found.counts["refused: lacks"] += 1
            return found
    for group in groups.values():
        of_group(group, dtype, found, seconds)
    return found


def run_direct(opinfo: Any, function: Callable[..., Any], dtype: Any, samples: int | None) -> Found:
    """All samples of an operator, by a function of mpibow's."""
    found = Found()
    for number, sample in enumerate(islice(opinfo.sample_inputs("cpu", dtype, requires_grad=False), samples)):
        arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))
        tensors = [each for each in pytree.tree_leaves(arguments) if isinstance(each, torch.Tensor)]
        if tensors and all(each.numel() and not each.is_complex() for each in tensors):
            kind, text = direct(Direct(opinfo, function, arguments), dtype)
            found.counts[kind] += 1
            found.examples.setdefault(f"{kind} (mpibow's)", f"sample {number}: {text[:300]}")
    return found


def of_group(
    group: Sequence[tuple[str, str, nn.Module, tuple[Any, ...]]], dtype: Any, found: Found, seconds: int
) -> None:
    """Enters the results of the modules: of all at once where they are equal, else of each half."""
    form, name, module, inputs = group[0]
    if len(group) > 1:
        module = Several([each[2] for each in group], [len(each[3]) for each in group])
        inputs = tuple(x for each in group for x in each[3])
    begin = time.perf_counter()
    kind, text = timed(module, inputs, dtype, seconds * len(group))
    if kind != "equal" and len(group) > 1:
        of_group(group[: len(group) // 2], dtype, found, seconds)
        of_group(group[len(group) // 2 :], dtype, found, seconds)
        return
    found.slowest = max(found.slowest, (time.perf_counter() - begin) / len(group))
    found.counts[kind] += len(group)
    place = re.sub(r" in (Weights|Inputs).*?: return .*?(?=: |$)", "", text)
    found.examples.setdefault(f"{kind} ({form})", f"{name}: {place[:300]}")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--mpibow", action="store_true")
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--enough", type=int, default=ENOUGH)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _late)
    whole, (part, parts) = Counter[str](), map(int, options.part.split("/"))
    for n, opinfo in enumerate(op_db):
        name = name_of(opinfo)
        if (
            (options.names and opinfo.name not in options.names and name not in options.names)
            or n % parts != part
            or n < options.first
        ):
            continue
        for dtype in (torch.float64,) if options.float64 else (torch.float64, torch.float32):
            if dtype not in opinfo.dtypes:
                continue
            results = [] if options.mpibow else [run(opinfo, dtype, options.samples, options.enough, SECONDS)]
            if name in DIRECT:
                results.append(run_direct(opinfo, DIRECT[name], dtype, options.samples))
            for found in results:
                whole += found.counts
                text = ", ".join(f"{count} {kind}" for kind, count in found.counts.items())
                print(f"{name} {str(dtype)[6:]}: {text}; slowest {found.slowest:.1f} s", flush=True)
                for kind, example in found.examples.items():
                    if not kind.startswith("equal"):
                        print(f"    {kind}: {example}", flush=True)
    print(dict(whole))
    return int(any(whole[kind] for kind in ("wrong, and refused for it", "wrong in silence", "trace", "slow")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
