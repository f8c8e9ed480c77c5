"""Larger images."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, SUM, Checked

scales = st.tuples(st.integers(1, 4), st.integers(1, 4))
images = st.tuples(*[st.integers(1, 3)] * 2, *[st.integers(1, 7)] * 2)


def terms(op: ops.Upsample, x: Array):
    """Of every output pixel, the pixels that it is made of, and how much of each."""
    h, w = x.shape[2:]
    for i, j in np.ndindex(h * op.scale[0], w * op.scale[1]):
        if op.mode == "nearest":
            yield (i, j), (i // op.scale[0], j // op.scale[1]), 1.0
            continue
        p, q = max((i + 0.5) / op.scale[0] - 0.5, 0), max((j + 0.5) / op.scale[1] - 0.5, 0)
        for a, b in np.ndindex(2, 2):
            share = (p % 1 if a else 1 - p % 1) * (q % 1 if b else 1 - q % 1)
            yield (i, j), (min(int(p) + a, h - 1), min(int(q) + b, w - 1)), share


def plain(op: ops.Upsample, x: Array, w) -> Array:
    y = np.zeros(op.infer(x.shape))
    for (i, j), (a, b), share in terms(op, x):
        y[:, :, i, j] += share * x[:, :, a, b]
    return y


def by_torch(op: ops.Upsample, torch, x):
    return torch.nn.functional.interpolate(x, scale_factor=tuple(map(float, op.scale)), mode=op.mode)


CHECKED = (
    Checked(
        op=ops.Upsample,
        cases=[
            Case(ops.Upsample((2, 2), "nearest"), ((2, 2, 3, 4),)),
            Case(ops.Upsample((3, 2), "bilinear"), ((2, 2, 3, 4),), id="bilinear"),
        ],
        large=[
            Case(ops.Upsample((2, 2), "nearest"), (IMAGE,)),
            Case(ops.Upsample((2, 2), "bilinear"), (IMAGE,), id="b"),
        ],
        random=st.builds(
            lambda scale, mode, shape: Case(ops.Upsample(scale, mode), (shape,)),
            scales,
            st.sampled_from(["nearest", "bilinear"]),
            images,
        ),
        plain=plain,
        torch=by_torch,
        lengths=lambda op, shapes: (4, 4 * op.scale[0] * op.scale[1], 1),
        looser=SUM,
        lacking=("cuda",),
    ),
)
