"""Runs that start from trained weights: which they take, from where, under every rule, on any number of ranks."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from mpibow.config import load_mapping
from mpibow.config.schema import Weights
from mpibow.errors import CheckpointError, ConfigError
from mpibow.graph import Array
from mpibow.job import Job
from mpibow.job.starting_weights import StartingWeights, of_config, of_program, take
from mpibow.run.checkpoint import read_header
from mpibow.run.session import Session
from mpibow.run.stored import read_first
from mpibow.train import train
from tests.comm.threads import on_threads
from tests.refusals import refuses
from tests.run import tiny

STILL = {"stop": {"epochs": None, "iterations": 1}, "update": {"lr": 1e-300}}
SHAPES = {"a.weight": (2, 3), "a.bias": (2,), "b.mean": (4,), "head.weight": (5, 2)}


def trained(seed: int = 5, net=tiny.normed) -> dict[str, Array]:
    """Weights and statistics of the net that no initialiser gives."""
    generator, plan = np.random.default_rng(seed), tiny.job(Path(), net=net).training_plan()
    spans = [*plan.layout.spans, *plan.statistics.spans]
    return {span.name: generator.uniform(0.5, 1.5, span.shape) for span in spans}


def given(arrays, **settings) -> StartingWeights:
    return of_program({"file": arrays, **settings} if settings else arrays)


def starting(out: Path, weights: StartingWeights | None, **settings) -> Job:
    return replace(tiny.job(out, **{"net": tiny.normed, **settings}), given=weights)


@pytest.mark.parametrize("rule", tiny.RULES)
def test_every_rule_starts_from_them_and_keeps_what_is_frozen(rule, tmp_path):
    """Statistics of frozen batch norms too; the head is new, and trained."""
    arrays, settings = trained(), dict(tiny.RULES[rule])
    arrays["dense2.weight"] += 10.0
    if settings.get("then"):
        pytest.skip("this rule changes at an epoch, and no weights may be frozen until one")
    groups = [{"match": "dense1.*", "freeze": True}, {"match": "batch_norm1.*", "freeze": True}]
    update = {"lr": 0.05, "groups": groups}
    work = starting(
        tmp_path, given(arrays, exclude="dense2.*"), rule=settings, update=update, learners=2, ema={"half_life": 30}
    )
    found = tiny.run(work, ranks=2).weights
    body = [name for name in arrays if not name.startswith("dense2.")]
    assert len(body) == 5
    assert tiny.same_bits({name: found[name] for name in body}, {name: arrays[name] for name in body})
    new = tiny.run(starting(tmp_path / "new", None, **STILL)).weights
    assert (np.abs(found["dense2.weight"] - new["dense2.weight"]) > 1e-6).any()
    assert np.abs(found["dense2.weight"] - new["dense2.weight"]).max() < 5.0  # not where the given are


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("kind", ["run", "checkpoint", "saved", "bare", "arrays", "half"])
def test_from_wherever_they_are(kind, ranks, tmp_path):
    first = tiny.job(tmp_path / "first", net=tiny.normed, checkpoint={"every": "40 iterations"}, precision="float32")
    arrays = tiny.run(first).weights
    run = tmp_path / "first/run"
    places = {
        "run": run,
        "checkpoint": run / "checkpoints/iteration-0000000040",
        "saved": tmp_path / "net.safetensors",
        "bare": tmp_path / "bare.safetensors",
        "arrays": arrays,
        "half": {name: array.astype(np.float16) for name, array in arrays.items()},
    }
    if kind == "saved":
        import mpibow as mb

        mb.load(run).save(places[kind])
    elif kind == "bare":
        save_file(arrays, places[kind])
    expected = places["half"] if kind == "half" else arrays
    work = starting(tmp_path, given(places[kind]), **STILL, precision="float32", evaluate={"every": 1000.0})
    body = [name for name in arrays if not name.startswith("batch_norm1.") or name[-1] == "t"]
    found = tiny.run(work, ranks)
    assert tiny.same_bits(
        {name: found.weights[name] for name in body}, {name: expected[name].astype(np.float32) for name in body}
    )


def test_only_rank_0_reads(tmp_path):
    """The others get its bits, whatever they have themselves."""
    mine, other = trained(1), trained(2)
    found = on_threads(
        2,
        lambda comm: train(starting(tmp_path, given(mine if comm.rank == 0 else other), **STILL), comm),
    )
    for each in found:
        assert each.weights["dense1.weight"].tobytes() == mine["dense1.weight"].tobytes()


def test_the_log_and_the_run_directory_list_them(tmp_path):
    arrays = trained()
    arrays["old_head.weight"] = arrays.pop("dense2.weight")
    tiny.run(starting(tmp_path, given(arrays, exclude="*.bias", strict=False), **STILL))
    log = (tmp_path / "run/log.txt").read_text()
    assert (
        "weights from the program's arrays: 4 of the net's 7 weights and statistics are loaded; batch_norm1.bias, "
        "dense2.bias start anew; dense2.weight are missing there and start anew; old_head.weight are not in the net\n"
        in log
    )
    assert json.loads((tmp_path / "run/weights.json").read_text()) == {
        "source": "the program's arrays",
        "loaded": ["dense1.weight", "batch_norm1.weight", "batch_norm1.mean", "batch_norm1.variance"],
        "excluded": ["batch_norm1.bias", "dense2.bias"],
        "missing": ["dense2.weight"],
        "unexpected": ["old_head.weight"],
        "skipped": ["batch_norm1.bias", "dense2.bias"],
    }


def test_nothing_is_written_where_they_do_not_fit(tmp_path):
    with pytest.raises(ConfigError, match=r"dense2\.weight: is"):
        tiny.run(starting(tmp_path, given({**trained(), "dense2.weight": np.ones((7, 12))})), ranks=2)
    with pytest.raises(CheckpointError, match="nowhere: does not exist"):
        tiny.run(starting(tmp_path, given("nowhere")), ranks=2)
    assert not list(tmp_path.iterdir())


def test_a_resumed_run_takes_the_checkpoints_and_has_the_same_bits(tmp_path):
    """Also of a replica that is reset, whose statistics are those that the run started from."""
    file = tmp_path / "body.safetensors"
    arrays = trained()
    save_file(arrays, file)
    settings = {"learners": 2, "checkpoint": {"every": "20 iterations"}}
    whole = tiny.run(starting(tmp_path / "whole", given(file), **settings))
    half = {**settings, "stop": {"epochs": None, "iterations": 20}}
    tiny.run(starting(tmp_path / "cut", given(file), **half))
    file.unlink()
    again = tiny.run(starting(tmp_path / "cut", given(file), **settings), resume=tmp_path / "cut/run")
    assert tiny.same_bits(again.weights, whole.weights)
    assert "weights: the checkpoint's weights are taken, not those of" in (tmp_path / "cut/run/log.txt").read_text()
    for folder in ("whole", "cut"):
        path = tmp_path / folder / "run/checkpoints/iteration-0000000040"
        first = read_first(path, read_header(path)["files"], 32)
        assert first is not None
        assert first.tolist()[:12] == arrays["batch_norm1.mean"].tolist()
    with pytest.raises(CheckpointError, match=r"first_statistics: must be floating point \[33\], got float64 \[32\]"):
        read_first(path, read_header(path)["files"], 33)


def test_a_replica_that_is_reset_gets_the_statistics_that_it_started_from(tmp_path):
    arrays = trained()

    def body(comm) -> Array:
        with Session(starting(tmp_path, given(arrays), learners=2), comm) as session:
            session.replicas.reseed(1, session.engine.centre)
            found: Array = session.replicas.statistics[1].copy()
            return found

    (found,) = on_threads(1, body)
    assert found[:12].tolist() == arrays["batch_norm1.mean"].tolist()


def fails(message: str, arrays, **settings) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        take(given(arrays, **settings), {name: np.asarray(a) for name, a in arrays.items()}, SHAPES)


def test_what_does_not_fit_is_refused_with_what_to_type():
    whole = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    taken = take(given(whole), whole, SHAPES)
    assert (dict(taken.arrays), taken.missing, taken.unexpected) == (whole, (), ())
    fails(
        "weights: the program's arrays: has other shapes; to start these anew type "
        'weights={"file": ..., "exclude": ["head.*"]}\n  head.weight: is (8, 2) there, (5, 2) in this net',
        {**whole, "head.weight": np.ones((8, 2))},
    )
    fails(
        "weights: the program's arrays: has other shapes; to start these anew type "
        'weights={"file": ..., "exclude": ["a.bias", "head.*"]}\n  head.weight: is (8, 2) there, (5, 2) in this net',
        {**whole, "head.weight": np.ones((8, 2))},
        exclude="a.bias",
    )
    fails(
        "weights: the program's arrays: lacks b.mean, head.weight of the net; it has fc.weight, which the net lacks; "
        'to load the others type weights={"file": ..., "strict": False}',
        {"a.weight": whole["a.weight"], "a.bias": whole["a.bias"], "fc.weight": np.ones(3)},
    )
    fails(
        "weights: the program's arrays: has none of the net's weights; it has x, the net has a.weight, a.bias, "
        "b.mean, head.weight",
        {"x": np.ones(3)},
        strict=False,
    )
    for key in ("match", "exclude"):
        fails(
            "weights: no weight's name matches 'body*'; there are a.weight, a.bias, b.mean, head.weight",
            whole,
            **{key: ["body*"]},
        )
    fails(
        "weights: the program's arrays: a.bias: has values that are not finite",
        {**whole, "a.bias": np.array([1, np.nan])},
    )
    fails(
        "weights: the program's arrays: a.bias: must be floating point, got int64",
        {**whole, "a.bias": np.ones(2, int)},
    )
    fails("weights.names: torchvision has no net of this net's weights; leave names out", whole, names="torchvision")


def test_pytorchs_names_of_statistics_are_known():
    stored = {
        "b.running_mean": np.ones(4, np.float32),
        "b.num_batches_tracked": np.array(7),
        "a.weight": np.ones((2, 3), np.float16),
    }
    taken = take(given(stored, strict=False), stored, SHAPES)
    assert [*taken.arrays] == ["a.weight", "b.mean"]
    assert taken.unexpected == ()
    taken = take(given(stored, strict=False, names="mpibow"), stored, SHAPES)
    assert ([*taken.arrays], taken.unexpected) == (["a.weight"], ("b.running_mean", "b.num_batches_tracked"))


def test_what_may_be_given():
    net = SimpleNamespace(weights={"a": np.ones(2)})
    assert of_program("runs/a") == StartingWeights(Weights("runs/a"), "weights")
    assert of_program(Path("runs/a")).weights.file == "runs/a"
    assert of_program({"file": net, "exclude": ["b"]}).weights == Weights("arrays", exclude=("b",))
    assert list(of_program(net).arrays or ()) == ["a"]
    with pytest.raises(ConfigError, match=r"^weights: must be a run, a checkpoint or a file by its path, .* got int$"):
        of_program(3)  # type: ignore[arg-type]
    with refuses("weights.exclud: is not a setting; did you mean 'exclude'?"):
        of_program({"file": "a", "exclud": "b"})


def test_a_config_names_a_file_or_says_more():
    model = {"name": "lenet", "weights": "runs/a"}
    config = load_mapping({"model": model, "data": {"train": "x"}})
    assert of_config(config) == StartingWeights(Weights("runs/a"))
    config = load_mapping(
        {"model": {"name": "lenet"}, "data": {"train": "x"}},
        ["model.weights={file: a, exclude: [dense1.*], strict: false}"],
    )
    found = of_config(config)
    assert found == StartingWeights(Weights("a", exclude=("dense1.*",), strict=False))
    assert found.remedy("exclude", ["*.bias", "b.*"]) == 'model.weights={file: a, exclude: ["*.bias", "b.*"]}'
    with pytest.raises(ConfigError, match=r"model\.weights\.file: is required"):
        load_mapping({"model": {"name": "lenet", "weights": {"exclude": "a"}}, "data": {"train": "x"}})
