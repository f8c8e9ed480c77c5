"""Training on encoded images: the same bits however a run goes on its way; what is refused, skipped and told."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

import mpibow
from mpibow.comm import Single
from mpibow.config import load_mapping
from mpibow.data import dali, decoded, loading, open_records, write_records
from mpibow.data.photo import take
from mpibow.errors import RecordError
from mpibow.evaluate import evaluate
from mpibow.job import Job, open_job
from mpibow.run.session import Session
from tests.data.photos import bars, records
from tests.refusals import refusal_of, refuses
from tests.run import tiny
from tests.run.test_resume import AT_END, arrays, copy, entries, point, saving

COUNT, MORE = 41, 13
RUN = {
    "name": "run",
    "model": {"name": "mlp", "hidden": [12]},
    "batch_size": 3,
    "update": {"lr": 0.02, "momentum": 0.9},
    "stop": {"epochs": None, "iterations": 24},
    "evaluate": {"batch_size": 5, "every": 2},
    "checkpoint": AT_END,
    "log": {"every": 5},
}
IMAGE = {"size": 8}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Encoded train and test, raw, and train with damaged images; each with three classes."""
    folder = tmp_path_factory.mktemp("data")
    records(folder / "train", bars(COUNT))
    records(folder / "test", bars(MORE, side=30, kind="PNG"), encoding="png")
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 3, 8, 8), dtype=np.uint8)
    write_records(folder / "raw", zip(pixels, np.arange(COUNT) % 3, strict=True), classes=3)
    damaged = [(b"no image", 0) if n in (7, 8, 30) else image for n, image in enumerate(bars(COUNT))]
    records(folder / "damaged", damaged)
    return folder


def job(data: Path, out: Path, *, train: str = "train", test: str | None = "test", of_data=None, **more) -> Job:
    found = {"train": str(data / train), "test": None if test is None else str(data / test), "image": IMAGE}
    return open_job(load_mapping({**RUN, "data": {**found, **(of_data or {})}, "out": str(out), **more}))


AUGMENT = {"augment": {"area": [0.3, 1.0], "flip": True}}


def test_it_learns(data: Path, tmp_path):
    """Bars in three places, at random windows: chance is a third."""
    found = tiny.run(job(data, tmp_path, of_data={"augment": {"area": [0.7, 1.0]}}, stop={"epochs": 30}))
    assert found.summary.accuracy > 0.9
    assert found.summary.corrupt == 0


PIPELINES = [
    pytest.param(form, kind, marks=pytest.mark.dali if kind == "dali" else (), id=f"{form}-{kind}")
    for form, kind in (("encoded", "host"), ("encoded", "dali"), ("raw", "host"), ("raw", "resident"), ("raw", "dali"))
]
through_each = pytest.mark.parametrize(("form", "kind"), PIPELINES)


def through(data: Path, out: Path, form: str, kind: str, **more) -> Job:
    """A run through one pipeline, with random windows, or places, and flips."""
    if form == "encoded":
        return job(data, out, of_data={**AUGMENT, "pipeline": kind}, **more)
    raw = {"image": None, "augment": {"pad": 1, "flip": True}, "pipeline": kind}
    return job(data, out, train="raw", test="raw", of_data=raw, **more)


@through_each
def test_resume_in_the_middle_of_an_epoch(data: Path, tmp_path, form, kind):
    """Two ranks, unequal learners, windows and flips anew in every epoch: slots and arrays are the same bytes."""
    cuts = (1, 6, 13)  # 9 samples an iteration: 41 end within the fifth, the tenth, the fourteenth
    whole = tiny.replay(through(data, tmp_path / "whole", form, kind, learners=[1, 2]), 2, before=saving(*cuts))
    assert [len(rank.slots) for rank in whole] == [24, 24]
    for cut in cuts:
        folder = copy(tmp_path / "whole", tmp_path / str(cut))
        again = tiny.replay(through(data, folder, form, kind, learners=[1, 2]), 2, resume=point(folder, cut))
        for one, other in zip(again, whole, strict=True):
            assert one.slots == other.slots[cut:], cut
        assert arrays(folder, 24) == arrays(tmp_path / "whole", 24), cut
        assert entries(folder) == entries(tmp_path / "whole"), cut


@through_each
@pytest.mark.parametrize("seed", [1, 2])
def test_learners_come_and_go_at_random(data: Path, tmp_path, form, kind, seed):
    """Every sample once an epoch, on either rank; the ranks agree; a run resumed in between sees the same."""
    generator = np.random.default_rng(seed)
    changes = {int(t): (int(a), int(b)) for t, a, b in generator.integers(1, 4, (5, 3)) * [[4, 1, 1]]}
    save, announce = saving(10), tiny.announcing(changes)

    def both(session: Session) -> None:
        save(session)
        announce(session)

    def run(folder: Path, **more) -> list[tiny.Replay]:
        return tiny.replay(through(data, folder, form, kind, learners=2, prefetch=4), 2, before=both, **more)

    ranks = run(tmp_path / "whole")
    tiny.check_stream(ranks, count=COUNT)
    assert len({tuple(map(len, (a, b))) for a, b in zip(ranks[0].samples, ranks[1].samples, strict=True)}) > 1
    again = run(copy(tmp_path / "whole", tmp_path / "again"), resume=point(tmp_path / "again", 10))
    assert [rank.slots for rank in again] == [rank.slots[10:] for rank in ranks]
    assert [rank.centres for rank in again] == [rank.centres[10:] for rank in ranks]


