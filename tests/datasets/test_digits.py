"""scikit-learn's digits as records."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mpibow.data import open_records
from mpibow.data.digits import ensure_digits, write_digits
from mpibow.errors import RecordError
from tests.data.sets import read
from tests.datasets.scripts import script
from tests.refusals import refuses

sklearn = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
digits = script("digits")


def test_every_fifth_image_is_a_test_image(tmp_path):
    original = sklearn.load_digits()
    train, test = map(open_records, ensure_digits(tmp_path / "digits"))
    assert (train.count, test.count, train.shape, train.classes) == (1437, 360, (1, 8, 8), 10)
    for data, chosen in ((test, np.arange(0, 1797, 5)), (train, np.flatnonzero(np.arange(1797) % 5))):
        images, labels = read(data)
        assert np.array_equal(images[:, 0], original.images[chosen])
        assert np.array_equal(labels, original.target[chosen])
        assert images.max() == 16
        assert data.mean[0] == pytest.approx(images.mean())


def test_ensure_writes_once(tmp_path, monkeypatch):
    train, test = ensure_digits(tmp_path / "digits")
    written = (train / "manifest.json").stat()
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)  # not even needed any more
    assert ensure_digits(tmp_path / "digits") == (train, test)
    assert (train / "manifest.json").stat() == written


def test_the_loser_uses_the_winner_s(tmp_path, monkeypatch):
    def load_slowly():
        monkeypatch.undo()
        write_digits(tmp_path / "digits")  # another process is faster
        return sklearn.load_digits()

    monkeypatch.setitem(sys.modules, "sklearn.datasets", SimpleNamespace(load_digits=load_slowly))
    train, _ = ensure_digits(tmp_path / "digits")
    assert open_records(train).count == 1437


def test_without_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with refuses(
        f"{tmp_path}/digits: the digits are part of scikit-learn, which is not installed; pip install -e '.[demo]'",
        RecordError,
    ):
        ensure_digits(tmp_path / "digits")
    assert list(tmp_path.iterdir()) == []


def test_the_script(tmp_path, capsys):
    path = str(tmp_path / "digits")
    assert digits.main(["--output", path]) == 0
    assert capsys.readouterr().out == f"{path}/train and {path}/test are written\n"
    assert digits.main(["--output", path]) == 3
    message = f"error: {path}: exists already; overwrite it (--overwrite) or choose another name\n"
    assert capsys.readouterr().err == message
    assert digits.main(["--output", path, "--overwrite"]) == 0
