"""TFRecord files as records: a genuine one where it is, and small ones made by hand of every form."""

import hashlib
import struct
from functools import partial
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from mpibow.convert.entries import record_images
from mpibow.convert.recode import ToEncoded
from mpibow.convert.tfrecord_images import FeatureNames, Pixels, image_of, pieces, survey
from mpibow.data import open_records
from mpibow.errors import RecordError
from tests.convert.examples import example, frame, write, write_index
from tests.data.photos import encode
from tests.data.sets import read as read_all
from tests.datasets.scripts import ROOT, Converter, records, script
from tests.refusals import refuses

tfrecord = script("tfrecord")
run = Converter(tfrecord, ("--workers", "1"))
refusal = run.refusal
MNIST = ROOT.parent / "shared" / "data" / "tfrecord" / "tfx_mnist.tfrecord"


def encoded(number: int, form: str = "PNG") -> bytes:
    return encode(Image.fromarray(np.full((2 + number, 3, 3), 12 * number, np.uint8)), form)


def images(labels: list[int], form: str = "PNG", **more: list) -> list[bytes]:
    return [
        example(image_encoded=[encoded(number, form)], image_class_label=[label], **more)
        for number, label in enumerate(labels)
    ]


@pytest.mark.skipif(not MNIST.is_file(), reason="../shared/data/tfrecord, a genuine TFRecord file, is not there")
def test_a_genuine_file(tmp_path, capsys):
    names = ["--image-feature", "image_floats", "--label-feature", "image_class"]
    assert tfrecord.main(["--train", str(MNIST), "--list"]) == 0
    assert capsys.readouterr().out == f"{MNIST}: first record\n  image_class   1 int64\n  image_floats  784 float\n"
    words = ["--train", str(MNIST), *names, "--shape", "1,28,28", "--output", str(tmp_path / "output")]
    assert tfrecord.main([*words, "--workers", "2"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/output/train: 1,000 records of 10 classes, verified\n"
    data = open_records(tmp_path / "output" / "train")
    assert (data.count, data.shape, data.dtype, data.classes) == (1000, (1, 28, 28), np.float32, 10)
    read, labels = read_all(data)

    file, at = MNIST.read_bytes(), 0  # its examples are all laid out alike: label first, then the floats at the end
    for number in range(1000):
        (size,) = struct.unpack_from("<Q", file, at)
        record = file[at + 12 : at + 12 + size]
        assert record[3:19] == b"\x0a\x14\x0a\x0bimage_class\x12"
        assert labels[number] == record[24]
        assert read[number].tobytes() == record[-784 * 4 :]
        at += size + 16
    assert at == len(file)
    checksum = hashlib.md5(file, usedforsecurity=False).hexdigest()
    assert data.manifest.sources == {"tfx_mnist.tfrecord": f"md5 {checksum}"}
    assert data.manifest.source == "TFRecord files, images image_floats, labels image_class"
    assert read.min() == -0.5  # x / 255 - 0.5
    assert read.max() == 0.5


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
@pytest.mark.parametrize("index", [False, True])
def test_encoded_images_are_kept(tmp_path, form, index):
    parts = {"train": images([1, 3, 2, 1], form), "test": images([3, 1], form)}
    for name, examples in parts.items():
        for number in range(2):
            half = examples[number * len(examples) // 2 : (number + 1) * len(examples) // 2]
            file = write(tmp_path / "in" / f"{name}-{number:05d}-of-00002", *half)
            write_index(tmp_path / "index" / f"{file.name}{'.idx' * number}", *half)
    words = [f"--{name}={tmp_path}/in/{name}-*" for name in parts]
    more = ["--index", str(tmp_path / "index")] if index else []
    assert run(tmp_path, *words, "--first-label", "1", *more) == 0
    for name, labels in (("train", [0, 2, 1, 0]), ("test", [2, 0])):
        assert records(tmp_path / "output" / name) == [(encoded(i, form), label) for i, label in enumerate(labels)]
        known = open_records(tmp_path / "output" / name).manifest
        assert (known.form.encoding, known.classes, known.class_names) == (form.lower(), 3, ())
        first = tmp_path / "in" / f"{name}-00000-of-00002"
        assert known.sources[first.name] == f"md5 {hashlib.md5(first.read_bytes()).hexdigest()}"
        assert known.source == "TFRecord files, images image/encoded, labels image/class/label less 1"
    pixels = np.concatenate([np.full((2 + i) * 3, 12 * i) for i in range(4)])
    train = open_records(tmp_path / "output" / "train")
    assert train.mean == pytest.approx([pixels.mean()] * 3)
    assert train.std == pytest.approx([pixels.std()] * 3)


def test_many_files_have_one_checksum(tmp_path):
    for number, data in enumerate(images([0] * 9)):
        write(tmp_path / "in" / f"{number}", data)
    assert run(tmp_path, f"--train={tmp_path}/in/*") == 0
    assert list(open_records(tmp_path / "output" / "train").manifest.sources) == ["train: 0 ..., 9 images"]


PIXELS = np.arange(3 * 2 * 4, dtype=np.uint8).reshape(3, 2, 4)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", ["bytes", "float bytes", "floats", "integers"])
@pytest.mark.parametrize("layout", ["chw", "hwc"])
def test_pixels(tmp_path, kind, layout, packed):
    stored = PIXELS.transpose(1, 2, 0) if layout == "hwc" else PIXELS
    values = {
        "bytes": [stored.tobytes()],
        "float bytes": [stored.astype("<f4").tobytes()],
        "floats": stored.astype(float).ravel().tolist(),
        "integers": stored.ravel().tolist(),
    }[kind]
    write(tmp_path / "a", example(packed, x=values, y=[0]), example(packed, x=values, y=[4]))
    words = [f"--train={tmp_path}/a", "--image-feature=x", "--label-feature=y", "--shape=3,2,4", "--layout", layout]
    assert run(tmp_path, *words, "--dtype", "float32" if kind == "float bytes" else "uint8") == 0
    dtype = np.float32 if "float" in kind else np.uint8
    data = open_records(tmp_path / "output" / "train")
    assert (data.shape, data.dtype, data.classes) == ((3, 2, 4), dtype, 5)
    assert records(tmp_path / "output" / "train") == [(PIXELS.astype(dtype).tobytes(), label) for label in (0, 4)]


def test_names_of_classes(tmp_path):
    examples = [example(x=[encoded(i)], y=[y], name=[name]) for i, (y, name) in enumerate([(0, b"cat"), (2, b"dog")])]
    write(tmp_path / "a", *examples)
    words = [f"--train={tmp_path}/a", "--image-feature=x", "--label-feature=y", "--name-feature=name"]
    assert run(tmp_path, *words, "--classes", "4") == 0
    known = open_records(tmp_path / "output" / "train").manifest
    assert (known.classes, known.class_names) == (4, ("cat", "unknown-1", "dog", "unknown-3"))


def test_a_fraction_becomes_test(tmp_path):
    write(tmp_path / "a", *images([0, 1] * 10))
    assert run(tmp_path, f"--train={tmp_path}/a", "--test-fraction", "0.3", "--seed", "5") == 0
    train, test = (records(tmp_path / "output" / name) for name in ("train", "test"))
    assert sorted(train + test) == sorted((encoded(i), i % 2) for i in range(20))
    assert [sum(label for _, label in part) for part in (train, test)] == [7, 3]
    known = open_records(tmp_path / "output" / "test").manifest
    assert known.source.endswith("labels image/class/label; test: 0.3 of every class, seed 5")
    assert list(known.sources) == ["a"]


def test_both_kinds_of_images_become_one(tmp_path, capsys):
    write(tmp_path / "a", *images([0, 1]), *images([0], "JPEG"))
    words = [f"--train={tmp_path}/a"]
    assert refusal(tmp_path, capsys, *words) == (
        f"{tmp_path}/a: record 2: has a jpeg image, {tmp_path}/a: record 0 has a png one; "
        "make them one kind by --encode jpeg"
    )
    assert run(tmp_path, *words, "--encode", "png") == 0
    (first, _), (second, _), (third, _) = records(tmp_path / "output" / "train")
    assert (first, second) == (encoded(0), encoded(1))
    decoded = Image.open(BytesIO(third))
    assert decoded.format == "PNG"
    assert np.array_equal(np.asarray(decoded), np.asarray(Image.open(BytesIO(encoded(0, "JPEG")))))
    assert "a: record 2" in open_records(tmp_path / "output" / "train").manifest.sources


LABEL, SIZE = "image/class/label", len(encoded(0))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            example(x=[b"1"], y=[2]),
            "has no feature image/encoded; it has x (1 bytes of 1 bytes), y (1 int64); "
            "choose by --image-feature and --label-feature",
        ),
        (b"", "has no feature image/encoded; it has none; choose by --image-feature and --label-feature"),
        (
            example(image_encoded=[encoded(0)], image_class_label=[1, 2]),
            f"{LABEL} is 2 int64, a label is 1 int64; it has {LABEL} (2 int64), "
            f"image/encoded (1 bytes of {SIZE} bytes); choose by --label-feature",
        ),
        (
            example(image_encoded=[encoded(0)], image_class_label=[b"cat"]),
            f"{LABEL} is 1 bytes of 3 bytes, a label is 1 int64; it has {LABEL} (1 bytes of 3 bytes), "
            f"image/encoded (1 bytes of {SIZE} bytes); choose by --label-feature",
        ),
        (
            example(image_encoded=[encoded(0)], image_class_label=[-1]),
            f"{LABEL} is -1, the lowest (--first-label) is 0",
        ),
        (
            example(image_encoded=[b"GIF89a"], image_class_label=[0]),
            "image/encoded is neither JPEG nor PNG, it starts with 47 49 46 38 39 61; "
            "if its bytes are pixels pass --shape C,H,W",
        ),
        (
            example(image_encoded=[b"", b""], image_class_label=[0]),
            "image/encoded is 2 bytes of 0, 0 bytes, an image is 1 bytes, or a list of numbers",
        ),
        (
            example(image_encoded=[1, 2], image_class_label=[0]),
            "the image is a list of int64; pass its shape, --shape C,H,W",
        ),
        (b"\x0a\x05", "is not a tf.Example: damaged, or another kind of record"),
    ],
)
def test_examples_that_do_not_fit(tmp_path, capsys, data, message):
    write(tmp_path / "a", data)
    assert refusal(tmp_path, capsys, f"--train={tmp_path}/a") == f"{tmp_path}/a: record 0: {message}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([bytes(5)], "image has 5 bytes, must have 4 for uint8 (1, 2, 2)"),
        ([1.0] * 5, "image has 5 values, must have 4 for (1, 2, 2)"),
        ([0, 1, 2, 256], "integers of an image must lie in [0, 255], got 0 to 256"),
        ([0, 1, 2, -1], "integers of an image must lie in [0, 255], got -1 to 2"),
    ],
)
def test_pixels_that_do_not_fit(tmp_path, capsys, values, message):
    write(tmp_path / "a", example(image_encoded=values, image_class_label=[0]))
    assert refusal(tmp_path, capsys, f"--train={tmp_path}/a", "--shape=1,2,2") == f"{tmp_path}/a: record 0: {message}"


