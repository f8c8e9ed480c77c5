"""The config of a run: defaults, messages in full, and dump and load as inverses."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from mpibow.config import Config, describe, load, load_mapping
from mpibow.config.course import Checkpoint
from mpibow.config.schema import Data, Evaluate, Model, Stop, Weights
from mpibow.config.yaml_text import parse
from mpibow.data import Image
from mpibow.errors import ConfigError
from mpibow.models.augmentation import Augmentation, ColourJitter
from mpibow.models.losses import CrossEntropyLoss, HuberLoss, PlainLoss
from mpibow.optim import Sgd
from mpibow.optim.plateau import Plateau
from mpibow.optim.schedules import ConstantRate, Cosine, Exponential, Inverse, MultiStep, OneCycle, StepDecay, Warmup
from mpibow.sync import PRESETS, Family
from mpibow.sync.family import Independent, Outer, Then
from mpibow.tune import Tuner
from tests.refusals import refuses

RUN = {"model": {"name": "lenet"}, "data": {"train": "data/mnist/train"}}


def test_model_and_data_are_enough():
    config = load_mapping(RUN)
    assert config == Config(model=Model("lenet"), data=Data("data/mnist/train"))
    assert (config.learners, config.tuner, config.assignment) == ("auto", Tuner(), "fixed")


def test_the_learners_of_another_run():
    assert load_mapping(RUN, ["learners=replay(runs/a)"]).learners == "replay(runs/a)"


def test_a_whole_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("""
model:   {name: resnet32, classes: 10, width: 16}
data:    {train: data/cifar10/train, test: data/cifar10/test}
batch_size: 16                       # per learner; never scaled
learners: [2, 1]
rule:    {name: crossbow, alpha: 0.1, momentum: 0.9, period: 2, restart: [5, 10]}
update:
  lr: 0.1
  momentum: 0.9
  weight_decay: 1e-4
  schedule: {name: multistep, epochs: [80, 120], factor: 0.1}
  warmup: {epochs: 5}
