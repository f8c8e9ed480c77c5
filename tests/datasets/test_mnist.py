"""IDX files as records: MNIST's own where they are, small made-up ones everywhere."""

import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from mpibow.data import open_records, verify
from mpibow.errors import RecordError
from tests.data.sets import read
from tests.datasets.scripts import ROOT, script

mnist = script("mnist")
MNIST = ROOT.parent / "shared" / "data" / "mnist"
RANDOM = np.random.default_rng(1)
IMAGES = RANDOM.integers(0, 256, (6, 3, 2), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 1, 0, 2], np.uint8)


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def source(folder: Path, prefix: str = "", test: str = "t10k", mark: str = "-", end: str = ".gz") -> Path:
    """Four files: six images to train, the first two to test."""
    folder.mkdir(exist_ok=True)
    for part, count in (("train", 6), (test, 2)):
        for kind, array in ((f"images{mark}idx3", IMAGES[:count]), (f"labels{mark}idx1", LABELS[:count])):
            data = idx(array)
            name = f"{prefix}{part}-{kind}-ubyte{end}"
            (folder / name).write_bytes(gzip.compress(data) if end else data)
    return folder


def refusal(folder: Path, **options: object) -> str:
    """The message; nothing may be left behind."""
    output = folder.parent / "output"
    with pytest.raises(RecordError) as caught:
        mnist.convert(folder, output, **options)
    assert not list(folder.parent.glob("*output*"))
    return str(caught.value)


@pytest.mark.skipif(not MNIST.is_dir(), reason="../shared/data/mnist, MNIST's own files, is not there")
def test_mnist(tmp_path, capsys):
    path = tmp_path / "mnist"
    assert mnist.main(["--source", str(MNIST), "--output", str(path)]) == 0
    assert capsys.readouterr().out == (
        f"{path}/train: 60,000 records of 10 classes, verified\n{path}/test: 10,000 records of 10 classes, verified\n"
    )
    train, test = open_records(path / "train"), open_records(path / "test")
    assert (train.count, test.count, train.shape, train.classes) == (60_000, 10_000, (1, 28, 28), 10)
    assert train.mean[0] / 255 == pytest.approx(0.1306604762738429)  # well known: 0.1307 and 0.3081
    assert train.std[0] / 255 == pytest.approx(0.30810780385646264)
    for data, name in ((train, "train"), (test, "t10k")):
        raw = gzip.decompress((MNIST / f"{name}-images-idx3-ubyte.gz").read_bytes())[16:]
        images, labels = read(data)
        assert images.tobytes() == raw
        raw = gzip.decompress((MNIST / f"{name}-labels-idx1-ubyte.gz").read_bytes())[8:]
        assert labels.astype(np.uint8).tobytes() == raw
        assert data.manifest.source == "MNIST (LeCun, Cortes and Burges), the original files"
    for name, (size, checksum) in mnist.MNIST.items():
        data = (MNIST / name).read_bytes()
        assert (len(data), hashlib.md5(data).hexdigest()) == (size, checksum)


@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize(("prefix", "test"), [("", "t10k"), ("emnist-digits-", "test")])
def test_any_name(tmp_path, mark, end, prefix, test):
    mnist.convert(source(tmp_path / "source", prefix, test, mark, end), tmp_path / "output", prefix=prefix)
    assert sorted(os.listdir(tmp_path)) == ["output", "source"]
    for name, count in (("train", 6), ("test", 2)):
        data = open_records(tmp_path / "output" / name)
        assert (data.count, data.shape, data.classes) == (count, (1, 3, 2), 3)
        for sample in range(count):
            assert data.record(sample) == (IMAGES[sample].tobytes(), LABELS[sample])
        assert data.manifest.source == f"IDX files {prefix}".rstrip()
        file = f"{prefix}{'train' if name == 'train' else test}-images{mark}idx3-ubyte{end}"
        checksum = hashlib.md5((tmp_path / "source" / file).read_bytes()).hexdigest()
        assert data.manifest.sources[file] == f"md5 {checksum}"


