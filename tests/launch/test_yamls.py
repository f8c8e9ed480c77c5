"""The YAML files of the standard runs: each opens and plans on data of its shape, and says what was published."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mpibow.config import Config, load
from mpibow.data import Image, write_records
from mpibow.data.ratings import record_of
from mpibow.job import named_net
from mpibow.job.synthetic import SHAPES
from mpibow.models import MODELS, OBJECTIVES
from mpibow.models.augmentation import Augmentation
from mpibow.models.classifier import classifier
from mpibow.optim.schedules import Cosine, MultiStep, StepDecay
from mpibow.sync import Family
from mpibow.train import main
from tests.data.photos import MOMENTS, encode, picture
from tests.refusals import exits

LAUNCH = Path(__file__).parents[2] / "launch"
YAMLS = sorted(LAUNCH.rglob("*.yaml"))
CROSSBOW = sorted((LAUNCH / "crossbow").glob("*.yaml"))
COUNT = 1024  # samples: no batch is larger
RATINGS = [path for path in YAMLS if (model := load(path).model) and model.name in OBJECTIVES]


def of(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.relative_to(LAUNCH).as_posix())


each, each_of_images = of(YAMLS), of([path for path in YAMLS if path not in RATINGS])


def of_model(config: Config) -> tuple[int, tuple[int, ...]]:
    """Classes and image shape that the model is known for."""
    return SHAPES[config.model.name]


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> Callable[[Config], Path]:
    """Writes COUNT records as the converter of the model's data does, once for each shape."""

    @cache
    def write(classes: int, shape: tuple[int, ...]) -> Path:
        folder = tmp_path_factory.mktemp("records") / "data"
        if classes == 1000:
            images = [(encode(picture(250, 300)), 0), (encode(picture(400, 260)), classes - 1)]
            write_records(folder, images * (COUNT // 2), classes=classes, encoding="jpeg", moments=MOMENTS)
            return folder
        pixels = np.random.default_rng(0).integers(0, 256, (2, *shape), dtype=np.uint8)
        samples = [*zip(pixels, (0, classes - 1), strict=True)] * (COUNT // 2)
        write_records(folder, samples, classes=classes)
        return folder

    return lambda config: write(*of_model(config))


@each_of_images
def test_check_passes(path: Path, records: Callable[[Config], Path], capsys):
    config = load(path)
    folder = records(config)
    with exits(0):
        main([str(path), f"data.train={folder}", f"data.test={folder}", "--check"])
    said = capsys.readouterr()
    assert said.err == ""
    assert f"test: {COUNT:,} samples {of_model(config)[1]} uint8, {of_model(config)[0]} classes\n" in said.out
    begin = "auto, begins with 1" if config.learners == "auto" else config.learners
    assert said.out.splitlines()[-1].startswith(f"rank 0: {begin} learner(s) x (arena ")
    assert ("forward  augment " in said.out) == config.data.augment.of_places


@pytest.mark.parametrize(
    ("path", "epochs"), {"lenet-mnist": 5, "digits": 20, "matrix-factorisation-ratings": 20}.items()
)
def test_a_cosine_lasts_as_long_as_the_run(path, epochs):
    """The rates are those that these files had when they said it twice; and of a longer run they are its own."""
    for overrides, expected in (([], epochs), (["stop.epochs=100"], 100)):
        assert load(LAUNCH / f"{path}.yaml", overrides).schedule == Cosine(expected)


@of(RATINGS)
def test_check_of_ratings_passes(path: Path, tmp_path, capsys):
    model = load(path).model
    ends = [(0, 0), (model.options["users"] - 1, model.options["items"] - 1)]
    ratings = (record_of(user, item, 3.5) for user, item in ends * (COUNT // 2))
    write_records(tmp_path / "data", ratings, classes=1)
    with exits(0):
        main([str(path), f"data.train={tmp_path}/data", f"data.test={tmp_path}/data", "--check"])
    said = capsys.readouterr()
    assert said.err == ""
    assert f"test: {COUNT:,} samples user () int32, item () int32, rating () float32\n" in said.out
    assert said.out.splitlines()[-1].startswith("rank 0: auto, begins with 1 learner(s) x (arena ")


@each
def test_it_says_how_it_is_run(path: Path):
    assert f"python -m mpibow.train launch/{path.relative_to(LAUNCH).as_posix()}" in path.read_text()


@each
def test_its_data_are_what_the_converter_writes(path: Path):
    """The folders train and test of the --output that its comment names, of a script that is there."""
    data, text = load(path).data, path.read_text()
    found = re.search(r"mpibow convert (\w+) (?:--source DIR )?--output (\S+)", text)
    assert (LAUNCH.parent / f"datasets/{found[1]}.py").is_file()
    assert (data.train, data.test) == (f"{found[2]}/train", f"{found[2]}/test")


@each_of_images
def test_photographs_are_augmented_as_published(path: Path):
    config = load(path)
    cifar, imagenet = ("cifar" in path.stem, "imagenet" in path.stem)
    area = (0.05 if path in CROSSBOW else 0.08, 1.0) if imagenet else None
    assert config.data.augment == Augmentation(area=area, pad=4 * cifar, flip=cifar or imagenet)
    assert config.data.normalise == ("half" if path in CROSSBOW and (cifar or imagenet) else "channel")
    size = of_model(config)[1][-1]
    assert (config.data.image or Image()) == Image(size if imagenet else 224)
    assert config.evaluate.top_k == (5 if imagenet else None)


def test_every_model_has_one_of_small_batches():
    configs = [load(path) for path in LAUNCH.glob("*.yaml")]
    assert sorted(config.model.name for config in configs if config.model) == sorted([*MODELS, *OBJECTIVES])
    assert max(config.batch_size for config in configs) <= 32
    assert all(config.rule == Family() for config in configs)


@pytest.mark.parametrize("path", sorted(LAUNCH.glob("*.yaml")), ids=lambda path: path.stem)
def test_learners_are_measured_but_where_a_run_is_too_short(path: Path):
    assert load(path).learners == (2 if path.stem == "digits" else "auto")


# Crossbow's runs: GPUs, learners of each, batch, rate, momentum, decay, schedule, epochs, weights
PUBLISHED = {
    "lenet-mnist": (1, 1, 1, 0.001, 0.0, 1e-4, MultiStep((120.0,), 0.1), 100, 1_111_946),
    "resnet32-cifar10": (2, 1, 64, 0.1, 0.9, 1e-4, MultiStep((80.0, 120.0), 0.1), 140, 469_114),
    "vgg16-cifar100": (1, 1, 256, 0.1, 0.9, 5e-4, StepDecay(20.0, 0.5), 250, 15_038_116),
    "resnet50-imagenet": (8, 2, 16, 0.1, 0.9, 1e-4, MultiStep((30.0, 60.0, 80.0), 0.1), 90, 25_557_032),
    "resnet101-imagenet": (8, 1, 32, 0.1, 0.9, 1e-4, MultiStep((30.0, 60.0, 80.0), 0.1), 90, 44_549_160),
}


# Its measure: the median of the last five epochs' test accuracies
TARGETS = {
    "lenet-mnist": ("accuracy", 0.99, 5),
    "resnet32-cifar10": ("accuracy", 0.88, 5),
    "vgg16-cifar100": ("accuracy", 0.69, 5),
    "resnet50-imagenet": ("accuracy", 0.53, 5),
}


@pytest.mark.parametrize("path", CROSSBOW, ids=lambda path: path.stem)
def test_crossbows_settings(path: Path):
    config = load(path)
    found = re.search(r"mpirun -np (\d+) python", path.read_text())
    classes, shape = of_model(config)
    weights = classifier(named_net(config, classes), shape, "uint8")(1).weight_count
    update, epochs = config.update, config.stop.epochs
    sgd = (update.lr, update.momentum, update.weight_decay, update.schedule)
    assert (int(found[1]), config.learners, config.batch_size, *sgd, epochs, weights) == PUBLISHED[path.stem]
    assert config.rule == Family(name="crossbow", momentum=0.9, period=1)
    assert (config.stop.metric, config.stop.above, config.stop.median) == TARGETS.get(path.stem, (None, None, 1))
    assert (LAUNCH / path.name).exists()  # the small batches beside it


def test_all_of_crossbow_is_here():
    assert {path.stem for path in CROSSBOW} == set(PUBLISHED)