stop:    {epochs: 140, accuracy: 0.88, minutes: null}
checkpoint: {every: 30 minutes}
""")
    assert load(path, ["update.lr=1e-2", "stop.accuracy=null", "seed=7"]) == Config(
        model=Model("resnet32", 10, options={"width": 16}),
        data=Data("data/cifar10/train", "data/cifar10/test"),
        learners=(2, 1),
        rule=Family(name="crossbow", alpha=0.1, momentum=0.9, period=2, restart=(5.0, 10.0)),
        update=Sgd(
            lr=0.01,
            momentum=0.9,
            weight_decay=1e-4,
            schedule=MultiStep((80.0, 120.0), 0.1),
            warmup=Warmup(5.0),
        ),
        stop=Stop(epochs=140.0),
        checkpoint=Checkpoint(every="30 minutes"),
        seed=7,
    )


def test_without_a_file():
    assert load(None, ["model.name=mlp", "data.train=a", "learners=[2,1]", "rule.name=ssgd"]) == Config(
        model=Model("mlp"), data=Data("a"), learners=(2, 1), rule=Family(name="ssgd")
    )


LEARNERS = (
    "learners: must be auto, an integer of at least 1, a list of integers of at least 1 that is not empty or "
    "a string such as replay(runs/NAME), got "
)
NAME = "name: must be a string of letters, digits, . _ - that starts with a letter, a digit or _, got "
EVERY = "checkpoint.every: must be a string such as '1 epoch', '500 iterations' or '30 minutes' or null, got "


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["batchsize=3"], "batchsize: is not a setting; did you mean 'batch_size'?"),
        (["lr=0.1"], "lr: is not a setting; did you mean 'update.lr'?"),
        (["update.lr=-0.1"], "update.lr: must be a number above 0, got -0.1"),
        (
            ["update.name=adamm"],
            "update.name: must be one of adagrad, adam, adamw, lion, muon, rmsprop, sgd, got 'adamm'",
        ),
        (["update.nesterov=true"], "update.nesterov: needs momentum above 0, got momentum 0"),
        (
            ["update.schedule.name=cos"],
            "update.schedule.name: must be one of constant, cosine, cosine_restarts, exponential, inverse, linear, "
            "multistep, one_cycle, plateau, polynomial, step, wsd, got 'cos'",
        ),
        (
            ["data.validation=1"],
            "data.validation: must be a string that is not empty, a number above 0 and below 1 or null, got 1",
        ),
        (["update.schedule={name: step, factor: 0.5}"], "update.schedule.every: is required, a number above 0"),
        (
            ["update.schedule.name=cosine", "stop={epochs: null, minutes: 1}"],
            "update.schedule.epochs: auto is stop.epochs, which is null; give a number",
        ),
        (
            ["rule.momentum=0.5"],
            "rule.momentum: is that of a lagging centre, got 0.5 with replicas pulled; leave it at auto",
        ),
        (
            ["rule={name: post_local_sgd}"],
            "rule.then: post_local_sgd needs the epoch at which learners part, as then: {epoch: 75}",
        ),
        (
            ["rule={then: {epoch: 3, period: 2}}"],
            "rule.then.period: must be 1 with sends gradients, got 2; set sends to steps",
        ),
        (
            ["rule.name=muloco"],
            "rule.name: muloco is diloco with Muon in every learner, got update.name sgd; set "
            "update.name to muon, or rule.name to diloco",
        ),
        (
            ["rule.name=ssgd", "rule.gains=2"],
            "rule.gains: is not a setting of ssgd; it has resync, replicas, alpha, momentum, period, sends, outer, "
            "restart, reset_momentum, then",
        ),
        (["learners=autos"], LEARNERS + "'autos'"),
        (["learners=0"], LEARNERS + "0"),
        (["learners=[auto]"], "learners[0]: must be an integer of at least 1, got 'auto'"),
        (
            ["stop.epochs=null"],
            "stop: one of epochs, accuracy, minutes, iterations, metric must be set, got null for all",
        ),
        (["assignment=free"], "assignment: must be one of fixed, first_come, got 'free'"),
        (["name=.."], NAME + "'..'"),
        (["name=7"], NAME + "7; put it in quotes"),
        (["checkpoint.every=3 weeks"], EVERY + "'3 weeks'"),
        (["model=null"], "model: is required, as model: {name: lenet}"),
        (["data=null"], "data: is required, as data: {train: data/mnist/train}"),
        (["data={test: a}"], "data.train: is required, a string that is not empty"),
        (["data=a"], "data: must be a mapping of settings or null, got 'a'"),
        (
            ["data.augment=[pad4, crop, flip]"],
            "data.augment: must be as {pad: 4, flip: true}, got ['pad4', 'crop', 'flip']",
        ),
        (
            ["data.augment.area=[1, 0.08]"],
            "data.augment.area: must be a list of two numbers that does not fall, got [1.0, 0.08]",
        ),
        (
            ["data.augment.area=[0.08, 1]", "data.augment.aspect=[2, 1]"],
            "data.augment.aspect: must be a list of two numbers that does not fall, got [2.0, 1.0]",
        ),
        (
            ["data.augment.aspect=[1, 1]"],
            "data.augment.aspect: needs area, got [1.0, 1.0] with area null",
        ),
        (
            ["data.image={size: 299, resize: 256}"],
            "data.image.resize: must be at least size, 299, got 256",
        ),
        (["data.normalise=true"], "data.normalise: must be a word: write channel for true"),
        (["data.normalise=false"], "data.normalise: must be a word: write none for false"),
        (
            ["loss=nll_loss"],
            "loss.name: must be one of binary_cross_entropy_with_logits, cross_entropy, huber_loss, l1_loss, "
            "mse_loss, got 'nll_loss'",
        ),
        (["loss={name: mse_loss, delta: 2}"], "loss.delta: is not a setting of mse_loss"),
        (["smoothing=0.1"], "smoothing: is not a setting"),
        (["out=null"], "out: must be a string that is not empty, got null"),
        (
            ["model=null", "learners=all", "seed=x"],
            "model: is required, as model: {name: lenet}\n"
            f"{LEARNERS}'all'\n"
            "seed: must be an integer of at least 0 and below 4294967296, got 'x'",
        ),
    ],
)
def test_what_is_refused(overrides, message):
    with refuses(message):
        load_mapping(RUN, overrides)


def test_a_program_may_give_model_and_data():
    assert load_mapping({}, model_given=True, data_given=True) == Config()
    assert load_mapping({"model": None, "data": {"train": "a"}}, model_given=True) == Config(data=Data("a"))
    assert load_mapping({"rule": Family(name="ssgd"), "data": None}, model_given=True, data_given=True) == Config(
        rule=Family(name="ssgd")
    )
    with pytest.raises(ConfigError) as caught:
        load_mapping(RUN, model_given=True, data_given=True)
    assert str(caught.value).split("\n") == [
        "model: must be null as the program gives its own, got {name: 'lenet'}",
        "data: must be null as the program gives its own, got {train: 'data/mnist/train'}",
    ]


@pytest.mark.parametrize(
    ("every", "interval"),
    [
        (None, None),
        ("1 epoch", (1.0, "epoch")),
        ("0.5 epochs", (0.5, "epoch")),
        ("500 iterations", (500.0, "iteration")),
        ("1 iteration", (1.0, "iteration")),
        ("30  minutes", (30.0, "minute")),
    ],
)
def test_checkpoint_interval(every, interval):
    assert load_mapping({**RUN, "checkpoint": {"every": every}}).checkpoint.interval == interval


def test_limits_that_are_reached():
    stop = Stop(epochs=2.5, accuracy=0.9, minutes=1e-9, iterations=7)
    assert stop.reached(6, 24, 10, accurate=False) == ""
    assert stop.reached(6, 25, 10, accurate=True) == "stop.epochs 2.5"
    assert stop.reached(7, 24, 10, accurate=True) == "stop.iterations 7"
    assert stop.reached(6, 24, 10, accurate=True) == "stop.accuracy 0.9"
    assert Stop(minutes=1.0, epochs=None).reached(10**9, 10**9, 1, accurate=True) == ""
    assert [Stop(minutes=1.5).overdue(seconds) for seconds in (90.0, 90.1)] == ["", "stop.minutes 1.5"]
    assert Stop().overdue(1e9) == ""


def test_an_end_that_can_be_foreseen():
    """At iteration 6, sample 24 of epochs of 10; 4 samples an iteration, 8 a second, 3 seconds so far."""

    def end(**limits):
        return Stop(**{"epochs": None, **limits}).foreseen(6, 24, 10, samples=4, speed=8.0, seconds=3.0)

    assert end(epochs=2.5) == 25
    assert end(iterations=8) == 32
    assert end(minutes=0.1) == 48
    assert end(epochs=9.0, iterations=8, minutes=0.1) == 32
    assert end(accuracy=0.5) is None


def test_checkpoints_that_are_due():
    asked = []

    def due(every, iteration=8, best=False, passed=False, keep_best=True):
        return Checkpoint(every=every, best=keep_best).due(iteration, best, lambda e: asked.append(e) or passed)

    assert [i for i in range(1, 13) if due("4 iterations", i)] == [4, 8, 12]
    assert asked == []
    assert due("1.5 epochs", passed=True)
    assert not due("1.5 epochs")
    assert asked == [1.5, 1.5]
    assert not due("30 minutes", passed=True)  # rank 0's clock tells
    assert [Checkpoint(every="1.5 minutes").overdue(seconds) for seconds in (90.0, 90.1)] == [False, True]
    assert not any(Checkpoint(every=every).overdue(1e9) for every in (None, "1 epoch", "7 iterations"))
    assert due("5 iterations", best=True)
    assert not due("5 iterations", best=True, keep_best=False)
    assert not due(None, best=True, passed=True)


def test_dump_is_whole_and_readable():
    assert (
        load_mapping(RUN, ["model.width=3", "rule.name=ssgd", "learners=[2,1]"]).text
        == """\
