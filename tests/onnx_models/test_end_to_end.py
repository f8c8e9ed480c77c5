"""A run that reads a file, trains on 2 ranks of 2 learners and writes a file, scored in another process; the zoo."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ConfigError
from mpibow.export import main
from mpibow.graph import Array, Graph
from mpibow.models import MODELS, predictions, read_by
from mpibow.onnx.comparison import evaluated
from mpibow.onnx.model import model_of
from mpibow.onnx.reader import net_of
from tests.examples.cases import CASES
from tests.launching import mpirun, needs_mpi, well
from tests.models.test_onednn import CASES as FAMILIES
from tests.onnx_models.runtime import close, evaluation, onnx, run
from tests.onnx_models.test_reading import HEAD
from tests.run import tiny

NET = """(float[N,1,6,6] image) => (float[N,4] y) {
    a = Conv<pads=[1,1,1,1]>(image, conv_w, conv_b)
    b, = BatchNormalization(a, bn_scale, bn_bias, bn_mean, bn_var)
    c = Relu(b)
    d = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c)
    e = Flatten(d)
    y = Gemm<transB=1>(e, head_w, head_b)
}"""
SCORE = """
import sys, numpy as np, onnxruntime
data = np.load("test.npz")
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
(logits,) = session.run(None, {"image": data["images"]})
print((logits.argmax(1) == data["labels"]).mean(), np.abs(logits - data["logits"]).max())
"""


def first_net() -> object:
    """NET with weights of a new net."""
    model, generator = onnx.parser.parse_model(HEAD.format(17) + NET), np.random.default_rng(0)
    arrays = {
        "conv_w": generator.normal(0, 0.4, (8, 1, 3, 3)), "conv_b": np.zeros(8), "bn_scale": np.ones(8),
        "bn_bias": np.zeros(8), "bn_mean": np.zeros(8), "bn_var": np.ones(8),
        "head_w": generator.normal(0, 0.1, (4, 72)), "head_b": np.zeros(4),
    }  # fmt: skip
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return model


@needs_mpi
def test_a_file_is_read_trained_on_two_ranks_written_and_scored_by_onnx_runtime(tmp_path):
    onnx.save(first_net(), tmp_path / "net.onnx")
    trained = well(mpirun(2, "-m", "tests.onnx_models.train_imported", cwd=tmp_path))
    folder = tmp_path / trained.stdout.split()[-1]
    assert main([str(folder), "--to", "onnx", "--output", str(tmp_path / "trained.onnx")]) == 0
    names = {each.name for each in onnx.load(tmp_path / "trained.onnx").graph.initializer}
    assert {"conv_w", "bn_mean", "head_b"} <= names
    score = subprocess.run(
        [sys.executable, "-c", SCORE, "trained.onnx"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    accuracy, gap = map(float, score.stdout.split())
    assert accuracy > 0.6  # chance is 0.25
    assert gap < 1e-4


def test_scaling_inside_or_beside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images, labels = tiny.images(30)
    fitted = mb.fit(
        lambda x: mb.dense(mb.flatten(mb.dropout(mb.batch_norm(mb.conv2d(mb.normalise(x, [1], [2]), 4, 3)))), 3),
        (images, labels),
        batch_size=3,
        learners=2,
        stop={"iterations": 2},
        ema={"half_life": 9, "every": 1},
    )
    fitted.to_onnx("inside.onnx")
    close(run(Path("inside.onnx").read_bytes(), {"image": images}), {"logits": fitted.predict(images)})
    fitted.to_onnx("beside.onnx", average=True, scaling="beside")
    scaling = json.loads(Path("beside.onnx.json").read_text())["input"]
    mean, std = (np.array(scaling[key])[:, None, None] for key in ("mean", "std"))
    scaled = ((images - mean) / std).astype(np.float32)
    close(run(Path("beside.onnx").read_bytes(), {"image": scaled}), {"logits": fitted.predict(images, average=True)})
    with pytest.raises(ConfigError, match="exists already"):
        fitted.to_onnx("inside.onnx")


def test_what_cannot_be_written_is_named_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sine = mb.operator("sine", np.sin, lambda x, y, dy: dy * np.cos(x))
    images, labels = tiny.images(30)
    fitted = mb.fit(
        lambda image: mb.dense(mb.flatten(sine(image)), 3), (images, labels), batch_size=3, stop={"iterations": 1}
    )
    with pytest.raises(ConfigError, match=r"to_onnx: cannot write sine \(sine1\)"):
        fitted.to_onnx("net.onnx")
    assert not list(tmp_path.glob("net.onnx*"))


def test_the_batch_size_is_no_number():
    """The first two samples are two of any batch; as many columns as there are samples cannot be written."""

    def of(net: Callable[[mb.Tensor], mb.Tensor]) -> Callable[[int], Graph]:
        def make(batch: int) -> Graph:
            graph = Graph()
            graph.output("y", net(graph.input("x", (batch, 4))))
            return graph

        return make

    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    model = model_of(of(lambda x: (x + mb.constant(np.ones(x.shape)))[:2, :3]), {})
    close(run(model.SerializeToString(), {"x": x}), {"y": x[:2, :3] + 1})
    for net, rule in (
        (lambda x: x[:2, : x.shape[0]], "starts or stops at a place that depends on the batch size"),
        (mb.rotary, "rotary: an extent depends on the batch size, for which ONNX needs a number"),
        (lambda x: x + mb.constant(np.indices(x.shape)[0]), "its numbers depend on the batch size"),
    ):
        with pytest.raises(ConfigError, match=rule):
            model_of(of(net), {})


def written_and_read(make: Callable[[int], Graph], inputs: Mapping[str, Array]) -> None:
    """The net's model gives the net's outputs in ONNX Runtime, and read again by mpibow."""
    graph = make(len(next(iter(inputs.values()))))
    plan, weights, statistics = evaluation(graph)
    statistics += np.random.default_rng(0).uniform(0, 0.5, len(statistics))
    bound = plan.bind(weights, statistics=statistics)
    for name, array in inputs.items():
        bound.inputs[name][...] = array
    bound.run()
    wanted = {name: bound.outputs[name] for name in predictions(graph)}
    model = model_of(make, plan.unpacked(weights, statistics))
    close(run(model.SerializeToString(), inputs), wanted)
    net = net_of(model, "net")
    again = evaluated(net, inputs)
    close(again if len(wanted) > 1 else {next(iter(wanted)): again["output"]}, wanted)


def test_a_logarithm_of_nearly_1_keeps_its_digits():
    def make(batch: int) -> Graph:
        graph = Graph()
        x = graph.input("x", (batch, 5))
        graph.output("y", mb.log(mb.softplus(x)))
        graph.output("z", mb.log1p(mb.exp(x)))
        return graph

    x = np.array([[-30, -20, -1e-9, 1, 20]], np.float32)
    model = model_of(make, {})
    found = run(model.SerializeToString(), {"x": x})
    soft = np.log1p(np.exp(np.float64(x)))
    np.testing.assert_allclose(found["y"], np.log(soft), rtol=1e-5)
    np.testing.assert_allclose(found["z"], soft, rtol=1e-5)
    assert np.isposinf(run(model.SerializeToString(), {"x": np.full((1, 5), 200, np.float32)})["z"]).all()


def test_a_row_that_a_mask_hides_by_the_least_number_is_a_mean():
    def make(batch: int) -> Graph:
        graph = Graph()
        x, mask = (graph.input(name, (batch, 3, 3)) for name in ("x", "mask"))
        graph.output("y", mb.scaled_dot_product_attention(x * 0, x, x, mask))
        return graph

    least, x = np.finfo("f").min, np.arange(9, dtype="f").reshape(1, 3, 3)
    mask = np.array([[[least] * 3, [-np.inf] * 3, [least, -np.inf, least]]], "f")
    written_and_read(make, {"x": x, "mask": mask})


def test_integers_that_are_scattered_stay_integers():
    def make(batch: int) -> Graph:
        graph = Graph()
        x = mb.cast(graph.input("x", (batch, 5)), "int32")
        graph.output("y", mb.cast(mb.scatter_add(x, 1, x, (batch, 5))))
        return graph

    x = np.array([[0, 1, 1, 4, 2]], np.float32)
    model = model_of(make, {})
    assert run(model.SerializeToString(), {"x": x})["y"].tolist() == [[0, 2, 2, 0, 4]]


@pytest.mark.parametrize(("name", "shape", "options"), FAMILIES, ids=str)
def test_the_zoo(name, shape, options):
    def make(batch: int) -> Graph:
        graph = Graph()
        graph.output("logits", MODELS[name](graph.input("image", (batch, *shape)), 7, **options))
        return graph

    written_and_read(make, {"image": np.random.default_rng(1).standard_normal((2, *shape)).astype(np.float32)})


@pytest.mark.parametrize("name", CASES)
def test_nets_of_examples(name):
    case = CASES[name]
    read = read_by(case.build(1, False), [*predictions(case.build(1, False)).values()])
    written_and_read(
        lambda batch: case.build(batch, False), {key: each for key, each in case.inputs.items() if key in read}
    )
