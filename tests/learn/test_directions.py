"""Muon: directions and step together, beside the papers' formulas, in float64 and wherever a matrix lies."""

from dataclasses import replace

import numpy as np
import pytest

from mpibow.graph import Array, Layout, Shape, Span, Weight
from mpibow.graph.formats import canonical, physical
from mpibow.kernels import FlatKernels, chunks_of
from mpibow.learn.directions import Directions, described, matrices_of
from mpibow.ops.initialisers import Constant
from mpibow.ops.products import Products
from mpibow.optim import AdamW, Muon, Sgd
from mpibow.optim.muon import OnMatrices
from tests.optim.stepping import scalars_of

STEPS = 10
HIDDEN = {"conv": (5, 3, 2, 2), "tall": (9, 4), "wide": (4, 9)}


def span(name: str, offset: int, shape: Shape, tag: str = "") -> Span:
    tag = tag or canonical(shape)
    return Span(name, offset, int(np.prod(physical(tag, shape))), shape, Weight(shape, Constant(), 1, 1), tag)


LAYOUT = Layout(
    (
        span("first", 0, (6, 5)),
        span("conv", 32, (5, 3, 2, 2), "Acdb16a"),  # 16 x 2 x 2 x 3, of which 11 rows are padding
        span("tall", 224, (9, 4)),
        span("wide", 272, (4, 9)),
        span("table", 496, (7, 2)),
        span("large", 320, (12, 12)),
        span("last", 464, (3, 4)),
        span("bias", 480, (5,)),
    ),
    decayed=480,
    size=512,
)
MUON = Muon(lr=0.03, momentum=0.9, weight_decay=0.1, fallback=AdamW(lr=0.01, weight_decay=0.2))


# The wide ones in the net's order; what a step of `large` costs is more than its passes, of all others less.
PRODUCTS = Products(
    ("first", "conv", "tall", "table", "wide", "large", "last"),
    frozenset({"first", "conv", "tall", "wide", "large", "last"}),
    operations=50_000.0,
)
MATRICES = matrices_of(MUON, LAYOUT, PRODUCTS)


def newton_schulz(d: Array, steps: int) -> Array:
    """As in Jordan's program, in float64 where that has bfloat16."""
    turned = d.shape[0] > d.shape[1]
    x = d.T if turned else d
    x = x / np.linalg.norm(x)
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if turned else x


def oracle(update: Muon, w: Array, gradients: list[Array], rates: list[float]) -> Array:
    """Of one matrix."""
    shape, w = w.shape, w.reshape(len(w), -1)
    v, (rows, columns) = np.zeros_like(w), w.shape
    for g, rate in zip((g.reshape(w.shape) for g in gradients), rates, strict=True):
        g = g + update.l1 * np.sign(w)
        v = update.momentum * v + g
        d = g + update.momentum * v if update.nesterov else v
        o = newton_schulz(d, update.ns_steps)
        step = {
            "length": np.linalg.norm(d) / np.linalg.norm(o) * o,
            "spectral": max(1, rows / columns) ** 0.5 * o,
            "rms": 0.2 * max(rows, columns) ** 0.5 * o,
        }[update.scale]
        w = w - rate * (step + update.weight_decay * w)
    return w.reshape(shape)