name: auto
model: {name: lenet, classes: null, weights: null, sha256: null, width: 3}
data:
  train: data/mnist/train
  test: null
  validation: null
  image: null
  normalise: channel
  augment:
    area: null
    aspect: [0.75, 1.3333333333333333]
    pad: 0
    crop: null
    flip: false
    cutout: null
    jitter: {brightness: 0.0, contrast: 0.0, saturation: 0.0}
    mixup: null
  pipeline: auto
  workers: auto
  on_corrupt: error
  corrupt_limit: 100
  text: null
batch_size: 16
learners: [2, 1]
tuner: {threshold: 0.03, most: 64}
assignment: fixed
rule:
  name: ssgd
  resync: 1000
  replicas: auto
  alpha: auto
  momentum: auto
  period: auto
  sends: auto
  outer: {name: auto, gain: auto, lr: auto, momentum: auto}
  restart: auto
  reset_momentum: false
  then: null
loss: {name: cross_entropy, label_smoothing: 0.0, ignore_index: null, weight: null}
metrics: []
update:
  name: sgd
  lr: 0.01
  weight_decay: 0.0
  l1: 0.0
  decay_biases: false
  clip_value: null
  clip_norm: null
  schedule: {name: constant}
  warmup: {epochs: 0.0, start: 0.1, iterations: 0}
  groups: []
  momentum: 0.0
  nesterov: false
  half_life: null