def test_labels_that_do_not_fit(tmp_path, capsys):
    write(tmp_path / "a", *images([1, 5]))
    assert refusal(tmp_path, capsys, f"--train={tmp_path}/a") == (
        "no label is 0, the lowest is 1, so that class 0 would be empty; pass --first-label 1, or --classes"
    )
    assert refusal(tmp_path, capsys, f"--train={tmp_path}/a", "--first-label=1", "--classes=4") == (
        "labels less --first-label 1 lie in [0, 4) (--classes), got 4"
    )
    write(tmp_path / "b", example(x=[encoded(0)], y=[1], n=[b"cat"]), example(x=[encoded(0)], y=[1], n=[b"dog"]))
    words = ["--image-feature=x", "--label-feature=y", "--name-feature=n", "--first-label=1"]
    assert refusal(tmp_path, capsys, f"--train={tmp_path}/b", *words) == (
        f"{tmp_path}/b: record 1: label 1 is 'dog', before it was 'cat'"
    )
    write(tmp_path / "c", example(x=[encoded(0)], y=[1], n=[b"cow"]))
    write(tmp_path / "b", example(x=[encoded(0)], y=[1], n=[b"cat"]))
    assert refusal(tmp_path, capsys, f"--train={tmp_path}/[bc]", *words) == (
        f"{tmp_path}/c: class 0 is 'cow', in files before it 'cat'"
    )
    assert refusal(tmp_path, capsys, f"--train={tmp_path}/b", f"--test={tmp_path}/c", *words) == (
        f"{tmp_path}/c: class 0 is 'cow', in files before it 'cat'"
    )
    assert refusal(tmp_path, capsys, f"--train={tmp_path}/b", f"--test={tmp_path}/b", *words) == (
        f"{tmp_path}/b: is both to train and to test; give other files to --train or --test"
    )


