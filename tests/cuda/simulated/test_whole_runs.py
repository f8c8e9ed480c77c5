"""Whole runs on a simulated GPU: the numbers of the host, the same bits whatever the order that events allow."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mpibow.comm import Communicator, Single
from mpibow.cuda.exchange.nccl import Nccl
from mpibow.cuda.feed.togpu import held_by
from mpibow.cuda.gpu import GpuMemory
from mpibow.data import ArrayData
from mpibow.data.loading import Loading
from mpibow.data.order import samples_at
from mpibow.data.pipeline_choice import PipelineChoice
from mpibow.errors import DeviceError, DivergedError, ShapeError
from mpibow.graph import Tensor
from mpibow.job import Job
from mpibow.job.device import HOST
from mpibow.job.memory import learner_bytes
from mpibow.ops import (
    add,
    batch_norm,
    concat,
    conv2d,
    dense,
    detach,
    dropout,
    flatten,
    global_avg_pool2d,
    layer_norm,
    local_response_norm,
    max_pool2d,
    pad_channels,
    relu,
    softmax,
)
from mpibow.run.chrome import open_trace
from mpibow.run.describe import describe_job
from mpibow.run.results import Trained
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from mpibow.run.tuning import Tuning
from mpibow.train import iterate, train
from tests.comm.threads import on_threads, threads
from tests.cuda.kernels.host import needs_compiler
from tests.cuda.simulated.gpu import Ring, simulated
from tests.refusals import refuses
from tests.run import tiny

pytestmark = needs_compiler


def lenet(image: Tensor) -> Tensor:
    y = max_pool2d(relu(conv2d(image, 4, 3, padding=1)), 2)
    return dense(relu(dense(flatten(y), 12)), tiny.CLASSES)


def resnet(image: Tensor) -> Tensor:
    x = relu(batch_norm(conv2d(image, 4, 3, padding=1, bias=False)))
    y = relu(batch_norm(conv2d(x, 4, 3, padding=1, bias=False)))
    y = batch_norm(conv2d(y, 4, 3, padding=1, bias=False))
    return dense(dropout(global_avg_pool2d(relu(add(y, x))), 0.2), tiny.CLASSES)


def resnet8(image: Tensor) -> Tensor:
    """Of 8 channels, a vector of 16 bits."""
    x = relu(batch_norm(conv2d(image, 8, 3, padding=1, bias=False)))
    y = batch_norm(conv2d(x, 8, 3, padding=1, bias=False))
    return dense(flatten(max_pool2d(relu(add(y, x)), 2)), tiny.CLASSES)


def work(out: Path, **settings) -> Job:
    defaults = {
        "precision": "float32",
        "device": "numpy",
        "transport": "staged",
        "execution": "streams",  # what is measured is not the same every time
        "stop": {"epochs": None, "iterations": 24},
    }
    return tiny.job(out, **{"net": lenet, **defaults, **settings})


def on_gpu(
    job: Job, comm: Communicator, seed: int = 0, graphs: bool = True, resume: str | None = None,
    carrier = None, **more,
) -> Trained:  # fmt: skip
    config = replace(job.config, device="cuda", graphs=graphs)
    opened = simulated(100 * seed + comm.rank, config.precision, graphs=graphs, shared=comm.size > 1, **more)
    opened.carrier = carrier or opened.carrier
    return train(replace(job, config=config, device=opened), comm, resume=resume)


def run(job: Job, ranks: int = 1, **how) -> Trained:
    found = on_threads(ranks, lambda comm: on_gpu(job, comm, **how))
    for other in found[1:]:
        assert tiny.same_bits(other.weights, found[0].weights)
    return found[0]


@pytest.mark.parametrize(
    ("net", "rule", "learners", "ranks"),
    [
        (lenet, "auto", 1, 1),
        (lenet, "auto", 4, 1),
        (lenet, "easgd", 2, 1),
        (lenet, "crossbow-3", 2, 1),
        (lenet, "number", 2, 1),
        (lenet, "ssgd", 2, 1),
        (lenet, "independent", 2, 1),
        (resnet, "crossbow", 1, 2),
        (lenet, "auto", 2, 2),
        (lenet, "ssgd-scaled", 1, 2),
    ],
)
def test_the_numbers_are_the_hosts(tmp_path, net, rule, learners, ranks):
    settings = {"net": net, "rule": tiny.RULES[rule], "learners": learners}
    host = tiny.run(work(tmp_path / "host", **settings), ranks)
    gpu = run(work(tmp_path / "gpu", **settings), ranks)
    assert tiny.distance(gpu.weights, host.weights) < 1e-3
    assert gpu.summary.iterations == host.summary.iterations == 24
    for on_host, on_gpu in zip(events(tmp_path / "host"), events(tmp_path / "gpu"), strict=True):
        assert on_gpu == pytest.approx(on_host, rel=2e-3, abs=1e-5)


def events(folder: Path) -> list[dict[str, float]]:
    """What metrics.jsonl says of losses, accuracies and gains."""
    names = ("iteration", "loss", "accuracy", "test_loss", "test_accuracy", "gain")
    lines = [{key: event[key] for key in names if event.get(key) is not None} for event in tiny.events(folder / "run")]
    return [line for line in lines if len(line) > 1]


@pytest.mark.parametrize(
    ("net", "rule", "learners", "ranks"),
    [
        (lenet, "auto", 3, 1),
        (resnet, "number-3", 2, 1),
        (lenet, "ssgd", 2, 1),
        (lenet, "crossbow-3", 1, 2),
    ],
)
def test_bits_are_the_same_in_whatever_order_streams_run(tmp_path, net, rule, learners, ranks):
    settings = {"net": net, "rule": tiny.RULES[rule], "learners": learners, "stop": STOP}
    first = run(work(tmp_path / "0", **settings), ranks)
    for seed in (1, 2):
        again = run(work(tmp_path / str(seed), **settings), ranks, seed=seed)
        assert tiny.same_bits(again.weights, first.weights)


STOP = {"epochs": None, "iterations": 10}


def test_graphs_change_no_bit(tmp_path):
    settings = {"net": resnet, "learners": 2, "stop": STOP}
    captured = run(work(tmp_path / "captured", **settings))
    assert tiny.same_bits(run(work(tmp_path / "not", **settings), graphs=False, seed=1).weights, captured.weights)


@pytest.mark.parametrize("rule", ["auto", "crossbow-3", "number-3"])
def test_a_run_that_is_continued_has_the_same_bits(tmp_path, rule):
    settings = {"net": resnet, "learners": 2, "rule": tiny.RULES[rule]}
    whole = run(work(tmp_path / "whole", **settings))
    half = {**settings, "checkpoint": {"every": "7 iterations", "keep": 9}, "stop": {"epochs": None, "iterations": 15}}
    run(work(tmp_path / "half", **half), seed=1)
    cut = tmp_path / "half/run/checkpoints/iteration-0000000014"
    rest = run(work(tmp_path / "half", **settings), seed=2, resume=str(cut))
    assert tiny.same_bits(rest.weights, whole.weights)


@pytest.mark.parametrize("first", ["gpu", "host"])
def test_another_device_goes_on_in_a_precision_of_its_own(tmp_path, first):
    """What is stored depends neither on layouts nor on the device; auto is what each takes."""
    settings = {"learners": 2, "precision": "auto", "checkpoint": {"every": "10 iterations"}}
    half, folder = {**settings, "stop": STOP}, tmp_path / "half"
    whole = tiny.run(work(tmp_path / "whole", **settings))
    here, there = (run, tiny.run) if first == "gpu" else (tiny.run, run)
    begun = here(work(folder, **half))
    ended = there(work(folder, **settings), resume=str(folder / "run"))
    assert ended.summary.iterations == 24
    assert tiny.distance(ended.weights, whole.weights) < 1e-3
    precisions = [found.summary.precision for found in (begun, ended, whole)]
    assert precisions == (["tf32", "float32"] if first == "gpu" else ["float32", "tf32"]) + ["float32"]


CLIFF = {"lr": 0.05, "momentum": 0.9}


def with_one_bad_image() -> ArrayData:
    """Floats, of which sample 20 has a pixel that no loss can be computed of."""
    images, labels = tiny.images()
    floats = images.astype(np.float32) / 255
    floats[20, 0, 3, 3] = np.nan
    return ArrayData(floats, labels, classes=tiny.CLASSES, name="bars")


def spoilt(out: Path, **settings) -> Job:
    """A run that meets that image, and looks at no test data."""
    return work(out, **{"train": with_one_bad_image(), "test": None, "normalise": "none", "update": CLIFF, **settings})


def test_a_learner_that_overflows_makes_no_step_and_starts_again(tmp_path):
    found = run(spoilt(tmp_path, learners=2, on_nan="reset"))
    assert all(np.isfinite(array).all() for array in found.weights.values())
    notes = (tmp_path / "run" / "log.txt").read_text()
    assert "loss or gradient is not finite" in notes
    assert "it starts again from the centre" in notes
    other = tmp_path / "other"
    again = run(spoilt(other, learners=2, on_nan="reset"), seed=3)
    assert tiny.same_bits(again.weights, found.weights)


@pytest.mark.parametrize(("precision", "apart"), [("tf32", 1e-3), ("bf16", 0.3), ("fp16", 0.1)])
def test_other_precisions_learn_the_same(tmp_path, precision, apart):
    """Weights and all that averages stay float32: what differs is what 16 bits round on the way."""
    settings = {"net": resnet8, "learners": 2, "update": {"lr": 0.02}}
    host = tiny.run(work(tmp_path / "host", **settings))
    gpu = run(work(tmp_path / "gpu", precision=precision, **settings), scale=256.0)
    assert all(array.dtype == np.float32 for array in gpu.weights.values())
    assert tiny.distance(gpu.weights, host.weights) < apart
    assert gpu.summary.accuracy == pytest.approx(host.summary.accuracy, abs=0.1)
    again = run(work(tmp_path / "again", precision=precision, **settings), seed=5, scale=256.0)
    assert tiny.same_bits(again.weights, gpu.weights)


def test_a_loss_that_is_scaled_too_much_is_no_divergence(tmp_path):
    """2^30 overflows until it is halved often enough: nobody is reset, and a run that is continued knows the scale."""
    settings = {"net": resnet8, "learners": 2, "precision": "fp16", "update": {"lr": 0.02}}
    whole = run(work(tmp_path / "whole", **settings), scale=2.0**30)
    assert "not finite" not in (tmp_path / "whole" / "run" / "log.txt").read_text()
    assert all(np.isfinite(array).all() for array in whole.weights.values())
    half = {**settings, "checkpoint": {"every": "6 iterations"}, "stop": {"epochs": None, "iterations": 12}}
    run(work(tmp_path / "half", **half), seed=1, scale=2.0**30)
    rest = run(work(tmp_path / "half", **settings), seed=2, resume=str(tmp_path / "half" / "run"))
    assert tiny.same_bits(rest.weights, whole.weights)


def inception(image: Tensor) -> Tensor:
    """Channels that are put together, and padded, with biases and a pool."""
    x = relu(conv2d(image, 4, 3, padding=1))
    y = concat(relu(conv2d(x, 4, 1)), max_pool2d(x, 3, stride=1, padding=1), axis=1)
    return dense(relu(dense(flatten(add(y, pad_channels(x, 8))), 9)), tiny.CLASSES)


def no_dropout(image: Tensor) -> Tensor:
    x = relu(batch_norm(conv2d(image, 4, 3, padding=1, bias=False)))
    y = batch_norm(conv2d(x, 4, 3, padding=1, bias=False))
    return dense(global_avg_pool2d(relu(add(y, x))), tiny.CLASSES, bias=False)


def dropping(image: Tensor) -> Tensor:
    """LeNet's dropout, and before it one of images, as VGG has."""
    x = dropout(relu(conv2d(image, 4, 3, padding=1)), 0.3)
    x = relu(dense(flatten(max_pool2d(conv2d(x, 4, 3), 2)), 12))
    return dense(dropout(x, 0.4), tiny.CLASSES)


