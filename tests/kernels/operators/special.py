"""Sin, cos, floor, sign, log1p and erf."""

from __future__ import annotations

import math

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, Looser, N, elementwise
from tests.kernels.draw import one

ZERO = Looser(1, "it goes through 0, where x or a term is rounded")


def checked(op, plain, lacking=(), positive: bool = False) -> Checked:
    return Checked(
        op=type(op),
        cases=[Case(op, ((4, 5),), positive=positive), Case(op, ((2, 3, 2),), id="image", positive=positive)],
        large=[Case(op, ((N, 5),), positive=positive)],
        random=one(op, positive=positive),
        plain=elementwise(lambda op, x: plain(x)),
        torch=lambda op, torch, x: getattr(torch, op.kind)(x),
        looser=ZERO,
        lacking=lacking,
    )


CHECKED = (
    checked(ops.Sin(), math.sin),
    checked(ops.Cos(), math.cos),
    checked(ops.Floor(), math.floor),
    checked(ops.Sign(), lambda x: (x > 0) - (x < 0)),
    checked(ops.Log1p(), math.log1p, positive=True),
    checked(ops.Erf(), math.erf, lacking=("cuda", "onednn")),
)