def trained(update: Muon, flat: FlatKernels, gradients: list[Array], w: Array, rates: list[float]) -> Array:
    """Weights (k, size), as learners have them."""
    hidden = MATRICES.spans
    directions, formula = Directions(hidden, update, flat, w.dtype, dict.fromkeys(HIDDEN, update.l1)), update.step
    states = [np.zeros_like(w) for _ in update.states]
    matrix = np.zeros(LAYOUT.size, bool)
    for each in hidden:
        matrix[each.offset : each.offset + each.size] = True
    for count, (g, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        g = g.copy()
        directions.works(w, states[0], g, update)(chunks_of(LAYOUT.size, flat.chunk))
        for part, scalars in (
            (matrix, scalars_of(OnMatrices.of(update), rate, count)),
            (~matrix, scalars_of(update, rate, count)),
        ):
            named = dict(zip(formula.scalars, scalars, strict=True))
            u, *new = formula(w[:, part], g[:, part], *(state[:, part] for state in states), **named)
            for state, values in zip(states, new, strict=True):
                state[:, part] = values
            w[:, part] += u
    return w


def problem(dtype: str = "float64", k: int = 2) -> tuple[Array, list[Array], list[float]]:
    """Weights, gradients and rates; padding is 0."""
    generator = np.random.default_rng(0)

    def made() -> Array:
        named = {span.name: generator.standard_normal(span.shape) for span in LAYOUT.spans}
        return LAYOUT.packed(named, dtype)

    gradients = [np.stack([made() for _ in range(k)]) for _ in range(STEPS)]
    return np.stack([made() for _ in range(k)]), gradients, [0.03 * (1 + i % 3) for i in range(STEPS)]


VARIANTS = {
    "spectral": MUON,
    "length": replace(MUON, scale="length"),
    "rms": replace(MUON, scale="rms", nesterov=False),
    "l1": replace(MUON, l1=0.3, fallback=AdamW(lr=0.01, l1=0.1)),
    "other settings": replace(MUON, ns_steps=7, weight_decay=0.0, momentum=0.5),
}


@pytest.mark.parametrize("update", VARIANTS.values(), ids=VARIANTS.keys())
def test_matrices_take_the_papers_step_and_all_else_the_fallback(flat: FlatKernels, update: Muon):
    w, gradients, rates = problem()
    start, named = w.copy(), [[LAYOUT.unpacked(row) for row in g] for g in gradients]
    found = trained(update, flat, gradients, w, rates)
    for row in range(2):
        before, after = LAYOUT.unpacked(start[row]), LAYOUT.unpacked(found[row])
        for name in HIDDEN:
            expected = oracle(update, before[name], [g[row][name] for g in named], rates)
            np.testing.assert_allclose(after[name], expected, rtol=1e-9, atol=1e-9)
    other = update.fallback
    adam, rest = [np.zeros_like(w) for _ in other.states], start
    for count, (g, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        scalars = other.scalars(other.lr * rate / update.lr, count)
        larger = g + other.l1 * np.sign(rest)
        u, *adam = other.formula(rest, larger, *adam, **dict(zip(other.formula.scalars, scalars, strict=True)))
        rest = rest + u
    for name in {span.name for span in LAYOUT.spans} - set(HIDDEN):
        for row in range(2):
            np.testing.assert_allclose(
                LAYOUT.unpacked(found[row])[name], LAYOUT.unpacked(rest[row])[name], rtol=1e-12, atol=1e-12
            )
    np.testing.assert_array_equal(
        found[:, LAYOUT.packed({s.name: np.ones(s.shape) for s in LAYOUT.spans}, "b") == 0], 0
    )


def test_any_share_of_the_work_makes_the_same_bits(flat: FlatKernels):
    """Also of a thread that finds all matrices taken."""
    w, gradients, _ = problem("float32", k=3)
    momenta, found = np.zeros_like(w), []
    for calls in (1, 3):
        directions, g, v = Directions(MATRICES.spans, MUON, flat, w.dtype), gradients[0].copy(), momenta.copy()
        work = directions.works(w, v, g, MUON)
        for _ in range(calls):
            work(range(1))
        found.append((g.tobytes(), v.tobytes()))
    assert found[0] == found[1]


def test_hidden_matrices_take_part_the_costliest_first():
    assert [span.name for span in MATRICES.spans] == ["conv", "tall", "wide"]
    assert described(MATRICES, MUON) == (
        "muon: 3 of 7 matrices get orthogonal steps, 1.1e-05 GFLOP an update and learner, 0.219 x a batch's "
        "forward and backward passes (conv 0.109 x); adamw updates vectors, first (the first), table (an embedding), "
        "large (6.57e-05 GFLOP, 1.31 x the passes), last (the last); update.largest_share is 1"
    )
    more = matrices_of(replace(MUON, largest_share=1.4), LAYOUT, PRODUCTS)
    assert [span.name for span in more.spans] == ["large", "conv", "tall", "wide"]
    none = replace(MUON, largest_share=0.01)
    begin = "muon: 0 of 7 matrices get orthogonal steps; adamw updates vectors, first (the first), conv (5.45e-06 "
    assert described(matrices_of(none, LAYOUT, PRODUCTS), none).startswith(begin)
    assert described(matrices_of(MUON, LAYOUT, PRODUCTS), Sgd()) == ""


def test_the_states_are_the_momenta_and_the_fallbacks():
    assert MUON.states == ("matrix_momenta", "exp_avg", "exp_avg_sq")
    assert Muon(fallback=Sgd(momentum=0.9)).states == ("matrix_momenta", "momenta")
    assert MUON.counts
    assert not Muon(fallback=Sgd()).counts