def test_labels_that_start_at_one(tmp_path):
    folder = source(tmp_path / "source")
    assert refusal(folder, first_label=1) == (f"{folder}/train-labels-idx1-ubyte.gz: has a label 0, --first-label is 1")
    for name, count in (("train", 6), ("t10k", 2)):
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS[:count] + 1)))
    assert refusal(folder) == (
        f"{folder}: no label is 0, the lowest is 1, so that class 0 would be empty; pass --first-label 1"
    )
    mnist.convert(folder, tmp_path / "output", first_label=1)
    data = open_records(tmp_path / "output" / "train")
    assert data.classes == 3
    assert np.array_equal(data.labels(), LABELS)
    assert data.manifest.source == "IDX files; labels are those of the files less 1"


def test_missing_files_are_named(tmp_path):
    folder = source(tmp_path / "source")
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    assert refusal(folder) == (
        f"{folder}: has no t10k-labels-idx1-ubyte.gz, nor one without .gz or with .idx; "
        f"--download, or place these files in {folder}:\n"
        "  train-images-idx3-ubyte.gz  9,912,422 bytes  MD5 f68b3c2dcbeaaa9fbdd348bbdeb94873\n"
        "  train-labels-idx1-ubyte.gz  28,881 bytes  MD5 d53e105ee54ea40749a09fcbcd1e9432\n"
        "  t10k-images-idx3-ubyte.gz  1,648,877 bytes  MD5 9fb629c4189551a2d022fa330f9573f3\n"
        "  t10k-labels-idx1-ubyte.gz  4,542 bytes  MD5 ec29112dd5afa0611ce80d1b7f02629c"
    )
    assert refusal(folder, prefix="emnist-") == (
        f"{folder}: has no emnist-train-images-idx3-ubyte.gz, nor one without .gz or with .idx; "
        "pass another --source, or --prefix 'emnist-' is wrong"
    )


AGAIN = "get the file again"
IDX1 = "an IDX file of bytes in 1 dimensions with 00 00 08 01"
IDX3 = "an IDX file of bytes in 3 dimensions with 00 00 08 03"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("train-images-idx3", b"\0\0\x0d\x03", f"starts with 00 00 0d 03, {IDX3}"),
        ("train-images-idx3", idx(IMAGES)[:9], f"ends within the header; {AGAIN}"),
        ("train-images-idx3", b"", f"ends within the header; {AGAIN}"),
        ("train-images-idx3", idx(IMAGES)[:-1], f"ends within image 5 of 6; {AGAIN}"),
        ("train-images-idx3", idx(IMAGES) + b"\0", f"has more bytes after the last image of its header; {AGAIN}"),
        (
            "train-images-idx3",
            idx(IMAGES[:5]),
            "has 5 images, train-labels-idx1-ubyte has 6 labels; do they belong together?",
        ),
        (
            "train-images-idx3",
            idx(IMAGES)[:8] + b"\xff\xff\xff\xff" * 2,
            "image sides must lie in [1, 4096], got 4294967295 x 4294967295",
        ),
        ("train-images-idx3", idx(IMAGES[:, :0]), "image sides must lie in [1, 4096], got 0 x 2"),
        (
            "t10k-images-idx3",
            idx(IMAGES[:0]),
            "has 0 images, t10k-labels-idx1-ubyte has 2 labels; do they belong together?",
        ),
        ("t10k-labels-idx1", idx(LABELS[:2]) + b"\0", f"has 3 labels, its header has 2; {AGAIN}"),
        ("t10k-labels-idx1", idx(IMAGES), f"starts with 00 00 08 03, {IDX1}"),
    ],
)
def test_bad_files_are_named(tmp_path, name, data, message):
    folder = source(tmp_path / "source", end="")
    (folder / f"{name}-ubyte").write_bytes(data)
    assert refusal(folder) == f"{folder}/{name}-ubyte: {message}"


