"""Every optimiser in a run: resumed it is the same run; learners count their own updates; how they are averaged."""

from dataclasses import replace

import numpy as np
import pytest

from mpibow import batch_norm, dense, flatten, relu
from mpibow.comm import Single
from mpibow.cuda.room import find
from mpibow.graph import Tensor
from mpibow.optim import UPDATES, AdamW, Sgd
from mpibow.run import checkpoint
from mpibow.run.checkpoint import read_arrays
from mpibow.run.session import Session
from mpibow.sync import Family
from mpibow.sync.family import Outer
from tests.refusals import refuses
from tests.run import tiny
from tests.run.test_resume import AT_END, check_resumed, point

RATE = {"lr": 0.01, "weight_decay": 0.02, "schedule": {"name": "exponential", "factor": 0.5}}
# With scalars that depend on how many updates an optimiser's states have had, or samples seen, where it has some.
EVERY = {
    **{name: {"name": name, **RATE} for name in UPDATES},
    "sgd, half-life": {"name": "sgd", "momentum": 0.9, "half_life": 30},
    "amsgrad": {"name": "adam", "amsgrad": True, "half_life": [None, 200]},
    "rmsprop with all": {"name": "rmsprop", "centered": True, "momentum": 0.5, "half_life": 60},
    "half-lives": {"name": "adamw", **RATE, "half_life": [20, 200]},
    "l1": {"name": "adamw", "lr": 0.01, "l1": 0.01, "groups": [{"match": "*.bias", "l1": 0.1}]},
    "adagrad, falling": {"name": "adagrad", "lr": 0.05, "lr_decay": 0.1, "initial_accumulator_value": 0.1},
    "muon": {"name": "muon", **RATE, "largest_share": 1000, "fallback": {"name": "adam", "half_life": [None, 200]}},
}
every = pytest.mark.parametrize("update", EVERY.values(), ids=EVERY.keys())


TAKEN = {"weights", "statistics", "tally", "pending", "squares", "scale", "updates", "seen"}  # names of other arrays


def hidden(image: Tensor) -> Tensor:
    """With a matrix that is neither the first nor the last: Muon's."""
    x = relu(batch_norm(dense(flatten(image), 12, bias=False)))
    return dense(relu(dense(x, 8)), tiny.CLASSES)


@every
def test_a_run_that_is_resumed_is_the_same_run(tmp_path, update):
    """All states, and what its scalars count: two ranks' learners, of which some have come later."""

    def change(session: Session) -> None:
        if session.iteration == 3 and session.counts == (1, 1):
            session.coordinator.announce(3, (2, 2))

    rule = {"name": "ssgd" if update["name"] == "adam" else "sma"}
    check_resumed(tmp_path, 4, 9, ranks=2, end=16, before=change, net=hidden, update=update, rule=rule, learners=1)


@every
@tiny.rules("auto", "ssgd")
def test_four_learners_are_the_same_on_two_ranks(tmp_path, rule, update):
    tiny.spread(tmp_path, within=1e-9, rule=rule, update=update, iterations=16)


def test_a_learner_counts_its_own_updates(tmp_path):
    """One from the start, one from the change on, one that was reset; a checkpoint has them."""
    update = {"name": "adamw"}

    def change(session: Session) -> None:
        tiny.announcing({3: (3,)})(session)
        if session.iteration == 9:
            assert session.replicas.updates[0] == 9
            assert session.replicas.updates[1] == session.replicas.updates[2] < 6
            session.settle()
            session.engine.reset(2)
        if session.iteration == 12:
            session.save()

    tiny.watch(tmp_path, update=update, iterations=16, learners=1, checkpoint=AT_END, before=change)
    found = read_arrays(point(tmp_path, 12), "rank-0")["updates"]
    assert found.dtype == np.int64
    assert (found[0], found[2]) == (12, 3)
    assert 3 < found[1] < 9


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_every_replica_of_ssgd_counts_alike(tmp_path, name):
    """And what its states have seen are the samples of the run, by which a half-life goes."""
    rule = {"name": "ssgd"}
    update = {"name": name, "half_life": [None, 100]}
    work = tiny.job(tmp_path, update=update, rule=rule, iterations=16, learners=1, checkpoint=AT_END)
    tiny.replay(work, before=tiny.announcing({3: (3,)}))
    found = read_arrays(point(tmp_path, 16), "rank-0")
    position = checkpoint.read_header(point(tmp_path, 16))["position"]
    assert found["updates"].tolist() == [16, 16, 16]
    assert found["seen"].tolist() == [position] * 3
    assert 16 * 3 < position < 16 * 9


