"""Every optimiser of the table: what it declares, what it makes of a number, and its run on every machine."""

from contextlib import suppress
from dataclasses import fields, replace
from itertools import compress, product

import numpy as np
import pytest

from mpibow.errors import ConfigError
from mpibow.optim import UPDATES, AdamW, Update
from tests.formulas import machines
from tests.optim.stepping import gradient, scalars_of, start, trained

# Settings that choose another formula, where there are any; weight decay everywhere; l1 once for each.
MORE = {
    "sgd": {"momentum": {"momentum": 0.9}, "nesterov": {"momentum": 0.9, "nesterov": True}},
    "adam": {"amsgrad": {"amsgrad": True}},
    "adamw": {"amsgrad": {"amsgrad": True}},
    "rmsprop": {
        "momentum": {"momentum": 0.9},
        "centred": {"centered": True},
        "both": {"momentum": 0.9, "centered": True},
    },
    "adagrad": {"falling": {"lr_decay": 0.1, "initial_accumulator_value": 0.1}},
}
ALL = {
    f"{name} {variant}".strip(): kind(name=name, weight_decay=0.02, **settings)
    for name, kind in UPDATES.items()
    for variant, settings in (("", {}), *MORE.get(name, {}).items(), ("l1", {"l1": 0.05}))
}
every = pytest.mark.parametrize("update", ALL.values(), ids=ALL.keys())


@pytest.mark.parametrize("name", UPDATES)
def test_its_key_is_its_name(name):
    assert UPDATES[name].name == name


@pytest.mark.parametrize("name", UPDATES)
def test_every_formula_that_settings_choose_is_among_them(name):
    """So that a new setting, and a new optimiser, is tried on every machine: flags, numbers that are 0 unless set."""
    own = [each for each in fields(UPDATES[name]) if each.name not in {one.name for one in fields(Update)}]
    settings = {each.name: True for each in own if each.default is False}
    settings |= {each.name: 0.5 for each in own if each.default == 0.0 and each.default is not False}
    known, found = {update.formula for update in ALL.values() if update.name == name}, set()
    for chosen in product((False, True), repeat=len(settings)):
        with suppress(ConfigError):  # what does not go together
            found.add(UPDATES[name](name=name, **dict(compress(settings.items(), chosen))).formula)
    assert found == known


@every
def test_what_it_declares(update: Update):
    formula = update.formula
    assert len(formula.results) == 1 + len(update.states)
    scalars = update.scalars(0.1, 3)
    assert len(scalars) == len(formula.scalars)
    assert all(isinstance(scalar, float) for scalar in scalars)
    assert (update.scalars(0.1, 1) != update.scalars(0.1, 2)) == update.counts
    assert replace(update, weight_decay=0.0).formula == replace(update, lr=7.0).formula == formula


@every
def test_l1_is_added_to_the_gradient(update: Update):
    """Where a weight is 0 it has no sign; where the factor is 0 a weight that is not finite adds nothing."""
    own = update if update.penalised else replace(update, l1=0.25)
    assert own.step.arrays == own.formula.arrays
    w, g = np.array([2.0, -3.0, 0.0, np.inf]), np.array([1.0, 1.0, 1.0, 1.0])
    scalars = own.scalars(0.1, 3)
    for penalty in (0.25, 0.0):
        states, others = ([np.full(4, 0.5) for _ in own.states] for _ in range(2))
        step = machines.numpy(own.step, w, g, states, (*scalars, penalty))
        expected = machines.numpy(own.formula, w, g + penalty * np.array([1, -1, 0, 1]), others, scalars)
        np.testing.assert_array_equal(step, expected)
        np.testing.assert_array_equal(states, others)


@every
def test_it_descends(update: Update):
    own = {"adagrad": {"lr": 0.3}, "muon": {"fallback": AdamW(lr=0.004)}}.get(update.name, {})
    w = trained(replace(update, **{"lr": 0.004, **own}), steps=600)
    assert np.abs(gradient(w)).mean() < 0.5 * np.abs(gradient(start())).mean()


@every
def test_states_of_a_weight_without_gradient_end_at_zero_not_in_denormals(update: Update):
    w, still = np.zeros(1, "float32"), replace(update, weight_decay=0.0)
    states = [np.full(1, 1e-29, "float32") for _ in update.states]
    for count in range(1, 60):
        machines.numpy(still.step, w, np.zeros(1, "float32"), states, scalars_of(still, 0.1, count))
        for state in states:
            assert state == 0 or abs(state) >= np.finfo("float32").tiny
