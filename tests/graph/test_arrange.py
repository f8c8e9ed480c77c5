"""Layouts are asked for, reorders stand where neighbours disagree, and numbers do not depend on either."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import (
    Call,
    Formats,
    Graph,
    Kernel,
    Kernels,
    Layout,
    Run,
    Shapes,
    choose_layout,
    compile_plan,
    initial_weights,
    plan_layout,
)
from mpibow.graph.arrange import arrange
from mpibow.graph.formats import Reorder, canonical, pack, physical, unpack
from mpibow.graph.layout import repack
from mpibow.kernels.numpy import OPERATORS

BLOCKED, WEIGHT, BACK = "aBcd4b", "ABcd4b4a", "ABcd4a4b"


def in_layouts(kernel: Kernel, formats: Callable[..., Formats]) -> Kernel:
    """A kernel that computes as `kernel` does on arrays in other layouts: slowly, by unpacking and packing."""

    def bind(side: str) -> Callable[[Call], Run]:
        def bound(call: Call) -> Run:
            asked, shapes, backward = call.shapes.formats, call.shapes, side == "backward"

            def run() -> None:
                x = tuple(
                    unpack(a, tag, shape) if a.dtype.kind == "f" and a.size else a
                    for a, tag, shape in zip(call.x, asked.x, shapes.x, strict=True)
                )
                logical = {key: weight.shape for key, weight in call.op.weights(*shapes.x).items()}
                tags = {key: asked.w.get(key, canonical(shape)) for key, shape in logical.items()}
                read = {key: asked.back.get(key, tag) for key, tag in tags.items()} if backward else tags
                made = {key: asked.dw.get(key, tag) for key, tag in tags.items()}
                inner = replace(
                    call,
                    x=x,
                    y=unpack(call.y, asked.y, shapes.y),
                    w={key: unpack(array, read[key], logical[key]) for key, array in call.w.items()},
                    dy=unpack(call.dy, asked.y, shapes.y) if backward else call.dy,
                    dx=tuple(
                        None if a is None else np.zeros(s, a.dtype) for a, s in zip(call.dx, shapes.x, strict=False)
                    ),
                    dw={key: np.zeros(logical[key], array.dtype) for key, array in call.dw.items()},
                )
                getattr(kernel, side)(inner)()
                if not backward:
                    call.y[...] = pack(inner.y, asked.y)
                for a, b, tag in zip(call.dx, inner.dx, asked.x, strict=False):
                    if a is not None and b is not None:
                        a[...] = pack(b, tag)
                for key, array in call.dw.items():
                    array[...] = pack(inner.dw[key], made[key])

            return run

        return bound

    return Kernel(bind("forward"), bind("backward") if kernel.backward else None, kernel.buffers, formats)


def conv_formats(op, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    few = shapes.x[0][1] < 4
    return Formats(("abcd" if few else BLOCKED,), BLOCKED, {"weight": WEIGHT}, {"weight": BACK})


def as_given(op, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    return Formats((given[0],) * len(shapes.x), given[0])


def reorder(call: Call) -> Run:
    asked, shape = call.shapes.formats, call.shapes.y
    return lambda: np.copyto(call.y, pack(unpack(call.x[0], asked.x[0], shape), asked.y))


def reorder_back(call: Call) -> Run:
    asked, shape, dx = call.shapes.formats, call.shapes.y, call.dx[0]
    return lambda: np.copyto(dx, pack(unpack(call.dy, asked.y, shape), asked.x[0]))


TABLE = {
    **OPERATORS,
    ops.Conv2d: in_layouts(OPERATORS[ops.Conv2d], conv_formats),
    ops.Relu: in_layouts(OPERATORS[ops.Relu], as_given),
    ops.Add: in_layouts(OPERATORS[ops.Add], as_given),
    Reorder: Kernel(reorder, reorder_back, formats=lambda op, shapes, given: Formats((op.source,), op.target)),
}


def net(batch: int = 3) -> Graph:
    """A branch that is joined again, channels that no block divides, and a value that two kernels want reordered."""
    graph = Graph()
    image, label = graph.input("image", (batch, 3, 6, 6)), graph.input("label", (batch,), "int32")
    x = ops.relu(ops.conv2d(image, 6, 3, padding=1))
    y = ops.conv2d(x, 6, 3, padding=1)
    x = ops.add(y, x)
    x = ops.max_pool2d(x, 2)  # canonical only
    x = ops.add(ops.conv2d(x, 5, 1), ops.conv2d(x, 5, 3, padding=1, bias=False))
    logits = graph.output("logits", ops.dense(ops.flatten(x), 4))
    graph.output("loss", ops.softmax_cross_entropy(logits, label))
    return graph


def results(kernels: Kernels, layout: Layout) -> dict[str, np.ndarray]:
    graph = net()
    plan = compile_plan(graph, layout, kernels, "float64", training=True)
    weights = initial_weights(layout, 5, "float64")
    gradients = np.full_like(weights, np.nan)
    bound = plan.bind(weights, gradients)
    generator = np.random.default_rng(2)
    bound.inputs["image"][...] = generator.standard_normal(bound.inputs["image"].shape)
    bound.inputs["label"][...] = [0, 3, 1]
    bound.run()
    for span in layout.spans:  # what is averaged and checked for NaN must be whole
        assert np.isfinite(gradients[span.offset : span.offset + span.size]).all()
    return {
        "loss": bound.outputs["loss"].copy(),
        "logits": bound.outputs["logits"].copy(),
        **layout.unpacked(gradients),
    }


def test_numbers_do_not_depend_on_layouts():
    blocked, plain = Kernels(TABLE), Kernels(OPERATORS)
    wanted = choose_layout(net(), blocked)
    assert {span.format for span in wanted.spans} >= {WEIGHT, "a", "ab"}
    expected = results(plain, plan_layout(net()))
    for layout in (wanted, wanted.canonical()):  # as the kernels want the weights, and all of them reordered
        found = results(blocked, layout)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-12, atol=1e-12, err_msg=name)


def test_reorders_are_shared_and_counted():
    graph, kernels = net(), Kernels(TABLE)
    plan = compile_plan(graph, choose_layout(graph, kernels), kernels, "float32", training=True)
    forward = [step.node.name for step in plan.reorders if step.kind == "forward"]
    # into the pool canonical, out of it blocked once for two convolutions, canonical at the end
    assert forward == ["add1 as abcd", "max_pool1 as aBcd4b", "add2 as abcd"]
    kinds = [step.kind for step in plan.reorders]
    assert (kinds.count("backward"), kinds.count("reorder")) == (3, 4)  # 4 convolutions
    assert "reorders: 3 forward, 3 backward, 4 of weights" in str(plan)


def test_evaluation_takes_weights_as_training_chose_them():
    graph, kernels = net(), Kernels(TABLE)
    plan = compile_plan(graph, choose_layout(graph, kernels), kernels, "float32", training=False)
    assert [step.kind for step in plan.reorders] == ["forward"] * 3


def test_a_kernel_that_refuses_is_named():
    def refuse(op, shapes: Shapes, given: tuple[str, ...]) -> Formats:
        raise ShapeError("too small for this library")

    table = {**TABLE, ops.Conv2d: replace(OPERATORS[ops.Conv2d], formats=refuse)}
    with pytest.raises(ShapeError, match=r"^conv1 \(conv\): too small for this library$"):
        arrange(net(), table, training=True)


def test_repacking_keeps_weights_and_what_stands_behind():
    layout = choose_layout(net(), Kernels(TABLE))
    plain = layout.canonical()
    assert plain.digest() == plan_layout(net()).digest() != layout.digest()
    generator = np.random.default_rng(3)
    named = {span.name: generator.standard_normal(span.shape) for span in layout.spans}
    rows = np.stack([np.append(layout.packed(named, "float64"), [7.0, 8.0]) for _ in range(2)])
    stored = repack(rows, layout, plain)
    assert stored.shape == (2, plain.size + 2)
    assert stored[:, plain.size :].tolist() == [[7.0, 8.0]] * 2
    for name, array in plain.unpacked(stored[1, : plain.size]).items():
        np.testing.assert_array_equal(array, named[name])
    np.testing.assert_array_equal(repack(stored, plain, layout), rows)
    assert physical(WEIGHT, (6, 3, 3, 3)) == (2, 1, 3, 3, 4, 4)
