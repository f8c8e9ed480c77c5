"""Runs on oneDNN: the same bits however they go on their way, in whatever layout their weights lie."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpibow import add, batch_norm, conv2d, dense, dropout, flatten, global_avg_pool2d, max_pool2d, relu
from mpibow.comm import Single
from mpibow.errors import ShapeError
from mpibow.graph import Tensor, compile_plan, plan_layout
from mpibow.kernels import find_kernels
from mpibow.run.session import Session
from mpibow.train import train
from tests.comm.threads import on_threads
from tests.refusals import refuses
from tests.run import tiny
from tests.run.test_resume import check_resumed

pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
from mpibow.kernels.isa import ISA

pytestmark = pytest.mark.skipif(
    find_kernels("auto", "float32", None)[0].name != "onednn",
    reason="oneDNN or numba is not there: pip install -e '.[cpu]'",
)


def residual(image: Tensor) -> Tensor:
    """All that is fused and reordered: blocks that channels do not fill, a sum, a canonical end."""
    x = relu(batch_norm(conv2d(image, 20, 3, padding=1, bias=False)))
    y = batch_norm(conv2d(relu(batch_norm(conv2d(x, 20, 3, padding=1, bias=False))), 20, 3, padding=1, bias=False))
    x = relu(add(y, x))
    x = max_pool2d(relu(conv2d(x, 8, 3, padding=1)), 2)
    return dense(dropout(flatten(x), 0.1), tiny.CLASSES)


ONEDNN = {"precision": "float32", "device": "onednn"}


def job(out: Path, **settings) -> tiny.Job:
    return tiny.job(out, **{"net": residual, **ONEDNN, **settings})


def test_it_runs_in_layouts_of_its_own(tmp_path):
    work = job(tmp_path)
    plan = work.training_plan()
    assert work.layout.digest() != work.layout.canonical().digest()
    assert plan.reorders
    assert len(plan.bind(np.zeros(plan.layout.size, np.float32), np.zeros(plan.layout.size, np.float32)).runs) == 1


@tiny.rules("auto", "crossbow-3", "ssgd")
def test_two_runs_and_no_overlap_are_the_same_bits(tmp_path, rule):
    settings = {"rule": rule, "learners": 2}
    first, again, sequential = (
        tiny.run(job(tmp_path / name, **settings, overlap=name != "sequential"), 2).weights
        for name in ("first", "again", "sequential")
    )
    assert tiny.same_bits(first, again)
    assert tiny.same_bits(first, sequential)


def test_learners_may_be_spread_over_ranks(tmp_path):
    one, two = (tiny.run(job(tmp_path / str(n), learners=4 // n), n).weights for n in (1, 2))
    assert tiny.distance(two, one) < 1e-3


@tiny.rules("auto", "crossbow-3", "auto-3")
def test_a_run_goes_on_bit_for_bit(tmp_path, rule):
    update = {"lr": 0.005, "momentum": 0.9}
    check_resumed(tmp_path, 7, 14, 22, 35, rule=rule, learners=2, update=update, **ONEDNN, net=residual)


@pytest.mark.parametrize(("first", "then"), [("onednn", "numpy"), ("numpy", "onednn")])
def test_the_other_device_goes_on_from_a_checkpoint(tmp_path, first, then):
    """With the same numbers to rounding: what is stored does not depend on layouts."""
    settings = {"learners": 2, "checkpoint": {"every": "10 iterations", "keep": 9}, "rule": "auto"}
    whole = tiny.run(job(tmp_path / "whole", device=first, **settings))
    checkpoint = tmp_path / "whole/run/checkpoints/iteration-0000000030"
    resumed = tiny.run(job(tmp_path / "then", device=then, **settings), resume=checkpoint)
    assert tiny.distance(resumed.weights, whole.weights) < 1e-3
    assert resumed.summary.device == then


def test_ranks_that_want_different_layouts_take_the_canonical_one(tmp_path):
    work = job(tmp_path / "mixed", learners=1)
    digests: list[str] = []

    def rank(comm):
        mine = replace(work, canonical=True) if comm.rank else work  # as a rank on another processor may
        with Session(mine, comm, None, "") as session:
            digests.append(session.plan.layout.digest())
            assert session.job.canonical
        return None

    on_threads(2, rank)
    assert set(digests) == {work.layout.canonical().digest()}
    canonical = replace(job(tmp_path / "canonical", learners=2), canonical=True)
    found = train(canonical, Single(), resume=None)
    assert tiny.distance(found.weights, tiny.run(job(tmp_path / "own", learners=2)).weights) < 1e-3


def test_pooling_over_the_image(tmp_path):
    def net(image: Tensor) -> Tensor:
        return dense(global_avg_pool2d(relu(batch_norm(conv2d(image, 16, 3, bias=False)))), tiny.CLASSES)

    fast, slow = (
        tiny.run(job(tmp_path / device, net=net, device=device, iterations=10)).weights
        for device in ("onednn", "numpy")
    )
    assert tiny.distance(fast, slow) < 1e-4


def wide(image: Tensor) -> Tensor:
    """Layers whose gradients are kept as factors, of a rank that the batch of three does not fill."""
    return dense(relu(dense(relu(dense(flatten(image), 64)), 128)), tiny.CLASSES)


def small_batch(out: Path, **settings) -> tiny.Job:
    return job(out, **{"net": wide, "learners": 2, **settings})


@tiny.rules("auto", "crossbow-3", "ssgd")
@pytest.mark.parametrize("ranks", [1, 2])
def test_gradients_that_are_kept_as_factors(tmp_path, rule, ranks):
    """As those that are not, as who clips them element by element wants them; and as NumPy's. On AVX2 or later
    oneDNN has code for the layout of weights that factors need."""
    update = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
    works = [
        small_batch(tmp_path / str(i), rule=rule, update={**update, **more}, **settings)
        for i, (more, settings) in enumerate(
            [
                ({"clip_norm": 2.0}, {}),
                ({"clip_norm": 2.0, "clip_value": 1e9}, {}),
                ({"clip_norm": 2.0}, {"device": "numpy"}),
            ]
        )
    ]
    count = len(works[0].layout.factors)
    assert count == (ISA in ("AVX-512", "AVX2"))
    assert [len(work.layout.factors) for work in works[1:]] == [0, 0]
    kept, plain, numpy = (tiny.run(work, ranks) for work in works)
    assert tiny.distance(kept.weights, plain.weights) < 1e-4
    assert tiny.distance(kept.weights, numpy.weights) < 1e-4
    assert tiny.same_bits(kept.weights, plain.weights) == (count == 0)  # factors are summed in another order
    again = tiny.run(small_batch(tmp_path / "again", rule=rule, update={**update, "clip_norm": 2.0}), ranks)
    assert tiny.same_bits(again.weights, kept.weights)


def test_a_layout_with_factors_is_of_one_batch_size(tmp_path):
    work = small_batch(tmp_path)
    layout = plan_layout(work.build(3, True), formats={"dense2.weight": "AB16b64a"}, ranks={"dense2.weight": 4})
    with refuses(
        "dense2.weight: the layout has its gradient as factors of rank 4, this plan's kernels do not", ShapeError
    ):
        compile_plan(work.build(8, True), layout, work.kernels, "float32", training=True)
    compile_plan(work.build(8, False), layout, work.kernels, "float32", training=False)


def test_a_run_with_factors_goes_on_bit_for_bit(tmp_path):
    check_resumed(tmp_path, 10, 25, learners=2, **ONEDNN, net=wide)
