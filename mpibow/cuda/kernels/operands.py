"""The inputs and outputs of a cuDNN graph: operands by name, their layouts, and the arithmetic of a graph."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from mpibow.errors import ShapeError
from mpibow.graph import Shape

Role = Literal["in", "out"]
SIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "bool": 1}  # bytes of an element
# A bool is a bit in cuDNN's own words, eight a byte; a byte each is kept for it until a GPU has shown that.


@dataclass(frozen=True)
class Precision:
    """How products are computed: of `io` arrays, always summed in float32; `tensor_cores` may round float32 to TF32."""

    name: str
    io: str
    tensor_cores: bool


PRECISIONS: Mapping[str, Precision] = {
    "fp32": Precision("fp32", "float32", tensor_cores=False),
    "tf32": Precision("tf32", "float32", tensor_cores=True),
    "bf16": Precision("bf16", "bfloat16", tensor_cores=True),
    "fp16": Precision("fp16", "float16", tensor_cores=True),
}


@dataclass(frozen=True)
class Operand:
    """One array of a graph: shape and strides in elements, as cuDNN numbers the axes (n, c, h, w)."""

    name: str
    role: Role
    shape: Shape
    strides: Shape
    dtype: str

    @property
    def bytes(self) -> int:
        """From the first element to behind the last."""
        reach = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        return (reach + 1) * SIZES[self.dtype]


Operands = tuple[Operand, ...]


@dataclass(frozen=True)
class Scalar:
    """A float32 that the graph holds by value: it never changes, so that plans can be kept on disk with it."""

    name: str
    value: float


def image(name: str, role: Role, shape: Shape, dtype: str) -> Operand:
    """An image or filter (n, c, h, w) with channels innermost, NHWC: filters (o, c, kh, kw) lie as o, kh, kw, c."""
    _, c, h, w = shape
    return Operand(name, role, shape, (h * w * c, 1, w * c, c), dtype)


def channels(name: str, role: Role, count: int, dtype: str = "float32") -> Operand:
    """A value a channel, (1, count, 1, 1)."""
    return Operand(name, role, (1, count, 1, 1), (count, 1, count, count), dtype)


def numbered(operands: Iterable[Operand]) -> dict[str, int]:
    """The operands' numbers in cuDNN's variant packs, by name: 1, 2, ... in their order."""
    return {operand.name: number for number, operand in enumerate(operands, start=1)}


def check_sizes(operands: Iterable[Operand]) -> None:
    """Raises ShapeError for an array of 2^31 elements or more: cuDNN's kernels index with 32 bits."""
    for operand in operands:
        if math.prod(operand.shape) >= 2**31:
            raise ShapeError(
                f"{operand.name} {operand.shape} has {math.prod(operand.shape):,} elements, cuDNN allows fewer than "
                "2^31: use a smaller batch"
            )
