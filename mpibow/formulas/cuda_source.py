"""A formula as CUDA C++ text, which `--fmad=false` compiles to NumPy's bits.

The text is a header's: it defines STATES and SCALARS, how many of them there are, and

    float NAME(float w, float g, float* states, const float* scalars)

of one element: `states` are its states, read and written, `scalars` those of the formula in its order. Called with
arrays of its own, indexed by constants, it keeps them in registers.
"""

from __future__ import annotations

from mpibow.formulas.formula import OPERATORS, Dialect, Formula

CUDA = Dialect(
    number="float({})",
    name="{}_",  # whatever C++ has for keywords, or functions
    templates=OPERATORS
    | {"and": "({} && {})", "or": "({} || {})", "not": "(!{})", "where": "({} ? {} : {})"}
    | {"sqrt": "sqrtf({})", "exp": "expf({})", "tanh": "tanhf({})", "erf": "erff({})", "abs": "fabsf({})"}
    | {"log": "logf({})", "log1p": "log1pf({})", "power": "powf({}, {})"}
    | {"sign": "formula_sign({})", "minimum": "formula_minimum({}, {})", "maximum": "formula_maximum({}, {})"},
)
PARTS = {
    "sign": "formula_sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? 0.0f : x; }",
    "minimum": "formula_minimum(float a, float b) { return a < b || a != a ? a : b; }",
    "maximum": "formula_maximum(float a, float b) { return a > b || a != a ? a : b; }",
}


def source(formula: Formula, name: str = "stepped") -> str:
    """The text of a step's formula, as a function called `name`."""
    w, g, *states = formula.arrays
    lines = ["#pragma once", "", f"constexpr int STATES = {len(states)}, SCALARS = {len(formula.scalars)};", ""]
    lines += [f"__device__ inline float {part}" for key, part in PARTS.items() if key in formula.called]
    lines += [f"// {formula.name}"]
    lines += [f"__device__ inline float {name}(float {w}_, float {g}_, float* states, const float* scalars) {{"]
    known = {w, g, *states, *formula.scalars}
    lines += [f"    float {each}_ = states[{i}];" for i, each in enumerate(states)]
    lines += [f"    float {each}_ = scalars[{i}];" for i, each in enumerate(formula.scalars)]
    for target, tree in formula.assignments:
        lines += [f"    {'' if target in known else 'float '}{target}_ = {CUDA.text(tree)};"]
        known.add(target)
    lines += [f"    const float result{i} = {CUDA.text(tree)};" for i, tree in enumerate(formula.results)]
    lines += [f"    states[{i}] = result{i + 1};" for i in range(len(states))]
    lines += ["    return result0;", "}"]
    return "\n".join(lines) + "\n"