@pytest.mark.parametrize(
    ("form", "kind", "other"),
    [("raw", "host", "resident"), pytest.param("encoded", "host", "dali", marks=pytest.mark.dali)],
)
def test_a_run_goes_on_through_another_pipeline(data: Path, tmp_path, form, kind, other):
    whole = tiny.replay(through(data, tmp_path / "whole", form, kind, learners=2), before=saving(6))
    folder = copy(tmp_path / "whole", tmp_path / "again")
    again = tiny.replay(through(data, folder, form, other, learners=2), resume=point(folder, 6))
    assert again[0].slots == whole[0].slots[6:]
    assert arrays(folder, 24) == arrays(tmp_path / "whole", 24)


def test_prefetch_and_threads_change_no_bit(data: Path, tmp_path):
    found = [
        tiny.run(
            job(data, tmp_path / str(n), of_data={**AUGMENT, "workers": n}, prefetch=prefetch, learners=2), 2
        ).weights
        for n, prefetch in ((1, 1), (2, "auto"))
    ]
    assert tiny.same_bits(*found)
    other = tiny.run(job(data, tmp_path / "other", of_data={**AUGMENT, "pipeline": "host"}, seed=2)).weights
    assert not tiny.same_bits(found[0], other)


@pytest.mark.parametrize(
    ("of_data", "train", "test", "message"),
    [
        (
            {"augment": {"area": [0.08, 1]}, "image": None},
            "raw",
            None,
            "data.augment.area: is for encoded images, raw has (3, 8, 8) uint8, 3 classes; leave it out",
        ),
        ({}, "raw", None, "data.image: is for encoded images, raw has (3, 8, 8) uint8, 3 classes; leave it out"),
        ({}, "train", "raw", "data.image: is for encoded images, raw has (3, 8, 8) uint8, 3 classes; leave it out"),
        (
            {"image": None},
            "train",
            "raw",
            "data.test: raw has images (3, 8, 8) uint8, data.train has (3, 224, 224) uint8",
        ),
        (
            {"pipeline": "resident"},
            "train",
            None,
            "data.pipeline: resident needs raw images, train has encoded ones, and every epoch takes new "
            "crops of them; set auto, host or dali",
        ),
        (
            {"augment": {"crop": 9}},
            "train",
            None,
            "data.augment.crop: must be at most 8 as train has images (3, 8, 8), got 9",
        ),
    ],
)
def test_what_is_refused(data: Path, tmp_path, of_data, train, test, message):
    with refuses(message):
        job(data, tmp_path, train=train, test=test, of_data=of_data)


@pytest.mark.parametrize(("taken", "why"), [
    ("host", "dali gives the same images faster, but it is not there"),
    pytest.param("dali", "NVIDIA DALI is installed on every rank", marks=pytest.mark.dali),
])  # fmt: skip
def test_the_log_says_which_pipeline(
    data: Path, tmp_path, capsys, monkeypatch,
    taken, why,
):  # fmt: skip
    short = {"stop": {"epochs": None, "iterations": 2}}
    if taken == "host":
        monkeypatch.setattr(dali, "available", lambda: "it is not there")
    tiny.run(job(data, tmp_path / "a", of_data={"workers": 3}, **short))
    assert f"pipeline: {taken} with 3 threads: {why}" in capsys.readouterr().err.splitlines()
    tiny.run(job(data, tmp_path / "b", train="raw", test="raw", of_data={"image": None, "pipeline": "host"}, **short))
    assert "pipeline: host: as set by data.pipeline" in capsys.readouterr().err.splitlines()
    tiny.run(job(data, tmp_path / "c", train="raw", test="raw", of_data={"image": None}, **short))
    said = capsys.readouterr().err.splitlines()
    assert any(line.startswith("pipeline: resident: 0.0 MiB, a quarter of a rank's free memory is ") for line in said)
    assert any(re.fullmatch(r"raw: read into memory in \d+\.\d s", line) for line in said)
    tiny.train(tmp_path / "d", **short)
    assert "pipeline" not in capsys.readouterr().err


# Damaged images


def named(data: Path, sample: int) -> str:
    return (
        f"{data}/damaged/damaged-00000.mpr: record {sample}: cannot be decoded: neither a JPEG nor a PNG; "
        "convert the data again, or set data.on_corrupt=skip"
    )


def test_a_damaged_image_ends_the_run(data: Path, tmp_path):
    with pytest.raises(RecordError) as caught:
        tiny.run(job(data, tmp_path, train="damaged"))
    assert str(caught.value) in [named(data, sample) for sample in (7, 8, 30)]
    with pytest.raises(RecordError) as caught:
        tiny.run(job(data, tmp_path / "evaluated", test="damaged"))
    assert str(caught.value) in [named(data, sample) for sample in (7, 8, 30)]


