"""The same numbers however learners are spread over ranks, the same bits however a run goes on its way."""

from dataclasses import replace

import numpy as np
import pytest

from mpibow.models.augmentation import Augmentation, ColourJitter
from tests.run import tiny
from tests.run.test_resume import AUGMENTED

RULES = pytest.mark.parametrize("rule", tiny.RULES.values(), ids=tiny.RULES.keys())


@RULES
def test_four_learners_give_the_same_centre_on_any_number_of_ranks(tmp_path, rule):
    tiny.spread(tmp_path, (1, 2, 4), rule=rule)


OPTIONS = {
    "dropout": {"net": tiny.dropping},
    "places": {"augmentation": Augmentation(pad=1, flip=True)},
    "cutout": {"augmentation": Augmentation(cutout=3)},
    "jitter": {"augmentation": Augmentation(jitter=ColourJitter(contrast=0.5))},
    "all": {"augmentation": replace(AUGMENTED, crop=None)},
    "a mean image": {"normalise": "pixel"},
    "all, on a mean image": {"augmentation": replace(AUGMENTED, crop=None), "normalise": "pixel"},
    "mixup": {"augmentation": Augmentation(mixup=0.4)},
    "smoothing": {"loss": {"label_smoothing": 0.3}},
    "ignore": {"loss": {"ignore_index": 2}},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_changes_what_is_learnt_and_not_with_ranks(tmp_path, option):
    without = tiny.train(tmp_path / "without", learners=4).weights
    assert tiny.distance(without, tiny.spread(tmp_path, **OPTIONS[option])) > 1e-3


@tiny.rules("auto", "crossbow", "ssgd")
def test_batch_norm_does_not_depend_on_ranks(tmp_path, rule):
    """Its running statistics belong to the learners, the centre's are their mean."""
    one, two, uneven = (
        tiny.train(tmp_path / str(learners), ranks, net=tiny.normed, rule=rule, learners=learners)
        for learners, ranks in ((4, 1), (2, 2), ([1, 3], 2))
    )
    assert "batch_norm1.variance" in one.weights
    for other in (two, uneven):
        assert tiny.distance(other.weights, one.weights) < 1e-10
        assert other.summary.accuracy == one.summary.accuracy
        assert other.summary.test_loss == pytest.approx(one.summary.test_loss, rel=1e-9)
    assert uneven.summary.learners == (1, 3)


def test_rules_do_differ(tmp_path):
    found = [tiny.train(tmp_path / n, rule=rule, learners=3).weights for n, rule in tiny.RULES.items()]
    assert not any(tiny.same_bits(a, b) for i, a in enumerate(found) for b in found[:i])


@tiny.rules("auto", "crossbow-3", "number-3", "nesterov-3", "slowmo", "diloco", "then", "ssgd", "independent")
def test_another_run_has_the_same_bits_overlapped_or_not(tmp_path, rule):
    one, again, apart = (
        tiny.train(
            tmp_path / name, 2, net=tiny.normed, rule=rule, learners=2, precision="float32", overlap=name != "apart"
        ).weights
        for name in ("one", "again", "apart")
    )
    assert tiny.same_bits(one, again)
    assert tiny.same_bits(one, apart)


def test_another_seed_is_another_run(tmp_path):
    one, two = (tiny.train(tmp_path / str(seed), seed=seed) for seed in (1, 2))
    assert not tiny.same_bits(one.weights, two.weights)


@tiny.rules("auto", "crossbow-3", "ssgd")
def test_looking_changes_no_bit(tmp_path, rule):
    """Evaluation, checkpoints and metrics only read."""

    def seen(name: str, **settings) -> dict:
        work = tiny.job(tmp_path / name, rule=rule, learners=2, net=tiny.normed, **settings)
        return tiny.run(work, 2).weights

    quiet = seen("quiet", evaluate={"every": 1000}, log={"every": 1000})
    assert tiny.same_bits(quiet, seen("evaluated", evaluate={"every": 0.1}))
    assert tiny.same_bits(quiet, seen("saved", checkpoint={"every": "1 iteration"}))
    assert tiny.same_bits(quiet, seen("saved-less", checkpoint={"every": "7 iterations", "keep": 1, "best": False}))
    assert tiny.same_bits(quiet, seen("measured", log={"every": 1}))
    assert len(list((tmp_path / "saved-less/run/checkpoints").glob("iteration-*"))) == 1
    assert len(tiny.events(tmp_path / "saved/run", "checkpoint")) >= 40
    assert len(tiny.events(tmp_path / "evaluated/run", "evaluate")) > 35


def test_prefetch_changes_no_bit(tmp_path):
    few, many = (tiny.train(tmp_path / str(n), 2, prefetch=n, learners=2).weights for n in (1, 9))
    assert tiny.same_bits(few, many)


def test_a_drop_of_the_rate_restarts_the_averaging(tmp_path):
    drop = {"lr": 0.05, "momentum": 0.9, "schedule": {"name": "multistep", "epochs": [2], "factor": 0.5}}

    def seen(name: str, restart) -> dict:
        rule = {"name": "crossbow", "restart": restart}
        return tiny.train(tmp_path / name, 2, rule=rule, learners=2, update=drop).weights

    auto, never, at = seen("auto", "auto"), seen("never", "never"), seen("at", [2.0])
    assert tiny.same_bits(auto, at)
    assert not tiny.same_bits(auto, never)


def test_a_smooth_schedule_never_restarts(tmp_path):
    smooth = {"lr": 0.05, "schedule": {"name": "cosine", "epochs": 6}, "warmup": {"epochs": 1}}
    auto, never = (
        tiny.train(tmp_path / restart, rule={"name": "crossbow", "restart": restart}, learners=2, update=smooth)
        for restart in ("auto", "never")
    )
    assert tiny.same_bits(auto.weights, never.weights)


# Learners that come and go

CHANGES = {5: (3, 1), 12: (1, 1), 13: (2, 4), 30: (2, 2)}


@tiny.rules("auto", "crossbow-3", "nesterov-3", "ssgd")
@pytest.mark.parametrize("prefetch", [1, 4])
def test_learners_come_and_go(tmp_path, rule, prefetch):
    def seen(name: str) -> list[tiny.Replay]:
        work = tiny.job(tmp_path / name, rule=rule, learners=2, prefetch=prefetch, net=tiny.normed)
        return tiny.replay(work, 2, before=tiny.announcing(CHANGES))

    ranks, again = seen("a"), seen("b")
    assert ranks[0].centres == again[0].centres
    per_rank = [[len(slots) for slots in rank.samples] for rank in ranks]
    at = [iteration + prefetch + 1 for iteration in CHANGES]
    expected = np.repeat([(2, 2), (3, 1), (1, 1), (2, 4), (2, 2)], np.diff([0, *at, 40]), axis=0)
    assert per_rank == expected.T.tolist()
    tiny.check_stream(ranks)


def test_a_change_of_learners_does_not_depend_on_ranks(tmp_path):
    # Without momenta: a new learner has none, and which ones are new depends on the ranks.
    rule = {"name": "sma", "reset_momentum": True}
    one = tiny.watch(tmp_path / "1", rule=rule, learners=4, before=tiny.announcing({10: (6,)}))
    two = tiny.watch(tmp_path / "2", 2, rule=rule, learners=2, before=tiny.announcing({10: (1, 5)}))
    assert tiny.distance(two[0].weights, one[0].weights) < 1e-10


@tiny.rules("auto", "independent")
def test_looking_changes_no_bit_of_learners_that_come_later(tmp_path, rule):
    seen, unseen = (
        tiny.watch(tmp_path / str(every), rule=rule, evaluate={"every": every}, before=tiny.announcing({10: (3,)}))
        for every in (0.1, 1000)
    )
    assert tiny.same_bits(seen[0].weights, unseen[0].weights)
