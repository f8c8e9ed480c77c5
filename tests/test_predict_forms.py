"""What predict takes beside arrays: pictures, globs, lists, data frames, texts; and what it gives."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import mpibow as mb
from mpibow.errors import ConfigError, RecordError
from tests.datasets.scripts import script
from tests.frames import KINDS, frame
from tests.refusals import refuses
from tests.run import tiny

QUICK: dict[str, Any] = {"batch_size": 4, "learners": 1, "stop": {"epochs": 1}}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> mb.Fitted:
    runs = str(tmp_path_factory.mktemp("classifier"))
    return mb.fit(lambda image: mb.dense(mb.flatten(image), 3), tiny.images(), out=runs, **QUICK)


@pytest.fixture
def pictures(here: Path) -> Any:
    """Six images as an array, which are photos/0.png, ..., photos/more/5.png here."""
    Path("photos/more").mkdir(parents=True)
    images = tiny.images(6, seed=1)[0]
    for number, image in enumerate(images):
        Image.fromarray(image[0]).save(f"photos/{'more/' * (number > 3)}{number}.png")
    return images


FORMS: dict[str, Callable[[], Any]] = {
    "folder": lambda: "photos",
    "glob": lambda: "photos/**/*.png",
    "glob of folders": lambda: Path("photos/**"),
    "iterator": lambda: iter(sorted(Path("photos").rglob("*.png"))),
    "list": lambda: [Image.open("photos/0.png"), *[f"photos/{n}.png" for n in (1, 2, 3)], Path("photos/more")],
}


@pytest.mark.parametrize("form", FORMS)
def test_files_and_pictures_are_predicted_as_their_arrays(classifier: mb.Fitted, pictures: Any, form):
    expected = classifier.predict(pictures, batch_size=4)
    np.testing.assert_array_equal(classifier.predict(FORMS[form](), batch_size=4), expected)


def test_numbers_that_no_row_has_are_refused(tmp_path):
    """As in training; an index that is reshaped, too."""
    tokens, y = np.arange(40).reshape(20, 2) % 10, np.zeros((20, 2, 1), np.float32)

    def net(tokens):
        return mb.dense(mb.embedding(mb.flatten(mb.reshape(tokens, (-1, 2, 1))), 10, 4), 1)

    found = mb.fit(net, ({"tokens": tokens}, {"y": y}), loss="mse_loss", out=str(tmp_path), **QUICK)
    assert found.predict(tokens).shape == (20, 2, 1)
    for wrong in (10, -1):
        with refuses(f"tokens: must lie in [0, 10), got {min(wrong, 3)} to {max(wrong, 3)}"):
            found.predict(np.array([[3, wrong]]))


def test_numbers_that_become_bools_have_two_rows(tmp_path):
    tokens, y = np.arange(40).reshape(20, 2) % 10, np.zeros((20, 2, 1), np.float32)

    def net(tokens):
        return mb.dense(mb.embedding(mb.cast(mb.cast(tokens, "bool"), "int32"), 2, 4), 1)

    found = mb.fit(net, ({"tokens": tokens}, {"y": y}), loss="mse_loss", out=str(tmp_path), **QUICK)
    assert found.predict(tokens).shape == (20, 2, 1)


def test_classes_and_probabilities(classifier: mb.Fitted, pictures: Any):
    likely = classifier.predict(pictures, probabilities=True)
    np.testing.assert_allclose(
        likely, (e := np.exp(np.float64(classifier.predict(pictures)))) / e.sum(1, keepdims=True)
    )
    found = classifier.predict("photos", top=2)
    assert [each.sample for each in found] == sorted(map(str, Path("photos").rglob("*.png")))
    for each, row in zip(found, likely, strict=True):
        order = np.argsort(-row)[:2]
        assert each.classes == tuple(map(str, order))
        assert each.probabilities == tuple(row[order])
    assert [each.sample for each in classifier.predict(pictures[:2], top=1)] == ["0", "1"]
    with pytest.raises(ConfigError, match=r"^top: must be at least 1 and at most the net's 3 classes, got 4$"):
        classifier.predict(pictures, top=4)


def test_a_bad_file_is_named_and_left_out_if_asked(classifier: mb.Fitted, pictures: Any):
    Path("photos/2.png").write_text("no image")
    with pytest.raises(RecordError, match=r"^photos/2.png: cannot be decoded: it is no image that Pillow reads$"):
        classifier.predict("photos")
    with pytest.warns(UserWarning, match=r"^left out: photos/2.png: cannot be decoded"):
        found = classifier.predict(["photos"], top=1, skip=True)
    assert [each.sample[-5:] for each in found] == ["0.png", "1.png", "3.png", "4.png", "5.png"]
    with pytest.raises(RecordError, match=r"^input 1: must be a path, a picture of Pillow or a data frame, got int$"):
        classifier.predict(["photos/0.png", 3])


def test_one_sample_by_several_threads(classifier: mb.Fitted, pictures: Any):
    expected = classifier.predict(pictures)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(classifier.predict, [pictures[n % 6, None] for n in range(300)]))
    np.testing.assert_allclose(np.concatenate(found), np.tile(expected, (50, 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(deepcopy(classifier).predict(pictures), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_so_has_one_that_is_given_by_name(kind, here: Path):
    wide, long = np.random.default_rng(0).standard_normal((2, 12)).round(3).tolist()
    there, turned = frame(kind, {"wide": wide, "long": long}), frame(kind, {"long": long, "wide": wide})
    target = np.array(wide)

    def net(row):
        return mb.reshape(mb.dense(row, 1), (-1,))

    named, both = ({"row": there}, target), {"target": target, "row": there}
    for train, test in (
        (named, ({"row": turned}, target)),
        (named, (turned, target)),
        ((there, target), ({"row": turned}, target)),
        (both, {**both, "row": turned}),
        ((there, target), {**both, "row": turned}),
        (both, (turned, target)),
    ):
        fitted = mb.fit(net, train, validation=test, **QUICK, loss=mb.mse_loss)
        expected = fitted.predict(there)
        for other in (turned, {"row": turned}):
            np.testing.assert_array_equal(fitted.predict(other), expected)
        assert fitted.summary.validation_loss == pytest.approx(((expected - target) ** 2).mean(), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_frame_has_the_columns_of_the_one_in_training(kind, here: Path):
    numbers = np.random.default_rng(0).standard_normal((12, 2)).round(3)
    wide, long = numbers.T.tolist()
    data = frame(kind, {"wide": wide, "long": long}), numbers.sum(axis=1)
    settings = {**QUICK, "loss": mb.mse_loss, "validation": (frame(kind, {"long": long, "wide": wide}), data[1])}
    fitted = mb.fit(lambda row: mb.reshape(mb.dense(row, 1), (-1,)), data, **settings)
    expected = fitted.predict(numbers)
    assert np.square(expected - data[1]).mean() == pytest.approx(fitted.summary.validation_loss, rel=1e-4)
    with pytest.raises(ConfigError, match=r"^test: has columns long, train has wide, long$"):
        mb.fit(print, data, (frame(kind, {"long": long}), data[1]), **settings)
    other = {"long": long, "note": ["x"] * 12, "wide": wide}
    np.testing.assert_array_equal(mb.load(fitted.summary.run).predict(frame(kind, other)), expected)
    with pytest.raises(
        RecordError, match=r"^frame: has columns long, note, the net takes wide, long: wide is missing$"
    ):
        fitted.predict(frame(kind, {"long": long, "note": wide}))
    with pytest.raises(RecordError, match=r"^frame: row 11: must be numbers, got '(None|nan)'$"):
        fitted.predict(frame(kind, {**other, "wide": [*wide[:-1], None]}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_frame_is_scaled_as_the_table_was(kind, here: Path):
    Path("table.csv").write_text("size,colour,kind\n" + "1,red,a\n2,blue,b\n3,red,b\n,blue,a\n" * 5)
    words = ["--source=table.csv", "--output=records", "--missing=fill", "--missing-values=-999"]
    assert script("table").main(words) == 0
    fitted = mb.fit(lambda row: mb.dense(mb.flatten(row), 2), "records/train", **QUICK)
    colours, sizes = ["red", "blue", "red", "blue", "blue"], [1.0, 2.0, 3.0, None, -999.0]
    found = fitted.predict(frame(kind, {"colour": colours, "size": sizes}), top=2)
    expected = [fitted.predict("table.csv", top=2)[n] for n in (0, 1, 2, 3, 3)]
    assert [(each.classes, each.probabilities) for each in found] == [
        (each.classes, pytest.approx(each.probabilities)) for each in expected
    ]
    with pytest.raises(RecordError, match=r"^frame: row 0: colour: must be one of .*, got 'green'$"):
        fitted.predict(frame(kind, {"colour": ["green"], "size": [1]}))


def test_a_line_of_names_may_be_numbers(here: Path):
    x = [1.0, 2.0, 3.0, 4.0]
    data = frame("OwnFrame", {"2019": x, "2020": x}), np.ones((4, 1))
    fitted = mb.fit(lambda row: mb.dense(row, 1), data, loss="mse_loss", **QUICK)
    Path("rows.csv").write_text("2019,2020\n1,2\n")
    np.testing.assert_array_equal(fitted.predict("rows.csv"), fitted.predict(np.array([[1.0, 2.0]])))


def test_a_text_is_cut_into_windows(here: Path):
    Path("corpus.txt").write_text("abcab" * 40)
    assert script("text").main(["--source", "corpus.txt", "--output", "records"]) == 0
    net, loss = lambda text: mb.embedding(text, 3, 3), partial(mb.cross_entropy, axis=2)
    fitted = mb.fit(net, "records/train", loss=loss, text={"context": 4}, **QUICK)
    Path("own.txt").write_text("cabbac")
    windows = np.array([[2, 0, 1, 1], [0, 2, 0, 0]], np.int32)
    np.testing.assert_array_equal(fitted.predict("own.txt"), fitted.predict(windows))
    Path("own.txt").write_text("cabx")
    with pytest.raises(RecordError, match=r"^own.txt: tokenizer.json: has no number for the character 'x', the text's"):
        fitted.predict("own.txt")
