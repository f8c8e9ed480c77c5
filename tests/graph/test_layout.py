"""Layouts: where weights lie in a replica's flat array, and what they start as."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.graph import ALIGNMENT, Graph, Layout, initial_weights, plan_layout
from mpibow.graph.layout import TILE, repack, whole
from tests.refusals import refuses


def two_layers(first: int = 5, second: int = 3, name: str = "second") -> Graph:
    graph = Graph()
    x = ops.dense(graph.input("x", (2, 4)), first, name="first", initial=ops.Uniform())
    ops.dense(x, second, name=name, initial=ops.Uniform())
    return graph


def places(layout: Layout) -> list[tuple[str, int, int]]:
    return [(span.name, span.offset, span.size) for span in layout.spans]


def test_decayed_weights_come_first():
    layout = plan_layout(two_layers())
    assert places(layout) == [
        ("first.weight", 0, 20),
        ("second.weight", 32, 15),
        ("first.bias", 48, 5),
        ("second.bias", 64, 3),
    ]
    assert (layout.decayed, layout.size) == (48, 80)


def test_biases_may_be_decayed_too():
    layout = plan_layout(two_layers(), decay_biases=True)
    assert [span.name for span in layout.spans] == ["first.weight", "first.bias", "second.weight", "second.bias"]
    assert layout.decayed == layout.size == 80


def test_no_weights():
    graph = Graph()
    ops.relu(graph.input("x", (2, 4)))
    assert plan_layout(graph) == Layout((), 0, 0)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.booleans())
def test_spans_are_aligned_in_order_and_apart(units, decay_biases):
    graph = Graph()
    x = graph.input("x", (1, 3))
    for n in units:
        x = ops.dense(x, n)
    layout = plan_layout(graph, decay_biases)
    end = 0
    for span in layout.spans:
        assert span.offset % ALIGNMENT == 0
        assert end <= span.offset < end + ALIGNMENT
        assert (span.offset < layout.decayed) == (span.weight.decay or decay_biases)
        assert span.size == np.prod(span.shape)
        end = span.offset + span.size
    assert end <= layout.size < end + ALIGNMENT
    assert sum(span.size for span in layout.spans) == graph.weight_count


def test_views_are_the_flat_array():
    layout = plan_layout(two_layers())
    flat = np.arange(layout.size, dtype=np.float64)
    views = layout.views(flat)
    assert {key: view.shape for key, view in views.items()} == {
        "first.weight": (5, 4),
        "second.weight": (3, 5),
        "first.bias": (5,),
        "second.bias": (3,),
    }
    assert views["second.weight"][1, 2] == 32 + 7
    views["second.bias"][2] = -1
    assert flat[66] == -1


def test_padding_is_zero():
    layout = plan_layout(two_layers())
    flat = initial_weights(layout, 1, "float32")
    for view in layout.views(flat).values():
        view.fill(0)
    assert not flat.any()


DIGEST = plan_layout(two_layers()).digest()


def test_equal_layouts_have_equal_digests():
    assert plan_layout(two_layers()).digest() == DIGEST


@pytest.mark.parametrize(
    "other",
    [
        plan_layout(two_layers(first=6)),  # a size
        plan_layout(two_layers(name="last")),  # a name
        plan_layout(two_layers(), decay_biases=True),  # an order
        replace(plan_layout(two_layers()), decayed=32),
        replace(plan_layout(two_layers()), size=96),
    ],
)
def test_another_layout_has_another_digest(other: Layout):
    assert other.digest() != DIGEST


@pytest.mark.parametrize(
    "change", [{"format": "blocked"}, {"offset": 16}, {"shape": (4, 5)}, {"name": "w"}, {"size": 19}]
)
def test_every_property_of_a_span_is_in_the_digest(change):
    layout = plan_layout(two_layers())
    changed = replace(layout, spans=(replace(layout.spans[0], **change), *layout.spans[1:]))
    assert changed.digest() != DIGEST


def test_a_weight_starts_from_seed_and_name_only():
    """Not from the layers around it, nor from where it lies."""
    alone = Graph()
    ops.dense(alone.input("x", (7, 5)), 3, name="second", initial=ops.Uniform())
    layouts = [plan_layout(two_layers()), plan_layout(alone), plan_layout(two_layers(), decay_biases=True)]
    starts = [layout.views(initial_weights(layout, 1, "float32"))["second.weight"] for layout in layouts]
    np.testing.assert_array_equal(starts[0], starts[1])
    np.testing.assert_array_equal(starts[0], starts[2])


def test_another_seed_or_name_starts_elsewhere():
    layout, renamed = plan_layout(two_layers(5, 5)), plan_layout(two_layers(5, 5, name="last"))
    one, two = (layout.views(initial_weights(layout, seed, "float32")) for seed in (1, 2))
    other = renamed.views(initial_weights(renamed, 1, "float32"))
    assert (one["first.weight"] != two["first.weight"]).all()
    assert (one["second.weight"] != other["last.weight"]).all()
    np.testing.assert_array_equal(one["first.weight"], other["first.weight"])
    assert not np.isin(one["first.weight"], one["second.weight"]).any()


def test_golden_start():
    """The weights of a seed must never change silently: runs would not be repeatable across versions."""
    layout = plan_layout(two_layers())
    views = layout.views(initial_weights(layout, 1, "float64"))
    np.testing.assert_allclose(views["first.weight"][0, :3], [-0.03486949, 0.01047062, -0.02877311], rtol=1e-6)


def test_precisions_start_alike():
    layout = plan_layout(two_layers())
    single, double = (initial_weights(layout, 1, dtype) for dtype in ("float32", "float64"))
    np.testing.assert_array_equal(single, double.astype(np.float32))


LIMITLESS = (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("initial", "low", "high", "std"),
    [
        (ops.Constant(0.25), 0.25, 0.25, 0.0),
        (ops.Uniform(-1.0, 3.0), -1.0, 3.0, 4 / 12**0.5),
        (ops.Xavier(), -((6 / 300) ** 0.5), (6 / 300) ** 0.5, (2 / 300) ** 0.5),
        (ops.He(), -np.inf, np.inf, (2 / 100) ** 0.5),
        (ops.Gaussian(0.5), -np.inf, np.inf, 0.5),
        *(
            (
                kind(mode, law),
                *((-((3 * variance) ** 0.5), (3 * variance) ** 0.5) if law == "uniform" else LIMITLESS),
                variance**0.5,
            )
            for kind, gain in ((ops.Xavier, 1), (ops.He, 2))
            for mode, fan in (("fan_in", 100), ("fan_out", 200), ("average", 150))
            for law in ("uniform", "normal")
            for variance in [gain / fan]
        ),
        (ops.TruncatedNormal(0.5), -1.0, 1.0, 0.5 * 0.8796),  # the standard deviation within two of them
    ],
    ids=lambda value: type(value).__name__,
)
def test_initialisers(initial: ops.Constant, low, high, std):
    graph = Graph()
    ops.dense(graph.input("x", (1, 100)), 200, initial=initial)
    layout = plan_layout(graph)
    values = layout.views(initial_weights(layout, 1, "float64"))["dense1.weight"]
    assert low <= values.min() <= values.max() <= high
    assert values.std() == pytest.approx(std, rel=0.03)
    if std and np.isfinite(low):
        assert values.min() == pytest.approx(low, abs=0.01 * (high - low))
        assert values.max() == pytest.approx(high, abs=0.01 * (high - low))
    assert not layout.views(initial_weights(layout, 1, "float64"))["dense1.bias"].any()


def test_a_mean_and_the_defaults():
    generator = np.random.default_rng(0)
    assert ops.Gaussian(0.1, 3.0)(generator, (10_000,), 1, 1).mean() == pytest.approx(3.0, abs=0.005)
    assert (ops.Xavier(), ops.He()) == (ops.Xavier("average", "uniform"), ops.He("fan_in", "normal"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.He("fan"), "mode: of He must be one of fan_in, fan_out, average, got 'fan'"),
        (lambda: ops.Xavier(distribution="flat"), "distribution: of Xavier must be one of uniform, normal, got 'flat'"),
    ],
)
def test_initialisers_that_there_are_not(make: Callable[[], object], message):
    with refuses(message):
        make()


def test_biases_and_norms_start_as_they_are_told():
    """Gaussian, or by the fans of the layer that they belong to; 25 channels into 64."""
    graph = Graph()
    x = graph.input("x", (1, 25, 6, 6))
    x = ops.conv2d(x, 64, 2, initial_bias=ops.He("fan_in", "normal"), name="conv")
    x = ops.batch_norm(x, initial=ops.Constant(0.0), initial_bias=ops.Gaussian(0.5), name="norm")
    ops.dense(ops.flatten(x), 2000, initial_bias=ops.Xavier("fan_out", "uniform"), name="dense")
    layout = plan_layout(graph)
    views = layout.views(initial_weights(layout, 1, "float64"))
    assert views["conv.bias"].std() == pytest.approx((2 / 100) ** 0.5, rel=0.3)
    assert not views["norm.weight"].any()
    assert views["norm.bias"].std() == pytest.approx(0.5, rel=0.3)
    assert views["dense.bias"].max() == pytest.approx((3 / 2000) ** 0.5, rel=0.01)


def test_a_gradient_kept_as_factors():
    """Of two samples, in the room of four: dy and x beyond them are 0, what follows in the span means nothing."""
    graph = Graph()
    ops.dense(ops.dense(graph.input("x", (2, 5)), 16, name="small"), 128, name="large", bias=False)
    layout = plan_layout(graph, formats={"large.weight": "AB16b64a"}, ranks={"large.weight": 4})
    assert places(layout) == [("small.weight", 0, 80), ("large.weight", TILE, 2048), ("small.bias", TILE + 2048, 16)]
    assert layout.factors.tolist() == [[256, 2304, 4, 16, 64]]
    assert layout.canonical().factors.tolist() == []

    generator = np.random.default_rng(0)
    dy, x = generator.standard_normal((2, 128)), generator.standard_normal((2, 16))
    flat = np.full(layout.size, np.nan)
    flat[:80], flat[256 : 256 + 4 * 144] = 7, 0
    for unit in range(128):
        flat[256 + unit // 64 * 256 + np.arange(2) * 64 + unit % 64] = dy[:, unit]
    for i in range(16):
        flat[256 + 512 + 4 * i + np.arange(2)] = x[:, i]
    flat[2304:2320] = 8
    named = layout.gradients(flat)
    np.testing.assert_allclose(named["large.weight"], dy.T @ x, rtol=1e-13)
    np.testing.assert_array_equal(named["small.weight"], np.full((16, 5), 7))
    np.testing.assert_array_equal(named["small.bias"], np.full(16, 8))
    assert np.isnan(flat).any()  # it was not written to
    assert whole(flat, plan_layout(graph).factors) is flat


def test_parts_lie_one_behind_the_other():
    """Each with what decays first; names, decay and the canonical layout are as without."""
    graph = two_layers()
    names = graph.weight_names
    plain, parted = plan_layout(graph), plan_layout(graph, parts={names[0]: 2, names[-1]: 1}, aligned=64)
    assert [span.name for span in parted.spans] == [span.name for span in plain.spans]
    assert [span.decays for span in parted.spans] == [span.decays for span in plain.spans]
    assert parted.canonical().digest() == plain.canonical().digest() == plain.digest()
    places = {span.name: (span.offset, span.offset + span.size) for span in parted.spans}
    for part, (start, stop) in enumerate(parted.parts):
        own = [name for name in names if {names[0]: 2, names[-1]: 1}.get(name, 0) == part]
        assert start % 64 == 0
        assert {name for name, (begin, end) in places.items() if start <= begin and end <= stop} == set(own)
    first = parted.first(parted.parts[0][1])
    assert {span.name for span in first.spans} == set(names[1:-1])
    named = {span.name: np.full(span.shape, n) for n, span in enumerate(plain.spans)}
    back = parted.unpacked(repack(plain.packed(named, "float64"), plain, parted))
    for name, array in named.items():
        np.testing.assert_array_equal(back[name], array)
