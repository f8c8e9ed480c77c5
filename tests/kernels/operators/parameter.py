"""A weight by itself."""

from hypothesis import strategies as st

from mpibow import ops
from tests.kernels.cases import INITIAL, Case
from tests.kernels.checked import Checked

CASE = Case(ops.Parameter((3, 4), INITIAL, True), ())

CHECKED = (Checked(op=ops.Parameter, cases=[CASE], random=st.just(CASE), lacking=("cuda",)),)
