"""Groups of weights in a run: frozen, with their own rate or weight decay, by the patterns of their names."""

from pathlib import Path

import numpy as np
import pytest

from mpibow import batch_norm, dense, detach, flatten
from mpibow.comm import Communicator
from mpibow.data import Array
from mpibow.errors import ConfigError
from mpibow.graph import Tensor, initial_weights
from mpibow.learn.local import arrays_of, kept_of
from mpibow.optim import AdamW
from mpibow.run.changing import frozen_lines
from mpibow.run.checkpoint import read_arrays
from mpibow.run.describe import describe_job
from mpibow.run.session import Session
from tests.comm.threads import on_threads
from tests.refusals import refuses
from tests.run import tiny
from tests.run.test_resume import check_resumed, point


def groups(*found: dict, **update) -> dict:
    """Settings of a short run, by SGD with momentum unless told otherwise."""
    default = {} if "name" in update else {"momentum": 0.9}
    return {"update": {"lr": 0.05, **default, **update, "groups": list(found)}, "iterations": 16}


def begun(work: tiny.Job) -> dict[str, Array]:
    """The weights that a run begins with."""
    return work.layout.unpacked(initial_weights(work.layout, work.config.seed, "float64"))


def names(folder: Path) -> list[str]:
    return [span.name for span in tiny.job(folder).layout.spans]


def test_a_scaled_rate_is_another_rate(tmp_path):
    """All weights in a group of twice the rate."""
    whole = tiny.train(tmp_path / "group", **groups({"match": "*", "lr_scale": 2.0})).weights
    other = tiny.train(tmp_path / "rate", **groups(lr=0.1)).weights
    assert tiny.distance(whole, other) < 1e-12


def test_a_group_decays_by_itself(tmp_path):
    alike = tiny.train(tmp_path / "all", **groups(weight_decay=0.1, decay_biases=True)).weights
    group = tiny.train(tmp_path / "group", **groups({"match": "*", "weight_decay": 0.1})).weights
    assert tiny.distance(alike, group) < 1e-12


def test_a_pattern_that_matches_nothing(tmp_path):
    with pytest.raises(
        ConfigError, match=r"^update\.groups\[0\]\.match: must match a weight's name, got 'conv9\.\*'; "
    ):
        tiny.job(tmp_path, **groups({"match": "conv9.*", "freeze": True}))


def test_what_is_no_group(tmp_path):
    with pytest.raises(ConfigError) as caught:
        tiny.job(tmp_path, **groups({"match": "*", "lr_scale": 0}, {"freeze": True}))
    assert str(caught.value).splitlines() == [
        "update.groups[0].lr_scale: must be a number above 0, got 0",
        "update.groups[1].match: is required, a string that is not empty",
    ]


def test_frozen_batch_norms_keep_their_running_statistics(tmp_path):
    """Bit for bit with three learners, too; and with them the layer below is as frozen."""
    work = tiny.job(tmp_path, net=tiny.normed, learners=3, **groups({"match": "batch_norm1.*", "freeze": True}))
    trained = tiny.run(work).weights
    plan = work.training_plan()
    statistics = plan.statistics.unpacked(initial_weights(plan.statistics, work.config.seed, "float64"))
    for name, first in statistics.items():
        np.testing.assert_array_equal(trained[name], first)
    assert (trained["dense1.weight"] != begun(work)["dense1.weight"]).any()


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_a_resume_freezes_is_the_centres(tmp_path, ranks):
    settings = {"net": tiny.normed, "learners": 3, "checkpoint": tiny.keeping(8)}
    centre = tiny.train(tmp_path, ranks, iterations=8, **settings).weights
    frozen = ({"match": match, "freeze": True} for match in ("dense1.*", "batch_norm1.*"))
    work = tiny.job(tmp_path, **settings, **groups(*frozen))

    def body(comm: Communicator) -> None:
        with Session(work, comm, "auto") as session:
            for row in range(3):
                found = session.plan.unpacked(session.replicas.row(row)[0], session.replicas.statistics[row])
                moved = [name for name in centre if (found[name] != centre[name]).any()]
                assert moved == ["dense2.weight", "dense2.bias"]

    on_threads(ranks, body)


def test_frozen_weights_do_not_count_in_clip_norm(tmp_path):
    """One learner whose last bias alone is trained, by gradients of length 1e-3: all of that is its own."""
    *frozen, last = names(tmp_path)
    settings = groups(*({"match": name, "freeze": True} for name in frozen), lr=1.0, momentum=0.0, clip_norm=1e-3)
    work = tiny.job(tmp_path, **{**settings, "iterations": 1})
    moved = tiny.run(work).weights[last] - begun(work)[last]
    assert np.linalg.norm(moved) == pytest.approx(1e-3)