def normalising(image: Tensor) -> Tensor:
    """What goes across channels, and puts together what is not channels."""
    x = local_response_norm(relu(conv2d(image, 6, 3, padding=1)), 3, alpha=0.5)
    x = concat(layer_norm(x), x, axis=2)
    x = layer_norm(flatten(max_pool2d(layer_norm(x, 3), 2)))
    return dense(softmax(dense(x, 8)), tiny.CLASSES)


@pytest.mark.parametrize(
    ("net", "rule", "learners", "ranks", "precision"),
    [
        (lenet, "auto", 1, 1, "float32"),
        (no_dropout, "auto", 3, 1, "tf32"),
        (inception, "auto-3", 2, 1, "float32"),
        (no_dropout, "ssgd", 2, 2, "tf32"),
        (dropping, "auto", 3, 1, "float32"),
        (normalising, "auto", 2, 1, "float32"),
    ],
)
def test_fused_learners_are_the_learners_on_streams(tmp_path, net, rule, learners, ranks, precision):
    settings = {"net": net, "rule": tiny.RULES[rule], "learners": learners, "precision": precision, "stop": STOP}
    apart = run(work(tmp_path / "streams", execution="streams", **settings), ranks)
    fused = run(work(tmp_path / "fused", execution="fused", **settings), ranks, seed=1)
    assert tiny.distance(fused.weights, apart.weights) < 1e-3
    again = run(work(tmp_path / "again", execution="fused", **settings), ranks, seed=2, graphs=False)
    assert tiny.same_bits(again.weights, fused.weights)


