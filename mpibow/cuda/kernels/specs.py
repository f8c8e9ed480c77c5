"""The cuDNN graphs that mpibow uses, as frozen records: convolution, batch norm, products, and their epilogues."""

import math
from dataclasses import dataclass

from mpibow.graph import Shape
from mpibow.ops.window import Pair

from .operands import Operand, Operands, Precision, Role, Scalar, channels, image

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
class _Conv:
    window: ConvGeometry
    precision: Precision

    def images(self, role: Role, **fields: str) -> list[Operand]:
        """Images and filters by name, each of the shape that a field of the geometry has."""
        return [image(name, role, getattr(self.window, field), self.precision.io) for name, field in fields.items()]


@dataclass(frozen=True)
class ConvForward(_Conv):
    """y = conv(x, w), + bias where `bias`, normed by running statistics where `norm`, + z where `added`, relu."""

    bias: bool = False
    norm: float | None = None  # epsilon
    added: bool = False
    relu: bool = False
    kind = "conv_forward"

    @property
    def operands(self) -> Operands:
        o, found = self.window.y[1], self.images("in", x="x", w="w")
        found += [channels("bias", "in", o, self.precision.io)] if self.bias else []
        found += [channels(name, "in", o) for name in NORM] if self.norm is not None else []
        found += self.images("in", z="y") if self.added else []
        return (*found, *self.images("out", y="y"))


@dataclass(frozen=True)
class ConvData(_Conv):
    """dx of dy and w."""

    kind = "conv_data"

    @property
    def operands(self) -> Operands:
        return (*self.images("in", dy="y", w="w"), *self.images("out", dx="x"))


@dataclass(frozen=True)
class ConvWeights(_Conv):
    """dw of x and dy, in the arrays' own precision: of float32 out of 16 bits cuDNN has the slow fallback only."""

    kind = "conv_weights"

    @property
    def operands(self) -> Operands:
        return (*self.images("in", x="x", dy="y"), *self.images("out", dw="w"))


@dataclass(frozen=True)
class _OfImage:
    shape: Shape
    precision: Precision

    def images(self, role: Role, *names: str) -> list[Operand]:
        return [image(name, role, self.shape, self.precision.io) for name in names]

    def mask(self, role: Role) -> Operand:
        return image("mask", role, self.shape, "bool")

    def channels(self, role: Role, *names: str) -> list[Operand]:
        """A value a channel under each name."""
        return [channels(name, role, self.shape[1]) for name in names]


@dataclass(frozen=True)
class ReluBackward(_OfImage):
    """dz = dy where y > 0, else 0 (`relu`; without it dz is dy itself), and the sum of dz a channel where `sums`.

    A convolution with relu or bias runs it before its own backward half; one pass over dy.
    """

    relu: bool
    sums: bool
    kind = "relu_backward"

    @property
    def operands(self) -> Operands:
        masked = [*self.images("in", "y"), *self.images("out", "dz")] if self.relu else []
        return (*self.images("in", "dy"), *masked, *(self.channels("out", "sums") if self.sums else []))


@dataclass(frozen=True)
class NormForward(_OfImage):
    """y = batch_norm(x), + z where `added`, relu where `relu`; training: saves mean and inverse deviation.

    With `relu` it saves which elements of y are above 0, so that backward need read neither y nor z.
    The running statistics are read and written; `momentum` is the new batch's share.
    """

    epsilon: float
    momentum: float
    relu: bool = False
    added: bool = False
    kind = "norm_forward"

    @property
    def operands(self) -> Operands:
        read = self.channels("in", "weight", "bias", "running_mean", "running_variance")
        found = [*self.images("in", "x"), *read, *(self.images("in", "z") if self.added else [])]
        found += [*self.images("out", "y"), *([self.mask("out")] if self.relu else [])]
        return (*found, *self.channels("out", "mean", "inverse", "next_mean", "next_variance"))


@dataclass(frozen=True)
class NormBackward(_OfImage):
    """dx, dweight and dbias of dy: of dy where the mask is set, with `relu`; that is dz, written with `added`."""

    relu: bool = False
    added: bool = False
    kind = "norm_backward"

    @property
    def operands(self) -> Operands:
        found = [*self.images("in", "dy", "x"), *([self.mask("in")] if self.relu else [])]
        found += self.channels("in", "weight", "mean", "inverse")
        written = ("dz", "dx") if self.added else ("dx",)
        return (*found, *self.images("out", *written), *self.channels("out", "dweight", "dbias"))


@dataclass(frozen=True)
class NormInference(_OfImage):
    """y = scale (x - mean) / sqrt(variance + epsilon) + shift by the running statistics, + z, relu; evaluation."""

    epsilon: float
    relu: bool = False
    added: bool = False
    kind = "norm_inference"

    @property
    def operands(self) -> Operands:
        added = self.images("in", "z") if self.added else []
        return (*self.images("in", "x"), *self.channels("in", *NORM), *added, *self.images("out", "y"))


@dataclass(frozen=True)
class Product:
    """c (batch, m, n) = a (batch, m, k) @ b (batch, k, n), + bias (batch, 1, n) where it has strides.

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
    kind = "product"

    @property
    def operands(self) -> Operands:
        io = self.precision.io
        found = [
            Operand("a", "in", (self.batch, self.m, self.k), self.a, io),
            Operand("b", "in", (self.batch, self.k, self.n), self.b, io),
        ]
        if self.bias is not None:
            found.append(Operand("bias", "in", (self.batch, 1, self.n), self.bias, io))
        return (*found, Operand("c", "out", (self.batch, self.m, self.n), self.c, self.out))


@dataclass(frozen=True)
class Cast:
    """y = x in another dtype, `count` elements that lie one after the other."""

    count: int
    source: str
    target: str
    precision: Precision
    kind = "cast"

    @property
    def operands(self) -> Operands:
        inner = math.gcd(self.count, 16)  # cuDNN goes along channels
        shape = (self.count // inner, inner, 1, 1)
        return (image("x", "in", shape, self.source), image("y", "out", shape, self.target))


Spec = Cast | ConvForward | ConvData | ConvWeights | ReluBackward | NormForward | NormBackward | NormInference | Product
CudnnSpecs = dict[str, Spec]  # by name: those of a layer


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
