"""CIFAR as records: CIFAR-10's own files where they are, small ones of every version and packing everywhere."""

import gzip
import hashlib
import io
import lzma
import os
import sys
import tarfile
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.convert import cifar as reader
from mpibow.convert.cifar_files import LABELS, VERSIONS, CifarVersion
from mpibow.data import open_records
from mpibow.errors import RecordError
from tests.convert import python2
from tests.datasets.scripts import ROOT, script

cifar = script("cifar")
REAL = ROOT.parent / "shared" / "data" / "cifar10"
RANDOM = np.random.default_rng(4)
PER_FILE = 2
IMAGES = RANDOM.integers(0, 256, (6 * PER_FILE, 3072), dtype=np.uint8)
FINE_LABELS = np.array([3, 9, 0, 1, 2, 8, 4, 5, 6, 7, 0, 9])
COARSE_LABELS = (FINE_LABELS + 5) % 20
AGAIN = "get the file again"
BINARY, PYTHON, BINARY100, PYTHON100 = VERSIONS
CIFAR10, FINE, COARSE = (each.names for each in LABELS.values())
EACH_VERSION = pytest.mark.parametrize("version", VERSIONS, ids=str)


def files(version: CifarVersion) -> dict[str, bytes]:
    """Every file of the version, with two images each and the names of the classes."""
    made = {}
    for number, name in enumerate(version.files):
        rows = slice(number * PER_FILE, (number + 1) * PER_FILE)
        fine, coarse = FINE_LABELS[rows].tolist(), COARSE_LABELS[rows].tolist()
        if version.form == "binary":
            columns = [fine] if version.set == "cifar10" else [coarse, fine]
            made[name] = np.hstack([np.array(columns, np.uint8).T, IMAGES[rows]]).tobytes()
        elif version.set == "cifar10":
            made[name] = python2.pickled(
                {"batch_label": name, "labels": fine, "data": IMAGES[rows], "filenames": ["a"]}
            )
        else:
            made[name] = python2.pickled({"fine_labels": fine, "coarse_labels": coarse, "data": IMAGES[rows]})
    return (
        made
        | {
            BINARY: {"batches.meta.txt": "\n".join(CIFAR10).encode() + b"\n\n", "readme.html": b"<html>"},
            PYTHON: {"batches.meta": python2.pickled({"num_vis": 3072, "label_names": list(CIFAR10)})},
            BINARY100: {
                f"{kind}_label_names.txt": "\n".join(n).encode() for kind, n in (("fine", FINE), ("coarse", COARSE))
            },
            PYTHON100: {"meta": python2.pickled({"fine_label_names": list(FINE), "coarse_label_names": list(COARSE)})},
        }[version]
    )


def folder(path: Path, version: CifarVersion, pack: Callable[[bytes], bytes] = bytes, end: str = "") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, data in files(version).items():
        known = name in version.files
        (path / f"{name}{end if known else ''}").write_bytes(pack(data) if known else data)
    return path