def test_half_lives_of_ssgd_are_of_all_learners_samples(tmp_path):
    """Before and after the learners change."""
    betas = list[tuple[int, float]]()

    def change(session: Session) -> None:
        tiny.announcing({3: (3,)})(session)
        local = session.prepare()
        scalars = dict(zip(local.formula.scalars, local.scalars[0, 0].tolist(), strict=True))
        betas.append((sum(session.counts), scalars["beta2"]))

    work = tiny.job(
        tmp_path, update={"name": "adam", "half_life": [None, 100]}, rule={"name": "ssgd"}, iterations=16, learners=1
    )
    tiny.replay(work, before=change)
    assert {k for k, _ in betas} == {1, 3}
    for k, beta in betas:
        assert beta == pytest.approx(0.5 ** (3 * k / 100))


def test_sgd_counts_nothing(tmp_path):
    tiny.train(tmp_path, iterations=16, checkpoint=AT_END)
    assert set(read_arrays(point(tmp_path, 16), "rank-0")) == {"weights", "momenta", "statistics", "tally"}


@every
def test_states_are_called_as_no_other_array(tmp_path, update):
    states = tiny.job(tmp_path, update=update).config.update.states
    assert len(set(states)) == len(states)
    assert not TAKEN & set(states)


MUON = {"name": "muon", "largest_share": 1000}


@pytest.mark.parametrize(
    ("before", "later", "states", "updates"),
    [
        ({"momentum": 0.9}, {"name": "adam"}, "exp_avg, exp_avg_sq of adam", [4]),
        ({"name": "adagrad"}, {"name": "adagrad", "lr_decay": 0.1}, "sum of adagrad", [4]),
        (MUON, {**MUON, "fallback": {"name": "lion"}}, "matrix_momenta, exp_avg of muon", []),
    ],
)
def test_another_optimisers_states_begin_at_0(tmp_path, capsys, before, later, states, updates):
    """Also of one that counts updates where it did not."""
    settings = {"checkpoint": AT_END, "rule": {"name": "sma", "outer": {"gain": 1}}, "net": hidden}
    tiny.train(tmp_path, update=before, iterations=16, **settings)
    tiny.train(tmp_path, update=later, iterations=20, resume=point(tmp_path, 16), **settings)
    assert [*read_arrays(point(tmp_path, 20), "rank-0").get("updates", [])] == updates  # Lion counts none
    assert f"update: the checkpoint has no {states}: they begin at 0" in capsys.readouterr().err


def test_which_rule_goes_with_which_step(tmp_path, capsys):
    """A gain was measured with SGD."""
    assert Family().going_with(Sgd()) == Family()
    assert Family().going_with(AdamW()) == Family(outer=Outer(gain=1.0))
    for given in (
        Family(outer=Outer(gain=2.0)),
        Family(name="crossbow"),
        Family(name="ssgd"),
    ):
        assert given.going_with(AdamW()) == given
    told = "rule: a gain was measured with sgd only; with lion the gain is 1"
    tiny.train(tmp_path / "lion", update={"name": "lion"}, learners=2, iterations=16)
    assert told in capsys.readouterr().err
    gains = [line["gain"] for line in tiny.events(tmp_path / "lion/run", "train")]
    assert set(gains) == {1.0}
    tiny.train(tmp_path / "sgd", learners=2, iterations=16)
    assert "a gain was" not in capsys.readouterr().err


class ManyStates(Sgd):
    """SGD that says it keeps five arrays."""

    @property
    def states(self) -> tuple[str, ...]:
        return tuple("abcde")


def test_a_step_of_many_states_is_no_gpus(tmp_path):
    config = replace(tiny.job(tmp_path).config, update=ManyStates(), device="cuda")
    with refuses("device cuda: update: a GPU takes steps of at most 4 states, got 5; set device to auto"):
        find(config, Single())
    assert find(replace(config, device="auto"), Single())[0] is None