stop: {epochs: 10.0, accuracy: null, minutes: null, iterations: null, metric: null, above: null, below: null, patience: null,
  min_delta: 0.0, median: 1}
device: auto
onednn: {library: null, winograd: true}
precision: auto
share_gpu: false
transport: auto
graphs: true
execution: auto
overlap: true
buckets: auto
wire: float32
prefetch: auto
on_nan: stop
evaluate: {every: 1.0, batch_size: 100, top_k: null}
checkpoint: {every: 1 epoch, keep: 2, best: true, metric: null}
ema: null
log:
  to: [jsonl]
  every: 50
limits: {start: auto, iteration: auto, evaluation: auto, checkpoint: auto}
seed: 1
out: runs
"""  # noqa: E501
    )


positive = st.floats(1e-30, 1e30)
fraction = st.floats(0, 1, exclude_max=True)
counts = st.integers(1, 10**20)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1)
rising = st.lists(positive, min_size=1, unique=True).map(lambda epochs: tuple(sorted(epochs)))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
keys = st.from_regex(r"[a-z][a-z_]{0,20}", fullmatch=True).filter(lambda key: key not in ("name", "classes"))
schedules = st.one_of(
    st.just(ConstantRate()),
    st.builds(StepDecay, positive, positive),
    st.builds(MultiStep, rising, positive),
    st.builds(Exponential, positive),
    st.builds(Inverse, positive, positive),
    st.builds(Cosine, positive, fraction),
    st.builds(OneCycle, positive, st.just(0.5), st.sampled_from(["cos", "linear"])),
    st.builds(Plateau, st.just("training_loss"), patience=counts),
)
rules = st.one_of(
    st.builds(Family, name=st.just("ssgd"), resync=counts),
    st.builds(Independent, resync=counts),
    st.builds(
        Family,
        outer=st.builds(Outer, st.sampled_from(["auto", "mean"]), st.just("auto") | st.floats(1, 1e30)),
        alpha=st.just("auto") | positive,
        restart=st.sampled_from(["auto", "never"]) | rising,
        reset_momentum=st.booleans(),
        then=st.none() | st.builds(Then, epoch=positive),
    ),
    st.builds(Family, name=st.sampled_from(["local_sgd", "slowmo", "diloco"]), period=counts),
    st.builds(Family, name=st.just("crossbow"), momentum=st.just("auto") | fraction, period=counts),
)
areas = st.lists(st.floats(1e-9, 1), min_size=2, max_size=2).map(lambda ends: tuple(sorted(ends)))
augmentations = st.builds(
    Augmentation,
    area=st.none() | areas,
    pad=st.integers(0, 9),
    crop=st.none() | counts,
    flip=st.booleans(),
    cutout=st.none() | counts,
    jitter=st.none() | st.builds(ColourJitter, positive, positive, positive),
    mixup=st.none() | st.floats(1e-9, 100),
)
normalisations = st.sampled_from(["channel", "pixel", "half", "none"])
images = st.none() | st.builds(Image, st.integers(1, 9), st.none() | st.integers(9, 99))
patterns = texts | st.lists(texts, min_size=1).map(tuple)
weights = st.none() | texts | st.builds(Weights, texts, patterns, patterns, st.booleans())
configs = st.builds(
    Config,
    name=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,9}", fullmatch=True),
    model=st.builds(
        Model, texts, st.none() | st.integers(2, 1000), weights, st.dictionaries(keys, scalars | st.lists(scalars))
    ),
    data=st.builds(
        Data, texts, st.none() | texts, st.none() | texts | st.floats(0.01, 0.99), images, normalisations, augmentations
    ),
    learners=st.sampled_from(["auto", "replay(runs/a (b))"]) | counts | st.lists(counts, min_size=1).map(tuple),
    tuner=st.builds(Tuner, st.floats(1e-9, 0.99), counts),
    assignment=st.sampled_from(["fixed", "first_come"]),
    rule=rules,
    update=st.builds(Sgd, lr=positive, momentum=fraction, weight_decay=positive, schedule=schedules),
    stop=st.builds(Stop, st.none() | positive, st.none() | st.floats(1e-9, 1), st.none() | positive, counts),
    checkpoint=st.builds(Checkpoint, st.sampled_from([None, "1 epoch", "0.5 minutes", "7 iterations"])),
    loss=st.one_of(
        st.builds(CrossEntropyLoss, st.floats(0, 1, exclude_max=True), st.none() | st.integers(0, 9)),
        st.builds(CrossEntropyLoss, weight=st.lists(positive, min_size=1).map(tuple)),
        st.builds(HuberLoss, positive),
        st.builds(PlainLoss, name=st.sampled_from(["mse_loss", "l1_loss", "binary_cross_entropy_with_logits"])),
    ),
    evaluate=st.builds(Evaluate, st.just(1.0), counts, st.none() | st.integers(2, 9)),
    seed=st.integers(0, 2**32 - 1),
    out=texts,
)


@given(configs)
def test_dump_and_load_are_inverses(config):
    assert load_mapping(parse(config.text, "text")) == config


def test_dump_reads_back_from_a_file(tmp_path):
    config = load_mapping(RUN, ["update.schedule={name: cosine, epochs: 5}", "name='1e5'"])
    path = tmp_path / "config.yaml"
    path.write_text(config.text, encoding="utf-8")
    assert load(path) == config


def test_describe_has_every_setting():
    lines = [" ".join(line.split()) for line in describe().splitlines()]
    assert (
        "model.name required the model's name, or a function of your own: mynet.py:net (a string that is not empty)"
        in lines
    )
    assert "model.<option> any option that the named one takes" in lines
    rate = "learning rate; not scaled with the number of learners (a number above 0)"
    assert f"update.lr 0.01 sgd, rmsprop, adagrad: {rate}" in lines
    assert f"update.lr 0.0001 lion: {rate}" in lines
    both = "apply weight_decay and l1 to biases and the weights of norms too"
    assert f"update.decay_biases false {both} (true or false)" in lines
    names = ", ".join(sorted([*PRESETS, "independent"]))
    assert f"rule.name sma how the replicas are kept together (one of {names})" in lines
    centre = "all but independent: momentum of the centre of lagging replicas; auto is the rule's own"
    assert f"rule.momentum auto {centre} (auto or a number of at least 0 and below 1)" in lines
    between = "independent: iterations between two exchanges of the ranks"
    assert f"rule.period 50 {between} (an integer of at least 1)" in lines
    assert "update.schedule.gamma required inverse: decay per epoch (a number above 0)" in lines

    def paths(mapping, path=""):
        for key, value in mapping.items():
            yield from paths(value, f"{path}{key}.") if isinstance(value, dict) else [path + key]

    assert set(paths(parse(load_mapping(RUN).text, "dump"))) <= {line.split()[0] for line in lines}


def test_a_config_is_written_as_yaml_once():
    """A run asks thrice: to compare the ranks, for its folder, and for every checkpoint's header."""
    config = load_mapping(RUN)
    assert config.text is config.text
    assert "seed: 2" in replace(config, seed=2).text