def archive(path: Path, *versions: CifarVersion) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = {".tar": "w:", ".xz": "w:xz"}.get(path.suffix, "w:gz")
    with tarfile.open(path, mode) as tar:
        for version in versions:
            tar.addfile(tarfile.TarInfo(version.folder))
            for name, data in sorted(files(version).items(), key=lambda file: file[0][::-1]):  # in no useful order
                member = tarfile.TarInfo(f"{version.folder}/{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


def check(output: Path, version: CifarVersion, coarse: bool = False) -> None:
    train = PER_FILE * (len(version.files) - 1)
    rows = {"train": slice(0, train), "test": slice(train, None)}
    labels = COARSE_LABELS if coarse else FINE_LABELS
    names = CIFAR10 if version.set == "cifar10" else COARSE if coarse else FINE
    count = PER_FILE * len(version.files)
    for part, chosen in rows.items():
        data = open_records(output / part)
        assert (data.shape, data.classes, data.manifest.class_names) == ((3, 32, 32), len(names), names)
        assert np.array_equal(data.labels(), labels[:count][chosen])
        for sample, image in enumerate(IMAGES[:count][chosen]):
            assert data.record(sample)[0] == image.tobytes()


def refusal(source: Path, **options: object) -> str:
    """The message; nothing may be left behind."""
    output = source.parent / "output"
    with pytest.raises(RecordError) as caught:
        cifar.convert(source, output, **{"any_count": True} | options)
    assert not list(source.parent.glob("*output*"))
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="../shared/data/cifar10, CIFAR-10's files, is not there")
def test_cifar10(tmp_path, capsys):
    path = tmp_path / "cifar10"
    assert cifar.main(["--source", str(REAL), "--output", str(path)]) == 0
    # 97 images of these files are not those published: see not_bit_exact.txt beside them
    assert capsys.readouterr().out.splitlines() == [
        f"{path}/train: 50,000 records of 10 classes, verified",
        f"{path}/test: 10,000 records of 10 classes, verified",
        f"{path}: CIFAR-10 (Krizhevsky, 2009), not the published files",
    ]
    train, test = open_records(path / "train"), open_records(path / "test")
    assert (train.count, test.count, train.shape, train.classes) == (50_000, 10_000, (3, 32, 32), 10)
    assert np.bincount(train.labels()).tolist() == [5_000] * 10
    assert np.bincount(test.labels()).tolist() == [1_000] * 10
    assert np.array(train.mean) / 255 == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)  # well known
    assert np.array(train.std) / 255 == pytest.approx([0.2470, 0.2435, 0.2616], abs=1e-4)
    assert sorted(train.manifest.sources) == [f"data_batch_{n}.bin.xz" for n in range(1, 6)]


@EACH_VERSION
@pytest.mark.parametrize("place", ["folder", "its own folder", "archive", "folder with the archive"])
def test_every_place(tmp_path, version: CifarVersion, place):
    source = tmp_path / "source"
    if "archive" in place:
        path = archive(source / version.archive, version)
        source = path if place == "archive" else source
        published = {version.archive: path.read_bytes()}
    else:
        folder(source / version.folder if "own" in place else source, version)
        published = {name: files(version)[name] for name in version.files if name.startswith("test")}
    cifar.convert(source, tmp_path / "output", any_count=True)
    check(tmp_path / "output", version)
    manifest = open_records(tmp_path / "output" / "test").manifest
    title = "CIFAR-10" if version.set == "cifar10" else "CIFAR-100"
    assert manifest.source == f"{title} (Krizhevsky, 2009), not the published files"
    assert manifest.sources == {name: f"md5 {hashlib.md5(data).hexdigest()}" for name, data in published.items()}


@pytest.mark.parametrize("name", ["a.tar", "a.tar.xz", "a.tgz"])
def test_archives_packed_otherwise(tmp_path, name):
    cifar.convert(archive(tmp_path / name, PYTHON), tmp_path / "output", any_count=True)
    check(tmp_path / "output", PYTHON)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("pack", "end"), [(gzip.compress, ".gz"), (lzma.compress, ".xz")])
def test_packed_files(tmp_path, pack: Callable[[bytes], bytes], end, workers):
    cifar.convert(folder(tmp_path / "source", BINARY, pack, end), tmp_path / "output", any_count=True, workers=workers)
    check(tmp_path / "output", BINARY)
    assert sorted(open_records(tmp_path / "output" / "test").manifest.sources) == [f"test_batch.bin{end}"]


@pytest.mark.parametrize("version", [BINARY100, PYTHON100], ids=str)
def test_coarse_labels(tmp_path, version: CifarVersion):
    cifar.convert(folder(tmp_path / "source", version), tmp_path / "output", coarse=True, any_count=True)
    check(tmp_path / "output", version, coarse=True)
    about = "CIFAR-100 (Krizhevsky, 2009), not the published files; coarse labels"
    assert open_records(tmp_path / "output" / "train").manifest.source == about


def test_coarse_labels_of_cifar10(tmp_path):
    source = folder(tmp_path / "source", BINARY)
    message = "CIFAR-10 has no coarse labels, CIFAR-100 has; leave out --coarse"
    assert refusal(source, coarse=True) == f"{source}: {message}"
    path = archive(tmp_path / "a.tar", BINARY)
    assert refusal(path, coarse=True) == f"{path}: {message}"


