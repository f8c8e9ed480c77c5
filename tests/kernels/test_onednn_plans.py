"""Plans of the models on oneDNN: what is fused, which reorders are left, and that they run as one call."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpibow import ops
from mpibow.graph.formats import Reorder
from mpibow.graph.graph import Graph
from mpibow.graph.layout import initial_weights
from mpibow.graph.plan import Plan, choose_layout, compile_plan
from mpibow.job.device import Device
from mpibow.job.synthetic import SHAPES
from mpibow.kernels import NUMPY, KernelSet, find_kernels, onednn_set
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from mpibow.ops.fused import ConvNormAddRelu, ConvRelu, NormAddRelu
from tests.kernels.cases import Bench, Case, name
from tests.kernels.operators import CASES, CHECKED
from tests.run import tiny

pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
from mpibow.comm.communicator import Single
from mpibow.config import load_mapping
from mpibow.job import BUILT_IN, Job, open_job
from mpibow.kernels.compiled.command import Command
from mpibow.kernels.onednn.library import Library, find_library, load
from mpibow.kernels.onednn.primitives import Primitive
from mpibow.run.alike import agreed
from mpibow.run.describe import describe_job

FAST = find_kernels("auto", "float32", None)[0]
pytestmark = pytest.mark.skipif(FAST is NUMPY, reason="oneDNN or numba is not there: pip install -e '.[cpu]'")

BATCH = 4
HIDDEN = {"hidden": 24}
SMALL: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {  # model: the least image that it takes, or about
    **dict.fromkeys(("convnet", "lenet", "logistic", "mlp"), ((1, 28, 28), {})),
    **{f"resnet{layers}": ((3, 32, 32), {}) for layers in (20, 32, 44, 56, 110)},
    **{f"resnet{layers}": ((3, 64, 64), {}) for layers in (18, 34, 50, 101, 152)},
    "vgg16_cifar": ((3, 32, 32), {}),
    "vgg16": ((3, 64, 64), HIDDEN),
    "vgg_a": ((3, 32, 32), HIDDEN),
    "alexnet": ((3, 96, 96), HIDDEN),
    "googlenet": ((3, 72, 72), {}),
    "inception_v3": ((3, 107, 107), {}),
    "overfeat": ((3, 119, 119), {"hidden": (24, 20)}),
}

SLOW = ("resnet101", "resnet110", "resnet152", "inception_v3")  # deep: oneDNN makes hundreds of primitives


def plan_of(model: str, shape: tuple[int, ...], training: bool, **options: Any) -> Plan:
    build = classifier(
        partial(MODELS[model], classes=10, **options), shape, "uint8", (120.0,) * shape[0], (60.0,) * shape[0]
    )
    layout = choose_layout(build(BATCH, True), FAST, factors=True)
    return compile_plan(build(BATCH, training), layout, FAST, "float32", training=training)


def steps(plan: Plan, kind: str = "forward") -> dict[str, int]:
    """How many steps there are of the operators that may be fused."""
    return dict(Counter(s.node.op.kind for s in plan.program.steps if s.kind == kind and s.node.op.kind in FUSIBLE))


FUSIBLE = ("conv", "conv+relu", "conv+norm+add+relu", "batch_norm", "norm+add+relu", "add+relu", "add", "relu")
FUSED: dict[str, tuple[dict[str, int], dict[str, int]]] = {  # model: steps in training, in evaluation
    "lenet": ({"conv": 2, "relu": 1}, {"conv": 2, "relu": 1}),  # its convolutions are linear
    "convnet": ({"conv+relu": 2}, {"conv+relu": 2}),
    "resnet20": ({"conv": 19, "norm+add+relu": 19}, {"conv+norm+add+relu": 19}),
    "resnet50": (  # the norms of four projections are added, and have no relu
        {"conv": 53, "norm+add+relu": 49, "batch_norm": 4},
        {"conv+norm+add+relu": 53},
    ),
    "vgg16": ({"conv+relu": 13, "relu": 2}, {"conv+relu": 13, "relu": 2}),  # of dense layers
    "vgg16_cifar": (  # the norm comes behind the relu
        {"conv+relu": 13, "batch_norm": 14, "relu": 1},
        {"conv+relu": 13, "batch_norm": 14, "relu": 1},
    ),
    "googlenet": ({"conv+relu": 57}, {"conv+relu": 57}),
    "inception_v3": ({"conv": 94, "norm+add+relu": 94}, {"conv+norm+add+relu": 94}),
}


@pytest.mark.parametrize("model", FUSED)
def test_what_is_fused(model: str) -> None:
    shape, options = SMALL[model]
    training, evaluation = (plan_of(model, shape, training, **options) for training in (True, False))
    assert (steps(training), steps(evaluation)) == FUSED[model]
    assert steps(training, "backward") == steps(training)


def test_a_sum_is_fused_with_what_comes_before_it() -> None:
    """ResNet-20 has nine: two inputs, and no step of their own."""
    for training in (True, False):
        ops_ = [node.op for node in plan_of("resnet20", (3, 32, 32), training).graph.nodes]
        assert sum(isinstance(op, NormAddRelu | ConvNormAddRelu) and op.added for op in ops_) == 9
    ops_ = [node.op for node in plan_of("resnet20", (3, 32, 32), False, shortcut="projection").graph.nodes]
    ends = Counter((op.added, op.relu) for op in ops_ if isinstance(op, ConvNormAddRelu))
    assert ends == {(False, True): 10, (True, True): 9, (False, False): 2}


def test_what_is_left_alone() -> None:
    """Convolutions in groups, sums that are not plain; a sum whose terms are no norms is fused with its relu only."""
    graph = Graph()
    x = graph.input("x", (2, 16, 8, 8))
    y = ops.relu(ops.batch_norm(ops.conv2d(x, 16, 3, padding=1, groups=2, bias=False)))
    z = ops.relu(ops.add(ops.max_pool2d(y, 3, stride=1, padding=1), y))
    graph.output("out", ops.relu(ops.add(ops.batch_norm(z), y, coefficients=(1.0, 0.5))))
    for training in (True, False):
        kinds = [node.op.kind for node in FAST.fuse(graph, training).nodes]
        assert kinds == ["conv", "norm+add+relu", "max_pool", "add+relu", "batch_norm", "add", "relu"]


# Where layouts change with AVX-512. model: convolutions; those of training that are oneDNN's, others are Winograd's
CONVOLUTIONS: dict[str, tuple[int, set[int]]] = {
    "lenet": (2, set()),
    "resnet20": (19, {8, 14}),  # of stride 2
    "resnet32": (31, {12, 22}),
    "resnet50": (53, set(range(2, 54)) - {3, 7, 10}),  # the 3x3 of the first stage, its 56 pixels are whole eights
    "googlenet": (57, set(range(2, 58)) - {3}),
}
# Operators whose layouts oneDNN chooses; all others take any.
THEIRS = (ops.Conv2d, ConvRelu, ConvNormAddRelu, ops.MaxPool2d, ops.LocalResponseNorm)
FLATTENED = ["forward max_pool2 as abcd"]
IMAGES: dict[str, tuple[list[str], list[str]]] = {  # training, evaluation
    "lenet": ([*FLATTENED, "backward max_pool2 as abcd"], FLATTENED),
    "resnet20": ([], ["forward relu1 as acdb"]),
    "resnet32": ([], ["forward relu1 as acdb"]),
    "resnet50": ([], ["forward max_pool1 as acdb"]),
    "googlenet": (
        [],
        [
            "forward local_response_norm1 as acdb",
            "forward relu2 as aBcd16b",  # what Winograd's takes, and back
            "forward max_pool2 as acdb",
            "forward max_pool3 as acdb",
        ],
    ),
}


def moved(plan: Plan) -> tuple[list[str], list[str]]:
    """Reorders of images and of their gradients; of weights (by which half of the plan) and of their gradients."""
    images = [f"{step.kind} {step.node.name}" for step in plan.reorders if step.kind != "reorder"]
    weights = []
    for step in plan.reorders:
        if found := re.fullmatch(r"reorder of (d )?weight (\S+) as \w+ ?(forward|backward|)", step.node.name):
            weights.append(f"{found[3] or 'gradient'} {found[2]}")
    assert len(images) + len(weights) == len(plan.reorders)
    return images, sorted(weights)


@pytest.fixture(scope="module")
def library() -> Library:
    found = find_library()
    assert found is not None
    return load(found)


@pytest.mark.parametrize("model", CONVOLUTIONS)
def test_reorders_are_at_the_edges(model: str, library: Library) -> None:
    """In training the image, its gradient and what forward reads of the weights stay in one layout, but where a net is
    flattened. Backward wants the weights of oneDNN's convolutions another way round; the first has no gradient to pass
    on."""
    if not library.version.startswith("3.2.") or not library.wide:
        pytest.skip(f"known of oneDNN 3.2 with AVX-512; this is {FAST.about}")
    count, theirs = CONVOLUTIONS[model]
    training, evaluation = (plan_of(model, SHAPES[model][1], training) for training in (True, False))
    assert moved(training) == (IMAGES[model][0], sorted(f"backward conv{i}.weight" for i in theirs))
    # with a norm behind them all are oneDNN's in evaluation
    other = range(2, count + 1) if model.startswith("resnet") else theirs
    assert moved(evaluation) == (IMAGES[model][1], sorted(f"forward conv{i}.weight" for i in other))


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("model", CONVOLUTIONS)
def test_own_kernels_take_what_they_get(model: str, training: bool) -> None:
    """Whatever layouts oneDNN prefers on this processor: images are reordered for its primitives and where a net is
    flattened, and from the layout in which they were made."""
    plan = plan_of(model, SHAPES[model][1], training)
    nodes = {node.name: node.op for node in plan.graph.nodes}
    for node in plan.graph.nodes:
        moving = [nodes[name] for name in node.inputs if isinstance(nodes.get(name), Reorder)]
        assert not moving or isinstance(node.op, THEIRS) or node.op.is_view(training), node.name
    images, weights = moved(plan)
    assert len(set(images)) == len(images)
    assert len(set(weights)) == len(weights)
    assert "backward conv1.weight" not in weights


def test_a_config_says_whether_winograds_are_taken(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"device": "onednn", "precision": "float32"}
    taken, left = (
        tiny.job(tmp_path, **settings, onednn={"library": None, "winograd": winograd}).kernels
        for winograd in (True, False)
    )
    assert taken is onednn_set(None, True)
    assert left is onednn_set(None, False)
    assert left is not taken


LACKING = {op for op, checked in CHECKED.items() if "onednn" in checked.lacking}


def test_the_set_lacks_what_it_is_said_to_lack() -> None:
    assert {op for op, kernel in FAST.operators.items() if kernel.reference} == LACKING


def alone(case: Case) -> bool:
    """Whether it is computed without waiting for other learners, which is Python's."""
    return not (isinstance(case.op, ops.BatchNorm) and case.op.sync == "rank")