@pytest.mark.parametrize("name", ["adagrad", "adam", "adamw", "lion", "muon", "rmsprop", "sgd"])
def test_weights_that_no_loss_depends_on_take_no_step(tmp_path, name: str):
    """As in PyTorch, whose gradient is None there; a norm of theirs follows the data all the same."""

    def net(image: Tensor) -> Tensor:
        batch_norm(dense(flatten(image), 7, name="a"), name="b")
        return tiny.plain(image) + detach(dense(flatten(image), 3, name="c"))

    settings = groups({"match": "*", "weight_decay": 0.2, "l1": 0.1}, name=name, decay_biases=True)
    work = tiny.job(tmp_path, net=net, learners=3, **settings)
    trained, before = tiny.run(work).weights, begun(work)
    for each, array in before.items():
        assert np.allclose(trained[each], array, rtol=1e-12) == (each[0] in "abc"), each
    assert trained["b.mean"].any()
    assert "frozen, as no loss depends on them: 384 weights (a.weight, " in (tmp_path / "run/log.txt").read_text()
    assert [span.name for span in work.matrices.spans] == []


def test_not_all_weights_are_frozen(tmp_path):
    with refuses("update.groups: freeze all weights; leave some to be trained"):
        tiny.job(tmp_path, **groups({"match": "*", "freeze": True}))


