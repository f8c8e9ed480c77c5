"""Models as ONNX files have them: weights by name, training forms, any batch size; or refused with all names."""

import inspect
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mpibow as mb
from mpibow import ops
from mpibow.errors import ConfigError, ShapeError
from mpibow.graph import Array, Graph
from mpibow.onnx.comparison import compare, evaluated
from mpibow.onnx.net import OnnxNet, check, inputs_of
from mpibow.onnx.reader import net_of
from tests.onnx_models.runtime import close, onnx, run
from tests.refusals import refuses

HEAD = '<ir_version: 8, opset_import: ["" : {}, "ai.onnx.ml" : 3]> net '
IMAGES = """(float[N,3,6,6] x) => (float[N,5] y) {
    a = Conv<pads=[1,1,1,1]>(x, conv_w, conv_b)
    b, = BatchNormalization<momentum=0.8>(a, bn_scale, bn_bias, bn_mean, bn_var)
    c = Relu(b)
    d = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c)
    shape = Shape(d)
    zero = Constant<value_int=0>()
    n = Gather(shape, zero)
    axes = Constant<value_ints=[0]>()
    first = Unsqueeze(n, axes)
    rest = Constant<value_ints=[-1]>()
    both = Concat<axis=0>(first, rest)
    e = Reshape(d, both)
    ratio = Constant<value_float=0.25>()
    f, = Dropout(e, ratio)
    y = Gemm<transB=1>(f, head_w, head_b)
}"""
ALIGNED = """scales = Constant<value_floats=[1.0, 1.0, {}]>()
    y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(x, , scales)"""
OF_IMAGES = {
    "conv_w": (4, 3, 3, 3), "conv_b": (4,), "bn_scale": (4,), "bn_bias": (4,), "bn_mean": (4,), "bn_var": (4,),
    "head_w": (5, 36), "head_b": (5,),
}  # fmt: skip


def model_of(text: str, shapes: Mapping[str, tuple[int, ...]] | None = None, opset: int = 17) -> Any:
    """A model in ONNX's textual form, with random initialisers of these shapes."""
    model, generator = onnx.parser.parse_model(HEAD.format(opset) + text), np.random.default_rng(0)
    for name, shape in (shapes or {}).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(generator.uniform(0.1, 1, shape).astype("f"), name))
    return model


def sample(net: OnnxNet, batch: int) -> dict[str, Array]:
    generator = np.random.default_rng(1)
    return {
        value: generator.standard_normal((batch, *each.shape)).astype(np.float32) for value, each in net.inputs.items()
    }


def graph_of(net: OnnxNet, batch: int = 2) -> Graph:
    inputs = inputs_of(net, batch)
    net(*inputs)
    return inputs[0].graph


def test_a_file_has_the_same_outputs_for_any_batch_size_and_layers_in_their_training_forms(tmp_path):
    model = model_of(IMAGES, OF_IMAGES)
    onnx.save(model, tmp_path / "net.onnx")
    net = mb.from_onnx(tmp_path / "net.onnx")
    for batch in (1, 4):
        inputs = sample(net, batch)
        wanted = run(model.SerializeToString(), inputs)
        close(evaluated(net, inputs), {"output": wanted["y"]})
    nodes = {node.op.kind: node for node in graph_of(net).nodes}
    assert nodes["batch_norm"].op == ops.BatchNorm(1e-5, 0.2)
    assert nodes["dropout"].op == ops.Dropout(0.25)
    assert {node.full(key) for node in nodes.values() for key in (*node.weights, *node.statistics)} == set(OF_IMAGES)


def test_a_batch_size_that_is_written_into_the_file_is_any():
    text = """(float[1,2,3] x) => (float[1,12] y) {
        sizes = Constant<value_ints=[1,2,6]>()
        wide = Resize(x, , , sizes)
        to = Constant<value_ints=[1,12]>()
        y = Reshape(wide, to)
    }"""
    net = net_of(model_of(text), "net")
    inputs = sample(net, 3)
    close(evaluated(net, inputs), {"output": inputs["x"].repeat(2, 2).reshape(3, 12)})


