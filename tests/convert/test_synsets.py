"""ImageNet's lists of synsets and labels, in every form that is about."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mpibow.convert.synsets import KNOWN, synsets, validation_labels
from mpibow.errors import RecordError
from tests.datasets.scripts import ROOT
from tests.refusals import refusal_of, refuses

LIST = ROOT.parent / "shared" / "data" / "imagenet-sample" / "synsets.txt"
A, B, C = "n00000001", "n00000002", "n00000003"
IMAGES = [f"ILSVRC2012_val_0000000{number}.JPEG" for number in range(1, 5)]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def refusal(path: Path, text: str, listed: list[str] | None = None) -> str:
    path.write_text(text)
    return refusal_of(validation_labels, path, IMAGES, listed)


@pytest.mark.skipif(
    not LIST.is_file(), reason="../shared/data/imagenet-sample, ImageNet's list of synsets, is not there"
)
def test_the_real_list():
    found = synsets(LIST)
    assert (len(found), found[0], found[1], found[999]) == (1000, "n01440764", "n01443537", "n15075141")
    assert found == sorted(found)


@pytest.mark.parametrize(
    "text", ["{}\n{}\n", "0 {} tench\n1 {} fish\n", "{} 1 tench\r\n{} 2 x\r\n\n", "{}\ttench, fish\n {} "]
)
def test_lists(tmp_path, text):
    assert synsets(write(tmp_path / "a", text.format(B, A))) == [B, A]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{A}\n\n{B}\ntench\n", "line 4: has no synset such as n01440764, got 'tench'"),
        (f"{A}\n{B}\n{A}\n", f"line 3: {A} is on line 1 already"),
        ("", "has no synsets"),
    ],
)
def test_lists_that_do_not_fit(tmp_path, text, message):
    path = write(tmp_path / "a", text)
    with refuses(f"{path}: {message}", RecordError):
        synsets(path)


@pytest.mark.parametrize(
    "text",
    [
        f"{B}\n{A}\n{C}\n{B}\n",  # in the order of the images
        f"{IMAGES[3]} {B}\n{IMAGES[0]} {B}\n{IMAGES[2]} {C}\nmore {A}\n{IMAGES[1]} {A}\n",  # by name
        "ImageId,PredictionString\n"
        + "".join(f"{IMAGES[i][:-5]},{s} 85 1 2 3 {s} 1 2 3 4\n" for i, s in enumerate([B, A, C, B])),
    ],
)
def test_labels_by_synset(tmp_path, text):
    assert validation_labels(write(tmp_path / "a", text), IMAGES) == [B, A, C, B]


def test_labels_by_number(tmp_path):
    from_0, from_1 = write(tmp_path / "0", "1\n0\n2\n1\n"), write(tmp_path / "1", "2\n1\n3\n2\n")
    for path in (from_0, from_1):
        assert validation_labels(path, IMAGES, [A, B, C]) == [B, A, C, B]
        assert validation_labels(path, IMAGES, [C, A, B]) == [A, C, B, A]  # in the list's own order
    named = write(tmp_path / "val.txt", "".join(f"{name} {n}\n" for name, n in zip(IMAGES, "1021", strict=True)))
    assert validation_labels(named, IMAGES, [A, B, C]) == [B, A, C, B]


def test_labels_that_do_not_fit(tmp_path):
    path = tmp_path / "a"
    instead = f"use a list of synsets instead, such as {KNOWN}"
    assert refusal(path, f"{A}\n") == f"{path}: has 1 labels, there are 4 images"
    assert refusal(path, f"{IMAGES[0]} {A}\n{IMAGES[2]} {A}\n") == (
        f"{path}: has no label for 2 images, such as {IMAGES[1]}, {IMAGES[3]}"
    )
    assert refusal(path, "cat\n" * 4) == f"{path}: a label is a synset such as n01440764, or a number, got 'cat'"
    assert refusal(path, f"{A}\n{A}\n1\n2\n") == f"{path}: mixes synsets and numbers; {instead}"
    assert refusal(path, "1\n" * 4) == (
        f"{path}: labels are numbers; pass the synsets that they count, --synsets, or {instead}"
    )
    for text, least, most in (("1\n" * 4, 1, 1), ("0\n3\n1\n1", 0, 3), ("1\n3\n4\n1", 1, 4)):
        assert refusal(path, text, [A, B, C]) == (
            f"{path}: numbers of 3 synsets go from 0 to 2 or 1 to 3, got {least} to {most}; {instead}"
        )
    path = tmp_path / "ILSVRC2012_validation_ground_truth.txt"
    assert refusal(path, "1\n2\n3\n1\n", [A, B, C]) == (
        f"{path}: its numbers are those of ILSVRC's development kit, --synsets is in sorted order; "
        f"pass --synsets in the kit's order, or {instead}"
    )
    assert validation_labels(path, IMAGES, [B, A, C]) == [B, A, C, B]
    path.write_bytes(b"\xff")
    assert refusal_of(validation_labels, path, IMAGES).startswith(f"{path}: line 1: byte 0xff is not text in UTF-8")
    path.unlink()
    with refuses(f"{path}: cannot be read: no such file or directory", RecordError):
        synsets(path)


WORDS = st.sampled_from([A, B, "1", "0", "-1", "²", "x", *IMAGES, " ", ",", "\n", "\n", "\n"])


@given(st.lists(WORDS, max_size=12).map("".join) | st.text(max_size=20))
def test_any_text(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "labels"
    path.write_text(text, "utf-8", "surrogatepass")
    for look in (
        lambda: validation_labels(path, IMAGES[:2], [A, B]),
        lambda: validation_labels(path, []),
        lambda: synsets(path),
    ):
        try:
            assert isinstance(look(), list)
        except RecordError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