@pytest.mark.parametrize(
    ("rule", "update"),
    [
        *((name, {}) for name in tiny.RULES if name != "ssgd-scaled"),
        *((name, {"name": "adamw"}) for name in ("auto", "crossbow", "ssgd")),
    ],
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_frozen_weights_keep_their_bits(tmp_path, rule, ranks, update):
    """With three learners, whose mean rounds; two ranks have two and one. They are not sent: see the next test."""
    first, *others = names(tmp_path)
    settings = {**groups({"match": first, "freeze": True}, weight_decay=0.1, **update), "rule": rule}
    trained = check_resumed(tmp_path, 8, ranks=ranks, end=16, learners=3 if ranks == 1 else [2, 1], **settings)
    before = begun(tiny.job(tmp_path, **settings))
    np.testing.assert_array_equal(trained[first], before[first])
    assert all((trained[name] != before[name]).any() for name in others)


def test_what_is_frozen_is_not_sent(tmp_path):
    work = tiny.job(tmp_path, learners=2, **groups({"match": names(tmp_path)[0], "freeze": True}))

    def body(comm: Communicator) -> list[int]:
        with Session(work, comm) as session:
            return [session.engine.centre.size, session.engine.shared()[0].size, session.plan.layout.size]

    for trained, shared, whole in on_threads(2, body):
        assert trained == shared == work.trained() < whole


# 57 samples an epoch; of 2 x 3 an iteration, 10 iterations are past the first epoch
THAWED = {"match": "dense1.*", "freeze": {"epochs": 1}}


@pytest.mark.parametrize("rule", [name for name in tiny.RULES if name not in ("ssgd-scaled", "then", "post-local")])
@pytest.mark.parametrize("update", [{}, {"name": "adamw"}], ids=["sgd", "adamw"])
def test_weights_are_trained_from_an_epoch_on(tmp_path, rule, update):
    """And a run that is resumed on either side of that epoch, or at it, has the same bits."""
    settings = {**groups(THAWED, **update), "rule": rule, "learners": 2}
    check_resumed(tmp_path, 8, 10, 12, end=16, **settings)
    before = begun(tiny.job(tmp_path, **settings))
    for iteration in (8, 10, 12):
        centre = read_arrays(point(tmp_path / "whole", iteration), "centre")
        frozen = [(centre[name] == before[name]).all() for name in ("dense1.weight", "dense1.bias")]
        assert frozen == [iteration <= 10] * 2, iteration  # the eleventh is the first one that begins behind epoch 1
    told = "weights (dense1.weight, dense1.bias) are trained from here on"
    assert told in (tmp_path / "whole/run/log.txt").read_text()


@tiny.rules("auto", "crossbow-3", "ssgd")
def test_ranks_begin_to_train_them_at_the_same_iteration(tmp_path, rule):
    tiny.spread(tmp_path, within=1e-12, rule=rule, **groups(THAWED))


def test_states_begin_at_0_where_weights_begin_to_be_trained(tmp_path):
    """Counts too: of AdamW's two parts the first has had all updates, the second those since."""
    tiny.train(tmp_path, learners=2, checkpoint=tiny.keeping(2), **groups(THAWED, name="adamw"))
    counts = {n: read_arrays(point(tmp_path, n), "rank-0")["updates"].tolist() for n in (10, 16)}
    assert counts == {10: [[10, 0]] * 2, 16: [[16, 6]] * 2}


def test_a_batch_norm_begins_to_follow_the_data(tmp_path):
    settings = groups({"match": "batch_norm1.*", "freeze": {"epochs": 1}})
    tiny.train(tmp_path, net=tiny.normed, learners=2, checkpoint=tiny.keeping(2), **settings)
    first, last, next_one = (read_arrays(point(tmp_path, n), "centre")["batch_norm1.mean"] for n in (2, 10, 12))
    assert (first == last).all()
    assert (last != next_one).any()


def test_what_is_frozen_is_said(tmp_path):
    work = tiny.job(tmp_path, **groups({"match": "dense1.weight", "freeze": True}, THAWED))
    lines = ["frozen until epoch 1: 12 weights (dense1.bias)", "frozen: 432 weights (dense1.weight)"]
    assert frozen_lines(work, 0.0) == lines
    assert frozen_lines(work, 1.0) == lines[1:]
    tiny.run(work)
    log = (tmp_path / "run/log.txt").read_text()
    assert all(line in log for line in lines)
    assert all(line in describe_job(work, (1,), [1 << 30]) for line in lines)


def test_compiled_passes_train_them_from_an_epoch_on(tmp_path):
    pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    settings = {**groups(THAWED), "learners": 3, "precision": "float32"}
    compiled = check_resumed(tmp_path, 6, 9, end=16, device="auto", **settings)
    numpy = tiny.train(tmp_path / "numpy", device="numpy", **settings).weights
    assert tiny.distance(compiled, numpy) < 1e-4


def test_no_rule_takes_over_where_weights_are_frozen_until_an_epoch(tmp_path):
    said = r"^rule.then: must be null where weights are frozen until an epoch, got a rule$"
    with pytest.raises(ConfigError, match=said):
        tiny.train(tmp_path, rule="then", **groups(THAWED))


HEAD = {"match": "dense2.*", "update": {"name": "adamw", "lr": 0.01}}


@tiny.rules("auto", "crossbow-3", "ssgd", "independent")
def test_a_group_has_an_optimiser_of_its_own(tmp_path, rule):
    """Resumed the run has the same bits; a checkpoint has the states of both."""
    check_resumed(tmp_path, 8, end=16, learners=2, rule=rule, **groups(HEAD))
    assert {"momenta", "exp_avg", "exp_avg_sq"} <= read_arrays(point(tmp_path / "whole", 16), "rank-0").keys()


@tiny.rules("auto", "crossbow", "ssgd")
def test_optimisers_of_groups_on_two_ranks(tmp_path, rule):
    """Some weights of either optimiser are frozen at first."""
    head = {"match": "dense2.weight", "update": {"name": "adamw", "lr": 0.01}, "freeze": {"epochs": 1}}
    tiny.spread(tmp_path, within=1e-9, rule=rule, **groups(THAWED, head, HEAD))


def test_all_weights_in_a_group_of_another_optimiser(tmp_path):
    """Are a run of that optimiser, whatever the default's rate is."""
    own = {"name": "adamw", "lr": 0.01, "weight_decay": 0.1}
    group = tiny.train(tmp_path / "group", learners=2, **groups({"match": "*", "update": own}, lr=0.5))
    whole = tiny.train(tmp_path / "alone", learners=2, update=own, iterations=16)
    assert tiny.distance(group.weights, whole.weights) < 1e-9


def test_states_are_kept_of_the_weights_of_an_optimiser_alone(tmp_path):
    work = tiny.job(tmp_path, **groups(HEAD, {"match": "dense1.bias", "freeze": True}))
    layout, sizes = work.layout, {span.name: span.size for span in work.layout.spans}
    kept = kept_of(work.config.update, layout, work.trained())
    found = [(part.states, part.counts) for part in kept]
    assert found == [(("momenta",), False), (("exp_avg", "exp_avg_sq"), True), ((), False)]
    assert [stop - start >= size for (start, stop), size in zip(
        layout.parts, (sizes["dense1.weight"], sizes["dense2.weight"] + sizes["dense2.bias"], sizes["dense1.bias"]),
        strict=True,
    )] == [True] * 3  # fmt: skip
    assert arrays_of(kept, layout) < 2


def test_the_rule_goes_with_the_optimisers_of_groups(tmp_path):
    work = tiny.job(tmp_path, **groups(HEAD))
    assert work.config.averaging == work.config.rule.going_with(AdamW()) != work.config.rule
    tiny.run(work)
    assert "with adamw the gain is 1" in (tmp_path / "run/log.txt").read_text()


@pytest.mark.parametrize(
    ("own", "text"),
    [
        (
            {"name": "adamw", "clip_norm": 1.0},
            "update.groups[0].update: has no schedule, warmup, clipping, groups or decay_biases of its own; "
            "set them beside groups",
        ),
        ({"name": "muon"}, "update.groups[0].update.name: must be one of adagrad, adam, adamw, lion, rmsprop, sgd, "
                           "got 'muon'"),
    ],
)  # fmt: skip
def test_what_an_optimiser_of_a_group_may_not_be(tmp_path, own, text):
    with refuses(text):
        tiny.job(tmp_path, **groups({"match": "*.bias", "update": own}))


@pytest.mark.parametrize("later", [[HEAD, THAWED], [{**HEAD, "match": "dense1.*"}]])
def test_other_optimisers_of_groups_begin_anew(tmp_path, later: list[dict]):
    """A checkpoint's counts are of other parts, or of other weights."""
    tiny.train(tmp_path, checkpoint=tiny.keeping(8), **groups(HEAD))
    tiny.train(tmp_path, resume=tmp_path / "run", **{**groups(*later), "iterations": 20})
    assert "momenta, exp_avg, exp_avg_sq" in (tmp_path / "run/log.txt").read_text()
