"""Shape: what its tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, Checked
from tests.kernels.draw import (
    tensors,
)


def pad_channels(op: ops.PadChannels, x: Array, w) -> Array:
    y = np.zeros(op.infer(x.shape))
    for at, value in np.ndenumerate(x):
        y[at] = value
    return y


CHECKED = (
    Checked(
        op=ops.Flatten,
        cases=[Case(ops.Flatten(), ((2, 3, 4),))],
    ),
    Checked(
        op=ops.PadChannels,
        cases=[Case(ops.PadChannels(5), ((2, 3, 2, 2),)), Case(ops.PadChannels(4), ((3, 4),), id="nothing to pad")],
        large=[Case(ops.PadChannels(9), (IMAGE,))],
        random=st.builds(
            lambda more, shape: Case(ops.PadChannels(shape[1] + more), (shape,)),
            st.sampled_from([0, 1, 16, 32]),
            tensors,
        ),
        plain=pad_channels,
    ),
)
