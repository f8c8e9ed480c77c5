"""The cuDNN graphs that mpibow uses, as frozen records: convolution, batch norm, products, and their epilogues."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpibow.cuda.kernels.operands import Operand, Precision, Scalar, channels, image, matrix
from mpibow.graph.graph import Shape
from mpibow.ops.window import Pair

NORM = ("mean", "variance", "scale", "shift")  # of an inference norm: running statistics, then its weights


@dataclass(frozen=True)
class ConvGeometry:
    """x (n, c, h, w), filters (o, c / groups, kh, kw), y (n, o, h', w'), and how the filter moves."""

    x: Shape
    w: Shape
    y: Shape
    stride: Pair
    padding: Pair
    dilation: Pair

    @property
    def groups(self) -> int:
        return self.x[1] // self.w[1]


@dataclass(frozen=True)
class ConvForward:
    """y = conv(x, w), + bias where `bias`, normed by running statistics where `norm`, + z where `added`, relu."""

    window: ConvGeometry
    precision: Precision
    bias: bool = False
    norm: float | None = None  # epsilon
    added: bool = False
    relu: bool = False
    kind = "conv_forward"

    @property
    def operands(self) -> tuple[Operand, ...]:
        io, o = self.precision.io, self.window.y[1]
        found = [image("x", "in", self.window.x, io), image("w", "in", self.window.w, io)]
        found += [channels("bias", "in", o, io)] if self.bias else []
        found += [channels(name, "in", o) for name in NORM] if self.norm is not None else []
        found += [image("z", "in", self.window.y, io)] if self.added else []
        return (*found, image("y", "out", self.window.y, io))


@dataclass(frozen=True)
class ConvData:
    """dx of dy and w."""

    window: ConvGeometry
    precision: Precision
    kind = "conv_data"

    @property
    def operands(self) -> tuple[Operand, ...]:
        io = self.precision.io
        return (
            image("dy", "in", self.window.y, io),
            image("w", "in", self.window.w, io),
            image("dx", "out", self.window.x, io),
        )


@dataclass(frozen=True)
class ConvWeights:
    """dw of x and dy, in the arrays' own precision: of float32 out of 16 bits cuDNN has the slow fallback only."""

    window: ConvGeometry
    precision: Precision
    kind = "conv_weights"

    @property
    def operands(self) -> tuple[Operand, ...]:
        io = self.precision.io
        return (
            image("x", "in", self.window.x, io),
            image("dy", "in", self.window.y, io),
            image("dw", "out", self.window.w, io),
        )


@dataclass(frozen=True)
class ReluBackward:
    """dz = dy where y > 0, else 0 (`relu`; without it dz is dy itself), and the sum of dz a channel where `sums`.

    A convolution with relu or bias runs it before its own backward half; one pass over dy.
    """

    shape: Shape
    precision: Precision
    relu: bool
    sums: bool
    kind = "relu_backward"

    @property
    def operands(self) -> tuple[Operand, ...]:
        io = self.precision.io
        found = [image("dy", "in", self.shape, io)]
        if self.relu:
            found += [image("y", "in", self.shape, io), image("dz", "out", self.shape, io)]
        return (*found, *([channels("sums", "out", self.shape[1])] if self.sums else []))


@dataclass(frozen=True)
class NormForward:
    """y = batch_norm(x), + z where `added`, relu where `relu`; training: saves mean and inverse deviation.

    With `relu` it saves which elements of y are above 0, so that backward need read neither y nor z.
    The running statistics are read and written; `momentum` is the new batch's share.
    """

    shape: Shape
    precision: Precision
    epsilon: float
    momentum: float
    relu: bool = False
    added: bool = False
    kind = "norm_forward"

    @property
    def operands(self) -> tuple[Operand, ...]:
        io, c = self.precision.io, self.shape[1]
        names = ("weight", "bias", "running_mean", "running_variance")
        found = [image("x", "in", self.shape, io), *(channels(name, "in", c) for name in names)]
        found += [image("z", "in", self.shape, io)] if self.added else []
        found += [image("y", "out", self.shape, io)]
        found += [image("mask", "out", self.shape, "bool")] if self.relu else []
        return (*found, *(channels(name, "out", c) for name in ("mean", "inverse", "next_mean", "next_variance")))


