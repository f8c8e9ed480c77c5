"""Plans of the models on oneDNN: what is fused, which reorders are left, and that they run as one call."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np
import pytest

from mpibow import ops
from mpibow.comm import Single
from mpibow.config import load_mapping
from mpibow.graph import Array, Graph, Plan, choose_layout, compile_plan
from mpibow.graph.bound import BoundPlan
from mpibow.graph.formats import Reorder
from mpibow.job import BUILT_IN, Job, open_job
from mpibow.job.device import Device
from mpibow.job.synthetic import SHAPES
from mpibow.kernels import NUMPY, KernelSet, find_kernels, onednn_set
from mpibow.kernels.compiled.command import Command
from mpibow.kernels.isa import ISA
from mpibow.kernels.onednn import low
from mpibow.kernels.onednn.primitives import Primitive
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from mpibow.ops.fused import ConvNormAddRelu, ConvRelu, NormAddRelu
from mpibow.run.alike import agreed
from mpibow.run.describe import describe_job
from tests.kernels.cases import Bench, Case, name
from tests.kernels.operators import CASES, CHECKED
from tests.outcome import outcome
from tests.run import tiny

FAST = find_kernels("auto", "float32", None)[0]
pytestmark = pytest.mark.skipif(FAST is NUMPY, reason="oneDNN or numba is not there: pip install -e '.[cpu]'")

BATCH = 4
HIDDEN = {"hidden": 24}
SMALL = {  # one of each family: the least image that it takes, or about
    **dict.fromkeys(("convnet", "lenet", "mlp"), ((1, 28, 28), {})),
    "resnet20": ((3, 32, 32), {}),
    "resnet50": ((3, 64, 64), {}),
    "vgg16_cifar": ((3, 32, 32), {}),
    "alexnet": ((3, 96, 96), HIDDEN),
    "googlenet": ((3, 72, 72), {}),
    "overfeat": ((3, 119, 119), {"hidden": (24, 20)}),
}


def plan_of(model: str, shape: tuple[int, ...], training: bool, **options) -> Plan:
    build = classifier(
        partial(MODELS[model], classes=10, **options), shape, "uint8", (120.0,) * shape[0], (60.0,) * shape[0]
    )
    layout = choose_layout(build(BATCH, True), FAST, factors=True)
    return compile_plan(build(BATCH, training), layout, FAST, "float32", training=training)


def steps(plan: Plan, kind: str = "forward") -> dict[str, int]:
    """How many steps there are of the operators that may be fused."""
    return dict(Counter(s.node.op.kind for s in plan.program.steps if s.kind == kind and s.node.op.kind in FUSIBLE))


FUSIBLE = ("conv", "conv+relu", "conv+norm+add+relu", "batch_norm", "norm+add+relu", "add+relu", "add", "relu")
FUSED = {  # model: steps in training, in evaluation
    "convnet": ({"conv+relu": 2}, {"conv+relu": 2}),
    "resnet20": ({"conv": 19, "norm+add+relu": 19}, {"conv+norm+add+relu": 19}),
    "resnet50": (  # the norms of four projections are added, and have no relu
        {"conv": 53, "norm+add+relu": 49, "batch_norm": 4},
        {"conv+norm+add+relu": 53},
    ),
    "vgg16_cifar": (  # the norm comes behind the relu
        {"conv+relu": 13, "batch_norm": 14, "relu": 1},
        {"conv+relu": 13, "batch_norm": 14, "relu": 1},
    ),
}


@pytest.mark.parametrize("model", FUSED)
def test_what_is_fused(model):
    shape, options = SMALL[model]
    training, evaluation = (plan_of(model, shape, training, **options) for training in (True, False))
    assert (steps(training), steps(evaluation)) == FUSED[model]
    assert steps(training, "backward") == steps(training)


def test_a_sum_is_fused_with_what_comes_before_it():
    """ResNet-20 has nine: two inputs, and no step of their own."""
    for training in (True, False):
        ops_ = [node.op for node in plan_of("resnet20", (3, 32, 32), training).graph.nodes]
        assert sum(isinstance(op, NormAddRelu | ConvNormAddRelu) and op.added for op in ops_) == 9
    ops_ = [node.op for node in plan_of("resnet20", (3, 32, 32), False, shortcut="projection").graph.nodes]
    ends = Counter((op.added, op.relu) for op in ops_ if isinstance(op, ConvNormAddRelu))
    assert ends == {(False, True): 10, (True, True): 9, (False, False): 2}


def test_what_is_left_alone():
    """Convolutions in groups, sums that are not plain; a sum whose terms are no norms is fused with its relu only."""
    graph = Graph()
    x = graph.input("x", (2, 16, 8, 8))
    y = ops.relu(ops.batch_norm(ops.conv2d(x, 16, 3, padding=1, groups=2, bias=False)))
    z = ops.relu(ops.add(ops.max_pool2d(y, 3, stride=1, padding=1), y))
    graph.output("out", ops.relu(ops.add(ops.batch_norm(z), y, coefficients=(1.0, 0.5))))
    for training in (True, False):
        kinds = [node.op.kind for node in FAST.fuse(graph, training).nodes]
        assert kinds == ["conv", "norm+add+relu", "max_pool", "add+relu", "batch_norm", "add", "relu"]


# Operators whose layouts oneDNN chooses; all others take any.
THEIRS = (ops.Conv2d, ConvRelu, ConvNormAddRelu, ops.MaxPool2d, ops.LocalResponseNorm)


def moved(plan: Plan) -> tuple[list[str], list[str]]:
    """Reorders of images and of their gradients; of weights (by which half of the plan) and of their gradients."""
    images = [f"{step.kind} {step.node.name}" for step in plan.reorders if step.kind != "reorder"]
    weights = []
    for step in plan.reorders:
        if found := re.fullmatch(r"reorder of (d )?weight (\S+) as \w+ ?(forward|backward|)", step.node.name):
            weights.append(f"{found[3] or 'gradient'} {found[2]}")
    assert len(images) + len(weights) == len(plan.reorders)
    return images, sorted(weights)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("model", ["lenet", "resnet20", "resnet50", "googlenet"])
def test_own_kernels_take_what_they_get(model, training):
    """Whatever layouts oneDNN prefers on this processor: images are reordered for its primitives and where a net is
    flattened, and from the layout in which they were made; in a concat all lie alike. On AVX2 its blocks have 8
    channels, ours 16: a convolution of low images may have four, of x, y and their gradients."""
    plan = plan_of(model, SHAPES[model][1], training)
    nodes = {node.name: node.op for node in plan.graph.nodes}
    for node in plan.graph.nodes:
        moving = [op for op in map(nodes.get, node.inputs) if isinstance(op, Reorder) and op.source != "aBcd8b"]
        assert not moving or isinstance(node.op, (*THEIRS, ops.Concat)) or node.op.is_view(training), node.name
    images, weights = moved(plan)
    assert (
        len(set(images))
        == len(images)
        <= max(len(nodes) / (4 if ISA == "AVX-512" else 3), 4)
        + 4
        * (ISA == "AVX2")
        * sum(low.fits(op, plan.shapes[name]) for name, op in nodes.items() if isinstance(op, ops.Conv2d | ConvRelu))
    )
    assert len(set(weights)) == len(weights)
    assert "backward conv1.weight" not in weights


def test_a_config_says_whether_winograds_are_taken(tmp_path):
    settings = {"device": "onednn", "precision": "float32"}
    taken, left = (
        tiny.job(tmp_path, **settings, onednn={"library": None, "winograd": winograd}).kernels
        for winograd in (True, False)
    )
    assert taken is onednn_set(None, True)
    assert left is onednn_set(None, False)
    assert left is not taken


LACKING = {op for op, checked in CHECKED.items() if "onednn" in checked.lacking}


def test_the_set_lacks_what_it_is_said_to_lack():
    assert {op for op, kernel in FAST.operators.items() if kernel.reference} == LACKING


def alone(case: Case) -> bool:
    """Whether it is computed without waiting for other learners, which is Python's."""
    return not (isinstance(case.op, ops.BatchNorm) and case.op.sync == "rank")


