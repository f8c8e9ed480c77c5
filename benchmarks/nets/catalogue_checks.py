"""A net of the catalogue beside the same in PyTorch; prints one line of JSON. `benchmarks.nets.catalogue` calls it."""

import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import mpibow as mb
from benchmarks.nets.catalogue_nets import COUNT, GROUPS, Example, declare_suppression
from mpibow.aten.agreement import run_plan
from mpibow.aten.comparison import Means
from mpibow.aten.net import TorchNet
from mpibow.errors import ConfigError
from mpibow.graph import choose_layout, compile_plan, graph as graphs, initial_weights
from mpibow.job.fingerprint import crc_of
from mpibow.kernels import NUMPY
from mpibow.pytorch import copied
from mpibow.system.command import some
from tests.torch_in.same import computed

LOGITS, GRADIENTS, SINGLE, STEP, IN_ONNX = 1e-9, 1e-8, 1e-4, 1e-8, 1e-5
ALIKE = 1e-3  # of the first sample's largest output: by more others differ
ADAPTIVE_STEP = 1e-7  # AdamW divides small gradients, and their rounding, by eps
ROUNDED, ROUNDED_STEP = 1e-6, 1e-5  # where PyTorch's own constants are rounded to float32
NUDGE, FARTHER = 1e-14, 4
SMALL = 1e-4  # of the largest gradient of all: an array below is compared with this
LR, NEXT_TO_NOTHING = 0.01, 1e-18
STEPS = {
    "sgd": ({"name": "sgd", "momentum": 0.9, "weight_decay": 0.01},
            lambda weights: torch.optim.SGD(weights, LR, momentum=0.9, weight_decay=0.01)),
    # A weight whose gradient is of rounding errors would move by these: eps holds it.
    "adamw": ({"name": "adamw", "weight_decay": 0.1, "eps": 1e-4},
              lambda weights: torch.optim.AdamW(weights, LR, eps=1e-4, weight_decay=0.1)),
}  # fmt: skip


def rank() -> int:
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))


def size() -> int:
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))


class Wrong(Exception):
    """A difference from PyTorch."""


def still(module: nn.Module) -> nn.Module:
    """The module in training mode without its dropout, of elements or of whole branches."""
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        for rate in ("drop_prob", "drop_rate", "layerdrop", "attention_dropout", "attn_drop_rate"):
            if isinstance(getattr(part, rate, None), float):
                setattr(part, rate, 0.0)
        if type(part).__name__ == "StochasticDepth":
            part.p = 0.0  # type: ignore[assignment]
    return module.train()


def stir(module: nn.Module, example: Example) -> None:
    """Makes outputs in evaluation depend on inputs and weights: many start next to 0, and statistics are not theirs."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.momentum = 1.0
    with torch.no_grad():
        for each in module.parameters():
            if each.numel() == max(each.shape, default=1) or each.std() < 1e-3:
                each += torch.rand_like(each) - 0.5
        called(module, example)


def called(module: nn.Module, example: Example) -> list[Tensor]:
    """The outputs; parts of forward in float32 are in float64 where the rest is."""
    with Means(next(module.parameters()).dtype):
        made = module(**example) if isinstance(example, dict) else module(*example)
    return [each for each in tree_leaves(made) if isinstance(each, Tensor) and each.ndim]


def of_floats(example: Example, dtype: torch.dtype, nudge: float = 0.0) -> Example:
    def cast(x: Tensor) -> Tensor:
        return x.to(dtype) * (1 + nudge * torch.randn(x.shape, dtype=dtype)) if x.is_floating_point() else x

    if isinstance(example, dict):
        return {name: cast(x) for name, x in example.items()}
    return tuple(map(cast, example))


def arrays_of(net: TorchNet, example: Example) -> dict[str, Tensor]:
    given = example.values() if isinstance(example, dict) else example
    return {each.name: x for each, x in zip(net.program.inputs, given, strict=True)}


def differ(what: str, ours: Any, theirs: Any, tolerance: float, least: float = 0.0) -> None:
    x, y = np.asarray(ours, float), np.asarray(theirs, float)
    if x.shape != y.shape:
        raise Wrong(f"{what}: {x.shape} not {y.shape}")
    gap, largest = float(np.abs(x - y).max(initial=0.0)), max(float(np.abs(y).max(initial=0.0)), least)
    if not gap <= tolerance * largest:
        raise Wrong(f"{what}: differs by {gap:.3g} of {largest:.3g}")


def gap(x: Tensor, y: Tensor, least: float = 1e-30) -> float:
    """The largest difference, as a part of the largest number of y, or of `least`."""
    return float((x - y).abs().max() / y.abs().max().clamp(min=least)) if y.numel() else 0.0


def rounded(net: TorchNet) -> bool:
    """Whether PyTorch multiplies by 1 / 6 of float32 in it, even in float64."""
    return any(call.operator in ("hardsigmoid", "hardswish") for call in net.program.calls)


def applied(net: TorchNet, graph: graphs.Graph, count: int = COUNT) -> Any:
    return net(*(graph.input(each.name, (count, *each.shape), each.dtype) for each in net.program.inputs))


def check_numbers(net: TorchNet, module: nn.Module, example: Example) -> None:
    """Logits and gradients in float64, logits in float32: no farther from float64 than twice PyTorch's in float32."""

    state, build = deepcopy(module.state_dict()), partial(applied, net)
    inputs = arrays_of(net, example)
    in_single = called(copied(module).float(), of_floats(example, torch.float32))
    theirs = called(module, example)
    ours, gradients, _ = computed(
        build, {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}, torch.float64
    )
    for n, (x, y) in enumerate(zip(ours, theirs, strict=True)):
        differ(f"output {n} in float64", x, y.detach().numpy(), LOGITS)
    weights: dict[Tensor, str] = {}  # of tied ones the name that the net has
    for name, each in module.named_parameters(remove_duplicate=False):
        if each.requires_grad and (each not in weights or name in net.program.parameters):
            weights[each] = name
    sum((y * y).sum() for y in theirs if y.requires_grad).backward()  # type: ignore[union-attr]
    wanted = {name: np.zeros(each.shape) if each.grad is None else each.grad.numpy() for each, name in weights.items()}
    least = SMALL * max((float(np.abs(each).max(initial=0.0)) for each in wanted.values()), default=0.0)
    for name, y in wanted.items():
        x = gradients.get(name, np.zeros(y.shape)).reshape(y.shape)
        differ(f"gradient of {name}", x, y, ROUNDED if rounded(net) else GRADIENTS, least)
    module.load_state_dict(state)
    ours, _, _ = computed(
        build, {name: x.float() if x.is_floating_point() else x for name, x in inputs.items()}, torch.float32
    )
    for n, (x, y, single) in enumerate(zip(ours, theirs, in_single, strict=True)):
        differ(f"output {n} in float32", x, y.detach().numpy(), max(SINGLE, FARTHER * gap(single.detach(), y.detach())))