@EACH_VERSION
def test_names_are_known_without_their_file(tmp_path, version: CifarVersion):
    source = folder(tmp_path / "source", version)
    for file in source.iterdir():
        if file.name not in version.files:
            file.unlink()
    cifar.convert(source, tmp_path / "output", any_count=True)
    check(tmp_path / "output", version)


@pytest.mark.parametrize(
    ("version", "name", "data"),
    [
        (BINARY, "batches.meta.txt", b"a b c d e f g h i i"),
        (PYTHON, "batches.meta", python2.pickled({})),
        (PYTHON, "batches.meta", python2.pickled({"label_names": "abcdefghij"})),
    ],
)
def test_names_that_are_not_ten(tmp_path, version: CifarVersion, name, data):
    source = folder(tmp_path / "source", version)
    (source / name).write_bytes(data)
    assert refusal(source) == f"{source}/{name}: must have 10 different names of classes; {AGAIN} or remove it"


def test_two_sets(tmp_path):
    source = folder(folder(tmp_path / "source", PYTHON), BINARY100)
    message = "has CIFAR-10 and CIFAR-100; choose one by --set cifar10 or --set cifar100"
    assert refusal(source) == f"{source}: {message}"
    path = archive(tmp_path / "both.tar.gz", BINARY100, PYTHON)
    assert refusal(path) == f"{path}: {message}"
    for place in (source, path):
        for version in (PYTHON, BINARY100):
            cifar.convert(place, tmp_path / "output", set_=version.set, any_count=True, overwrite=True)
            check(tmp_path / "output", version)


def test_two_versions_of_one_set(tmp_path):
    source = folder(tmp_path / "source" / BINARY.folder, BINARY).parent
    (source / BINARY.folder / "data_batch_2.bin").unlink()
    archive(source / PYTHON.archive, PYTHON)
    cifar.convert(source, tmp_path / "output", any_count=True)  # the one that is whole
    assert list(open_records(tmp_path / "output" / "train").manifest.sources) == [PYTHON.archive]
    check(tmp_path / "output", PYTHON)


def test_nothing_there(tmp_path):
    source = tmp_path / "source"
    wanted = "--download, or place one of these files in the folder, or what it unpacks to:"
    ten = (
        "\n  cifar-10-binary.tar.gz  170,052,171 bytes  MD5 c32a1d4ab5d03f1284b67883e8d87530"
        "\n  cifar-10-python.tar.gz  170,498,071 bytes  MD5 c58f30108f718f92721af3b95e74349a"
    )
    hundred = (
        "\n  cifar-100-binary.tar.gz  168,513,733 bytes  MD5 03b5dce01913d631647c71ecec9e9cb8"
        "\n  cifar-100-python.tar.gz  169,001,437 bytes  MD5 eb9058c3a382ffc7106e4002c42a8d85"
    )
    message = f"{source}: has no files of CIFAR-10 or CIFAR-100; {wanted}{ten}{hundred}"
    assert refusal(source) == message
    folder(source, BINARY)
    assert refusal(source, set_="cifar100") == f"{source}: has no files of CIFAR-100; {wanted}{hundred}"
    path = archive(tmp_path / "empty.tar")
    assert refusal(path) == f"{path}: {message.removeprefix(f'{source}: ')}"


def test_missing_files(tmp_path):
    source = folder(tmp_path / "source", BINARY)
    (source / "data_batch_2.bin").unlink()
    (source / "test_batch.bin").unlink()
    message = (
        "of CIFAR-10's binary version, but no data_batch_2.bin, test_batch.bin; get what is missing, or the archive"
    )
    assert refusal(source) == f"{source}: has data_batch_1.bin, {message}"


def test_another_count(tmp_path):
    for version, right in ((BINARY, "10,000"), (PYTHON100, "50,000")):
        source = folder(tmp_path / version.set, version)
        first = next(iter(version.files))
        message = f"has 2 images, the published {first} has {right}; {AGAIN}, or --any-count"
        assert refusal(source, any_count=False) == f"{source}/{first}: {message}"


