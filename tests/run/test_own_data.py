"""`fit` on the user's own data sets: by items, changed by a function, read by worker processes."""

import sys

import numpy as np
import pytest

import mpibow as mb
from mpibow.data.items import generator
from mpibow.errors import MpibowError, RecordError
from mpibow.graph import Tensor
from tests.data import owned
from tests.data.owned import Pairs
from tests.launching import mpirun, needs_mpi, run, well
from tests.refusals import refuses
from tests.run import tiny

SETTINGS = {"batch_size": 4, "learners": 2, "device": "numpy", "stop": {"epochs": 2}, "seed": 3}

LONGER = {"stop": {"epochs": 20}, "update": {"lr": 0.02}}


pytestmark = pytest.mark.usefixtures("here")


def classes(x: Tensor) -> Tensor:
    return mb.dense(mb.relu(mb.dense(x, 8)), 2)


def line(x: Tensor) -> Tensor:
    return mb.reshape(mb.dense(x, 1), (-1,))


class Named:
    """As Hugging Face's data sets are: a row is a dict, and a split is no mapping."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> dict:
        return dict(zip(self._names, Pairs()[number], strict=True))


def test_items_are_as_arrays_are():
    """The same weights from items and from the arrays of them all."""
    pairs = Pairs()
    x, y = pairs.columns()
    items, arrays = (mb.fit(classes, data, normalise="none", **SETTINGS) for data in (pairs, (x, y)))
    named = mb.fit(classes, Named("img", "labels"), normalise="none", **SETTINGS)
    assert all(tiny.same_bits(items.weights, each.weights) for each in (arrays, named))
    assert items.predict(x).shape == (40, 2)


def test_mean_and_spread_are_those_of_the_samples():
    pairs = Pairs()
    x, y = pairs.columns()
    items, arrays = (mb.fit(classes, data, **SETTINGS) for data in (pairs, (x, y)))
    for name, array in items.weights.items():
        np.testing.assert_allclose(array, arrays.weights[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("source", [Pairs(), Named("x", "target"), [Pairs()[n] for n in range(40)]])
def test_outputs_and_losses(source):
    fitted = mb.fit(line, source, Pairs(8), validation=0.2, loss=mb.mse_loss, **SETTINGS | LONGER)
    assert fitted.summary.validation_loss < 0.2  # 0.25 is that of the mean
    assert fitted.predict(np.zeros((3, 8), np.float32)).shape == (3,)


def test_several_inputs():
    def net(left: Tensor, right: Tensor) -> Tensor:
        return mb.reshape(mb.dense(mb.concat(left, right, axis=1), 1), (-1,))

    fitted = mb.fit(net, [(np.ones(2), np.ones(3), 2.0)] * 8, loss=mb.mse_loss, **SETTINGS)
    assert fitted.weights["dense1.weight"].shape == (1, 5)


def test_workers_give_the_same_bits():
    here, there = (
        mb.fit(classes, Pairs(), Pairs(8), validation=0.2, transform=owned.noisy, workers=n, **SETTINGS) for n in (0, 2)
    )
    assert tiny.same_bits(here.weights, there.weights)
    assert here.summary.test_loss == there.summary.test_loss


def test_a_transform_is_new_in_every_epoch_and_for_training_alone():
    plain, noisy = (mb.fit(classes, Pairs(), Pairs(8), transform=t, **SETTINGS) for t in (None, owned.noisy))
    assert not tiny.same_bits(plain.weights, noisy.weights)
    seen = list[float]()

    def note(sample, rng: np.random.Generator):
        seen.append(rng.random())
        return sample

    mb.fit(classes, Pairs(), Pairs(8), normalise="none", transform={"train": note}, **SETTINGS)
    assert {generator(3, epoch, number).random() for epoch in (0, 1) for number in range(40)} <= set(seen)


def test_a_transform_of_arrays():
    x, y = np.ones((16, 8), np.float32), np.zeros(16, np.int64)
    series = pytest.importorskip("pandas").Series(y, np.arange(16)[::-1] + 1)  # whose labels are no places
    for data in ((x, y), ({"x": x}, series)):
        fitted = mb.fit(line, data, transform=owned.numbered, loss=mb.mse_loss, **SETTINGS)
        assert fitted.weights["dense1.weight"].shape == (1, 8)


def test_another_shape_to_evaluate_is_refused_with_the_remedy():
    def cropped(sample, rng: np.random.Generator):
        return sample[0][:4], sample[1]

    message = (
        "train: sample 24: x is (8,) float32, the first sample's is (4,) float32; a batch needs samples of one shape; "
        "transform is for training data alone: give {'train': ..., 'test': ...}"
    )
    with pytest.raises(RecordError) as error:
        mb.fit(line, Pairs(), validation=0.1, transform=cropped, loss=mb.mse_loss, **SETTINGS)
    assert str(error.value).split(":")[2:] == message.split(":")[2:]
    both = {"train": cropped, "test": cropped}
    assert mb.fit(line, Pairs(), validation=0.1, transform=both, loss=mb.mse_loss, **SETTINGS).summary.validation_loss


class Endless:
    def __iter__(self):
        return iter(())


class Lengthless:
    def __getitem__(self, number: int):
        return None


class Loader:
    dataset, batch_size = None, 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train": Endless()}, "train: Endless can only be iterated; give a data set with __len__ and __getitem__"),
        (
            {"train": Lengthless()},
            "train: Lengthless has no length (__len__), which the order of samples needs",
        ),
        (
            {"train": Loader()},
            "train: is a loader of batches, and mpibow orders samples itself; give its data set, train.dataset",
        ),
        ({"train": []}, "train: has no samples, a data set has at least one"),
        (
            {"train": (np.ones((8, 8)), np.zeros(9, int)), "transform": owned.noisy},
            "train: sample 8: IndexError: index 8 is out of bounds for axis 0 with size 8",
        ),
        ({"workers": -1}, "workers: must be a number of processes, or 0 for none, got -1"),
        ({"transform": {"val": None}}, "transform: must be a function, or functions by train and test, got 'val'"),
        ({"transform": {"train": 1}}, "transform.train: must be a function of (sample, rng), got 1"),
        (
            {"train": Pairs(bad=5, fault=owned.of_class_7)},
            "train: sample 5: label must lie in [0, 2), the classes of the net, got 7",
        ),
        (
            {"train": [(np.ones((8, 9, 3)), 1)]},
            "train: images (channels, height, width) are meant, (8, 9, 3) has its channels last: "
            "let transform give image.transpose(2, 0, 1)",
        ),
        ({"train": [(np.ones(8), 0.5)]}, "train: a label must be an integer, got () float32; or give a loss"),
    ],
)
def test_what_is_refused(given, message):
    with refuses(message, MpibowError):
        mb.fit(classes, **{"train": Pairs(), "normalise": "none", **given}, **SETTINGS)


def test_killed_and_resumed(monkeypatch):
    settings = {**SETTINGS, "checkpoint": {"every": "3 iterations"}, "transform": owned.noisy, "normalise": "none"}
    whole = mb.fit(classes, Pairs(), **settings, out="whole")
    mb.fit(classes, Pairs(), **{**settings, "stop": {"iterations": 7}}, out="cut")
    again = mb.fit(classes, Pairs(), **settings, out="cut", resume="auto", workers=2)
    assert tiny.same_bits(again.weights, whole.weights)


PROGRAM = """
import mpibow as mb
from tests.data.owned import Pairs, noisy

class Mine(Pairs):
    pass

def net(x):
    return mb.dense(x, 2)

{guard}
    fitted = mb.fit(net, Mine(), Mine(8), transform=noisy, workers=2, batch_size=4, learners=1, device="numpy",
                    stop={{"epochs": 1}})
    if fitted.rank == 0:
        print(fitted.summary.samples)
"""


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_program_with_workers(ranks, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(guard="if __name__ == '__main__':"))
    assert well(mpirun(ranks, str(program), cwd=tmp_path)).stdout.strip() == "40"


def test_a_program_without_a_guard_says_so(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(guard="if True:"))
    done = run([sys.executable, str(program)], cwd=tmp_path)
    assert done.returncode != 0
    remedy = "put what the program does under `if __name__ == '__main__':`"
    assert f"fit: is called while a worker process imports the program: {remedy}" in done.stderr
    assert "ended with 1 while it read samples" in done.stderr
    assert done.stderr.endswith(f"is the program safe? {remedy}\n")