COMPUTED = [case for case in CASES if not case.op.is_view(True) and type(case.op) not in LACKING and alone(case)]


@pytest.mark.parametrize("case", COMPUTED, ids=name)
def test_every_operator_runs_without_python(case: Case):
    """So that plans of nets that are not among the models are one call, too."""
    bench = Bench(case, FAST.operators[type(case.op)], "float32")
    assert isinstance(bench.kernel.forward(bench.call(backward=False)), Command)
    if bench.kernel.backward is not None:
        assert isinstance(bench.kernel.backward(bench.call(backward=True)), Command)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("model", SMALL)
def test_a_model_runs_as_one_call(model, training):
    shape, options = SMALL[model]
    plan = plan_of(model, shape, training, **options)
    weights = np.zeros(plan.layout.size, np.float32)
    assert len(plan.bind(weights, np.zeros_like(weights)).runs) == 1


def test_what_only_reference_code_computes_is_named(monkeypatch):
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


def ran(graph: Graph, kernels: KernelSet) -> tuple[BoundPlan, dict[str, Array]]:
    """The graph's plan, its loss and gradients, on inputs that may be labels as well."""
    shapes = {name: graph.tensors[name].shape for name in graph.inputs}
    inputs = {name: np.abs(np.random.default_rng(prod(shape)).standard_normal(shape)) for name, shape in shapes.items()}
    return outcome(graph, inputs, kernels, "float32")