def test_operators_that_mpibow_lacks_are_named_all_at_once():
    text = """(float[N,4] x) => (float[N,4] y) {
        [first] a = Det(x)
        b = NonZero(x)
        c = ai.onnx.ml.Scaler(x)
        y = Add(a, x)
    }"""
    with pytest.raises(ConfigError, match=r"(?s)net uses operators.*Det in node first\n") as error:
        net_of(model_of(text), "net", ["y", "b", "c"])
    assert "NonZero in node of b\n  ai.onnx.ml.Scaler in node of c" in str(error.value)


def test_what_depends_on_no_input_is_computed_by_the_package_whatever_its_operator():
    text = """(float[N,4] x) => (float[N,4] y) {
        table = Constant<value_floats=[0.0, 1.0, 0.0, 2.0]>()
        places = NonZero(table)
        flat = Constant<value_ints=[-1]>()
        row = Reshape(places, flat)
        less = Gather<axis=1>(x, row)
        y = Concat<axis=1>(less, less)
    }"""
    net = net_of(model_of(text), "net")
    inputs = sample(net, 2)
    close(evaluated(net, inputs), {"output": inputs["x"][:, [1, 3, 1, 3]]})


def test_outputs_within_the_model_and_initialisers_that_are_not_trained():
    text = "(float[N,2] x) => (float[N,3] y) { a = MatMul(x, w) b = Add(a, mean) y = Softmax(b) }"
    model = model_of(text, {"w": (2, 3), "mean": (1, 3)})
    net = net_of(model, "net", ["b"], ["mea?"])
    assert (list(net.weights), list(net.outputs)) == (["w"], ["output"])
    inputs = sample(net, 2)
    arrays = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    close(evaluated(net, inputs), {"output": inputs["x"] @ arrays["w"] + arrays["mean"]})
    with pytest.raises(ConfigError, match="outputs: net computes no nothing"):
        net_of(model, "net", ["nothing"])


def test_extents_that_the_model_leaves_open():
    model = model_of("(float[N,C,L] x) => (float[N,C,L] y) { y = Relu(x) }")
    with pytest.raises(ConfigError, match=r"the input x of net is \(n, C, L\).*shapes="):
        net_of(model, "net")
    with refuses("from_onnx: shapes: net has no input z"):
        net_of(model, "net", shapes={"z": (2, 3)})
    net = net_of(model, "net", shapes={"x": (2, 3)})
    with pytest.raises(ShapeError, match=r"net: takes x \(n, 2, 3\), got z"):
        net(Graph().input("z", (4, 2, 2)))


def test_a_row_of_a_table_by_numbers_of_the_data():
    net = net_of(model_of("(int64[N,3] i) => (float[N,3,2] y) { y = Gather(t, i) }", {"t": (5, 2)}), "net")
    inputs = {"i": np.array([[0, 4, -3], [1, -5, 3]])}
    close(evaluated(net, inputs), {"output": net.weights["t"][inputs["i"]]})
    kinds = [node.op.kind for node in graph_of(net).nodes]
    assert kinds == ["constant", "expand", "cast", "integer", "embedding"]  # indices modulo the rows
    for wrong, got in ((5, "0 to 5"), (-6, "-6 to 0")):
        with refuses(f"train.i: must lie in [-5, 5), got {got}"):
            mb.fit(net, {"i": [[0, 0, wrong]] * 4, "y": np.zeros((4, 3, 2))}, loss="mse_loss", batch_size=4)


READ = {
    "functions of opset 17": ("(float[N,4] x) => (float[N,4] y) { a = HardSigmoid(x) y = Selu(a) }", {}),
    "rows of matrices": (
        "(float[N,4] x) => (float[N,4,2,3] y) { i = Cast<to=7>(x) y = Gather(w, i) }",
        {"w": (5, 2, 3)},
    ),
    "aligned corners": (f"(float[N,1,4] x) => (float[N,1,6] y) {{ {ALIGNED.format(1.5)} }}", {}),
    "a rounded scale": (f"(float[N,1,7] x) => (float[N,1,57] y) {{ {ALIGNED.format(8.1428576)} }}", {}),
}