BAD_LABEL = np.full((1, 3073), 10, np.uint8).tobytes()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("data_batch_1.bin", b"", f"has no images; {AGAIN}"),
        ("data_batch_1.bin", bytes(3073 + 9), f"ends within record 1: it has 3,082 bytes, a record 3,073; {AGAIN}"),
        ("test_batch.bin", bytes(3073) + BAD_LABEL, f"record 1: labels is 10, it lies in [0, 10); {AGAIN}"),
        ("train.bin", bytes(3074) + BAD_LABEL, f"ends within record 1: it has 6,147 bytes, a record 3,074; {AGAIN}"),
        ("train.bin", b"\0d" + bytes(3072), f"record 0: fine_labels is 100, it lies in [0, 100); {AGAIN}"),
        ("train", b"\x80\x02N.", f"is the pickle of a NoneType, not of a dict; {AGAIN}"),
        (
            "train",
            b"\x80\x02cos\nsystem\nU\x02ls\x85R.",
            f"asks for os.system, which data have no need of; it may be malicious; {AGAIN}",
        ),
        (
            "train",
            python2.pickled({"fine_labels": [1]}),
            f"'data' is not an array of unsigned bytes in C order, of shape (n, 3072); {AGAIN}",
        ),
        (
            "test",
            python2.pickled({"labels": [1], "data": IMAGES[:1]}),
            f"'fine_labels' is not a list of integers, as CIFAR-100's Python version has it; {AGAIN}",
        ),
        (
            "test_batch",
            python2.pickled({"labels": ["1"], "data": IMAGES[:1]}),
            f"'labels' is not a list of integers, as CIFAR-10's Python version has it; {AGAIN}",
        ),
        ("test_batch", python2.pickled({"labels": [1], "data": IMAGES[:2]}), f"has 2 images, 1 labels; {AGAIN}"),
        (
            "test_batch",
            python2.pickled({"labels": [1, -1], "data": IMAGES[:2]}),
            f"record 1: labels is -1, it lies in [0, 10); {AGAIN}",
        ),
    ],
)
def test_bad_files_are_named(tmp_path, name, data, message):
    version = reader.VERSION_OF[name]
    source = folder(tmp_path / "source", version)
    (source / name).write_bytes(data)
    assert refusal(source) == f"{source}/{name}: {message}"
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.add(source, "x")
    assert refusal(tmp_path / "a.tar.gz") == f"{tmp_path}/a.tar.gz: {name}: {message}"


def test_a_file_too_large(tmp_path, monkeypatch):
    source = folder(tmp_path / "source", BINARY, gzip.compress, ".gz")
    monkeypatch.setattr(reader, "LARGEST", 6_145)
    assert refusal(source) == (
        f"{source}/data_batch_1.bin.gz: unpacks to more than 6,145 bytes, more than any file of CIFAR; {AGAIN}"
    )


def test_a_truncated_archive(tmp_path):
    whole = archive(tmp_path / "a.tar.gz", BINARY).read_bytes()
    path = tmp_path / "b.tar.gz"
    for size in [*range(0, len(whole) - 40, 997), *range(len(whole) - 40, len(whole))]:
        path.write_bytes(whole[:size])
        message = refusal(path)
        assert message.startswith(f"{path}: is not a complete gzip file: ") or size == 0, message
    path.write_bytes(whole[:-8] + bytes(8))
    assert refusal(path).startswith(f"{path}: is not a complete gzip file: crc check failed")
    path.write_bytes(b"<html>not found</html>")
    assert refusal(path).startswith(f"{path}: is not a complete gzip file: not a gzipped file")
    path.write_bytes(gzip.compress(b"<html>not found</html>"))
    assert refusal(path) == f"{path}: is not a complete tar archive: truncated header; {AGAIN}"


