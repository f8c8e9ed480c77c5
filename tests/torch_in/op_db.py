"""Every operator's samples in PyTorch's own tests, through from_torch: equal, or refused by name.

    python -m tests.torch_in.op_db [--samples 8] [--float64] [--part 0/2] [NAME ...]

Each sample becomes a module of four forms: its tensors are weights; the same, written in place; its tensors are inputs,
with their first axis as the batch; and a function of mpibow's own in its place. Values and gradients are compared in
float64 by NumPy, and in float32 by oneDNN. An operator of which the first samples are refused as lacking is left then.
"""

import argparse
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import mpibow as mb
from mpibow.errors import ConfigError, ShapeError
from mpibow.graph import Graph
from tests.torch_in.direct import DIRECT, run_direct
from tests.torch_in.same import Found, computed, off, tensors_of

SECONDS = 10
ENOUGH = 3  # samples in a row that are refused as lacking
LACKS = ("uses operators that mpibow lacks", "torch.export cannot read")
WRONG = ("than in PyTorch", "in evaluation than")

# The import of op_db forbids the whole process to set backends' flags; tests that run after it set some.
setattr(torch.backends.m, "__allow_nonbracketed_mutation_flag", True)


class Weights(nn.Module):
    """Applies an operator to parameters: the float tensors of its arguments; other tensors are buffers."""

    def __init__(self, op: Callable[..., Any], arguments, in_place: bool = False) -> None:
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

    def forward(self, x) -> tuple[Any, ...]:
        leaves = [getattr(self, f"p{n}") if hasattr(self, f"p{n}") else each for n, each in enumerate(self.leaves)]
        input, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        if self.in_place:
            input = input * 1.0
        return tuple(x[:, :1] + each.reshape(1, -1) for each in tensors_of(self.op(input, *args, **kwargs)))


class Inputs(nn.Module):
    """Applies an operator to inputs, the tensors of its arguments, the float ones times a weight."""

    def __init__(self, op: Callable[..., Any], arguments) -> None:
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

    def forward(self, *tensors) -> tuple[Any, ...]:
        scaled = [each * self.scale if each.is_floating_point() else each for each in tensors]
        given = dict(zip(self.places, scaled, strict=True))
        input, args, kwargs = pytree.tree_unflatten(
            [given.get(n, each) for n, each in enumerate(self.leaves)], self.spec
        )
        return tuple(each * 1 for each in tensors_of(self.op(input, *args, **kwargs)))


def forms(opinfo, sample) -> Iterator[tuple[str, nn.Module, tuple[Any, ...]]]:
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
    in_place = opinfo.inplace_variant is not None and opinfo.supports_autograd and not sample.broadcasts_input
    if in_place and isinstance(sample.input, torch.Tensor) and sample.input.is_floating_point():
        yield "in place", Weights(opinfo.inplace_variant, arguments, in_place=True), (x,)
    if all(each.ndim and each.shape[0] == tensors[0].shape[0] for each in tensors):
        module = Inputs(opinfo.op, arguments)
        yield "inputs", module, module.examples


def tried(module: nn.Module, inputs: tuple[Any, ...], dtype) -> tuple[str, str]:
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

        def build(graph: Graph):
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


def _late(*_) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def timed(module: nn.Module, inputs: tuple[Any, ...], dtype, seconds: int) -> tuple[str, str]:
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

    def forward(self, *tensors) -> tuple[Any, ...]:
        rest, made = iter(tensors), []
        for part, count in zip(self.parts, self.counts, strict=True):
            made += part(*islice(rest, count))
        return tuple(made)


def name_of(opinfo) -> str:
    return ".".join(filter(None, (opinfo.name, opinfo.variant_test_name)))


def run(opinfo, dtype, samples: int | None, enough: int, seconds: int = 0) -> Found:
    """All samples of an operator: first one by one, until one is not refused as lacking, then those alike together."""
    found, groups, lacking = Found(), {}, 0
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


def of_group(group: Sequence[tuple[str, str, nn.Module, tuple[Any, ...]]], dtype, found: Found, seconds: int) -> None:
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
        if "empty" in name:  # whose numbers are any
            continue
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