SKIP = {**AUGMENT, "on_corrupt": "skip"}


def test_damaged_images_are_skipped(data: Path, tmp_path, capsys):
    """Whatever the ranks, the next intact one is learnt from; each is told once in a run, resumed or not."""
    found = [
        tiny.run(job(data, tmp_path / str(n), train="damaged", of_data=SKIP, precision="float64", learners=4 // n), n)
        for n in (2, 1)
    ]
    said = capsys.readouterr().err.splitlines()
    assert tiny.distance(found[0].weights, found[1].weights) < 1e-10
    assert [each.summary.corrupt for each in found] == [3, 3]
    for sample in (7, 8, 30):
        assert said.count(f"warning: {named(data, sample)}: the next intact sample takes its place") == 2
    assert tiny.summary(tmp_path / "2")["corrupt"] == 3
    assert [line["corrupt"] for line in tiny.events(tmp_path / "1/run", "train")][-1] == 3
    more = {"precision": "float64", "learners": 4, "stop": {"epochs": None, "iterations": 34}}
    resumed = tiny.run(job(data, tmp_path / "1", train="damaged", of_data=SKIP, **more), resume="auto")
    assert resumed.summary.corrupt == 3
    assert "takes its place" not in capsys.readouterr().err
    whole = tiny.run(job(data, tmp_path / "whole", train="damaged", of_data=SKIP, **more))
    assert tiny.same_bits(resumed.weights, whole.weights)


def test_too_many_are_damaged(data: Path, tmp_path):
    assert refusal_of(tiny.run, job(data, tmp_path, train="damaged", of_data={**SKIP, "corrupt_limit": 2})).startswith(
        "data.corrupt_limit: 3 of 41 samples of damaged are damaged, at most 2 are skipped: 7, 8, 30; the last found: "
    )


def test_an_evaluation_skips_them_too(data: Path, tmp_path):
    """The last one of all, on either rank."""
    late = {"evaluate": {"batch_size": 5, "every": 1000}}
    found = tiny.run(job(data, tmp_path, test="damaged", of_data={"on_corrupt": "skip"}, **late), 2)
    assert found.summary.corrupt == 3
    assert len(tiny.events(tmp_path / "run", "evaluate")) == 1


# Elsewhere


@pytest.mark.parametrize("image", [{"size": 8}, {"size": 8, "resize": 20}])
def test_the_command_evaluates_what_the_run_did(data: Path, tmp_path, image):
    trained = tiny.run(job(data, tmp_path, of_data={**AUGMENT, "image": image}))
    found = evaluate(tmp_path / "run", str(data / "test"), Single())
    assert (found.accuracy, found.loss) == (
        trained.summary.accuracy,
        pytest.approx(trained.summary.test_loss, rel=1e-6),
    )


def test_images_are_no_text(data: Path, tmp_path):
    with refuses(f"data.text: is for texts, {data / 'train'} holds none; leave it out"):
        job(data, tmp_path, of_data={"text": {"context": 8}})


def test_the_command_refuses_other_data(data: Path, tmp_path):
    short = {"stop": {"epochs": None, "iterations": 2}}
    tiny.run(job(data, tmp_path, train="raw", test=None, of_data={"image": None}, **short))
    checkpoint = tmp_path / "run/checkpoints/iteration-0000000002"
    with refuses(f"{data / 'test'}: has encoded images, {checkpoint} was trained on raw ones; convert them alike"):
        evaluate(tmp_path / "run", str(data / "test"), Single())


@pytest.mark.parametrize("given", [open_records, str, Path])
def test_fit(data: Path, here: Path, given):

    def net(image):
        assert image.shape[1:] == (3, 8, 8)
        return mpibow.dense(mpibow.flatten(image), 3)

    found = mpibow.fit(
        net, given(data / "train"), given(data / "test"), image={"size": 8},
        augment={"area": [0.5, 1.0]}, stop={"epochs": 2}, batch_size=3,
    )  # fmt: skip
    assert found.summary.accuracy is not None
    assert found.predict(np.zeros((2, 3, 8, 8), np.uint8)).shape == (2, 3)


def test_waiting_for_data_is_told(data: Path, tmp_path, monkeypatch, capsys):
    def slow(*arguments) -> None:
        time.sleep(0.004)
        take(*arguments)

    monkeypatch.setattr(decoded, "take", slow)
    monkeypatch.setattr(loading, "SECONDS", 0.1)
    tiny.run(
        job(
            data,
            tmp_path,
            test=None,
            of_data={"workers": 1, "pipeline": "host"},
            stop={"epochs": None, "iterations": 60},
        )
    )
    said = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: learners wait for data ")
    ]
    assert said
    assert said[0].endswith(
        "% of the time; set data.workers above 1 where cores are free, bind more cores to a rank, "
        "or data.pipeline=dali (pip install -e '.[dali]')"
    )
