"""Scaled dot-product attention (Vaswani et al., arXiv:1706.03762, section 3.2.1)."""

from math import sqrt

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Kernel, Op, Run, Shape, Shapes, Tensor, binds

from .arithmetic import fits, repeated

__all__ = ["Attention", "scaled_dot_product_attention"]


class Attention(Op):
    """y = softmax(scale q k^T + mask) v: q (..., t, d), k (..., s, d), v (..., s, e) -> (..., t, e).

    `causal` limits row i to columns up to i. A mask, the fourth input, is broadcast to (..., t, s): floats are
    added, integers hide columns where they are 0. A row with all columns hidden gives 0, without a gradient.
    """

    scale: float
    causal: bool
    kind = "attention"
    integers = (3,)
    reads = "x"
    differentiable = (0, 1, 2, 3)

    def infer(self, q: Shape, k: Shape, v: Shape, *mask: Shape) -> Shape:
        if min(map(len, (q, k, v))) < 2 or not q[:-2] == k[:-2] == v[:-2] or q[-1] != k[-1] or k[-2] != v[-2]:
            raise ShapeError("query, key and value must be (..., t, d), (..., s, d) and (..., s, e)")
        scores = (*q[:-1], k[-2])
        if mask and not fits(mask[0], scores):
            raise ShapeError(f"the mask {mask[0]} cannot be broadcast to {scores}")
        return (*q[:-1], v[-1])


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    name: str | None = None,
) -> Tensor:
    """query (..., t, d), key (..., s, d), value (..., s, e) -> (..., t, e): means of value's rows by score.

    With `is_causal` position i attends to positions up to i only. A `mask`, broadcast to (..., t, s), is added to the
    scores if it has floats, which may be trained; in any other mask 0 hides a position. `scale`, by default
    1 / sqrt(d), multiplies the scores.
    """
    op = Attention(1 / sqrt(query.shape[-1]) if scale is None else scale, is_causal)
    return op(query, key, value, *(() if mask is None else (mask,)), name=name)


# The reference kernels: the matrix (t, s) of every sample is in memory.


def buffers(op: Attention, shapes: Shapes) -> Buffers:
    front = shapes.x[0][:-1]
    scores = ((*front, shapes.x[1][-2]), FLOAT)
    forward = {"column": ((*front, 1), FLOAT)}
    backward = {**forward, "dp": scores, "part": scores}
    if len(shapes.x) > 3:
        forward["hidden"] = (shapes.x[3], "bool")
    return Buffers({"p": scores}, forward, backward)


@binds
def forward(
    op: Attention,
    q: Array,
    k: Array,
    v: Array,
    y: Array,
    p: Array,
    column: Array,
    x3: Array | None = None,
    hidden: Array | None = None,
) -> Run:
    k_t = np.swapaxes(k, -1, -2)
    later = np.triu(np.ones(p.shape[-2:], bool), 1) if op.causal else None
    lowest = np.finfo(y.dtype).min
    added, seen = (x3, None) if x3 is not None and x3.dtype == y.dtype else (None, x3)

    def run() -> None:
        nonlocal p
        np.matmul(q, k_t, out=p)
        p *= op.scale
        if added is not None:
            p += added
        if seen is not None:
            np.equal(seen, 0, out=hidden)
            np.copyto(p, -np.inf, where=hidden)
        if later is not None:
            np.copyto(p, -np.inf, where=later)  # the columns that are hidden from a row
        np.max(p, axis=-1, keepdims=True, out=column)
        np.maximum(column, lowest, out=column)  # of a row with all columns hidden, which becomes 0
        p -= column
        np.exp(p, out=p)
        np.sum(p, axis=-1, keepdims=True, out=column)
        np.maximum(column, 1, out=column)  # as every other row's sum is
        p /= column
        np.matmul(p, v, out=y)

    return run


@binds
def backward(
    q: Array,
    k: Array,
    v: Array,
    dy: Array,
    dx: Array | None,
    dx1: Array | None,
    dx2: Array | None,
    p: Array,
    dp: Array,
    part: Array,
    column: Array,
    scale: float,
    dx3: Array | None = None,
) -> Run:
    p_t = np.swapaxes(p, -1, -2)
    dp_t = np.swapaxes(dp, -1, -2)
    v_t = np.swapaxes(v, -1, -2)
    sums = None if dx3 is None else repeated(dx3, dp.shape)

    def run() -> None:
        nonlocal dp
        if dx2 is not None:
            np.matmul(p_t, dy, out=dx2)
        if dx is None and dx1 is None and sums is None:
            return
        np.matmul(dy, v_t, out=dp)
        np.multiply(dp, p, out=part)
        np.sum(part, axis=-1, keepdims=True, out=column)
        dp -= column
        dp *= p
        if sums is not None:
            np.sum(dp, axis=sums[1], keepdims=True, out=sums[0])
        dp *= scale
        if dx is not None:
            np.matmul(dp, k, out=dx)
        if dx1 is not None:
            np.matmul(dp_t, q, out=dx1)

    return run


KERNELS = {Attention: Kernel(forward, backward, buffers)}
