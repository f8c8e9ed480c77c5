"""The dense layer: few rows by oneDNN's inner product, gradients of weights as factors; many rows by own products."""

from dataclasses import replace

from mpibow.graph import FLOAT, Buffers, Call, Formats, Kernel, Run, Shapes, Tags
from mpibow.kernels.compiled import matmul
from mpibow.kernels.compiled.command import together
from mpibow.kernels.compiled.factors import LANES, NEAR, spread, write_factors
from mpibow.kernels.compiled.products import column_sums, room, room_spec
from mpibow.kernels.isa import ISA
from mpibow.ops import Dense

from .library import Library
from .primitives import Trio, either, once, slow

# The layout of weights whose gradients may be kept as factors.
TILES = f"AB16b{LANES}a" if ISA == "AVX-512" else f"AB8b{LANES}a"
SPARED = 4  # a gradient must have so many times the factors' size, else there is little to gain
PADDED = 8 if LANES == 16 else 16  # inputs: oneDNN fills blocks of so many in TILES
FEW = 12 if LANES == 16 else 4  # rows whose gradient is own: oneDNN transposes all weights for it
MANY = 64  # rows from which on own products are as fast, and no weights are reordered for them


def _rank(op: Dense, shapes: Shapes) -> int:
    """The rank of the weights' gradient as factors: the batch, in whole fours; 0 where factors do not pay off."""
    batch, inputs = shapes.x[0]
    rank = -(-batch // 4) * 4
    fits = ISA in ("AVX-512", "AVX2") and shapes.training and op.units % LANES == 0 and inputs % 16 == 0
    return rank if fits and SPARED * rank * (inputs + op.units) <= inputs * op.units else 0


def _many(op: Dense, shapes: Shapes) -> bool:
    x = shapes.x[0]
    return len(x) > 2 or (x[0] >= MANY and not _rank(op, shapes))


def inner_product(library: Library) -> Kernel:
    def described(op: Dense, shapes: Shapes, tag: str = "any") -> Trio:
        layout = library.descriptor
        x = layout(shapes.x[0], "ab")
        y = layout(shapes.y, "ab")
        weight = layout((op.units, shapes.x[0][1]), tag)
        return library.trio(shapes, "inner_product", (x, weight, layout((op.units,), "a") if op.bias else None, y))

    @once
    def trio_of(op: Dense, shapes: Shapes) -> Trio:
        trio = described(op, shapes)
        return described(op, shapes, TILES) if _rank(op, shapes) and trio.weight[:4] == TILES[:4] else trio

    def slow_parts(op: Dense, shapes: Shapes) -> tuple[str, ...]:
        trio = trio_of(op, shapes)
        return slow(trio.forward, trio.data, None if by_tiles(trio) or shapes.formats.factors else trio.weights)

    def by_tiles(trio: Trio) -> bool:
        """Whether whole gradients are own products: oneDNN has reference code only for them in AVX2's tiles."""
        return LANES == 16 and trio.weights is not None and trio.weight == TILES and trio.weights.slow

    def formats(op: Dense, shapes: Shapes, given: Tags) -> Formats:
        chosen = trio_of(op, shapes).formats("ab", "ab")
        rank = _rank(op, shapes)
        return replace(chosen, factors={"weight": rank}) if rank and chosen.w["weight"] == TILES else chosen

    def buffers(op: Dense, shapes: Shapes) -> Buffers:
        trio = trio_of(op, shapes)
        batch, inputs = shapes.x[0]
        backward = dict(trio.buffers.backward)
        if trio.data and trio.back == TILES and op.units % LANES == inputs % PADDED == 0 and batch <= FEW:
            backward["sums"] = (batch * NEAR * 16,), FLOAT
        if by_tiles(trio):
            backward["room"] = room_spec(room(inputs, op.units, batch, transposed=True))
        return replace(trio.buffers, backward=backward)

    def backward(call: Call) -> Run:
        trio = trio_of(call.op, call.shapes)
        batch, inputs = call.shapes.x[0]
        runs = []
        rank = call.shapes.formats.factors.get("weight")
        if call.dw and rank:
            factors = call.dw["weight"].reshape(-1)
            bias = call.dw.get("bias")
            runs.append(write_factors.on(call, out=factors, bias=bias, batch=batch, inputs=inputs, rank=rank))
        elif call.dw and by_tiles(trio):
            runs.append(matmul.into_tiles(call.x0, call.dy, call.dw["weight"], call.scratch["room"]))
            if "bias" in call.dw:
                runs.append(column_sums.command(x=call.dy, sums=call.dw["bias"]))
        elif call.dw and trio.weights is not None:
            runs.append(trio.weights.on(call))
        if call.dx[0] is not None and trio.data is not None:
            runs.append(spread.on(call, batch=batch, inputs=inputs) if "sums" in call.scratch else trio.data.on(call))
        return together(runs)

    few = Kernel(
        lambda call: trio_of(call.op, call.shapes).forward.on(call),
        backward,
        buffers,
        formats,
        slow_parts,
        inputs_alone=True,
    )
    return either(
        _many, Kernel(matmul.dense_forward, matmul.dense_backward, matmul.dense_buffers, matmul.dense_formats), few
    )
