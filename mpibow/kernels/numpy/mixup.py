"""Mixup: shares that Philox draws, and what they mix."""

from __future__ import annotations

import numpy as np

from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.beta import SHARES, larger_shares
from mpibow.kernels.numpy.augment import block_specs, draw_block
from mpibow.kernels.philox import stream
from mpibow.ops import MixShares


def shares_buffers(op: MixShares, shapes: Shapes) -> Buffers:
    n = shapes.y[0]
    return Buffers(forward={**block_specs(n), "index": ((n,), "int64")})


def shares_forward(call: Call) -> Run:
    counter, y, index, word = call.x[0], call.y, call.scratch["index"], call.scratch["words"][0]
    draw = draw_block(counter, stream(call.name), call.scratch)
    table = larger_shares(call.op.alpha).astype(y.dtype)
    shift = np.uint64(32 - (SHARES - 1).bit_length())

    def run() -> None:
        draw()
        np.right_shift(word, shift, out=word)
        np.copyto(index, word, casting="same_kind")
        table.take(index, out=y, mode="clip")

    return run


def mix_forward(call: Call) -> Run:
    (x, share), y = call.x, call.y
    share = share.reshape(-1, *[1] * (x.ndim - 1))
    rows = [(slice(None, -1), slice(1, None)), (slice(-1, None), slice(None, 1))]  # the last one's next is the first
    parts = [(x[own], x[other], share[own], y[own]) for own, other in rows]

    def run() -> None:
        for own, other, kept, mixed in parts:
            np.subtract(own, other, out=mixed)
            np.multiply(mixed, kept, out=mixed)
            np.add(mixed, other, out=mixed)

    return run


def one_hot_forward(call: Call) -> Run:
    label, y, classes = call.x[0].reshape(-1, 1), call.y, np.arange(call.op.classes)

    def run() -> None:
        np.equal(label, classes, out=y, casting="unsafe")

    return run