def loss_net(net: TorchNet) -> Any:
    """The net with the mean of the squares of its outputs as a sample's loss."""

    def losses(**tensors: graphs.Tensor) -> graphs.Tensor:
        made = net(**tensors)
        outputs = [*made.values()] if isinstance(made, Mapping) else [made]
        parts = [mb.mean(mb.reshape(y * y, (y.shape[0], -1)), axis=1) for y in outputs]
        return mb.add(*parts) if len(parts) > 1 else parts[0]

    names = [each.name for each in net.program.inputs]
    losses.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in names])  # type: ignore[attr-defined]
    return losses


def fitted_after(net: TorchNet, example: Example, update: Mapping[str, Any], folder: Path) -> mb.Fitted:
    inputs = {
        name: np.concatenate([x.numpy() if x.is_floating_point() else x.int().numpy()] * size())
        for name, x in arrays_of(net, example).items()
    }
    return mb.fit(
        loss_net(net), inputs, batch_size=COUNT, learners=1, update={"lr": LR, "decay_biases": True, **update},
        stop={"epochs": 1}, device="numpy", precision="float64", out=str(folder),
    )  # fmt: skip


def check_steps(net: TorchNet, module: nn.Module, example: Example) -> None:
    """The weights and running statistics after one step of each optimiser.

    They may differ more where random changes of the inputs by NUDGE make PyTorch's own differ: by ten times as much.
    """
    state = deepcopy(module.state_dict())

    def stepped(make: Callable[[Any], torch.optim.Optimizer], example: Example) -> dict[str, Tensor]:
        module.load_state_dict(state)
        optimiser = make([each for each in module.parameters() if each.requires_grad])
        optimiser.zero_grad()
        sum((y * y).reshape(COUNT, -1).mean(1).mean() for y in called(module, example)).backward()  # type: ignore[union-attr]
        optimiser.step()
        return {name: each.clone() for name, each in module.state_dict().items()}

    for optimiser, (update, make) in STEPS.items():
        tolerance = ROUNDED_STEP if rounded(net) else ADAPTIVE_STEP if optimiser == "adamw" else STEP
        module.load_state_dict(state)
        with tempfile.TemporaryDirectory() as folder:
            fitted = fitted_after(net, example, update, Path(folder))
        theirs, nudged = stepped(make, example), dict[str, Tensor]()
        for name, array in fitted.weights.items():
            x, y = torch.from_numpy(array).reshape(theirs[name].shape), theirs[name]
            limit = tolerance
            if gap(x, y, 1e-3) > limit:
                nudged = nudged or stepped(make, of_floats(example, torch.float64, NUDGE))
                limit = max(limit, 10 * gap(nudged[name], y, 1e-3))
            differ(f"{name} after {optimiser}", x, y, limit, 1e-3)
    module.load_state_dict(state)


