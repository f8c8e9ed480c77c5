"""NumPy arrays as records: every layout, one file or four, a test set that is given or set aside."""

import hashlib
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mpibow.data import open_records
from tests.data.sets import read
from tests.datasets.scripts import Converter, script, stored
from tests.refusals import exits

convert = Converter(script("numpy_arrays"))
refusal = convert.refusal
RANDOM = np.random.default_rng(7)
IMAGES = RANDOM.integers(0, 256, (20, 3, 6, 5), dtype=np.uint8)  # as they are stored in records
LABELS = np.arange(20) % 4


def save(folder: Path, **arrays: np.ndarray) -> list[str]:
    """train_images=... is saved as train_images.npy; the options that name the files."""
    words = []
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
        words += [f"--{name.replace('_', '-')}", f"{folder}/{name}.npy"]
    return words


def check(folder: Path, images: np.ndarray, labels: np.ndarray, part: str = "train") -> None:
    data = open_records(folder / "output" / part)
    assert (data.count, data.shape, data.dtype) == (len(images), images.shape[1:], images.dtype)
    found, numbers = read(data)
    assert np.array_equal(found, images)
    assert np.array_equal(numbers, labels)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("array", "layout", "images"),
    [
        (IMAGES.transpose(0, 2, 3, 1), "nhwc", IMAGES),
        (IMAGES, "nchw", IMAGES),
        (IMAGES[:, 0], "nhw", IMAGES[:, :1]),
        (IMAGES[:, :1], "nchw", IMAGES[:, :1]),
        (IMAGES[:, 0, :, :, None], "nhwc", IMAGES[:, :1]),
    ],
)
def test_layouts(tmp_path, capsys, array: np.ndarray, layout, images: np.ndarray, order):
    array = np.asarray(array, order=order)
    words = save(tmp_path, train_images=array, train_labels=LABELS, test_images=array[:8], test_labels=LABELS[:8])
    assert convert(tmp_path, *words) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/train_images.npy: shape {array.shape} is taken as {layout}; --layout would say otherwise",
        f"{tmp_path}/test_images.npy: shape {array[:8].shape} is taken as {layout}; --layout would say otherwise",
        f"{tmp_path}/output/train: 20 records of 4 classes, verified",
        f"{tmp_path}/output/test: 8 records of 4 classes, verified",
    ]
    check(tmp_path, images, LABELS)
    check(tmp_path, images[:8], LABELS[:8], "test")
    manifest = open_records(tmp_path / "output" / "test").manifest
    assert manifest.source == f"NumPy arrays, layout {layout}"
    sums = {name: hashlib.md5((tmp_path / name).read_bytes()) for name in ("test_images.npy", "test_labels.npy")}
    assert manifest.sources == {name: f"md5 {digest.hexdigest()}" for name, digest in sums.items()}
    assert convert(tmp_path, *words, "--layout", layout, "--overwrite") == 0
    assert "is taken as" not in capsys.readouterr().out
    check(tmp_path, images, LABELS)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "f2"])
def test_floats_are_stored_as_float32(tmp_path, dtype):
    array = RANDOM.normal(size=(20, 1, 6, 5)).astype(dtype)
    words = save(tmp_path, train_images=array, train_labels=LABELS[:, None], test_images=array, test_labels=LABELS)
    assert convert(tmp_path, *words) == 0  # and labels of shape (n, 1)
    check(tmp_path, array.astype("<f4"), LABELS)


@pytest.mark.parametrize("pack", [np.savez, np.savez_compressed])
def test_keras_arrays_are_found(tmp_path, pack):
    path = tmp_path / "mnist.npz"
    pack(path, x_train=IMAGES[:, 0], y_train=LABELS, x_test=IMAGES[:4, 1], y_test=LABELS[:4])
    assert convert(tmp_path, "--source", path) == 0
    check(tmp_path, IMAGES[:, :1], LABELS)
    check(tmp_path, IMAGES[:4, 1:2], LABELS[:4], "test")
    checksum = "md5 " + hashlib.md5(path.read_bytes()).hexdigest()
    assert open_records(tmp_path / "output" / "test").manifest.sources == {"mnist.npz": checksum}


def test_a_folder_of_keras_arrays(tmp_path, capsys):
    source = tmp_path / "in"
    source.mkdir()
    assert refusal(tmp_path, capsys, "--source", source) == (
        f"{source}: has no x_train.npy; say which by --train-images and --train-labels"
    )
    for name, array in {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:4], "y_test": LABELS[:4]}.items():
        np.save(source / f"{name}.npy", array)
    assert convert(tmp_path, "--source", source) == 0
    check(tmp_path, IMAGES, LABELS)
    check(tmp_path, IMAGES[:4], LABELS[:4], "test")
    (source / "y_test.npy").unlink()
    assert convert(tmp_path, "--source", source, "--overwrite") == 3
    assert capsys.readouterr().err == f"error: {source}/y_test.npy: cannot be read: no such file or directory\n"