def holed(image: Tensor) -> Tensor:
    seen = relu(conv2d(image, 4, 3))
    return dense(flatten(seen + detach(seen)), tiny.CLASSES)


def test_what_has_no_fused_form_is_refused(tmp_path):
    with refuses("execution: cast1 (cast) has no form for fused learners; set execution=streams", ShapeError):
        run(work(tmp_path, net=holed, learners=2, execution="fused", test=None))


@pytest.mark.parametrize("execution", ["streams", "fused"])
def test_an_iteration_waits_for_nothing_and_launches_little(tmp_path, execution):
    """Only the communication's and the pipeline's threads wait for the device; a learner is a copy and a launch."""
    seen = []
    job = work(tmp_path, learners=3, execution=execution, stop={"epochs": None, "iterations": 12})
    job = replace(job, test=None, config=replace(job.config, device="cuda"), device=simulated(7))
    device = job.device
    driver = device.gpu.machine.driver
    with Signals() as signals, Session(job, Single()) as session:
        while not session.limit_reached():
            driver.machine.waits.clear()
            iterate(session, signals)
            launches = sum(stream.launches for stream in driver.machine.streams)
            own = [name for name in driver.machine.waits if not name.startswith(("communication", "pipeline"))]
            seen.append((session.iteration, launches, len(own)))
        session.finish("by hand")
    steps = [(after[1] - before[1], after[2]) for before, after in pairwise(seen)]
    assert steps[2:] == [(1 if execution == "fused" else 3, 0)] * 9
    assert session.synchroniser.waited == 0.0