def check_back(net: TorchNet, example: Example, module: nn.Module, fresh: nn.Module) -> None:
    """A trained net's module has a state_dict that a fresh module loads strictly, and its logits.

    `module` has computed nothing: ConViT's changes the shape of a buffer then, and is no fresh one's.
    """
    with tempfile.TemporaryDirectory() as folder:
        fitted = fitted_after(net, example, STEPS["sgd"][0], Path(folder))
        trained = still(fitted.to_torch(module))
    fresh.load_state_dict(trained.state_dict(), strict=True)
    for n, (x, y) in enumerate(zip(called(fresh, example), called(trained, example), strict=True)):
        differ(f"output {n} given back", x.detach().numpy(), y.detach().numpy(), 0.0)


def check_ranks(net: TorchNet, module: nn.Module, example: Example) -> None:
    """Ranks whose modules have other random weights all train rank 0's, and get one module back. Collective."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    first = world.bcast({name: each.detach().numpy() for name, each in module.named_parameters()})
    folder = world.bcast(tempfile.mkdtemp() if world.rank == 0 else "")
    fitted = fitted_after(net, world.bcast(example), {"name": "sgd", "lr": NEXT_TO_NOTHING}, Path(folder))
    state = {name: each.numpy() for name, each in fitted.to_torch(module, strict=False).state_dict().items()}
    states = world.allgather({name: crc_of(array) for name, array in state.items()})
    if world.rank == 0:
        shutil.rmtree(folder)
    if odd := [name for name, crc in states[0].items() if any(each[name] != crc for each in states)]:
        raise Wrong(f"ranks have other modules: {some(odd)}")
    for name, array in first.items():
        differ(f"{name} of ranks", state[name], array, STEP, 1e-3)


def check_onnx(net: TorchNet, example: Example) -> float:
    """Outputs by ONNX Runtime of the model that is written, in evaluation. Returns the largest difference, a part."""
    import onnxruntime  # type: ignore[import-not-found,unused-ignore]

    from mpibow.onnx.model import model_of

    def make(count: int) -> graphs.Graph:
        graph = graphs.Graph()
        for n, y in enumerate(tree_leaves(applied(net, graph, count))):
            graph.output(f"y{n}", y)
        return graph

    def computed_in(dtype: str) -> tuple[list[np.ndarray], Mapping[str, np.ndarray]]:
        graph = make(COUNT)
        plan = compile_plan(graph, choose_layout(graph, NUMPY, training=False), NUMPY, dtype, training=False)
        outputs, statistics = run_plan(plan, inputs)
        return [*outputs.values()], plan.layout.unpacked(initial_weights(plan.layout, 0, dtype)) | statistics

    tensors = arrays_of(net, of_floats(example, torch.float32))
    inputs = {name: (x.int() if x.dtype is torch.int64 else x).numpy() for name, x in tensors.items()}
    (wanted, weights), (in_single, _) = computed_in("float64"), computed_in("float32")
    session = onnxruntime.InferenceSession(model_of(make, weights).SerializeToString())
    found = session.run(None, {each.name: inputs[each.name] for each in session.get_inputs()})
    gaps = []
    for n, arrays in enumerate(zip(found, wanted, in_single, strict=True)):
        x, y, single = map(torch.from_numpy, arrays)
        if gap(y[1:], y[:1]) < ALIKE:
            raise Wrong(f"output {n} is alike for all samples")
        differ(f"output {n} by ONNX Runtime", x, y, max(IN_ONNX, FARTHER * gap(single, y)))
        gaps.append(gap(x, y))
    return max(gaps)


def made(group: str, name: str, seed: int = 0) -> tuple[nn.Module, Example]:
    torch.manual_seed(seed)
    module, example = GROUPS[group][name]()
    return still(module), example


def result_of(group: str, name: str, checks: Sequence[str]) -> dict[str, Any]:
    module, example = made(group, name, rank() if "ranks" in checks else 0)
    count = sum(each.numel() for each in module.parameters())
    if "onnx" in checks:
        stir(module, example)
    begin = time.perf_counter()
    try:
        net = mb.from_torch(module, example)
    except ConfigError as error:
        kind = "wrong" if "than in PyTorch" in str(error) or "in evaluation" in str(error) else "refused"
        return {"kind": kind, "text": str(error), "weights": count, "reading": time.perf_counter() - begin}
    reading, text = round(time.perf_counter() - begin, 1), ""
    module, example = module.double(), of_floats(example, torch.float64)
    try:
        if "numbers" in checks:
            check_numbers(net, module, example)
        if "steps" in checks:
            check_steps(net, module, example)
        if "back" in checks:
            check_back(net, example, *(made(group, name, seed)[0].double() for seed in (0, 1)))
        if "ranks" in checks:
            check_ranks(net, module, example)
        if "onnx" in checks:
            text = f"{check_onnx(net, example):.1e}"
    except ConfigError as error:
        return {"kind": "refused", "text": str(error), "weights": count, "reading": reading}
    except Wrong as error:
        return {"kind": "wrong", "text": str(error), "weights": count, "reading": reading}
    return {"kind": "right", "text": text, "weights": count, "reading": reading}


def main(group: str, name: str, *checks: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    declare_suppression()
    result = result_of(group, name, checks)
    if rank() == 0:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
