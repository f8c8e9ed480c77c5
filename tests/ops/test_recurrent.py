"""Recurrent layers against PyTorch's in float64: several of them, both directions, states; names of weights."""

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ShapeError
from mpibow.graph import Graph, Tensor, initial_weights, plan_layout
from mpibow.testing import check_operator
from tests.oracle import pytorch
from tests.outcome import outcome
from tests.refusals import refuses

N, T, FEATURES, UNITS = 2, 4, 3, 5
RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((N, T, FEATURES))
KINDS = {"lstm": mb.lstm, "gru": mb.gru}


def states_of(kind: str, layers: int, both: bool) -> list:
    shape = (layers * (1 + both), N, UNITS)
    return [RANDOM.standard_normal(shape) for _ in range(2 if kind == "lstm" else 1)]


def flat(made) -> list[Tensor]:
    y, last = made
    return [y, *last] if isinstance(last, tuple) else [y, last]


@pytest.mark.torch
@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_pytorchs(kind, layers, both, stated):
    """Outputs and last states, of weights by PyTorch's names."""
    torch = pytorch()
    arrays = [X, *(states_of(kind, layers, both) if stated else [])]
    graph = Graph()
    x, *begin = (graph.input(f"x{i}", array.shape) for i, array in enumerate(arrays))
    state = None if not begin else tuple(begin) if kind == "lstm" else begin[0]
    for i, tensor in enumerate(
        flat(KINDS[kind](x, UNITS, layers=layers, bidirectional=both, state=state, name="layer"))
    ):
        graph.output(f"y{i}", tensor)
    bound, outputs = outcome(graph, {f"x{i}": array for i, array in enumerate(arrays)}, training=False)
    weights = bound.plan.layout.unpacked(initial_weights(bound.plan.layout, 1, "float64"))
    net = (torch.nn.LSTM if kind == "lstm" else torch.nn.GRU)(
        FEATURES, UNITS, layers, batch_first=True, bidirectional=both, dtype=torch.float64
    )
    named = {key.removeprefix("layer."): torch.from_numpy(array) for key, array in weights.items()}
    net.load_state_dict(named)  # strict: all names
    first, *states = map(torch.from_numpy, arrays)
    start = () if not states else (tuple(states),) if kind == "lstm" else states
    for ours, theirs in zip(outputs.values(), flat(net(first, *start)), strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    def net(x: Tensor, *begin: Tensor) -> list[Tensor]:
        state = begin if kind == "lstm" else begin[0]
        return flat(KINDS[kind](x, UNITS, layers=2, bidirectional=True, state=state))

    check_operator(net, X, *states_of(kind, 2, True))


def test_names_of_weights():
    """Of layers without a name too, and in a scope; the second layer has the first one's features."""
    graph = Graph()
    x = graph.input("x", X.shape)
    with mb.scope("encoder"):
        mb.gru(x, UNITS)
        y, h = mb.gru(x, UNITS, layers=2, bidirectional=True)
    assert (y.shape, h.shape) == ((N, T, 2 * UNITS), (4, N, UNITS))
    spans = {span.name: span.shape for span in plan_layout(graph).spans}
    keys = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ends = [f"_l{layer}{way}" for layer in (0, 1) for way in ("", "_reverse")]
    expected = {f"encoder.gru1.{key}_l0" for key in keys} | {f"encoder.gru2.{key}{end}" for key in keys for end in ends}
    assert spans.keys() == expected
    assert spans["encoder.gru2.weight_ih_l1_reverse"] == (3 * UNITS, 2 * UNITS)


def test_dropout_is_between_layers():
    graph = Graph()
    mb.lstm(graph.input("x", X.shape), UNITS, layers=3, dropout=0.5)
    kinds = [node.op.kind for node in graph.nodes]
    assert [kind for kind in kinds if kind in ("lstm", "dropout")] == ["lstm", "dropout", "lstm", "dropout", "lstm"]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"layers": 0}, "lstm of x (2, 4, 3): there must be at least 1 layer, and initial states must be "
                        "(layers * directions, batch, units), (0, 2, 5)"),
        ({"dropout": 0.5}, "lstm of x: dropout lies between layers, of 1, and in [0, 1), got 0.5"),
        ({"dropout": 7.0, "layers": 2}, "lstm of x: dropout lies between layers, of 2, and in [0, 1), got 7.0"),
        ({"units": 0}, "lstm1 (lstm of x (2, 4, 3)): input must be (batch, steps, features) and units at least 1, "
                       "got 0"),
        ({"bidirectional": True, "state": True}, "lstm of x (2, 4, 3), h (1, 2, 5), c (1, 2, 5): there must be at "
         "least 1 layer, and initial states must be (layers * directions, batch, units), (2, 2, 5)"),
    ],
)  # fmt: skip
def test_what_does_not_fit(given, fault):
    graph = Graph()
    settings = {"units": UNITS, **given}
    if "state" in given:
        settings["state"] = graph.input("h", (1, N, UNITS)), graph.input("c", (1, N, UNITS))
    with refuses(fault, ShapeError):
        mb.lstm(graph.input("x", X.shape), **settings)