@dataclass(frozen=True)
class NormBackward:
    """dx, dweight and dbias of dy: of dy where the mask is set, with `relu`; that is dz, written with `added`."""

    shape: Shape
    precision: Precision
    relu: bool = False
    added: bool = False
    kind = "norm_backward"

    @property
    def operands(self) -> tuple[Operand, ...]:
        io, c = self.precision.io, self.shape[1]
        found = [image("dy", "in", self.shape, io), image("x", "in", self.shape, io)]
        found += [image("mask", "in", self.shape, "bool")] if self.relu else []
        found += [channels(name, "in", c) for name in ("weight", "mean", "inverse")]
        found += [image("dz", "out", self.shape, io)] if self.added else []
        found += [image("dx", "out", self.shape, io)]
        return (*found, *(channels(name, "out", c) for name in ("dweight", "dbias")))


@dataclass(frozen=True)
class NormInference:
    """y = scale (x - mean) / sqrt(variance + epsilon) + shift by the running statistics, + z, relu; evaluation."""

    shape: Shape
    precision: Precision
    epsilon: float
    relu: bool = False
    added: bool = False
    kind = "norm_inference"

    @property
    def operands(self) -> tuple[Operand, ...]:
        io = self.precision.io
        found = [image("x", "in", self.shape, io), *(channels(name, "in", self.shape[1]) for name in NORM)]
        found += [image("z", "in", self.shape, io)] if self.added else []
        return (*found, image("y", "out", self.shape, io))


@dataclass(frozen=True)
class Product:
    """c (batch, m, n) = a (batch, m, k) @ b (batch, k, n), + bias (batch, 1, n) where it has strides, relu.

    Strides of a, b and c are in elements; so a transposed matrix costs nothing, and the leading axis may be
    replicas whose rows are interleaved (fused learners). `out` is c's dtype.
    """

    batch: int
    m: int
    k: int
    n: int
    a: Shape
    b: Shape
    c: Shape
    out: str
    precision: Precision
    bias: Shape | None = None
    relu: bool = False
    kind = "product"

    @property
    def operands(self) -> tuple[Operand, ...]:
        io = self.precision.io
        found = [
            matrix("a", "in", (self.batch, self.m, self.k), io, strides=self.a),
            matrix("b", "in", (self.batch, self.k, self.n), io, strides=self.b),
        ]
        if self.bias is not None:
            found.append(matrix("bias", "in", (self.batch, 1, self.n), io, strides=self.bias))
        return (*found, matrix("c", "out", (self.batch, self.m, self.n), self.out, strides=self.c))


@dataclass(frozen=True)
class Cast:
    """y = x in another dtype, `count` elements that lie one after the other."""

    count: int
    source: str
    target: str
    precision: Precision
    kind = "cast"

    @property
    def operands(self) -> tuple[Operand, ...]:
        inner = math.gcd(self.count, 16)  # cuDNN goes along channels
        shape = (self.count // inner, inner, 1, 1)
        return (image("x", "in", shape, self.source), image("y", "out", shape, self.target))


Spec = Cast | ConvForward | ConvData | ConvWeights | ReluBackward | NormForward | NormBackward | NormInference | Product


def scalars(spec: Spec) -> tuple[Scalar, ...]:
    """The numbers that a graph of `spec` holds by value."""
    match spec:
        case NormForward():
            zero = (Scalar("zero", 0.0),) if spec.relu else ()
            return (Scalar("epsilon", spec.epsilon), Scalar("momentum", spec.momentum), *zero)
        case NormInference():
            return (Scalar("epsilon", spec.epsilon),)
        case ConvForward(norm=float() as epsilon):
            return (Scalar("epsilon", epsilon),)
    return ()


def has_products(spec: Spec) -> bool:
    """Whether tensor cores have anything to do: elementwise operations cannot be rounded to TF32."""
    return isinstance(spec, ConvForward | ConvData | ConvWeights | Product)