def test_a_member_longer_than_any_file(tmp_path):
    """Of 10^25 bytes: as a stream, tarfile would skip them block by block."""
    data = bytearray(archive(tmp_path / "a.tar", BINARY).read_bytes())
    data[124:136] = b"\x80" + b"0" * 10 + b"\0"  # of the first member
    header = bytearray(data[:512])
    header[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(data)
    message = "cannot fit 'int' into an offset-sized integer"
    assert refusal(tmp_path / "a.tar") == f"{tmp_path}/a.tar: is not a complete tar archive: {message}; {AGAIN}"


@given(st.sampled_from(sorted(reader.VERSION_OF)), st.binary(max_size=60), st.integers(0, 7000))
def test_any_bytes(name, rubbish, at):
    version = reader.VERSION_OF[name]
    start, labels = files(version)[name], LABELS[version.set, version.set == "cifar100"]
    for data in (rubbish, start[:at] + rubbish + start[at + len(rubbish) :]):
        try:
            reader.batch_of(reader.Content("x", data, "", ""), name, labels, True)
        except RecordError as error:
            assert str(error).startswith("x: ")  # noqa: PT017


@pytest.mark.parametrize("packed", [False, True])
def test_the_bytes_of_a_file_go_once_it_is_read(tmp_path, monkeypatch, packed):
    """A pickle's arrays are copies; all of CIFAR-10 would otherwise be in memory twice."""
    earlier = []
    batch_of = reader.batch_of

    def watched(content: reader.Content, *rest) -> reader.CifarBatch:
        assert not any(ref() for ref in earlier)
        earlier.append(weakref.ref(content))
        before = sys.getrefcount(content.data)
        batch = batch_of(content, *rest)
        after = sys.getrefcount(content.data)  # outside the assert, which keeps what it looks at
        assert after == before
        return batch

    monkeypatch.setattr(reader, "batch_of", watched)
    source = archive(tmp_path / "a.tar.gz", PYTHON) if packed else folder(tmp_path / "source", PYTHON)
    batches = reader.read_cifar(source, any_count=True).batches
    assert len(batches) == len(earlier) == 6
    assert not any(ref() for ref in earlier)


def test_the_published_files_are_recognised(tmp_path, monkeypatch):
    source = folder(tmp_path / "source", PYTHON, gzip.compress, ".gz")
    for name in PYTHON.files:
        monkeypatch.setitem(PYTHON.files, name, hashlib.md5(files(PYTHON)[name]).hexdigest())
    for place in (source, archive(tmp_path / "a.tar", PYTHON)):
        cifar.convert(place, tmp_path / "output", any_count=True, overwrite=True)
        about = "CIFAR-10 (Krizhevsky, 2009), the published files"
        assert open_records(tmp_path / "output" / "train").manifest.source == about
    monkeypatch.setitem(PYTHON.files, "test_batch", "0" * 32)
    cifar.convert(source, tmp_path / "output", any_count=True, overwrite=True)
    assert open_records(tmp_path / "output" / "train").manifest.source.endswith(", not the published files")


def test_the_output_is_named_after_the_set(here: Path):
    assert cifar.main(["--source", str(folder(here / "source", BINARY100)), "--any-count"]) == 0
    check(here / "data" / "cifar100", BINARY100)


def test_a_download_is_of_one_set(capsys):
    with pytest.raises(SystemExit):
        cifar.main(["--download"])
    assert capsys.readouterr().err.endswith("error: --download needs --set cifar10 or --set cifar100\n")


def test_download(tmp_path, monkeypatch, capsys):
    path = archive(tmp_path / "mirror" / BINARY100.archive, BINARY100)
    monkeypatch.setattr(cifar, "PAGE", path.parent.as_uri() + "/")
    words = f"--source {tmp_path}/got --output {tmp_path}/output --any-count --set cifar100".split()
    assert cifar.main([*words, "--download"]) == 3
    found, url = hashlib.md5(path.read_bytes()).hexdigest(), f"{cifar.PAGE}{BINARY100.archive}"
    assert capsys.readouterr().err.startswith(
        f"error: {url}: cannot be downloaded: MD5 is {found}, it must be {BINARY100.md5}; --download, or place one of "
    )
    assert os.listdir(tmp_path / "got") == []
    known = {**vars(BINARY100), "md5": found}
    monkeypatch.setattr(cifar, "VERSIONS", [CifarVersion(**known)])
    assert cifar.main([*words, "--download"]) == 0
    check(tmp_path / "output", BINARY100)
    path.unlink()
    assert cifar.main([*words, "--download", "--overwrite"]) == 0  # what is there is not fetched again
