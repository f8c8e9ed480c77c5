"""Files that a net predicts: images as they were in training, whatever their format, and how the camera was held."""

from io import BytesIO

import pytest
from PIL import Image, ImageOps

from mpibow.convert.net_inputs import NetInputs
from mpibow.convert.sample_sources import files_of, samples
from mpibow.data import Image as Size
from tests.data.photos import encode, exif, picture

INPUTS = {"image": ((3, 24, 24), "uint8")}


@pytest.mark.parametrize("wanted", [NetInputs(INPUTS, Size(24)), NetInputs(INPUTS), NetInputs(INPUTS, crop=True)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_upright(tmp_path, wanted: NetInputs, kind, orientation):
    lying = encode(picture(40, 60), kind, exif=exif(orientation))
    upright = encode(ImageOps.exif_transpose(Image.open(BytesIO(lying))), "PNG")
    found = []
    for name, data in (("lying", lying), ("upright", upright)):
        (tmp_path / name).write_bytes(data)
        for source in (tmp_path / name, Image.open(tmp_path / name)):
            ((_, arrays),) = samples(source, wanted, pytest.fail)
            found.append(arrays["image"].tolist())
    assert found == found[:1] * 4


def test_images_of_a_folder(tmp_path, capsys):
    names = ["b/1.JPG", "b/2.webp", "a.png", "._a.png", "__MACOSX/b/._1.JPG", ".cache/x.png", "list.txt", "b/notes"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "round").symlink_to(tmp_path)
    assert files_of(tmp_path) == [tmp_path / name for name in ("a.png", "b/1.JPG", "b/2.webp")]
    assert capsys.readouterr().err == f"{tmp_path}: left out: 1 .txt, 3 hidden, 1 linked again, 1 notes\n"