def close(mine: dict[str, Array], theirs: dict[str, Array]) -> None:
    for key, array in mine.items():
        np.testing.assert_allclose(array, theirs[key], rtol=1e-4, atol=1e-6, err_msg=key)


def kinds_of(plan: BoundPlan) -> set[str]:
    return {step.node.op.kind for step in plan.plan.program.steps}


def without(kind: type) -> KernelSet:
    """The kernel set, as if it had nothing faster than NumPy for one operator."""
    kernel = replace(NUMPY.operators[kind], reference=True)
    return replace(FAST, operators={**FAST.operators, kind: kernel})


def test_numpy_computes_what_the_set_lacks_as_a_run_of_its_own():
    """In the canonical layout, and with the GIL, between runs that are one call each."""
    graph = Graph()
    x = ops.conv2d(graph.input("image", (2, 3, 9, 9)), 32, 3)
    y = ops.dense(ops.flatten(ops.max_pool2d(ops.tanh(x), 2)), 5)
    graph.output("loss", ops.softmax_cross_entropy(y, graph.input("label", (2,), "int32")))
    plan, results = ran(graph, without(ops.Tanh))
    assert plan.plan.reference == ["tanh"]
    assert [isinstance(run, Command) for run in plan.runs] == [True, False, True, False, True]
    close(results, ran(graph, NUMPY)[1])


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
def test_factors_are_turned_without_a_copy(left, many):
    """But the rows of many matrices that one is multiplied with."""
    (plan, mine), (shown, theirs) = (ran(multiplying(left, many, shown), FAST) for shown in (False, True))
    for each, fused in ((plan, many or not left), (shown, False)):
        assert kinds_of(each) & {"turned+matmul", "permute"} == {"turned+matmul" if fused else "permute"}
    close(mine, theirs)


def attending(cut, masked: bool, shown: bool) -> Graph:
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


CUTS = {
    "together": lambda x: ops.split(x, 12, axis=2),
    "by themselves": lambda x: [ops.dense(x, 12) for _ in range(3)],
    "in another order": lambda x: ops.split(x, 12, axis=2)[::-1],
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cut", CUTS)
def test_heads_are_not_cut_apart(cut, masked):
    (plan, mine), (shown, theirs) = (ran(attending(CUTS[cut], masked, shown), FAST) for shown in (False, True))
    assert kinds_of(plan) & {"heads+attention", "permute"} == {"heads+attention"}
    assert kinds_of(shown) & {"heads+attention", "permute"} == {"permute"}
    assert ("split" in kinds_of(plan)) == (cut == "in another order")
    close(mine, theirs)


def test_what_is_broadcast_is_not_made():
    """A channel's weight of each image, and of all: by two steps, beside NumPy's four and their memory."""
    graph = Graph()
    x = ops.conv2d(graph.input("image", (2, 3, 6, 6)), 32, 3)
    x = x * ops.reshape(ops.sigmoid(ops.dense(ops.global_avg_pool2d(x), 32)), (2, 32, 1, 1))
    x = x + ops.reshape(ops.dense(graph.input("given", (1, 4)), 32), (32, 1, 1))
    graph.output("loss", ops.mean(x * x))
    (plan, mine), (reference, theirs) = (ran(graph, kernels) for kernels in (FAST, NUMPY))
    broadcasts = {"expand", "expand+add", "expand+multiply"}
    assert kinds_of(plan) & broadcasts == broadcasts - {"expand"}
    assert kinds_of(reference) & broadcasts == {"expand"}
    close(mine, theirs)


def test_the_line_names_what_numpy_computes():
    job = replace(open_job(load_mapping({**BUILT_IN, "device": "onednn"}, [])), device=Device(without(ops.Dense)))
    assert job.slow() == f"NumPy computes dense, for which {job.kernels.about} has no kernel"
    assert f"\n{job.slow()}\n" in describe_job(job, (2,), [1 << 30])
