"""Which weights are updated alike, and every replica's scalars."""

import numpy as np
import pytest

from mpibow.errors import ConfigError
from mpibow.graph import Layout, Span, Weight
from mpibow.kernels.numpy import flat
from mpibow.learn.local import Stepping, groups_of
from mpibow.learn.replica import Replicas
from mpibow.ops.initialisers import Constant
from mpibow.optim import Adam, Muon, Sgd
from mpibow.optim.groups import WeightGroup, check_groups
from tests.refusals import refuses

NAMES = ("conv1.weight", "conv2.weight", "head.weight", "conv1.bias", "conv2.bias", "head.bias")


def span(name: str, offset: int, size: int) -> Span:
    shape = (size // 4, 4) if name.endswith("weight") else (size,)
    return Span(name, offset, size, shape, Weight(shape, Constant(0.0), 1, 1), "", decays=name.endswith("weight"))


# Three matrices of 20, 20 and 16 elements, which decay, and their biases; spans begin at multiples of 16.
LAYOUT = Layout(
    tuple(
        span(*each) for each in zip(NAMES, (0, 32, 64, 80, 96, 112), (20, 20, 16, 5, 5, 4), strict=True)
    ),
    decayed=80, size=128,
)  # fmt: skip


def told(update) -> list[tuple[int, float, float]]:
    """Of every span its end, weight decay and how many times the rate."""
    found = groups_of(update, LAYOUT, 0, LAYOUT.size)
    groups = [found.groups[which] for which in found.which]
    return [(end, g.update.weight_decay, g.lr_scale) for end, g in zip(found.ends.tolist(), groups, strict=True)]


def test_biases_do_not_decay():
    assert told(Sgd(weight_decay=0.1)) == [(80, 0.1, 1.0), (128, 0.0, 1.0)]
    assert told(Sgd()) == [(128, 0.0, 1.0)]


def test_the_first_group_that_a_name_matches_is_its_own():
    groups = (
        WeightGroup("conv1.*", lr_scale=2.0),
        WeightGroup("*.bias", weight_decay=0.3),
        WeightGroup("head.*", lr_scale=10.0),
    )
    assert told(Sgd(weight_decay=0.1, groups=groups)) == [
        (32, 0.1, 2.0), (64, 0.1, 1.0), (80, 0.1, 10.0), (96, 0.0, 2.0), (128, 0.3, 1.0),
    ]  # fmt: skip


def test_l1_is_as_weight_decay_is():
    update = Sgd(l1=0.1, groups=(WeightGroup("conv2.*", l1=0.3), WeightGroup("head.*", weight_decay=0.2)))
    found = groups_of(update, LAYOUT, 0, LAYOUT.size)
    groups = [found.groups[which] for which in found.which]
    assert [(end, g.update.l1) for end, g in zip(found.ends.tolist(), groups, strict=True)] == [
        (32, 0.1), (64, 0.3), (80, 0.1), (96, 0.0), (112, 0.3), (128, 0.0),
    ]  # fmt: skip
    assert [each.update.l1 for each in groups_of(Sgd(l1=0.1), LAYOUT, 0, 128).groups] == [0.1, 0.0]
    replicas = Replicas(1, LAYOUT.size, "float64", flat=flat, states=update.states)
    replicas.resize(1)
    stepping = Stepping(update, LAYOUT, replicas, flat)
    local = stepping.at(0.5, 8)
    assert local.formula == update.step
    assert local.scalars[0, local.groups].tolist() == [[0.5, g.update.weight_decay, g.update.l1] for g in groups]


def test_muons_matrices_are_groups_of_their_own():
    """The other weights take the fallback, whose weight decay is as for all others."""
    update = Muon(
        weight_decay=0.1, groups=(WeightGroup("conv2.*", lr_scale=2.0), WeightGroup("head.bias", weight_decay=0.3))
    )
    found = groups_of(update, LAYOUT, 0, LAYOUT.size, [LAYOUT.spans[1]])
    kinds = [(type(found.groups[which]).__name__, type(found.groups[which].update).__name__) for which in found.which]
    assert [kind for _, kind in kinds] == ["Muon", "OnMatrices", "Muon", "Muon", "Muon", "Muon"]
    updates = [found.groups[which].update for which in found.which]
    assert [each.weight_decay for each in updates] == [0.1, 0.1, 0.1, 0.0, 0.0, 0.3]
    assert [each.fallback.weight_decay for each in updates if isinstance(each, Muon)] == [0.01] * 3 + [0.0, 0.0, 0.3]
    assert [found.groups[which].lr_scale for which in found.which] == [1.0, 2.0, 1.0, 1.0, 2.0, 1.0]


def test_every_replica_has_scalars_of_its_own_count():
    update = Adam(weight_decay=0.1, groups=(WeightGroup("head.*", lr_scale=10.0),))
    replicas = Replicas(4, LAYOUT.size, "float64", flat=flat, states=update.states, counts=True)
    replicas.resize(3)
    replicas.updates[:, 0] = 0, 4, 0
    replicas.seen[:, 0] = 0, 32, 0
    local = Stepping(update, LAYOUT, replicas, flat).at(0.2, 8)
    group = local.groups[np.searchsorted(local.ends, 64, side="right")]
    assert local.scalars.shape == (3, 4, len(update.formula.scalars))
    assert local.scalars[:, group].tolist() == [list(update.scalars(2.0, count)) for count in (1, 5, 1)]
    np.testing.assert_array_equal(local.of(1).scalars, local.scalars[1:2])
    assert local.times(3.0).scalars[0, 0, 0] == pytest.approx(3 * local.scalars[0, 0, 0])


def test_a_pattern_must_match():
    check_groups((WeightGroup("conv?.*"), WeightGroup("*.bias")), NAMES)
    with refuses(
        "update.groups[1].match: must match a weight's name, got 'conv9.*'; there are "
        "conv2.weight, head.weight, conv2.bias, head.bias, norm.weight",
        ConfigError,
    ):
        check_groups((WeightGroup("conv1.*"), WeightGroup("conv9.*")), [*NAMES, "norm.weight"])
    with refuses(
        "update.groups[1].match: must match a weight's name, got 'conv1.bias'; there are head.weight, head.bias"
    ):
        check_groups((WeightGroup("conv*"), WeightGroup("conv1.bias")), NAMES)


def test_frozen_weights_have_no_settings():
    with pytest.raises(
        ConfigError, match=r"^freeze: frozen weights take no step; leave out lr_scale, weight_decay, l1 and update$"
    ):
        WeightGroup("conv1.*", freeze=True, lr_scale=2.0)
