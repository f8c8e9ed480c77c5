"""Specs by hand: operands, strides, what a layer needs; and that one graph for several replicas is several graphs."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.cuda.kernels.kept import digest
from mpibow.cuda.kernels.listing import convolution, dense, norm
from mpibow.cuda.kernels.operands import PRECISIONS, check_sizes, numbered
from mpibow.cuda.kernels.specs import (
    Cast,
    ConvData,
    ConvForward,
    ConvGeometry,
    ConvWeights,
    NormBackward,
    NormForward,
    NormInference,
    Product,
    ReluBackward,
    Spec,
    scalars,
)
from mpibow.errors import ShapeError
from mpibow.graph import Array, Shapes
from mpibow.job.synthetic import SHAPES
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from mpibow.ops import BatchNorm, Conv2d, Dense
from mpibow.ops.fused import ConvRelu, NormAddRelu
from mpibow.ops.initialisers import He
from mpibow.ops.wide import WideDense
from tests.cuda.kernels.devices import specs_of
from tests.cuda.kernels.in_numpy import compute, seen
from tests.refusals import refuses

TF32, FP32, BF16 = PRECISIONS["tf32"], PRECISIONS["fp32"], PRECISIONS["bf16"]
CONV = Conv2d(6, (3, 3), (2, 2), (1, 1), True, He(), groups=2)
SHAPE = Shapes(((2, 4, 8, 8),), (2, 6, 4, 4), training=True, wanted=(0,))
WINDOW = ConvGeometry((2, 4, 8, 8), (6, 2, 3, 3), (2, 6, 4, 4), (2, 2), (1, 1), (1, 1))


def test_a_convolution_in_groups():
    specs = convolution(CONV, SHAPE, TF32)
    assert specs == {
        "forward": ConvForward(WINDOW, TF32, bias=True),
        "relu": ReluBackward((2, 6, 4, 4), TF32, relu=False, sums=True),
        "weights": ConvWeights(WINDOW, TF32),
        "data": ConvData(WINDOW, TF32),
    }
    assert WINDOW.groups == 2
    assert numbered(specs["forward"].operands) == {"x": 1, "w": 2, "bias": 3, "y": 4}


def test_only_what_is_needed():
    evaluated = replace(SHAPE, training=False, wanted=())
    assert list(convolution(CONV, evaluated, TF32)) == ["forward"]
    assert list(convolution(CONV, replace(SHAPE, wanted=()), TF32)) == ["forward", "relu", "weights"]
    assert list(convolution(replace(CONV, bias=False), SHAPE, TF32)) == ["forward", "weights", "data"]
    relu = convolution(ConvRelu(replace(CONV, bias=False)), SHAPE, TF32)["relu"]
    assert relu == ReluBackward((2, 6, 4, 4), TF32, relu=True, sums=False)


def test_a_norm():
    op, shapes = BatchNorm(1e-5, 0.1), Shapes(((4, 8),), (4, 8), training=True, wanted=(0,))
    specs = norm(NormAddRelu(op, added=True), shapes, BF16)
    forward, backward = specs["forward"], specs["backward"]
    assert forward == NormForward((4, 8, 1, 1), BF16, 1e-5, 0.1, relu=True, added=True)
    assert backward == NormBackward((4, 8, 1, 1), BF16, relu=True, added=True)
    assert {(o.name, o.role, o.dtype) for o in forward.operands} == {
        ("x", "in", "bfloat16"), ("z", "in", "bfloat16"), ("y", "out", "bfloat16"), ("mask", "out", "bool"),
        *((name, "in", "float32") for name in ("weight", "bias", "running_mean", "running_variance")),
        *((name, "out", "float32") for name in ("mean", "inverse", "next_mean", "next_variance")),
    }  # fmt: skip
    assert [(scalar.name, scalar.value) for scalar in scalars(forward)] == [
        ("epsilon", 1e-5), ("momentum", 0.1), ("zero", 0.0),
    ]  # fmt: skip
    evaluated = norm(op, replace(shapes, training=False), BF16)
    assert evaluated == {"forward": NormInference((4, 8, 1, 1), BF16, 1e-5)}


@pytest.mark.parametrize(("precision", "vector", "channels"), [("tf32", 4, 6), ("fp16", 8, 4), ("bf16", 8, 12)])
def test_a_norm_that_cudnn_does_not_have(precision, vector, channels):
    shape = (4, channels, 5)
    with refuses(
        f"cuDNN's batch norm needs a multiple of {vector} channels in {precision}, got {channels}: "
        "change the layer's channels",
        ShapeError,
    ):
        norm(BatchNorm(1e-5, 0.1), Shapes((shape,), shape, training=True), PRECISIONS[precision])


@pytest.mark.parametrize(
    ("more", "wanted", "said"),
    [
        ({"frozen": True}, (0,), "gradients of a frozen batch norm"),
        ({"sync": "rank"}, (), "kernel for training with sync='rank'"),
    ],
)
def test_a_norm_that_is_evaluated_only(more, wanted, said):
    op, shapes = BatchNorm(1e-5, 0.1, **more), Shapes(((4, 8),), (4, 8), training=True)
    assert list(norm(op, replace(shapes, training=False), TF32)) == ["forward"]
    if op.frozen:  # below all that is trained
        assert norm(op, shapes, TF32) == norm(op, replace(shapes, training=False), TF32)
    with refuses(f"device cuda has no {said}: set device=onednn, or device=numpy", ShapeError):
        norm(op, replace(shapes, wanted=wanted), TF32)


DENSE = Dense(10, True, He()), Shapes(((16, 256),), (16, 10), training=True, wanted=(0,))


def test_a_dense_layer():
    assert dense(*DENSE, BF16) == {
        "forward": Product(1, 16, 256, 10, (256, 256, 1), (2560, 1, 256), (10, 10, 1), "bfloat16", BF16, (10, 10, 1)),
        "relu": ReluBackward((16, 10, 1, 1), BF16, relu=False, sums=True),
        "weights": Product(1, 10, 16, 256, (10, 1, 10), (256, 256, 1), (2560, 256, 1), "float32", BF16),
        "data": Product(1, 16, 10, 256, (10, 10, 1), (2560, 256, 1), (256, 256, 1), "bfloat16", BF16),
    }


def test_exact_float32_has_no_products():
    window = ConvGeometry((16, 256, 1, 1), (10, 256, 1, 1), (16, 10, 1, 1), (1, 1), (0, 0), (1, 1))
    assert dense(*DENSE, FP32) == {
        "forward": ConvForward(window, FP32, bias=True),
        "relu": ReluBackward((16, 10, 1, 1), FP32, relu=False, sums=True),
        "weights": ConvWeights(window, FP32),
        "data": ConvData(window, FP32),
    }


def test_an_array_too_large():
    with refuses(
        "dy (32, 1024, 256, 256) has 2,147,483,648 elements, cuDNN allows fewer than 2^31: use a smaller batch",
        ShapeError,
    ):
        check_sizes(ReluBackward((32, 1024, 256, 256), TF32, relu=False, sums=True).operands)


def test_a_digest_depends_on_every_field():
    specs = [
        ConvForward(WINDOW, TF32),
        ConvForward(WINDOW, TF32, relu=True),
        ConvForward(WINDOW, FP32),
        ConvForward(WINDOW, TF32, norm=1e-5),
        ConvForward(WINDOW, TF32, norm=1e-3),
        ConvForward(replace(WINDOW, dilation=(2, 2)), TF32),
        ConvWeights(WINDOW, TF32),
        Cast(16, "float32", "float16", TF32),
    ]
    names = {digest(spec) for spec in specs} | {digest(specs[0], "H100")}
    assert len(names) == len(specs) + 1
    assert digest(specs[0]) == digest(ConvForward(replace(WINDOW), PRECISIONS["tf32"]))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_specs_and_each_but_once(name):
    classes, shape = SHAPES[name]
    build = classifier(partial(MODELS[name], classes=classes), shape, "uint8")
    for training in (True, False):
        specs = specs_of(build(2, training), BF16, training)
        assert len(set(specs)) == len(specs) > 0
        alone = any(isinstance(spec, NormInference) for spec in specs)  # others are fused with their convolutions
        assert alone == (name == "vgg16_cifar" and not training)  # its norms come behind the relu


def random_arrays(spec: Spec, rng: np.random.Generator) -> dict[str, Array]:
    """Host arrays for every operand, as long as its strides reach."""
    found = {}
    for operand in spec.operands:
        size = 1 + sum((e - 1) * s for e, s in zip(operand.shape, operand.strides, strict=True))
        values = rng.standard_normal(size) + (3 if operand.name in ("variance", "inverse") else 0)
        found[operand.name] = values if operand.dtype != "bool" else (values > 0).astype(np.uint8)
    return found


def run(spec: Spec, arrays: dict[str, Array]) -> dict[str, Array]:
    views = {o.name: seen(arrays[o.name], o) for o in spec.operands}
    compute(spec, views)
    return views


@given(k=st.integers(1, 4), seed=st.integers(0, 2**32 - 1), groups=st.sampled_from([1, 2]), data=st.data())
def test_convolutions_of_replicas_are_one_in_groups(k, seed, groups, data: st.DataObject):
    rng = np.random.default_rng(seed)
    op = replace(CONV, groups=groups, channels=4, bias=True)
    shapes = Shapes(((2, 2, 5, 5),), (2, 4, 3, 3), training=True, wanted=(0,))
    key = data.draw(st.sampled_from(["forward", "relu", "weights", "data"]))
    many = Shapes(((2, 2 * k, 5, 5),), (2, 4 * k, 3, 3), training=True, wanted=(0,))
    one = convolution(op, shapes, TF32)[key]
    all_of_them = convolution(replace(op, groups=k * groups, channels=4 * k), many, TF32)[key]
    wide = run(all_of_them, random_arrays(all_of_them, rng))
    outputs = [o.name for o in one.operands if o.role == "out"]
    for i in range(k):
        arrays = random_arrays(one, rng)
        for operand in one.operands:
            if operand.role == "in":
                axis = 0 if operand.name == "w" else 1  # a filter's replicas are its outputs
                part = np.split(wide[operand.name], k, axis)[i]
                seen(arrays[operand.name], operand)[...] = part
        narrow = run(one, arrays)
        for name in outputs:
            axis = 0 if name == "dw" else 1
            np.testing.assert_allclose(np.split(wide[name], k, axis)[i], narrow[name], rtol=1e-9, atol=1e-9)


@given(k=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_dense_layers_of_replicas_are_one_product(k, seed):
    """Samples' values of all replicas stand side by side."""
    rng, (n, features, units) = np.random.default_rng(seed), (3, 5, 4)
    shapes = Shapes(((n, k * features),), (n, k * units), training=True, wanted=(0,))
    specs = dense(WideDense(units, True, He(), replicas=k), shapes, TF32)
    sizes = (n, k, features), (n, k, units), (k, units, features), (k, units)
    x, dy, w, bias = (rng.standard_normal(size) for size in sizes)
    y, dx, dw = np.zeros((n, k, units)), np.zeros((n, k, features)), np.zeros(w.shape)
    run(specs["forward"], {"a": x, "b": w, "bias": bias, "c": y})
    run(specs["weights"], {"a": dy, "b": x, "c": dw})
    run(specs["data"], {"a": dy, "b": w, "c": dx})
    for i in range(k):
        np.testing.assert_allclose(y[:, i], x[:, i] @ w[i].T + bias[i])
        np.testing.assert_allclose(dw[i], dy[:, i].T @ x[:, i])
        np.testing.assert_allclose(dx[:, i], dy[:, i] @ w[i])