@pytest.mark.parametrize("name", ["train-images-idx3", "train-labels-idx1", "t10k-images-idx3"])
def test_truncated_gzip_at_every_byte(tmp_path, name):
    folder = source(tmp_path / "source")
    path = folder / f"{name}-ubyte.gz"
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert refusal(folder).startswith(f"{path}: ")
    path.write_bytes(whole[:-8] + b"\xff" * 8)
    assert refusal(folder).startswith(f"{path}: is not a complete gzip file: crc check failed")
    path.write_bytes(b"<html>not found</html>")
    assert refusal(folder).startswith(f"{path}: is not a complete gzip file: not a gzipped file")


def test_what_is_written_is_verified(tmp_path, monkeypatch):
    folder = source(tmp_path / "source")
    monkeypatch.setattr(verify, "damages", lambda path, checked: iter(["record 1: checksum"]))
    assert refusal(folder) == (
        f"{tmp_path}/output: the records differ when read back; is the disk sound? record 1: checksum"
    )


@pytest.fixture
def mirror(tmp_path, monkeypatch) -> Path:
    """A mirror on this machine, of four small files."""
    folder = source(tmp_path / "mirror")
    known = {name: ((folder / name).stat().st_size, md5(folder / name)) for name in mnist.MNIST}
    monkeypatch.setattr(mnist, "MNIST", known)
    monkeypatch.setattr(mnist, "MIRROR", folder.as_uri() + "/")
    return folder


def test_download(tmp_path, mirror: Path):
    words = ["--source", str(tmp_path / "got"), "--output", str(tmp_path / "output"), "--download"]
    assert mnist.main(words) == 0
    assert sorted(os.listdir(tmp_path / "got")) == sorted(mnist.MNIST)
    assert open_records(tmp_path / "output" / "train").manifest.source.startswith("MNIST ")
    (mirror / "t10k-labels-idx1-ubyte.gz").unlink()
    assert mnist.main([*words, "--overwrite"]) == 0  # what is there is not fetched again


def test_download_that_fails(tmp_path, mirror: Path, capsys):
    words = ["--source", str(tmp_path / "got"), "--output", str(tmp_path / "output"), "--download"]
    url = mnist.MIRROR + "train-labels-idx1-ubyte.gz"
    file = mirror / "train-labels-idx1-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-1])
    assert mnist.main(words) == 3
    found, right = md5(file), mnist.MNIST[file.name][1]
    error = capsys.readouterr().err
    assert error.startswith(
        f"error: {url}: cannot be downloaded: MD5 is {found}, it must be {right}; "
        f"place these files in {tmp_path}/got:\n"
    )
    assert f"  {file.name}  {mnist.MNIST[file.name][0]:,} bytes  MD5 {right}" in error.splitlines()
    file.unlink()
    assert mnist.main(words) == 3
    assert capsys.readouterr().err.startswith(f"error: {url}: cannot be downloaded: <urlopen error ")
    assert os.listdir(tmp_path / "got") == ["train-images-idx3-ubyte.gz"]
    assert not (tmp_path / "output").exists()


def test_download_overwrites_no_other_file(tmp_path, mirror: Path, capsys):
    (tmp_path / "got").mkdir()
    path = tmp_path / "got" / "train-images-idx3-ubyte.gz"
    path.write_bytes(b"Fashion-MNIST has the same names")
    assert mnist.main(["--source", str(tmp_path / "got"), "--download"]) == 3
    found, right, url = md5(path), mnist.MNIST[path.name][1], mnist.MIRROR + path.name
    assert capsys.readouterr().err == (
        f"error: {path}: MD5 is {found}, that of {url} is {right}; remove it or choose another --source\n"
    )
    with pytest.raises(SystemExit):
        mnist.main(["--source", str(tmp_path / "got"), "--download", "--prefix", "emnist-"])
    assert "--download gets MNIST only" in capsys.readouterr().err
