"""Views: no kernel runs."""

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import Checked

CHECKED = (Checked(op=ops.View, cases=[Case(ops.View((6, 2)), ((3, 4),))]),)
