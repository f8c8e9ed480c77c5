"""L1: a factor times the signs of the weights is added to the gradient, in front of an optimiser's own formula."""

from __future__ import annotations

from functools import cache

from mpibow.formulas.formula import Apply, Formula, Name, Number

FACTOR = "_l1"  # the last scalar; no formula has such a name


@cache
def with_l1(formula: Formula) -> Formula:
    w, g = (Name(name) for name in formula.arrays[:2])
    larger = Apply("+", (g, Apply("*", (Name(FACTOR), Apply("sign", (w,))))))
    tree = Apply("where", (Apply("!=", (Name(FACTOR), Number(0.0))), larger, g))
    scalars, assignments = (*formula.scalars, FACTOR), ((g.name, tree), *formula.assignments)
    return Formula(f"{formula.name}_l1", formula.arrays, scalars, assignments, formula.results)
