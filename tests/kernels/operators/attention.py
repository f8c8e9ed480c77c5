"""Scaled dot-product attention."""

from math import prod

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array
from tests.kernels.cases import Case
from tests.kernels.checked import SUM, Checked, Lengths, N, Shapes


@st.composite
def masks(draw: st.DrawFn, scores: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """The shape of a mask, some of whose axes are broadcast, and its dtype; both empty where there is none."""
    mask = tuple(draw(st.sampled_from([1, extent])) for extent in scores)[draw(st.integers(0, len(scores) - 1)) :]
    kind = draw(st.sampled_from(["", FLOAT, "int32"]))
    return ((mask,), (kind,)) if kind else ((), ())


@st.composite
def heads(draw: st.DrawFn) -> Case:
    front = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    t, s, d, e = draw(st.tuples(*[st.integers(1, 9)] * 4))
    op = ops.Attention(draw(st.sampled_from([0.5, 1.0])), draw(st.booleans()))
    mask, kind = draw(masks((*front, t, s)))
    return Case(op, ((*front, t, d), (*front, s, d), (*front, s, e), *mask), (FLOAT,) * 3 + kind, integers_below=2)


def parts(op: ops.Attention, q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    scores = op.scale * np.einsum("...td,...sd->...ts", q, k)
    if mask is not None:
        scores = scores + mask if mask.dtype.kind == "f" else np.where(mask != 0, scores, -np.inf)
    if op.causal:
        t, s = scores.shape[-2:]
        scores = np.where(np.arange(s) <= np.arange(t)[:, None], scores, -np.inf)
    seen = scores.max(-1, keepdims=True) > -np.inf  # a row with all columns hidden is 0
    p = np.exp(np.where(seen, scores, 0) - np.where(seen, scores, 0).max(-1, keepdims=True))
    return np.where(seen, p / p.sum(-1, keepdims=True), 0)


def plain(op: ops.Attention, *args) -> Array:
    q, k, v, *mask = args[:-1]
    return parts(op, q, k, v, *mask or [None]) @ v


def back(op: ops.Attention, q: Array, k: Array, v: Array, *mask: Array, dy: Array) -> list[Array]:
    """The gradients, which the tests of heads side by side take."""
    p = parts(op, q, k, v, *mask or [None])
    dp = np.einsum("...te,...se->...ts", dy, v)
    ds = np.zeros(p.shape)
    for at in np.ndindex(*p.shape[:-1]):  # by the Jacobian of each row
        ds[at] = (np.diag(p[at]) - np.outer(p[at], p[at])) @ dp[at]
    dq, dk = np.einsum("...ts,...sd->...td", ds, k), np.einsum("...ts,...td->...sd", ds, q)
    dmasks = [unbroadcast(ds, each.shape) for each in mask if each.dtype.kind == "f"]
    return [op.scale * dq, op.scale * dk, np.einsum("...ts,...te->...se", p, dy), *dmasks]


def unbroadcast(ds: Array, shape: tuple[int, ...]) -> Array:
    """The sums over the axes that `shape` lacks, or has one element of."""
    found = np.zeros(shape)
    for at in np.ndindex(*ds.shape):
        tail = at[ds.ndim - len(shape) :]
        found[tuple(i if extent > 1 else 0 for i, extent in zip(tail, shape, strict=True))] += ds[at]
    return found


def lengths(op: ops.Attention, shapes: Shapes) -> Lengths:
    (*_, t, d), (*_, s, _), *_ = shapes
    return d + s, max(d, t, prod(shapes[0][:-2]) * t if len(shapes) > 3 else 1) + s, 1


HEADS = ((2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 3, 5))
CHECKED = (
    Checked(
        op=ops.Attention,
        cases=[
            Case(ops.Attention(0.5, False), ((2, 3, 4), (2, 5, 4), (2, 5, 2))),
            Case(ops.Attention(0.5, True), HEADS, id="causal"),
            *(
                Case(ops.Attention(1.0, causal), (*HEADS, mask), (*[FLOAT] * 3, kind), 2, f"{kind} {mask} {causal}")
                for mask in ((3, 3), (2, 3, 3), (2, 1, 3, 3), (1, 1, 1, 3), (2, 2, 3, 1), (1, 2, 1, 1), (2, 2, 3, 3))
                for kind in (FLOAT, "int32")
                for causal in (False, True)
            ),
        ],
        large=[
            Case(ops.Attention(0.5, True), ((N // 4, 4, 3),) * 3),
            Case(ops.Attention(0.5, False), (*((N // 4, 4, 3),) * 3, (4, 4)), (FLOAT,) * 3 + ("int32",), id="mask"),
        ],
        random=heads(),
        plain=plain,
        lengths=lengths,
        looser=SUM,
        lacking=("cuda",),
    ),
)