def test_looking_changes_nothing_even_where_learners_overflow(tmp_path):
    images, labels = tiny.images(20, seed=1)
    floats = ArrayData(images.astype(np.float32) / 255, labels, classes=tiny.CLASSES, name="more bars")
    settings = {"learners": 2, "on_nan": "reset", "test": floats}
    first = run(spoilt(tmp_path / "0", **settings))
    looked = {"evaluate": {"every": 0.1, "batch_size": 7}, "checkpoint": {"every": "3 iterations"}}
    assert tiny.same_bits(run(spoilt(tmp_path / "1", **settings, **looked), seed=1).weights, first.weights)
    resumed = run(spoilt(tmp_path / "1", **settings), seed=2, resume=str(oldest(tmp_path / "1" / "run")))
    assert tiny.same_bits(resumed.weights, first.weights)


def oldest(folder: Path) -> Path:
    return sorted(path for path in (folder / "checkpoints").iterdir() if path.name[:1].isdigit() or "-" in path.name)[0]


def test_summed_gradients_leave_out_what_is_not_finite(tmp_path):
    found = run(spoilt(tmp_path, learners=2, rule={"name": "ssgd"}, on_nan="reset"))
    assert all(np.isfinite(array).all() for array in found.weights.values())
    assert "; it is left out" in (tmp_path / "run" / "log.txt").read_text()


def test_a_learner_that_overflows_ends_the_run_where_it_shall(tmp_path):
    with refuses(
        f"iteration {bad_iteration()}: learner 0 (rank 0): loss or gradient is not finite (loss nan); "
        "lower update.lr (now 0.05), or set on_nan=reset; there is no checkpoint yet",
        DivergedError,
    ):
        run(spoilt(tmp_path, learners=1))


def bad_iteration() -> int:
    """When sample 20 comes, three at a time."""
    _, samples = samples_at(0, tiny.COUNT, tiny.COUNT, 1)
    return samples.tolist().index(20) // 3


