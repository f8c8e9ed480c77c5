"""The example of an own rule: it does what every rule must, trains on two ranks, and resumes; what is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import mpibow as mb
from examples.own_rule import Average
from mpibow.config import load_mapping
from mpibow.formulas.functions import where
from mpibow.sync import PRESETS, Engine, Family, RuleNumbers, RuleState
from mpibow.sync.family import Independent
from mpibow.sync.gain import Averages
from mpibow.testing import check_rule
from tests.refusals import refuses
from tests.run import tiny


@dataclass(frozen=True)
class Lagging(mb.Rule):
    """Elastic averaging with momentum of the centre, whose exchange is hidden; its step is held to a length."""

    name: str = "lagging"
    kept: ClassVar = {"velocity": "steps"}
    alpha: float = 0.4
    longest: float = 1.0

    @staticmethod
    def send(w, u, centre, *, alpha: float, turn: int) -> tuple:
        pulled = where(turn == 0, w - alpha * (w - centre), w)
        return pulled + u, u

    @staticmethod
    def apply(centre, velocity, total, *, share: float, norm: float, longest: float) -> tuple:
        velocity = 0.5 * velocity + where(norm > longest, 0.5, 1) * share * total
        return centre + velocity, velocity


@pytest.mark.parametrize("period", [1, 4])
@pytest.mark.parametrize("rule", [Average, Lagging])
def test_own_rules_do_what_every_rule_must(rule: type[mb.Rule], period):
    check_rule(rule(period=period))


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "post_local_sgd"])
def test_so_do_the_rules_by_name(name):
    check_rule(Family(name=name))
    check_rule(Family(name=name, period=1 if name == "ssgd" else 3))


def test_and_learners_that_are_never_averaged():
    check_rule(Independent(period=3))


def test_averaging_weights_is_local_sgd(tmp_path):
    own, local = (
        tiny.run(tiny.job(tmp_path / rule.name, rule=rule, learners=2, net=tiny.dropping), 2).weights
        for rule in (Average(period=4), Family(name="local_sgd", period=4))
    )
    assert tiny.distance(own, local) < 1e-12


def forgetful(engine: Engine) -> RuleState:
    return RuleState({}, {}, RuleNumbers(0, 1.0, Averages(), False, 0.0, 0.0))


def test_a_rule_that_forgets_its_state_is_caught(monkeypatch):
    monkeypatch.setattr(Engine, "state", forgetful)
    with pytest.raises(AssertionError, match="other bits after a resume"):
        check_rule(Average(period=4))


@dataclass(frozen=True)
class Explodes(mb.Rule):
    name: str = "explodes"

    @staticmethod
    def send(w, u) -> tuple:
        return w + u, u

    @staticmethod
    def apply(w, centre, total) -> tuple:
        return w, centre / (total - total)


def test_and_one_whose_centre_is_not_finite():
    with np.errstate(all="ignore"), pytest.raises(AssertionError, match="not finite"):
        check_rule(Explodes())


def one_result(w, u):
    return w + u


def other_names(x, u) -> tuple:
    return x + u, u


def unknown_array(w, u, mean) -> tuple:
    return w + u - mean, u


def unknown_number(w, u, *, beta: float) -> tuple:
    return w + beta * u, u


def no_total(w, centre) -> tuple:
    return w, centre


def too_few(w, centre, total):
    return centre + total


NUMBERS = "gain, k, norm, period, rate, share, strength, turn"


@pytest.mark.parametrize(
    ("half", "function", "message"),
    [
        ("send", one_result, "send: gives 1 result(s) for w and the summand"),
        ("send", other_names, "send: must begin with w, u, got x, u"),
        ("send", unknown_array, "send: no array is called mean; there are centre"),
        ("send", unknown_number, f"send: no number is called beta; there are {NUMBERS}"),
        ("apply", no_total, "apply: must end with total, got w, centre; numbers follow a *"),
        ("apply", too_few, "apply: gives 1 result(s) for w, centre"),
    ],
)
def test_formulas_that_are_not_a_rules_are_refused(half, function, message):
    other = dataclass(frozen=True)(type("Other", (Average,), {half: staticmethod(function), "__annotations__": {}}))
    with refuses(f"rule average: {message}"):
        other()


@dataclass(frozen=True)
class Damped(Lagging):
    """Its exchange is hidden, and every step depends on the norm and the gain at the exchange before."""

    name: str = "damped"

    @staticmethod
    def apply(centre, velocity, total, *, share: float, norm: float, gain: float) -> tuple:
        velocity = 0.5 * velocity + share * total / (1 + norm) * gain
        return centre + velocity, velocity


def test_numbers_of_a_hidden_exchange_are_those_of_the_one_before(tmp_path):
    """Also behind a resume, which has made the passes that another run makes later."""
    check_rule(Damped())
    settings = {"rule": Damped(), "learners": 2, "checkpoint": {"every": "5 iterations", "keep": 9}}
    whole = tiny.run(tiny.job(tmp_path, **settings), 2)
    resumed = tiny.run(tiny.job(tmp_path, **settings), 2, resume=tmp_path / "run/checkpoints/iteration-0000000015")
    assert tiny.same_bits(resumed.weights, whole.weights)


def test_a_field_that_hides_a_number_of_all_rules_is_refused():
    @dataclass(frozen=True)
    class Hides(Average):
        rate: float = 0.5

    with refuses("rule average: rate: is a number that every rule has; give the field another name"):
        Hides()
    with refuses("rule damped: gain: is measured at period 1, got period 2"):
        Damped(period=2)


def test_a_rule_without_a_half_or_a_name_is_refused():
    @dataclass(frozen=True)
    class Nameless(mb.Rule):
        pass

    @dataclass(frozen=True)
    class Deaf(mb.Rule):
        name: str = "deaf"
        send = staticmethod(Average.send)

    with refuses("rule Nameless: name: must not be empty; give the class one, as name: str = 'average'"):
        Nameless()
    with refuses("rule deaf: apply: is missing; write it as a static method"):
        Deaf()


def test_a_resumed_run_has_the_same_bits(tmp_path):
    for rule in (Average(period=4), Lagging(period=4)):
        settings = {"rule": rule, "learners": 2, "checkpoint": {"every": "5 iterations", "keep": 9}}
        whole = tiny.run(tiny.job(tmp_path / rule.name, **settings), 2)
        point = tmp_path / rule.name / "run/checkpoints/iteration-0000000015"
        resumed = tiny.run(tiny.job(tmp_path / rule.name, **settings), 2, resume=point)
        assert tiny.same_bits(resumed.weights, whole.weights)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"period": 0}, "rule.period: must be an integer of at least 1, got 0"),
        ({"period": 2.5}, "rule.period: must be an integer of at least 1, got 2.5"),
        ({"strength": "x"}, "rule.strength: must be a number, got 'x'"),
    ],
)
def test_a_field_of_another_value_is_refused(settings, message):
    with refuses(message):
        load_mapping({"rule": Average(**settings)}, model_given=True, data_given=True)


def test_fields_of_kinds_that_no_config_has_are_the_programs_own():
    @dataclass(frozen=True)
    class Tabled(Average):
        table: np.ndarray | None = None
        function: Callable = np.sin

    own = Tabled(table=np.ones(3))
    assert load_mapping({"rule": own}, model_given=True, data_given=True).rule is own


def test_a_class_that_is_no_dataclass_is_named_so():
    class Bare(Average):
        name: str = "bare"

    class Faster(Average):  # has no fields of its own
        @staticmethod
        def send(w, u, *, strength: float) -> tuple:
            return w + strength * u, u

    with refuses("rule average: must be a dataclass; write @dataclass(frozen=True)"):
        Bare()
    assert Faster().name == "average"
