"""A tour of mpibow in twelve tests, in the order of a batch's way; numbers can be checked by hand. Read it first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.comm import Single
from mpibow.config import load_mapping
from mpibow.data import NamedArrays, Slot
from mpibow.data.order import samples_at
from mpibow.data.records import RecordFile, RecordForm, write_file
from mpibow.errors import ConfigError, RecordError
from mpibow.graph import Array, Graph, compile_plan, plan_layout
from mpibow.job import Job
from mpibow.kernels import NUMPY
from mpibow.learn.learners import Learner
from mpibow.models.objective import objective
from mpibow.optim.schedules import Cosine, MultiStep
from mpibow.optim.sgd import heavy_ball
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from mpibow.train import iterate
from mpibow.tune import Tuner, decide
from tests.refusals import refuses
from tests.run import tiny
from tests.tune.windows import one_rank, path, walk

# One weight, which begins at 0, and two samples: loss (w - 1)^2 and (w - 3)^2, so that a step of rate 0.25 goes half of
# the way to a sample's target.
DATA = NamedArrays({"x": np.ones((2, 1)), "target": np.array([[1.0], [3.0]])})


def net(x: mb.Tensor, target: mb.Tensor) -> mb.Tensor:
    return mb.mse_loss(mb.dense(x, 1, bias=False, initial=mb.Constant(0.0)), target)


def job(folder: Path, **settings) -> Job:
    defaults = {"batch_size": 1, "learners": 2, "update": {"lr": 0.25}, "device": "numpy"}
    return tiny.job(folder, net=net, train=DATA, test=None, **{**defaults, **settings})


def weight(arrays: dict[str, Array]) -> float:
    return arrays["dense1.weight"].item()


def test_a_config_names_the_setting_the_rule_and_the_value():
    """A run's settings are a mapping, of YAML or of a script's arguments; all mistakes are told at once."""
    settings = {"model": {"name": "mlp"}, "data": {"train": "data/mnist/train"}}
    assert load_mapping(settings, ["update.lr=0.5"]).update.lr == 0.5
    told = "batch_size: must be an integer of at least 1, got 0\nlearner: is not a setting; did you mean 'learners'?"
    with refuses(told, ConfigError):
        load_mapping({**settings, "batch_size": 0, "learner": 2})


def test_a_record_file_holds_images_and_their_checksums(tmp_path):
    """A header of 64 bytes, two images of 4, an index of 16 for each; a flipped bit is found, and the record named."""
    path = tmp_path / "two.mpr"
    with write_file(path, RecordForm("raw", "uint8", (1, 2, 2))) as writer:
        writer.add(np.array([[[1, 2], [3, 4]]], np.uint8), label=7)
        writer.add(np.array([[[5, 6], [7, 8]]], np.uint8), label=0)
    content = bytearray(path.read_bytes())
    assert len(content) == 64 + 2 * 4 + 2 * 16
    image, label = RecordFile(path).stored(0)
    assert (image.tolist(), label) == ([[[1, 2], [3, 4]]], 7)
    content[64 + 4] ^= 1
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"two\.mpr: record 1: checksum is 0x"):
        RecordFile(path).stored(1)


def test_the_order_of_samples_is_a_function_of_position_and_seed():
    """Every epoch has each sample once. Ranks and learners take parts of one stream, whatever their number."""
    epochs, samples = samples_at(position=0, length=10, count=5, seed=1)
    assert epochs.tolist() == [0] * 5 + [1] * 5
    assert sorted(samples[:5].tolist()) == sorted(samples[5:].tolist()) == [0, 1, 2, 3, 4]
    assert samples[:5].tolist() != samples[5:].tolist()
    assert samples_at(position=3, length=4, count=5, seed=1)[1].tolist() == samples[3:7].tolist()


def test_a_plan_is_a_list_of_kernels_with_places_in_one_block_of_memory():
    """Values that are not alive at the same time share a place: here the first and the third, of 64 bytes each."""
    graph = Graph()
    x = graph.input("x", (4, 4))
    graph.output("y", mb.tanh(mb.tanh(mb.tanh(mb.tanh(x)))))
    plan = compile_plan(graph, plan_layout(graph), NUMPY, "float32", training=False)
    assert [step.node.name for step in plan.program.steps] == ["tanh1", "tanh2", "tanh3", "tanh4"]
    assert plan.offsets["tanh1"] == plan.offsets["tanh3"] != plan.offsets["tanh2"] == plan.offsets["tanh4"]
    assert plan.arena_bytes == 2 * 64
    bound = plan.bind(np.zeros(0, np.float32))
    bound.inputs["x"][...] = 0.5
    bound.run()
    np.testing.assert_allclose(bound.outputs["y"], np.tanh(np.tanh(np.tanh(np.tanh(0.5)))), rtol=1e-6)


def test_a_plan_of_training_computes_gradients_too():
    """loss = (w x - target)^2, so d loss / d w = 2 (w x - target) x = 2 (2 * 3 - 1) 3."""
    graph = objective(net, {"x": ((1,), "float64"), "target": ((1,), "float64")})(1, True)
    weights, gradients = np.full(plan_layout(graph).size, 2.0), np.zeros(plan_layout(graph).size)
    plan = compile_plan(graph, plan_layout(graph), NUMPY, "float64", training=True).bind(weights, gradients)
    plan.inputs["x"][...], plan.inputs["target"][...] = 3, 1
    plan.run()
    assert plan.outputs["loss"].tolist() == [25.0]
    assert gradients[0] == 30.0


def test_a_learner_takes_a_batch_from_a_slot_and_leaves_a_gradient():
    """A batch of both samples at w = 0: losses 1 and 9, mean gradient (-2 - 6) / 2. The slot may be filled again."""
    graph = objective(net, DATA.inputs)(2, True)
    size, released = plan_layout(graph).size, []
    gradient = np.zeros(size)
    plan = compile_plan(graph, plan_layout(graph), NUMPY, "float64", training=True).bind(np.zeros(size), gradient)
    result = Learner(plan, gradient).compute(Slot(DATA.arrays, lambda: released.append(True)))
    assert (result.loss, result.finite, gradient[0], released) == (10.0, True, -4.0, [True])


def test_an_optimiser_is_a_formula_of_one_weight():
    """Velocity 0.5 * 4 + 1, step -0.25 times that. NumPy runs the formula; numba and CUDA C++ are generated from it."""
    step, velocity = heavy_ball(np.array([9.0]), np.array([1.0]), np.array([4.0]), rate=0.25, decay=0.0, momentum=0.5)
    assert (velocity.item(), step.item()) == (3.0, -0.75)


def test_a_schedule_is_a_factor_of_the_rate_by_epoch():
    drops = MultiStep(epochs=(80.0, 120.0), factor=0.1)
    assert [drops.rate(epoch) for epoch in (0, 79.9, 80, 120)] == pytest.approx([1, 1, 0.1, 0.01])
    assert [Cosine(epochs=4.0).rate(epoch) for epoch in (0, 2, 4, 5)] == pytest.approx([1, 0.5, 0, 0])


def test_sma_moves_the_centre_by_the_mean_step_and_pulls_replicas_to_it(tmp_path):
    """Two learners go half of the way to 1 and to 3, and the centre to 1. Then each starts from the centre again."""
    work = job(tmp_path, rule={"name": "sma", "outer": {"gain": 1.0}}, iterations=2)
    with Signals() as signals, Session(work, Single()) as session:
        iterate(session, signals)
        session.settle()
        replicas = session.replicas.weights[:, 0]
        assert (sorted(replicas), session.engine.centre[0]) == ([0.5, 1.5], 1.0)
        steps = [(target - w) / 2 for w in replicas for target in (1, 3)]
        iterate(session, signals)
        session.settle()
        assert session.engine.centre[0] == 1.5
        assert replicas.mean() == 1.5
        assert {w - 1.0 for w in replicas} <= set(steps)


def test_s_sgd_is_one_large_batch(tmp_path):
    """Half of the way from 0 to the mean target 2, three times: 1, 1.5, 1.75; so does one learner with both samples."""
    settings = {"rule": {"name": "ssgd"}, "iterations": 3}
    two = tiny.run(job(tmp_path / "two", **settings))
    ranks = tiny.run(job(tmp_path / "ranks", learners=1, **settings), ranks=2)
    one = tiny.run(job(tmp_path / "one", learners=1, batch_size=2, **settings))
    assert [weight(trained.weights) for trained in (two, ranks, one)] == [1.75] * 3


def test_a_run_that_resumes_a_checkpoint_has_the_bits_of_one_that_was_never_stopped(tmp_path):
    settings = {"update": {"lr": 0.1, "momentum": 0.9}, "checkpoint": tiny.keeping(3)}
    whole = tiny.run(job(tmp_path / "whole", iterations=7, **settings))
    tiny.run(job(tmp_path / "half", iterations=3, **settings))
    saved = tmp_path / "half/run/checkpoints/iteration-0000000003"
    assert {"centre.safetensors", "rank-0.safetensors", "checkpoint.json"} <= {path.name for path in saved.iterdir()}
    rest = tiny.run(job(tmp_path / "half", iterations=7, **settings), resume=saved)
    assert tiny.same_bits(rest.weights, whole.weights)


def test_the_tuner_adds_learners_while_they_pay_off():
    """From the seconds of an iteration with 1, 2, ... learners: here there are two cores, and a third gains nothing."""
    assert decide(one_rank(0.1), Tuner()).counts == (2,)
    assert decide(one_rank(0.1, 0.1), Tuner()).counts == (3,)
    decisions = walk([0.1, 0.1, 0.15, 0.2])
    assert path(decisions)[:4] == [1, 2, 3, 4]
    assert (decisions[-1].counts, decisions[-1].settled) == ((2,), True)