def test_keys_by_name(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", x=IMAGES, y=LABELS)
    np.savez(tmp_path / "b.npz", x=IMAGES[:4], y=LABELS[:4])
    files, keys = (
        ("--train", tmp_path / "a.npz", "--test", tmp_path / "b.npz"),
        ("--images-key", "x", "--labels-key", "y"),
    )
    assert refusal(tmp_path, capsys, *files) == (
        f"{tmp_path}/a.npz: has no arrays x_train and y_train, it has x, y; say which by --images-key and --labels-key"
    )
    assert refusal(tmp_path, capsys, *files[:2], *keys) == (
        f"{tmp_path}/a.npz: x: has no test set; give one, or set some aside by --test-fraction 0.1"
    )
    assert convert(tmp_path, *files, *keys) == 0
    check(tmp_path, IMAGES, LABELS)
    check(tmp_path, IMAGES[:4], LABELS[:4], "test")
    np.savez(tmp_path / "b.npz", images=IMAGES)
    assert convert(tmp_path, *files, *keys) == 3
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/b.npz: has no arrays x and y, it has images; say which by --images-key and --labels-key\n"
    )


def test_a_test_set_is_set_aside(tmp_path, capsys):
    words = save(tmp_path, train_images=IMAGES, train_labels=LABELS)
    assert refusal(tmp_path, capsys, *words) == (
        f"{tmp_path}/train_images.npy: has no test set; give one, or set some aside by --test-fraction 0.1"
    )
    assert refusal(tmp_path, capsys, *words, "--test-fraction", 0.01) == (
        f"{tmp_path}/train_labels.npy: --test-fraction 0.01 of 20 images is none; take more"
    )
    everything = [(image.tobytes(), label) for image, label in zip(IMAGES, LABELS, strict=True)]
    for seed in (1, 2):
        assert convert(tmp_path, *words, "--test-fraction", 0.4, "--seed", seed, "--overwrite") == 0
        train, test = (open_records(tmp_path / "output" / part) for part in ("train", "test"))
        assert np.bincount(test.labels()).tolist() == [2] * 4
        assert sorted(stored(train) + stored(test)) == sorted(everything)
        assert test.manifest.source == (f"NumPy arrays, layout nchw; 0.4 of every class set aside to test, seed {seed}")
    np.save(tmp_path / "test_labels.npy", LABELS)
    capsys.readouterr()
    assert convert(tmp_path, *words, "--test-images", words[1], "--test-labels", words[3], "--test-fraction", 0.4) == 3
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/train_images.npy: is the test part already; leave out --test-fraction\n"
    )


def test_any_labels_are_renumbered_where_asked(tmp_path, capsys):
    labels = LABELS * 100 - 100
    words = save(tmp_path, train_images=IMAGES, train_labels=labels, test_images=IMAGES[:1], test_labels=np.array([7]))
    assert refusal(tmp_path, capsys, *words) == (
        f"{tmp_path}/train_labels.npy: record 0: label is -100, it must be 0 or more; pass --remap"
    )
    assert convert(tmp_path, *words, "--remap") == 0
    check(tmp_path, IMAGES, np.array([0, 1, 3, 4])[LABELS])
    check(tmp_path, IMAGES[:1], np.array([2]), "test")
    manifest = open_records(tmp_path / "output" / "train").manifest
    assert manifest.class_names == ("-100", "0", "7", "100", "200")
    assert manifest.source == "NumPy arrays, layout nchw; labels renumbered"


