"""Images with masks in two folders: their pairs, and each pair as one array."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from google_crc32c import value as crc32c
from PIL import Image

from mpibow.convert import tree
from mpibow.data.aside import content_of
from mpibow.data.image_header import PNG, turned
from mpibow.data.labelled import IGNORED
from mpibow.data.photo import decodable, open_photo, orientation
from mpibow.errors import RecordError

from .conversion import Each, Part
from .entries import RecordImage, samples_of
from .folders import Left, say_left, walk
from .labels import set_aside
from .recode import GREY, ToArray, header, scaled

MODES = ("1", "L", "P")  # Pillow's: one number a pixel
SUM = "sha256 {} over a line a pair: name, CRC32C of image and of mask, with tabs between"
LOT = 16  # pairs that one task of a worker takes


@dataclass(frozen=True)
class Pair:
    """An image and its mask; `name` is their path below both folders, without suffix."""

    name: str
    image: Path
    mask: Path


def pairs(source: Path, masks: Path, folders: Mapping[str, str]) -> dict[str, list[Pair]]:
    """The pairs by part, whose folders `tree.parts` finds. Raises RecordError for an image, mask or part alone."""
    images, found = (tree.parts(place, folders, classes=False) for place in (source, masks))
    if images.keys() != found.keys():
        raise RecordError(f"{source}: has the parts {', '.join(images)}, {masks} has {', '.join(found)}")
    return {part: _paired(images[part], found[part]) for part in images}


def _paired(source: Path, masks: Path) -> list[Pair]:
    images = _files(source)
    found = _files(masks)
    if not images:
        raise RecordError(f"{source}: has no images")
    for these, those, others, what in ((images, found, masks, "mask"), (found, images, source, "image")):
        if lacking := sorted(these.keys() - those.keys()):
            alone = f"{len(lacking):,} of {len(these):,} have none"
            raise RecordError(f"{these[lacking[0]]}: has no {what} of that name in {others}; {alone}")
    return [Pair(name, images[name], found[name]) for name in sorted(images)]


def _files(folder: Path) -> dict[str, Path]:
    """Images below a folder, by their names without suffix."""
    found = dict[str, Path]()
    left = Left()
    for name in walk(folder, left):
        stem = str(Path(name).with_suffix(""))
        if stem in found:
            raise RecordError(f"{folder}: {found[stem].name} and {Path(name).name} have one name; remove one of them")
        found[stem] = folder / name
    say_left(folder, left)
    return found


def split(found: Sequence[Pair], share: float, seed: int, source: Path) -> dict[str, list[Pair]]:
    """Train and test, chosen by names as `labels.set_aside` does."""
    places = set_aside([pair.name for pair in found], None, share, seed, source)
    return {name: [found[n] for n in chosen.tolist()] for name, chosen in places.items()}


def parts_of(
    found: Mapping[str, Sequence[Pair]], each: Each, size: tuple[int, int] | None, crop: bool
) -> tuple[dict[str, Part], int]:
    """The parts to write, and the number of classes; every mask is checked first. Raises RecordError."""
    heads = [header(pair.image) for each_part in found.values() for pair in each_part]
    channels = 1 if all(head.mode in GREY for head in heads) else 3
    make = partial(_read, channels, size, crop)
    if size is None and len({head.size for head in heads}) > 1:
        one, *_, other = sorted({head.size for head in heads})
        raise RecordError(
            f"images have sizes from {one[0]}x{one[1]} to {other[0]}x{other[1]}, records have one; "
            "pass --size HEIGHTxWIDTH"
        )
    classes = 1 + max(most for part in found.values() for lot in each(_most, _lots(part)) for most in lot)
    if classes < 2:
        raise RecordError("masks: have one class alone, a mask has the number of a class at each pixel, from 0")
    made = {}
    for name, part in found.items():
        sources = dict[str, str]()
        contents = {"kind": "masks", "channels": channels, "classes": classes, "ignored": IGNORED}
        samples = samples_of(each(make, _lots(part)), name, f"{name}, {len(part):,} images with masks", SUM, sources)
        made[name] = Part(len(part), samples, sources=sources, contents=contents)
    return made, classes


def _read(channels: int, size: tuple[int, int] | None, crop: bool, lot: list[Pair]) -> list[RecordImage]:
    """Each pair as one array."""
    found = []
    for pair in lot:
        data = content_of(pair.image)
        mask = content_of(pair.mask)
        try:
            image, _, lying = ToArray(channels, size, crop)(data)
        except RecordError as error:
            raise RecordError(f"{pair.image}: {error}") from error
        pixels = _pixels(pair.mask, mask)
        height, width = header(pair.image).size
        if (pixels.height, pixels.width) != (height, width):
            exif = ", once each is turned by its own Exif orientation" if lying else ""
            raise RecordError(
                f"{pair.mask}: is {pixels.height}x{pixels.width}, its image {pair.image.name} is {height}x{width}{exif}"
            )
        placed = np.asarray(scaled(pixels, image.shape[1:], crop, Image.Resampling.NEAREST))
        line = f"{pair.name}\t{crc32c(data):08x}\t{crc32c(mask):08x}\n"
        found.append(RecordImage(np.concatenate([image, placed[None]]), 0, line, "", lying))
    return found


def _most(lot: list[Pair]) -> list[int]:
    """The largest class of each mask, 0 where every pixel is without one."""
    found = []
    for pair in lot:
        classes = np.asarray(_pixels(pair.mask, content_of(pair.mask)))
        found.append(int(classes.max(initial=0, where=classes != IGNORED)))
    return found


def _pixels(path: Path, data: bytes) -> Image.Image:
    """A mask whose pixels are numbers of classes."""
    with decodable(f"{path}: "), open_photo(data, formats=None) as image:
        image.load()
        if image.mode not in MODES:
            raise RecordError(
                f"{path}: a mask has one number a pixel, this has Pillow's mode {image.mode}; convert colours to "
                "numbers of classes, as a PNG of 8 bits"
            )
        if image.format == "JPEG":
            raise RecordError(f"{path}: a JPEG does not keep the numbers of classes; make the mask anew, as a PNG")
        pixels = np.asarray(image)  # of a palette: the numbers, not the colours
        if data[:8] == PNG and data[24] in (2, 4) and image.mode == "L":  # Pillow has spread them over 0 to 255
            pixels = pixels // (255 // (2 ** data[24] - 1))
        return Image.fromarray(turned(pixels.astype(np.uint8) if image.mode == "1" else pixels, orientation(image)))


def _lots(part: Sequence[Pair]) -> list[list[Pair]]:
    return [list(part[first : first + LOT]) for first in range(0, len(part), LOT)]
