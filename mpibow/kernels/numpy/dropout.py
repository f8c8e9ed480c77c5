"""Dropout: a scaled mask from Philox, kept for backward."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.philox import philox, stream
from mpibow.ops import Dropout


def buffers(op: Dropout, shapes: Shapes) -> Buffers:
    n = shapes.y[0]
    blocks = -(-int(np.prod(shapes.y[1:])) // 4)  # one counter gives four elements
    return Buffers(
        saved={"mask": (shapes.y, FLOAT)},
        forward={
            "words": ((4, n, blocks), "uint64"),
            "key": ((n, blocks), "uint64"),
            "work": ((2, n, blocks), "uint64"),
        },
    )


def forward(call: Call) -> Run:
    (x, counter), y, mask = call.x, call.y, call.saved["mask"]
    words, key, work = call.scratch["words"], call.scratch["key"], call.scratch["work"]
    n, blocks = key.shape
    features = y.size // n
    block = np.arange(blocks, dtype=np.uint64)
    seed, epoch, low, high = (counter[:, i : i + 1] for i in range(4))
    flat_words, flat_key, flat_work = words.reshape(4, -1), key.reshape(-1), work.reshape(2, -1)
    node = stream(call.name)
    threshold = np.uint64(round(call.op.rate * 2**32))
    scale = y.dtype.type(1.0 / (1.0 - call.op.rate))
    mask2 = mask.reshape(n, features)
    kept = [(mask2[:, i::4], words[i, :, : len(range(i, features, 4))]) for i in range(min(4, features))]

    def run() -> None:
        for target, source in zip(words, (block, low, high, epoch), strict=True):
            np.copyto(target, source)
        np.copyto(key, seed)
        philox(flat_words, flat_key, node, flat_work)
        for target, word in kept:  # element 4 * block + i takes word i
            np.greater_equal(word, threshold, out=target, casting="unsafe")
        np.multiply(mask, scale, out=mask)
        np.multiply(x, mask, out=y)

    return run


def backward(call: Call) -> Run:
    dy, dx, mask = call.dy, call.dx[0], call.saved["mask"]

    def run() -> None:
        np.multiply(dy, mask, out=dx)

    return run
