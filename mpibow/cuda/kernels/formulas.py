"""A formula as CUDA C++ text, which `--fmad=false` compiles to NumPy's bits.

The text is a header's: it defines STATES and SCALARS, how many of them there are, and

    float stepped(float w, float g, float* states, const float* scalars)

of one element: `states` are its states, read and written, `scalars` those of the formula in its order. Called with
arrays of its own, indexed by constants, it keeps them in registers.
"""

from collections.abc import Mapping
from functools import cache

from mpibow.formulas import Dialect, Formula
from mpibow.formulas.tree import OPERATORS

CUDA = Dialect(
    number="float({})",
    name="{}_",  # no keyword or function of C++
    templates=OPERATORS
    | {"and": "({} && {})", "or": "({} || {})", "not": "(!{})", "where": "({} ? {} : {})"}
    | {
        name: f"{name}f({{}})"
        for name in ("sqrt", "exp", "expm1", "log", "log1p", "tanh", "erf", "sin", "cos", "floor")
    }
    | {"abs": "fabsf({})", "fmod": "fmodf({}, {})", "power": "powf({}, {})"}
    | {"sign": "formula_sign({})", "minimum": "formula_minimum({}, {})", "maximum": "formula_maximum({}, {})"},
)
PARTS = {
    "sign": "formula_sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? 0.0f : x; }",
    "minimum": "formula_minimum(float a, float b) { return a < b || a != a ? a : b; }",
    "maximum": "formula_maximum(float a, float b) { return a > b || a != a ? a : b; }",
}


@cache
def element(value: Formula, gradient: Formula | None) -> str:
    """The text of an operator's header: struct Value and struct Gradient, as in pointwise.cuh."""
    return "\n".join(["#pragma once", "", *_structs({"Value": value, "Gradient": gradient or value})])


@cache
def sending(step: Formula, send: Formula) -> str:
    """The text of update.cu's header: the local step, and struct Send."""
    return "\n".join([source(step), *_structs({"Send": send}, step.called)])


@cache
def applying(apply: Formula) -> str:
    """The text of apply.cu's header: struct Apply; MOVES is 1 where it gives replicas' new weights."""
    moves = f"constexpr int MOVES = {int(apply.arrays[0] == 'w')};"
    return "\n".join(["#pragma once", "", moves, *_structs({"Apply": apply})])


def _structs(formulas: Mapping[str, Formula], there: frozenset[str] = frozenset()) -> list[str]:
    """The text of structs with `of`, which computes a formula; the parts of the functions `there` are written."""
    called = frozenset[str]().union(*(formula.called for formula in formulas.values()))
    lines = _parts(called - there)
    for name, formula in formulas.items():
        names = (*formula.arrays, *formula.scalars)
        places = [f"x[{i}]" for i in range(len(formula.arrays))]
        places += [f"scalars[{i}]" for i in range(len(formula.scalars))]
        lines += [f"// {formula.name}", f"struct {name} {{"]
        lines += [f"    static constexpr int INPUTS = {len(formula.arrays)}, RESULTS = {len(formula.results)};"]
        lines += ["    static __device__ void of(const float* x, const float* scalars, float* y) {"]
        lines += [f"        float {each}_ = {place};" for each, place in zip(names, places, strict=True)]
        lines += [f"    {line}" for line in _assignments(formula, set(names))]
        lines += [f"        y[{i}] = {CUDA.text(tree)};" for i, tree in enumerate(formula.results)]
        lines += ["    }", "};", ""]
    return lines


def _parts(called: frozenset[str]) -> list[str]:
    return [f"__device__ inline float {part}" for key, part in PARTS.items() if key in called]


def _assignments(formula: Formula, known: set[str]) -> list[str]:
    lines = []
    for target, tree in formula.assignments:
        lines += [f"    {'' if target in known else 'float '}{target}_ = {CUDA.text(tree)};"]
        known.add(target)
    return lines


@cache
def source(formula: Formula) -> str:
    """The text of a step's formula."""
    w, g, *states = formula.arrays
    lines = ["#pragma once", "", f"constexpr int STATES = {len(states)}, SCALARS = {len(formula.scalars)};", ""]
    lines += [*_parts(formula.called), f"// {formula.name}"]
    lines += [f"__device__ inline float stepped(float {w}_, float {g}_, float* states, const float* scalars) {{"]
    lines += [f"    float {each}_ = states[{i}];" for i, each in enumerate(states)]
    lines += [f"    float {each}_ = scalars[{i}];" for i, each in enumerate(formula.scalars)]
    lines += _assignments(formula, {w, g, *states, *formula.scalars})
    lines += [f"    const float result{i} = {CUDA.text(tree)};" for i, tree in enumerate(formula.results)]
    lines += [f"    states[{i}] = result{i + 1};" for i in range(len(states))]
    lines += ["    return result0;", "}"]
    return "\n".join(lines) + "\n"