def test_files_that_are_not_there(tmp_path, capsys):
    assert refusal(tmp_path, capsys, f"--train={tmp_path}/x*") == (
        f"{tmp_path}/x*: there are no such files; name a folder, or a pattern in quotes"
    )
    write(tmp_path / "train-00001-of-00003.tfrecord", *images([0]))
    words = [f"--train={tmp_path}/train-*"]
    assert refusal(tmp_path, capsys, *words) == (
        f"{tmp_path}: 2 files of the set are missing: train-00000-of-00003, train-00002-of-00003; "
        "get them, or convert without them: --partial"
    )
    assert refusal(tmp_path, capsys, *words, "--partial", f"--index={tmp_path}") == (
        f"{tmp_path}: has no train-00001-of-00003.tfrecord.idx, nor train-00001-of-00003.tfrecord; "
        "make it by DALI's tfrecord2idx"
    )
    assert run(tmp_path, *words, "--partial") == 0
    assert open_records(tmp_path / "output" / "train").count == 1
    write(tmp_path / "empty")
    for words in ([], ["--list"]):
        assert tfrecord.main([f"--train={tmp_path}/empty", f"--output={tmp_path}/b", *words]) == 3
        assert capsys.readouterr().err == f"error: {tmp_path}/empty: has no records\n"


