"""Losses by sums and counts: what their tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, N
from tests.kernels.draw import labels

GPU = ("cuda",)


def label_count(op: ops.LabelCount, label: Array, w) -> Array:
    def counts(each: int) -> float:
        return 0.0 if each == op.ignore else 1.0 if op.weight is None else op.weight[each]

    return np.array([sum(map(counts, row)) for row in label.reshape(len(label), -1).tolist()])


@st.composite
def label_counts(draw: st.DrawFn) -> Case:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    weight = draw(st.sampled_from([None, (0.5, 0.0, 2.0, 1.0)]))
    op = ops.LabelCount(draw(st.sampled_from([0, 4, -100])), weight)
    return Case(op, (tuple(shape),), (draw(labels),), 5 if op.ignore == 4 else 4)


CHECKED = (
    Checked(
        op=ops.CountedMean,
        cases=[
            Case(ops.CountedMean(), ((5,),) * 2, positive=True),
            Case(ops.CountedMean(), ((1,),) * 2, positive=True, id="alone"),
        ],
        large=[Case(ops.CountedMean(), ((N,),) * 2, positive=True)],
        random=st.integers(1, 99).map(lambda n: Case(ops.CountedMean(), ((n,),) * 2, positive=True)),
        lacking=GPU,
    ),
    Checked(
        op=ops.LabelCount,
        cases=[
            Case(ops.LabelCount(2), ((6,),), ("int32",)),
            Case(ops.LabelCount(4, (0.5, 2.0, 1.0, 0.0)), ((3, 2, 2),), ("int64",), 5, id="weighed"),
        ],
        large=[
            Case(ops.LabelCount(2), ((N, 3),), ("int32",)),
            Case(ops.LabelCount(2, (0.5, 2.0, 1.0, 0.0)), ((N, 3),), ("int32",), id="weighed"),
        ],
        random=label_counts(),
        plain=label_count,
        lacking=GPU,
    ),
)
