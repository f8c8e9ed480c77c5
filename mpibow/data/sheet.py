"""Pictures to look at: encoded images decoded, and images of a data set drawn on one sheet, with Pillow."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps
from PIL.Image import Resampling

from mpibow.errors import RecordError

from .dataset import Array
from .image_header import turned
from .photo import decodable, open_photo, orientation, rgb
from .recordset import RecordSet

BOX = 128  # pixels: the longest side of a picture on a sheet
GAP, LINE = 4, 14  # pixels between pictures, and of the line of text below one


def decode(data: Array, encoding: str, name: str) -> Image.Image:
    """The image in the bytes (n,), all of it decoded. Raises RecordError, beginning with `name`, where it is none."""
    with decodable(f"{name}: ", "; convert the data again"):
        image = open_photo(data, (encoding.upper(),))
        image.load()
    return image


def sheet(data: RecordSet, samples: Sequence[int]) -> Image.Image:
    """The samples as small pictures row by row, each above the name of its class.

    Floats are drawn from black, the smallest value of all, to white. Raises RecordError where one cannot be drawn.
    """
    if data.shape and data.shape[0] not in (1, 3):
        raise RecordError(f"{data.folder}: images have {data.shape[0]} channels, a sheet can draw 1 or 3")
    pictures = [_small(picture) for picture in _pictures(data, samples)]
    width = max(picture.width for picture in pictures) + GAP
    height = max(picture.height for picture in pictures) + GAP + LINE
    columns = math.ceil(math.sqrt(len(pictures)))
    whole = Image.new("RGB", (columns * width + GAP, -(-len(pictures) // columns) * height + GAP), "white")
    for number, (sample, picture) in enumerate(zip(samples, pictures, strict=True)):
        row, column = divmod(number, columns)
        left = GAP + column * width
        top = GAP + row * height
        whole.paste(picture, (left, top))
        _write(whole, (left, top + height - GAP - LINE), data.class_name(data.label(sample)), width - GAP)
    return whole


def _pictures(data: RecordSet, samples: Sequence[int]) -> Iterator[Image.Image]:
    encoding = data.manifest.form.encoding
    if encoding != "raw":
        for sample in samples:
            picture = decode(data.encoded(sample), encoding, data.where(sample))
            yield Image.fromarray(turned(np.asarray(rgb(picture)), orientation(picture)))
        return
    images = np.empty((len(samples), *data.shape), data.dtype)
    data.read(np.array(samples), images, np.empty(len(samples), np.int32))
    if images.dtype != np.uint8:
        low = float(images.min())
        high = float(images.max())
        images = ((images - np.float64(low)) * (255 / ((high - low) or 1)) + 0.5).astype(np.uint8)
    for image in images:
        yield Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))


def _small(picture: Image.Image) -> Image.Image:
    """At most BOX wide and high; a tiny one whole times as large, so that its pixels can be counted."""
    longest = max(picture.size)
    if longest > BOX:
        sides = [max(1, round(side * BOX / longest)) for side in picture.size]
        return picture.resize((sides[0], sides[1]), Resampling.LANCZOS)
    return ImageOps.scale(picture, BOX // longest, Resampling.NEAREST)


def _write(whole: Image.Image, place: tuple[int, int], text: str, width: int) -> None:
    """Writes as much of the text as fits."""
    draw = ImageDraw.Draw(whole)
    font = ImageFont.load_default()
    text = " ".join(text.split())
    if isinstance(font, ImageFont.ImageFont):  # a Pillow without FreeType: its letters are those of Latin-1
        text = text.encode("latin-1", "replace").decode("latin-1")
    while text and draw.textlength(text, font) > width:
        text = text[:-1]
    draw.text(place, text, "black", font)
