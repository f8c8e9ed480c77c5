"""Every machine's run of a formula beside NumPy's: the same bits of + - * / and sqrt, 4 ulp of the others."""

from dataclasses import replace

import numpy as np
import pytest

from mpibow.formulas import Array, Formula
from mpibow.formulas.passes import bind, program
from mpibow.optim import Update
from mpibow.testing import hard
from tests.cuda.kernels.host import needs_compiler
from tests.formulas import machines
from tests.formulas.cuda import cuda
from tests.formulas.machines import Machine
from tests.formulas.samples import CURVES, EXACT, LOGARITHMS, same_bits
from tests.optim.stepping import scalars_of
from tests.optim.test_table import every

MACHINES = {
    "numba, float32": (machines.numba, "float32"),
    "numba, float64": (machines.numba, "float64"),
    "CUDA on the host": (cuda, "float32"),
}
everywhere = pytest.mark.parametrize(
    ("machine", "dtype"),
    [pytest.param(*each, id=key, marks=needs_compiler if each[0] is cuda else ()) for key, each in MACHINES.items()],
)


def arrays(formula: Formula, dtype: str) -> tuple[Array, Array, list[Array]]:
    w, g, *states = (hard(dtype, seed) for seed in range(len(formula.arrays)))
    return w, g, states


@everywhere
@pytest.mark.parametrize(("formula", "scalars"), EXACT.values(), ids=EXACT.keys())
def test_the_same_bits(formula: Formula, scalars, machine: Machine, dtype):
    (w, g, expected), (_, _, got) = arrays(formula, dtype), arrays(formula, dtype)
    for _ in range(3):
        step = machines.numpy(formula, w, g, expected, scalars)
        same_bits(machine(formula, w, g, got, scalars), step)
        for one, other in zip(got, expected, strict=True):
            same_bits(one, other)


@everywhere
@every
def test_the_same_bits_of_every_optimiser(update: Update, machine: Machine, dtype):
    for own in (update, replace(update, weight_decay=0.0)):
        test_the_same_bits(own.step, scalars_of(own, 0.1, 2), machine, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("formula", "scalars"), [*EXACT.values(), (LOGARITHMS, ())], ids=[*EXACT.keys(), LOGARITHMS.name]
)
def test_passes_are_the_formula(formula: Formula, scalars, dtype):
    """Of each result alone and of all; a zero may have the other sign."""
    (w, g, states), size = arrays(formula, dtype), len(formula.results)
    expected = formula(w, g, *states, **dict(zip(formula.scalars, scalars, strict=True)))
    for wanted in (tuple(range(size)), *((i,) for i in range(size))):
        planned = program(formula, wanted)
        made = np.full((len(wanted), len(w)), np.nan, dtype)
        named = dict(zip((*formula.arrays, *formula.scalars), (w, g, *states, *scalars), strict=True))
        named |= {f"_y{i}": each for i, each in enumerate(made)} | {each: np.zeros_like(w) for each in planned.parts}
        named |= {each: np.zeros(len(w), bool) for each in planned.masks}
        with np.errstate(all="ignore"):
            for call in bind(planned, named):
                call()
        np.testing.assert_array_equal(made, [expected[i] for i in wanted])


@everywhere
@pytest.mark.parametrize("formula", [CURVES, LOGARITHMS], ids=lambda formula: formula.name)
def test_curves_are_within_four_ulp(formula: Formula, machine: Machine, dtype):
    w, g, expected = arrays(formula, dtype)
    w[500:] = np.linspace(-9, 9, len(w) - 500)
    got = [each.copy() for each in expected]
    pairs = [(machine(formula, w, g, got, ()), machines.numpy(formula, w, g, expected, ()))]
    for one, other in [*pairs, *zip(got, expected, strict=True)]:
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
        finite = np.isfinite(other)
        np.testing.assert_array_equal(one[~finite & ~np.isnan(one)], other[~finite & ~np.isnan(other)])
        wide, ulp = one[finite].astype(np.longdouble), np.spacing(np.abs(other[finite]))
        assert (np.abs(wide - other[finite]) <= 4 * ulp).all()