def test_a_timeline_has_what_the_device_did(tmp_path):
    job = work(tmp_path, learners=2, stop={"epochs": None, "iterations": 12})
    opened = replace(job, config=replace(job.config, device="cuda"), device=simulated(3))
    train(opened, Single(), trace=open_trace(tmp_path / "run.json", "2:8"))
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    spans = [event for event in events if event.get("cat") == "device"]
    assert len(spans) >= 8
    assert all(span["dur"] > 0 for span in spans)
    rows = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"device 0", "device 1"} <= rows


def test_what_does_not_fit_says_what_to_change(tmp_path):
    job = work(tmp_path, learners=2)
    opened = simulated(0)
    driver = opened.gpu.machine.driver
    driver.room = 10_000
    with pytest.raises(DeviceError) as caught:
        train(replace(job, config=replace(job.config, device="cuda"), device=opened), Single())
    said = str(caught.value)
    assert said.startswith("GPU 0 (NVIDIA H100, GPU-0000): ")
    assert "do not fit: " in said
    assert "mpibow holds " in said
    assert said.endswith(": use fewer learners, or a smaller batch_size")


def test_metrics_have_the_most_memory_that_was_held(tmp_path):
    run(work(tmp_path, learners=2))
    (first, *_, last) = tiny.events(tmp_path / "run", "train")
    assert 0 < first["device_memory"] <= last["device_memory"]


@pytest.mark.parametrize(("execution", "rule"), [("streams", "auto"), ("fused", "auto"), ("streams", "number-3")])
def test_learners_come_and_go(tmp_path, execution, rule):
    """As on the host: new ones start from the centre; the same bits in any order."""

    def body(comm: Communicator, out: str, seed: int):
        settings = {"rule": tiny.RULES[rule], "update": {"lr": 0.01, "momentum": 0.9}}
        job = work(tmp_path / out, learners="auto", execution=execution, prefetch=1, **settings)
        opened = simulated(seed)
        config = replace(job.config, device="numpy" if seed < 0 else "cuda", execution=execution)
        job = replace(job, config=config, device=HOST if seed < 0 else opened)
        with Signals() as signals, Session(job, comm) as session:
            session.tuning = Tuning(job.config.tuner)
            while not session.limit_reached():
                if session.iteration in CHANGES:
                    session.coordinator.announce(session.iteration, CHANGES[session.iteration])
                iterate(session, signals)
            assert session.ledger.changes == len(CHANGES)
            return session.finish("by hand")

    (host,), (first,), (second,) = (
        on_threads(1, lambda comm, out=out, seed=seed: body(comm, out, seed))
        for out, seed in (("host", -1), ("first", 1), ("second", 2))
    )
    assert tiny.distance(first.weights, host.weights) < 1e-3
    assert tiny.same_bits(second.weights, first.weights)


CHANGES = {4: (3,), 10: (2,), 15: (4,)}


def test_a_tuner_tries_learners_on_a_gpu(tmp_path):
    tuner = {"most": 3, "window": 0.05, "watch": 0.1}
    found = run(work(tmp_path, learners="auto", tuner=tuner, stop={"epochs": None, "iterations": 40}))
    assert found.summary.changes >= 1
    assert max(max(event["learners"]) for event in tiny.events(tmp_path / "run", "learners")) <= 3


def test_check_says_what_a_gpu_will_hold(tmp_path):
    job = replace(work(tmp_path, learners=2), device=simulated(0))
    sent, resident = PipelineChoice("host", ""), PipelineChoice("resident", "", on_device=True)
    for choice, data, locked in ((sent, "", "4.5 KiB"), (resident, " + data 0.0 MiB", "1.5 KiB")):
        last = describe_job(job, (2,), [1 << 30], choice).splitlines()[-1]
        assert last.startswith("rank 0: 2 learner(s) x (arena ")
        assert " MiB + slots 0.0 MiB) + averaging 0.0 MiB" + data + " = " in last
        assert last.endswith(
            f" MiB of 1.0 GiB that are free on GPU 0 (NVIDIA H100, GPU-0000), and {locked} of page-locked memory"
        )