def test_a_folder_with_both_parts(tmp_path, capsys):
    write(tmp_path / "in/train-00000-of-00001", *images([0, 1, 0]))
    write(tmp_path / "in/validation-00000-of-00001", *images([1]))
    assert refusal(tmp_path, capsys, f"--source={tmp_path}/in", "--test-fraction=0.5") == (
        f"{tmp_path}/in/validation-00000-of-00001: is the test part already; leave out --test-fraction"
    )
    assert run(tmp_path, f"--source={tmp_path}/in") == 0
    assert [len(records(tmp_path / "output" / part)) for part in ("train", "test")] == [3, 1]


def test_a_damaged_image_is_found_by_decoding(tmp_path, capsys):
    noise = np.random.default_rng(4).integers(0, 256, (40, 40), dtype=np.uint8)
    broken = encode(Image.fromarray(noise))[:-100]
    write(tmp_path / "a", *images([0], "JPEG"), example(image_encoded=[broken], image_class_label=[0]))
    words = [f"--train={tmp_path}/a", "--statistics=1"]  # the first
    assert refusal(tmp_path, capsys, *words, "--decode").startswith(f"{tmp_path}/a: record 1: cannot be decoded: ")
    assert refusal(tmp_path, capsys, f"--train={tmp_path}/a").startswith(f"{tmp_path}/a: record 1: cannot be decoded: ")
    assert run(tmp_path, *words) == 0  # not asked for


@given(st.binary(max_size=30), st.integers(0, 140), st.integers(0, 30), st.booleans())
def test_any_example(tmp_path_factory, rubbish, at, less, raw):
    """Whose checksums are right: only a rule can refuse it."""
    data = images([1])[0]
    path = tmp_path_factory.getbasetemp() / "rubbish"
    path.write_bytes(frame(data[:at] + rubbish + data[at + less :]))
    wanted = FeatureNames(name="image/class/label", raw=raw)
    try:
        found = survey(wanted, pieces([path], None)[0])
        make = Pixels((1, 2, 2)) if raw else ToEncoded("png", decode=True)
        record_images(partial(image_of, wanted), make, [found.group.entry(0)])
    except RecordError as error:
        assert str(error).startswith(f"{path}: ")  # noqa: PT017


def test_an_existing_output_is_refused_before_anything_is_read(tmp_path, capsys):
    write(tmp_path / "a", *images([0]))
    assert run(tmp_path, f"--train={tmp_path}/a") == 0
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes() + b"damaged")
    (tmp_path / ".output.tmp-1").mkdir()
    assert refusal(tmp_path, capsys, f"--train={tmp_path}/a") == (
        f"{tmp_path}/output: exists already; overwrite it (--overwrite) or choose another name"
    )
    write(tmp_path / "a", *images([0, 0]))
    assert run(tmp_path, f"--train={tmp_path}/a", "--overwrite") == 0
    assert capsys.readouterr().out == (
        f"{tmp_path}/.output.tmp-1 is left from a conversion that was killed: unless one is running, "
        f"remove it to free the space\n{tmp_path}/output/train: 2 records of 1 classes, verified\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source=a", "--train=b"], "give --source, or --train and --test"),
        (["--source=a", "--test=b"], "give --source, or --train and --test"),
        (["--test=b"], "give --source, or --train and --test"),
        (["--train=a", "--shape=2,2"], "argument --shape: must be CHANNELS,HEIGHT,WIDTH, such as 3,32,32, got '2,2'"),
        ([], "give --source, or --train and --test"),
    ],
)
def test_options_that_do_not_fit(capsys, words, message):
    with pytest.raises(SystemExit):
        tfrecord.main(words)
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {message}")


def test_convert_as_a_function(tmp_path):
    path = write(tmp_path / "a", example(x=[bytes(4)], y=[0]))
    wanted = FeatureNames("x", "y", raw=True)
    tfrecord.convert({"train": [path]}, tmp_path / "b", wanted, pixels=Pixels((1, 2, 2)))
    assert records(tmp_path / "b" / "train") == [(bytes(4), 0)]
    with refuses(
        f"{path}: record 0: --encode is for JPEG and PNG images, this one is pixels; leave it out", RecordError
    ):
        tfrecord.convert({"train": [path]}, tmp_path / "c", wanted, pixels=Pixels((1, 2, 2)), encode="png")