COMPUTED = [case for case in CASES if not case.op.is_view(True) and type(case.op) not in LACKING and alone(case)]


@pytest.mark.parametrize("case", COMPUTED, ids=name)
def test_every_operator_runs_without_python(case: Case) -> None:
    """So that plans of nets that are not among the models are one call, too."""
    bench = Bench(case, FAST.operators[type(case.op)], "float32")
    assert isinstance(bench.kernel.forward(bench.call(backward=False)), Command)
    if bench.kernel.backward is not None:
        assert isinstance(bench.kernel.backward(bench.call(backward=True)), Command)


def test_every_model_is_here() -> None:
    assert set(SMALL) == set(MODELS)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("model", [pytest.param(m, marks=pytest.mark.slow if m in SLOW else ()) for m in SMALL])
def test_a_model_runs_as_one_call(model: str, training: bool) -> None:
    shape, options = SMALL[model]
    plan = plan_of(model, shape, training, **options)
    weights = np.zeros(plan.layout.size, np.float32)
    assert len(plan.bind(weights, np.zeros_like(weights)).runs) == 1


def test_what_only_reference_code_computes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log and `train --check` have the line; softmax and reorders are small, and left out."""
    config = {**BUILT_IN, "device": "onednn"}
    job = open_job(load_mapping(config, []))
    assert (job.training_plan().slow, job.slow()) == ({}, "")
    monkeypatch.setattr(Primitive, "slow", True)
    found = job.training_plan().slow
    ops_named = {step.node.op.kind for step in job.training_plan().program.steps if step.node.name in found}
    assert ops_named == {"conv+relu", "dense", "max_pool"}
    half = ("output", "gradient of its input")
    assert {parts for parts in found.values()} >= {half, (*half, "gradient of its weights")}
    line = job.slow()
    assert line.startswith(f"{job.kernels.about} has only reference code, which may be hundreds of times slower, for ")
    assert line.endswith(": device=numpy may be faster; compare with python -m mpibow.bench train")
    assert all(name in line for name in found)
    assert f"\n{line}\n" in describe_job(job, (2,), [1 << 30])
    monkeypatch.setattr(Job, "prepare", lambda self, comm, counts: "")  # which compiles
    assert agreed(job, Single(), (1,))[1] == ["", "", line]


def without(kind: type) -> KernelSet:
    """The kernel set, as if it had nothing faster than NumPy for one operator."""
    kernel = replace(NUMPY.operators[kind], reference=True)
    return replace(FAST, operators={**FAST.operators, kind: kernel})


def test_numpy_computes_what_the_set_lacks_as_a_run_of_its_own() -> None:
    """In the canonical layout, and with the GIL, between runs that are one call each."""
    graph = Graph()
    x = ops.conv2d(graph.input("image", (2, 3, 9, 9)), 32, 3)
    y = ops.dense(ops.flatten(ops.max_pool2d(ops.tanh(x), 2)), 5)
    graph.output("loss", ops.softmax_cross_entropy(y, graph.input("label", (2,), "int32")))
    lacking, found = without(ops.Tanh), {}
    for kernels in (lacking, NUMPY):
        layout = choose_layout(graph, kernels)
        plan = compile_plan(graph, layout, kernels, "float32", training=True)
        flat = initial_weights(layout, 1, "float32")
        bound = plan.bind(flat, gradients := np.zeros_like(flat))
        bound.inputs["image"][...] = np.random.default_rng(1).standard_normal((2, 3, 9, 9))
        bound.inputs["label"][...] = [4, 0]
        bound.run()
        found[kernels.name] = bound.outputs["loss"].copy(), layout.unpacked(gradients)
        if kernels is lacking:
            assert plan.reference == ["tanh"]
            assert [isinstance(run, Command) for run in bound.runs] == [True, False, True, False, True]
    for mine, theirs in zip(found["onednn"], found["numpy"], strict=True):
        for key in theirs if isinstance(theirs, dict) else [...]:
            np.testing.assert_allclose(mine[key], theirs[key], rtol=1e-4, atol=1e-6)


def multiplying(left: bool, many: bool, shown: bool) -> Graph:
    """x w^T, w (3, 4) of many x or as many as x; or x^T w, as `left` says."""
    graph = Graph()
    x = ops.reshape(ops.dense(graph.input("x", (2, 6)), 20), (2, 4, 5) if left else (2, 5, 4))
    w = ops.parameter((4, 3) if left else (3, 4), initial=ops.Gaussian(1.0))
    if many:
        w = ops.stack(w, w * 2.0)
    turned = ops.transpose(x if left else w)
    if shown:
        graph.output("turned", turned)
    graph.output("loss", ops.mean((turned @ w if left else x @ turned) ** 2))
    return graph


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_factors_are_turned_without_a_copy(left: bool, many: bool) -> None:
    """But the rows of many matrices that one is multiplied with."""
    found = {}
    for shown in (False, True):
        graph = multiplying(left, many, shown)
        layout = choose_layout(graph, FAST)
        plan = compile_plan(graph, layout, FAST, "float32", training=True)
        flat = initial_weights(layout, 1, "float32")
        bound = plan.bind(flat, gradients := np.zeros_like(flat))
        bound.inputs["x"][...] = np.random.default_rng(1).standard_normal((2, 6))
        bound.run()
        found[shown] = bound.outputs["loss"].copy(), layout.unpacked(gradients)
        kinds = {step.node.op.kind for step in plan.program.steps}
        fused = not shown and not (left and not many)
        assert ("turned+matmul" in kinds, "permute" in kinds) == (fused, not fused)
    np.testing.assert_allclose(found[True][0], found[False][0], rtol=1e-5)
    for key, expected in found[True][1].items():
        np.testing.assert_allclose(found[False][1][key], expected, rtol=1e-4, atol=1e-6)


def attending(cut: Any, masked: bool, shown: bool) -> Graph:
    """Of 3 heads of 4 numbers at 5 positions; `cut` makes q, k and v of x."""
    graph = Graph()
    x = ops.dense(graph.input("x", (2, 5, 6)), 36)
    q, k, v = (ops.permute(ops.reshape(part, (2, 5, 3, 4)), 0, 2, 1, 3) for part in cut(x))
    mask = graph.input("mask", (5, 5)) + ops.parameter((3, 1, 5), initial=ops.Gaussian(1.0)) if masked else None
    y = ops.scaled_dot_product_attention(q, k, v, mask, is_causal=not masked)
    joined = ops.reshape(ops.permute(y, 0, 2, 1, 3), (2, 5, 12))
    if shown:
        graph.output("heads", y)
    graph.output("loss", ops.mean(ops.dense(joined, 3) ** 2))
    return graph


CUTS: dict[str, Any] = {
    "together": lambda x: ops.split(x, 12, axis=2),
    "by themselves": lambda x: [ops.dense(x, 12) for _ in range(3)],
    "in another order": lambda x: ops.split(x, 12, axis=2)[::-1],
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cut", CUTS)
def test_heads_are_not_cut_apart(cut: str, masked: bool) -> None:
    found = {}
    for shown in (False, True):
        graph = attending(CUTS[cut], masked, shown)
        layout = choose_layout(graph, FAST)
        plan = compile_plan(graph, layout, FAST, "float32", training=True)
        flat = initial_weights(layout, 1, "float32")
        bound = plan.bind(flat, gradients := np.zeros_like(flat))
        for array in bound.inputs.values():
            array[...] = np.random.default_rng(array.size).standard_normal(array.shape)
        bound.run()
        found[shown] = bound.outputs["loss"].copy(), layout.unpacked(gradients)
        kinds = {step.node.op.kind for step in plan.program.steps}
        assert ("heads+attention" in kinds, "permute" in kinds) == (not shown, shown)
        assert ("split" in kinds) == (cut != "by themselves" and (shown or cut == "in another order"))
    np.testing.assert_allclose(found[True][0], found[False][0], rtol=1e-5)
    for key, expected in found[True][1].items():
        np.testing.assert_allclose(found[False][1][key], expected, rtol=1e-4, atol=1e-6)


def test_what_is_broadcast_is_not_made() -> None:
    """A channel's weight of each image, and of all: by two steps, beside NumPy's four and their memory."""
    graph = Graph()
    x = ops.conv2d(graph.input("image", (2, 3, 6, 6)), 32, 3)
    x = x * ops.reshape(ops.sigmoid(ops.dense(ops.global_avg_pool2d(x), 32)), (2, 32, 1, 1))
    x = x + ops.reshape(ops.dense(graph.input("given", (1, 4)), 32), (32, 1, 1))
    graph.output("loss", ops.mean(x * x))
    found = {}
    for kernels in (FAST, NUMPY):
        layout = choose_layout(graph, kernels)
        plan = compile_plan(graph, layout, kernels, "float32", training=True)
        flat = initial_weights(layout, 1, "float32")
        bound = plan.bind(flat, gradients := np.zeros_like(flat))
        for array in bound.inputs.values():
            array[...] = np.random.default_rng(array.size).standard_normal(array.shape)
        bound.run()
        found[kernels.name] = bound.outputs["loss"].copy(), layout.unpacked(gradients)
        kinds = {step.node.op.kind for step in plan.program.steps}
        assert ("expand" in kinds, {"expand+add", "expand+multiply"} <= kinds) == (kernels is NUMPY, kernels is FAST)
    for mine, theirs in zip(found["onednn"], found["numpy"], strict=True):
        for key in theirs if isinstance(theirs, dict) else [...]:
            np.testing.assert_allclose(mine[key], theirs[key], rtol=1e-4, atol=1e-6)


def test_the_line_names_what_numpy_computes() -> None:
    job = replace(open_job(load_mapping({**BUILT_IN, "device": "onednn"}, [])), device=Device(without(ops.Dense)))
    assert job.slow() == f"NumPy computes dense, for which {job.kernels.about} has no kernel"
    assert f"\n{job.slow()}\n" in describe_job(job, (2,), [1 << 30])