@pytest.mark.parametrize("case", READ)
def test_read_as_onnx_runtime_reads_it(case):
    model = model_of(*READ[case])
    inputs = sample(net := net_of(model, "net"), 3)
    close(evaluated(net, inputs), {"output": run(model.SerializeToString(), inputs)["y"]})


def test_functions_of_an_old_opset():
    model = model_of("(float[N,4] x) => (float[N,4] y) { y = my.Twice(x) }", opset=13)
    model.opset_import.append(onnx.helper.make_opsetid("my", 1))
    twice = '<domain: "my", opset_import: ["": 13]> Twice (x) => (y) { y = Add(x, x) }'
    model.functions.append(onnx.parser.parse_function(twice))
    inputs = sample(net := net_of(model, "net"), 3)
    close(evaluated(net, inputs), {"output": 2 * inputs["x"]})


def test_an_input_that_is_called_as_a_word_of_python():
    net = net_of(model_of("(float[N,4] in) => (float[N,4] y) { y = Relu(in) }"), "net")
    assert str(inspect.signature(net)) == "(xin)"


REFUSED = {
    "aligned corners": (f"(float[N,1,4] x) => (float[N,1,5] y) {{ {ALIGNED.format(1.3)} }}", {},
        "Resize in node of y: align_corners with scales that give no whole lengths"),
    "shared statistics": (
        """(float[N,4] x) => (float[N,4] y) {
            a = BatchNormalization(x, s, b, m, v)
            y = BatchNormalization(a, t, c, m, v)
        }""",
        dict.fromkeys("sbtcmv", (4,)),
        "BatchNormalization in node of a: its statistics must be initialisers that no other node reads",
    ),
    "a broadcast scale": ("(float[N,4] x) => (float[N,4] y) { y = LayerNormalization(x, w) }", {"w": (1,)},
        "LayerNormalization in node of y: weights of another shape than the last axes"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case):
    *model, rule = REFUSED[case]
    with refuses(f"from_onnx: {rule}"):
        check(net_of(model_of(*model), "net"))


@pytest.mark.parametrize("opset", [9, 13, 23])
def test_opsets(opset):
    net = net_of(model_of("(float[N,4] x) => (float[N,4] y) { y = Softmax<axis=1>(x) }", opset=opset), "net")
    inputs = sample(net, 2)
    e = np.exp(inputs["x"])
    close(evaluated(net, inputs), {"output": e / e.sum(1, keepdims=True)})


@pytest.mark.parametrize(
    ("opset", "rule"),
    [
        (29, "net: is of opset 29; 13 to 28 are read"),
        (1, "net: is of opset 1, which the package onnx does not convert to 13: "),
    ],
)
def test_opsets_that_are_not_read(opset, rule):
    model = model_of("(float[N,4] x) => (float[N,4] y) { y = Pad(x) }", opset=opset)
    with pytest.raises(ConfigError, match=rule):
        net_of(model, "net")


def test_a_net_that_computes_something_else_is_refused():
    model = model_of(IMAGES, OF_IMAGES)
    net = net_of(model, "net")
    assert compare(onnx, model, net) == ""
    other = replace(net, weights={**net.weights, "head_b": net.weights["head_b"] + 1})
    with pytest.raises(ConfigError, match="net gives another output than the package onnx"):
        compare(onnx, model, other)


def test_a_damaged_file(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"no model")
    with pytest.raises(ConfigError, match=r"net\.onnx: cannot be read"):
        mb.from_onnx(tmp_path / "net.onnx")


def test_without_the_package_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)  # as where it is not installed
    with pytest.raises(ConfigError, match=r"onnx is not installed.*pip install 'mpibow\[onnx\]'"):
        mb.from_onnx("net.onnx")