def test_classes_without_records(tmp_path, capsys):
    words = save(tmp_path, train_images=IMAGES, train_labels=LABELS * 2, test_images=IMAGES, test_labels=LABELS * 2)
    assert refusal(tmp_path, capsys, *words) == (
        f"{tmp_path}/train_labels.npy and {tmp_path}/test_labels.npy: the highest label is 6, but no label is 1; "
        "pass --remap to number those that occur, or --classes 7 to keep them"
    )
    assert convert(tmp_path, *words, "--classes", 7) == 0
    assert open_records(tmp_path / "output" / "train").classes == 7
    check(tmp_path, IMAGES, LABELS * 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_values_that_are_not_finite(tmp_path, capsys, value):
    array = RANDOM.normal(size=IMAGES.shape)
    array[13, 2, 5, 4] = value
    words = save(tmp_path, train_images=array, train_labels=LABELS)
    for more in (("--test-fraction", 0.2), ("--test-images", words[1], "--test-labels", words[3])):
        assert refusal(tmp_path, capsys, *words, *more) == (
            f"{tmp_path}/train_images.npy: record 13: has values that are not finite as float32"
        )


ONE_OF = "give one of --source, --train, and --train-images with --train-labels"
REMEDY = "; save it .astype(np.uint8) if they lie in 0 to 255, else .astype(np.float32)"


@pytest.mark.parametrize(
    ("images", "labels", "words", "message"),
    [
        (
            IMAGES.astype(np.int64),
            LABELS,
            (),
            f"{{x}}: has values of int64, records have uint8 or floats{REMEDY}",
        ),
        (
            np.zeros((20, 3, 5, 3), np.uint8),
            LABELS,
            (),
            "{x}: the layout of shape (20, 3, 5, 3) is not clear; pass --layout nhwc or --layout nchw",
        ),
        (
            np.zeros((20, 5, 5, 5), np.uint8),
            LABELS,
            (),
            "{x}: the layout of shape (20, 5, 5, 5) is not clear; pass --layout nhwc or --layout nchw",
        ),
        (
            np.zeros((20, 25), np.uint8),
            LABELS,
            (),
            "{x}: the layout of shape (20, 25) is not clear; save it as (n, height, width, channels)",
        ),
        (
            IMAGES,
            LABELS,
            ("--layout", "nhw"),
            "{x}: layout nhw has 3 dimensions, the shape is (20, 3, 6, 5)",
        ),
        (IMAGES[:0], LABELS[:0], (), "{x}: has no images, its shape is (0, 3, 6, 5)"),
        (
            IMAGES,
            LABELS[:-1],
            (),
            "{y}: has 19 labels, {x} has 20 images; do they belong together?",
        ),
        (
            IMAGES,
            LABELS.astype(float),
            (),
            "{y}: is float64 of shape (20,), labels are integers (n,) or (n, 1); take .astype(np.int64)",
        ),
        (
            IMAGES,
            np.eye(4, dtype=int)[LABELS],
            (),
            "{y}: is int64 of shape (20, 4), labels are integers (n,) or (n, 1); take .argmax(axis=1) of one-hot rows",
        ),
    ],
)
def test_what_does_not_fit(
    tmp_path,
    capsys,
    images: np.ndarray,
    labels: np.ndarray,
    words,
    message,
):
    files = save(tmp_path, train_images=images, train_labels=labels)
    found = refusal(tmp_path, capsys, *files, *words, "--test-fraction", 0.5)
    assert found == message.format(x=f"{tmp_path}/train_images.npy", y=f"{tmp_path}/train_labels.npy")


def test_train_and_test_are_alike(tmp_path, capsys):
    words = save(tmp_path, train_images=IMAGES, train_labels=LABELS, test_images=IMAGES / 255, test_labels=LABELS)
    assert refusal(tmp_path, capsys, *words) == (
        f"{tmp_path}/test_images.npy: has float images, layout nchw, of shape (3, 6, 5), "
        "those to train are uint8 images, layout nchw, of shape (3, 6, 5)"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), ONE_OF),
        (("--train", "a", "--train-images", "b"), ONE_OF),
        (("--train", "a", "--source", "b"), ONE_OF),
        (("--source", "a", "--test", "b"), "--test goes with --train"),
        (
            ("--train-images", "a"),
            "images and labels go together: --train-images and --train-labels, --test-images and --test-labels",
        ),
        (
            ("--train-images", "a", "--train-labels", "b", "--test-labels", "c"),
            "images and labels go together: --train-images and --train-labels, --test-images and --test-labels",
        ),
        (("--train", "a", "--images-key", "x"), "--images-key and --labels-key go together"),
        (("--train", "a", "--test-fraction", "1"), "argument --test-fraction: must lie above 0 and below 1, got 1"),
        (("--train", "a", "--remap", "--classes", "3"), "--remap finds the classes itself, so leave out --classes"),
    ],
)
def test_arguments(tmp_path, capsys, words, message):
    with exits(2):
        convert(tmp_path, *words)
    assert capsys.readouterr().err.endswith(f"error: {message}\n")


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_images_are_never_all_in_memory(tmp_path, form):
    array, labels = np.zeros((128, 1, 512, 512), np.uint8), np.arange(128) % 2
    if form == "npy":
        words = save(tmp_path, train_images=array, train_labels=labels)
    else:
        np.savez_compressed(tmp_path / "a.npz", x_train=array, y_train=labels)
        words = ["--train", f"{tmp_path}/a.npz"]
    size = array.nbytes
    del array
    tracemalloc.start()
    try:
        assert convert(tmp_path, *words, "--test-fraction", 0.1, "--layout", "nchw") == 0
        assert tracemalloc.get_traced_memory()[1] < size / 4
    finally:
        tracemalloc.stop()
