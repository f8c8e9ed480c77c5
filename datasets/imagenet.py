"""Writes ImageNet (ILSVRC 2012) as records of JPEG bytes, from TFRecords, the published tar files, or folders.

mpibow convert imagenet --source /data/ILSVRC2012 --output data/imagenet
mpibow convert imagenet --source /data/ILSVRC2012 --output data/imagenet \\
    --validation-labels imagenet_2012_validation_synset_labels.txt
mpibow convert imagenet --source /data/ILSVRC2012 --output data/trial --limit 20

Classes are numbered in the sorted order of synsets (n01440764 is 0); the manifest has their names. JPEG bytes are kept
unchanged; those that lie by their Exif orientation are turned when they are decoded. The few CMYK images and the PNG
are encoded again, as RGB JPEGs of quality 95; the manifest lists them.
"""

import argparse
from functools import partial
from pathlib import Path

from mpibow.convert import arguments, imagenet, synsets
from mpibow.convert.conversion import spreader, write_parts
from mpibow.convert.entries import Entries, file_bytes, limited, part_of
from mpibow.convert.recode import ToEncoded
from mpibow.convert.tfrecord_images import FeatureNames, image_of, look_through, refuse_missing
from mpibow.errors import RecordError
from mpibow.system.command import positive
from mpibow.system.streams import as_command

EXAMPLES = FeatureNames(name="image/class/synset", first_label=1)
COUNTS = {"train": 1_281_167, "validation": 50_000}  # ILSVRC 2012


def convert(
    source: Path,
    output: Path,
    *,
    synset_list: Path | None = None,
    validation_labels: Path | None = None,
    index: Path | None = None,
    limit: int | None = None,
    decode: bool = False,
    partial_sets: bool = False,
    statistics: int = arguments.STATISTICS,
    workers: int = 1,
    overwrite: bool = False,
) -> None:
    """Writes output/train and output/test, or the part that is there, and verifies them; all of it or nothing."""
    arguments.prepare(output, overwrite)
    found = {part: place for part in COUNTS if (place := imagenet.find(source, part)) is not None}
    if not found:
        raise RecordError(imagenet.wanted(source))
    numbered = synsets.synsets(synset_list) if synset_list else None
    labels = validation_labels or next((path for path in [source / synsets.KNOWN] if path.is_file()), None)
    names = imagenet.synset_table(found.get("train"), found.get("validation"), numbered)
    with spreader(workers) as each:
        parts, called = dict[str, Entries](), dict[int, str]()
        for part, place in found.items():
            if place.form == "tfrecords":
                if not partial_sets:
                    refuse_missing(place.paths)
                parts[part], _, called = look_through(place.paths, EXAMPLES, each, index, "look through", called)
        count = max((1 + int(entries.labels().max()) for entries in parts.values()), default=0)
        names = imagenet.class_names(called, names, count, source)
        for part, place in found.items():
            if place.form in ("flat", "images"):
                parts[part], names = imagenet.flat(place, names, labels, numbered)
            elif place.form != "tfrecords":
                parts[part] = imagenet.listed(each, place, names)
        parts = {part: parts[part] for part in found}
        for part in parts:
            if limit is not None:
                parts[part] = limited(parts[part], limit)
            elif len(names) == 1000 and len(parts[part]) != COUNTS[part]:
                print(f"{part} has {len(parts[part]):,} images; ILSVRC 2012 has {COUNTS[part]:,}")
        made = {
            {"train": "train", "validation": "test"}[part]: part_of(
                entries,
                partial(image_of, EXAMPLES) if found[part].form == "tfrecords" else file_bytes,
                ToEncoded("jpeg", decode),
                each,
                f"{part}: {found[part].form}",
                encoding="jpeg",
                statistics=statistics,
            )
            for part, entries in parts.items()
        }
        about = "ImageNet (ILSVRC 2012)" + (f", at most {limit} images of a class" if limit else "")
        about = f"{about}; classes: {max(count, len(names)):,} synsets, sorted"
        write_parts(output, made, classes=max(count, len(names)), class_names=names, source=about, overwrite=overwrite)


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("imagenet", f"{__doc__}\n--source may hold any of these forms:\n{imagenet.FORMS}")
    arguments.add_source(made, "see above", default="data/source/imagenet")
    arguments.add_output(made, "data/imagenet")
    made.add_argument(
        "--synsets",
        dest="synset_list",
        type=Path,
        metavar="FILE",
        help="all synsets, one per line (default: those in --source)",
    )
    made.add_argument(
        "--validation-labels",
        type=Path,
        metavar="FILE",
        help="labels of validation images without folders: synsets, or names and synsets, or with --synsets numbers "
        f"(default: {synsets.KNOWN} in --source)",
    )
    made.add_argument(
        "--limit", type=positive, metavar="N", help="take only the first N images of every class, for a trial"
    )
    made.add_argument("--decode", action="store_true", help="decode every image to find damaged ones; takes longer")
    made.add_argument("--index", type=Path, metavar="DIR", help="folder of DALI's indices of the TFRecords, NAME.idx")
    made.add_argument(
        "--partial", dest="partial_sets", action="store_true", help="convert even if TFRecord files are missing"
    )
    arguments.add_shared(made, "statistics", "workers", "overwrite")
    return made


main = arguments.command(parser, convert)

if __name__ == "__main__":
    as_command(main)
