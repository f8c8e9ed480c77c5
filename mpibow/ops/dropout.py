"""Dropout whose masks are a pure function of (seed, epoch, sample, node)."""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Call, Kernel, Op, Run, Shape, Shapes, Tensor, binds, runs

from .philox import draw, draw_specs
from .reshape import reshape

__all__ = ["COUNTER", "Dropout", "dropout"]
COUNTER = "counter"  # the graph input (batch, 4) uint32: seed, epoch, sample low, sample high


class Dropout(Op):
    """y = x / (1 - rate) where the sample's random bits keep it, else 0; in evaluation y = x (arXiv:1207.0580)."""

    rate: float
    kind = "dropout"
    integers = (1,)

    def infer(self, x: Shape, counter: Shape) -> Shape:
        check_counter(x, counter)
        return x

    def is_view(self, training: bool) -> bool:
        return not training or self.rate == 0.0


def dropout(x: Tensor, rate: float = 0.5, *, name: str | None = None) -> Tensor:
    """x (n, ...), each element dropped with probability `rate` in training, anew for every sample and epoch.

    n is the batch, or a multiple of it with several rows a sample.
    """
    if not 0.0 <= rate < 1.0:
        raise ShapeError(f"dropout of {x.name}: rate must be in [0, 1), got {rate}")
    graph = x.graph
    batch = x.shape[0]
    if graph.inputs and batch != (samples := graph.tensors[graph.inputs[0]].shape[0]):  # of a reshaped batch
        if not graph.training:
            return x
        if batch % samples:
            raise ShapeError(f"dropout of {x.name} {x.shape}: the first axis must be the {samples} samples of a batch")
        return reshape(dropout(reshape(x, (samples, -1, *x.shape[1:])), rate, name=name), x.shape)
    return Dropout(rate)(x, counter_of(x), name=name)


def check_counter(x: Shape, counter: Shape) -> None:
    if counter != (*x[:1], 4):
        raise ShapeError("the counter must be (batch, 4)")


def counter_of(x: Tensor) -> Tensor:
    """The input that determines the random numbers of x's samples."""
    return x.graph.input(COUNTER, (x.shape[0], 4), "uint32")


# The reference kernels: a scaled mask from Philox, kept for backward.


def buffers(op: Dropout, shapes: Shapes) -> Buffers:
    blocks = -(-int(np.prod(shapes.y[1:])) // 4)  # one counter gives four elements
    return Buffers(saved={"mask": (shapes.y, FLOAT)}, forward=draw_specs(shapes.y[0], blocks))


@binds
def forward(call: Call, x: Array, counter: Array, y: Array, mask: Array, words: Array, rate: float) -> Run:
    fill = draw(call, counter)
    threshold = np.uint64(round(rate * 2**32))
    scale = 1.0 / (1.0 - rate)
    mask2 = mask.reshape(len(x), -1)
    features = mask2.shape[1]
    kept = [(mask2[:, i::4], words[i, :, : len(range(i, features, 4))]) for i in range(min(4, features))]

    def run() -> None:
        nonlocal mask
        fill()
        for target, word in kept:  # element 4 * block + i takes word i
            np.greater_equal(word, threshold, out=target, casting="unsafe")
        mask *= scale
        np.multiply(x, mask, out=y)

    return run


KERNELS = {Dropout: Kernel(forward, runs(lambda dy, dx, mask: np.multiply(dy, mask, out=dx)), buffers)}
