"""The gradients of a depthwise convolution's weights and bias: ours, oneDNN's, and PyTorch's on one thread.

    python -m benchmarks.speed.bench_depthwise [--torch PYTHON] [--repeats 3] [--without-onednn]

Milliseconds, the least of half a second, medians of the repeats; the sides are measured in turn. oneDNN's is its
reference code, up to seconds a call; --without-onednn leaves it out. PyTorch's is its better layout.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import median

import numpy as np

from benchmarks.sides import Peer, table
from mpibow import ops
from mpibow.graph.formats import physical
from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Call, Shapes
from mpibow.graph.memory import zeros
from mpibow.kernels.onednn.conv import Convolution
from mpibow.kernels.onednn.library import find_library, load
from mpibow.kernels.onednn.primitives import Trio

SHAPES = [  # channels, side, batch, kernel, dilation
    (64, 8, 16, 5, 1), (64, 8, 16, 7, 1), (64, 8, 16, 9, 1), (64, 8, 16, 3, 2), (64, 32, 16, 5, 1), (256, 32, 4, 7, 1),
]  # fmt: skip


class Reference(Convolution):
    """oneDNN's own choice, slow or not."""

    def _slow(self, op: object, shapes: Shapes, trio: Trio) -> tuple[str, ...]:
        return ()

    def _lanes(self, *given: object) -> int:
        return 0


def milliseconds(kernels: Convolution, channels: int, side: int, batch: int, kernel: int, dilation: int) -> float:
    padding = dilation * (kernel - 1) // 2
    window = (kernel, kernel), (1, 1), (padding, padding)
    op = ops.Conv2d(channels, *window, True, ops.Constant(0.0), channels, (dilation, dilation))
    shape = (batch, channels, side, side)
    shapes = Shapes((shape,), shape, True)
    tag = kernels.formats(op, shapes, ("abcd",)).y
    buffers = kernels.buffers(op, shapes).backward
    x, dy = zeros(physical(tag, shape), "float32"), zeros(physical(tag, shape), "float32")
    for array in (x, dy):
        array[...] = np.random.default_rng(0).standard_normal(array.shape)
    scratch = {key: zeros(extents, "float32" if kind == FLOAT else kind) for key, (extents, kind) in buffers.items()}
    weights = {key: zeros(weight.shape, "float32") for key, weight in op.weights(shape).items()}
    gradients = {key: np.zeros_like(weight) for key, weight in weights.items()}
    run = kernels.backward(
        Call("conv", op, (x,), dy, weights, {}, scratch, dy, dx=(None,), dw=gradients, shapes=shapes)
    )
    run()
    times, until = list[float](), time.perf_counter() + 0.5
    while not times or time.perf_counter() < until:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", metavar="PYTHON", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--without-onednn", action="store_true", help="leave oneDNN's reference code out")
    options = parser.parse_args()
    found = find_library()
    if found is None:
        raise SystemExit("no libdnnl found: pip install 'mpibow[cpu]'")
    peer, library = Peer(options.torch), load(found)
    sides = [Convolution(library, True)] + [Reference(library, True)] * (not options.without_onednn)
    without = peer.missing()
    rows = []
    for shape in SHAPES:
        taken = [
            ([milliseconds(side, *shape) for side in sides], None if without else peer("speed.torch_depthwise", *shape))
            for _ in range(options.repeats)
        ]
        own = median(ours[0] for ours, _ in taken)
        old = "" if options.without_onednn else f"{median(ours[1] for ours, _ in taken):.2f}"
        best = [(min(its.values()), ours[0]) for ours, its in taken if its]
        theirs = [f"{median(b for b, _ in best):.2f}", f"{median(b / a for b, a in best):.2f}"] if best else ["", ""]
        rows.append([*map(str, shape), f"{own:.3f}", old, *theirs])
    heads = ("channels", "side", "batch", "kernel", "dilation", "ours, ms", "oneDNN's, ms", "PyTorch's, ms", "ratio")
    print(table(heads, rows))
    if without:
        print(f"without PyTorch: {without}")


if __name__ == "__main__":
    main()