def test_learners_are_as_many_as_all_that_they_take_leaves_room_for(tmp_path):
    """On the GPU a data set that lies there first, then replicas, arenas and slots; on the host what is page-locked."""

    def room(name: str, locks: int) -> int:
        class Memory(GpuMemory):
            def lockable(self, comm: Communicator) -> int:
                return locks

        job, opened = work(tmp_path / name, learners="auto", tuner={"most": 50}, prefetch=3), simulated(0, told=free)
        config = replace(job.config, device="cuda")
        opened.memory = Memory(opened.gpu)
        with Session(replace(job, config=config, device=opened), Single()) as session:
            return session.replicas.capacity

    job = replace(work(tmp_path, learners=1), device=simulated(0))
    ahead = held_by(Loading(job.train, {}, PipelineChoice("resident", "", on_device=True), 3, 3))
    assert (ahead.learner, ahead.locked, ahead.data) == (5 * 768, 4 * 256, tiny.COUNT * (36 + 4))
    learner = learner_bytes(job.training_plan(), job.evaluation_plan(), ahead.learner, states=1)
    free = int((7.5 * learner) / 0.8) + ahead.data
    assert room("device", 1 << 30) == 7
    assert room("host", int(4.5 * ahead.locked / 0.8)) == 4


class Waking(Nccl):
    """Time goes on while it waits, instead of a little whenever it asks."""

    def wait(self, event, what: str = "") -> None:
        event.synchronise()


@pytest.mark.parametrize("rule", ["auto", "crossbow-3", "ssgd"])
def test_averaging_by_nccl_is_enqueued_alike_and_gives_the_same_bits(tmp_path, rule):
    """Two ranks whose all-reduces run on the averaging streams, when those come to them."""
    settings = {"rule": tiny.RULES[rule], "learners": 2, "stop": {"epochs": None, "iterations": 9}}
    staged = run(work(tmp_path / "staged", **settings), 2)
    rings = []
    for seed in (1, 2):
        others, own = threads(2), []

        def transport(host: Communicator, driver, stream, **_) -> tuple[Nccl, str]:
            ring = Ring(others[host.rank], driver)  # noqa: B023
            own.append(ring)  # noqa: B023
            return Waking(host, ring, stream), ""

        found = run(work(tmp_path / str(seed), **settings), 2, seed=seed, carrier=transport)
        assert tiny.same_bits(found.weights, staged.weights)
        rings.append(own)
    calls = [ring.calls for own in rings for ring in own]
    assert all(each == calls[0] for each in calls)
    assert len(calls[0]) == (3 if rule.endswith("-3") else 9)


@pytest.mark.parametrize(
    ("rule", "overlap", "hides"), [("crossbow", True, True), ("crossbow", False, False), ("ssgd", True, False)]
)
def test_metrics_have_what_learners_stood_still_for(tmp_path, rule, overlap, hides):
    """By the device's clock. Where nothing is computed beside an exchange none of it is hidden."""
    found = run(work(tmp_path, learners=2, rule=tiny.RULES[rule], overlap=overlap), 2)
    entries = tiny.events(tmp_path / "run", "train")
    assert all(entry["sync_busy"] > 0 for entry in entries)
    assert all(0 <= entry["sync_wait"] <= entry["sync_busy"] * (1 + 1e-9) for entry in entries)
    if hides:
        assert 0 < found.summary.sync_hidden <= 1
    else:
        assert found.summary.sync_hidden == pytest.approx(0.0, abs=1e-6)


def test_one_rank_has_nothing_to_stand_still_for(tmp_path):
    found = run(work(tmp_path, learners=2, stop=STOP)).summary
    assert (found.sync_wait, found.sync_hidden) == (0.0, None)


def test_what_overflows_last_is_told_and_is_no_part_of_the_centre(tmp_path):
    """Neither of its weights nor of the running statistics; on the host the same is seen."""
    stop, update = {"epochs": None, "iterations": bad_iteration() + 1}, {**CLIFF, "weight_decay": 0.01}
    settings = {"net": resnet, "on_nan": "reset", "stop": stop, "rule": tiny.RULES["crossbow"], "update": update}
    host = tiny.run(spoilt(tmp_path / "host", **settings))
    gpu = run(spoilt(tmp_path / "gpu", **settings))
    assert gpu.summary.resets == host.summary.resets == 1
    assert tiny.distance(gpu.weights, host.weights) < 1e-3
    assert (
        f"iteration {bad_iteration()}: learner 0 (rank 0): loss or gradient is not finite (loss nan); "
        in (tmp_path / "gpu" / "run" / "log.txt").read_text()
    )
