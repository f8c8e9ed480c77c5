"""What the losses of PyTorch's names are made of beside other operators."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, Looser, N, elementwise
from tests.kernels.draw import one, tensors


def huber(op: ops.Huber, x: float) -> float:
    return x * x / 2 if abs(x) <= op.delta else op.delta * (abs(x) - op.delta / 2)


def binary(op, x: Array, target: Array, w) -> Array:
    return -target * np.log(1 / (1 + np.exp(-x))) - (1 - target) * np.log(1 / (1 + np.exp(x)))


def class_target(op: ops.ClassTarget, label: Array, w) -> Array:
    y = np.zeros((len(label), len(op.weight)))
    for n, given in enumerate(label.tolist()):
        if given != op.ignore:
            y[n] = op.smoothing / len(op.weight) * np.array(op.weight)
            y[n, given] += (1 - op.smoothing) * op.weight[given]
    return y


CHECKED = (
    Checked(
        op=ops.Huber,
        cases=[Case(ops.Huber(1.0), ((3, 4),)), Case(ops.Huber(0.3), ((2, 3, 2),), id="small")],
        large=[Case(ops.Huber(1.0), ((N, 5),))],
        random=one(ops.Huber(0.5)),
        plain=elementwise(huber),
    ),
    Checked(
        op=ops.BinaryCrossEntropy,
        cases=[Case(ops.BinaryCrossEntropy(), ((3, 4),) * 2)],
        large=[Case(ops.BinaryCrossEntropy(), ((N, 5),) * 2)],
        random=tensors.map(lambda shape: Case(ops.BinaryCrossEntropy(), (shape,) * 2)),
        plain=binary,
        looser=Looser(4, "max(x, 0), x t and the logarithm are added; s and t are subtracted from what may be close"),
    ),
    Checked(
        op=ops.ClassTarget,
        cases=[
            Case(ops.ClassTarget((0.5, 2.0, 1.0, 0.0), -100), ((6,),), ("int32",)),
            Case(ops.ClassTarget((0.5, 2.0, 1.0), 3, 0.3), ((9,),), ("int64",), id="smoothing, ignore"),
        ],
        large=[Case(ops.ClassTarget((0.5, 2.0, 1.0, 0.0), 1, 0.1), ((N,),), ("int32",))],
        random=st.builds(
            lambda ignore, smoothing, n: Case(
                ops.ClassTarget((1.0, 0.3, 2.0, 0.1), ignore, smoothing), ((n,),), ("int32",)
            ),
            st.integers(-1, 3),
            st.sampled_from([0.0, 0.2]),
            st.integers(1, 40),
        ),
        plain=class_target,
        lacking=("onednn", "cuda"),
    ),
)
