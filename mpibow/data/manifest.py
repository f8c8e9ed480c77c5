"""The manifest of a data set: one JSON file that describes its shards, with a checksum over its own fields."""

import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from google_crc32c import value as crc32c

from mpibow.errors import RecordError
from mpibow.system import JsonObject, read_file

from .aside import file_aside, refused
from .records import RecordForm

FILE = "manifest.json"
FORMAT = 1
AGAIN = "convert the data again"


@dataclass(frozen=True)
class Shard:
    """A record file as the manifest lists it; `checksum` is its header's, which covers all of it."""

    file: str
    size: int
    count: int
    checksum: int


@dataclass(frozen=True)
class Manifest:
    """`mean` and `std` are per channel, over the stored values; `sources` maps a source file to its checksum."""

    name: str
    count: int
    classes: int
    class_names: tuple[str, ...]  # () where unknown
    form: RecordForm
    mean: tuple[float, ...]
    std: tuple[float, ...]
    shards: tuple[Shard, ...]
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    contents: JsonObject = field(default_factory=dict)  # of records that are no images: `kind`, and more

    @property
    def kind(self) -> str:
        """text, table, masks, as the converter wrote it; "" for images and ratings."""
        return str(self.contents.get("kind", ""))

    def fault(self) -> str | None:
        """The rule that it breaks, if any."""
        if fault := self.form.fault():
            return fault
        if self.classes < 1:
            return f"classes must be at least 1, got {self.classes}"
        if self.class_names and len(self.class_names) != self.classes:
            return f"class_names must be {self.classes}, got {len(self.class_names)}"
        channels = self.form.shape[0] if self.form.shape else len(self.mean)
        if not 0 < channels == len(self.mean) == len(self.std):
            return f"mean and std must each have {channels} channels, got {len(self.mean)} and {len(self.std)}"
        if not all(math.isfinite(m) and 0 < s < math.inf for m, s in zip(self.mean, self.std, strict=True)):
            return f"mean must be finite and std above 0, got {self.mean} and {self.std}"
        total = sum(shard.count for shard in self.shards)
        if not self.shards or self.count != total:
            return f"count must be that of all shards, {total}, got {self.count}"
        for shard in self.shards:
            if not _plain(shard.file):
                return f"a shard's file must be a plain name, got {shard.file!r}"
        return None


def save(manifest: Manifest, folder: Path) -> None:
    """Writes it into `folder`, after the shards: without it a folder is no data set."""
    path = folder / FILE
    if fault := manifest.fault():
        raise RecordError(f"{path}: {fault}")
    fields = {"format": FORMAT, **asdict(manifest)}
    fields |= fields.pop("form")  # encoding, dtype, shape
    if not manifest.contents:
        del fields["contents"]
    with file_aside(path) as file:
        file.write(json.dumps(fields | {"checksum": checksum_of(fields)}, indent=1).encode() + b"\n")


def load(folder: Path) -> Manifest:
    """The manifest in `folder`. Raises RecordError where there is none, or one that is damaged."""
    path = folder / FILE
    with refused(path, "read"):
        try:
            fields = json.loads(read_file(path))
        except FileNotFoundError:
            if not folder.is_dir():
                raise RecordError(f"{folder}: there is no such folder; convert the data to it first") from None
            remedy = f"images in a folder per class become one by: mpibow convert folder --source {folder}"
            raise RecordError(f"{folder}: has no {FILE}, so it is not a data set; {remedy}") from None
        except NotADirectoryError:
            raise RecordError(
                f"{folder}: is a file, not a data set; mpibow convert --help lists what reads it"
            ) from None
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path}: is damaged: not JSON; {AGAIN}") from error
    if not isinstance(fields, dict) or "format" not in fields:
        raise RecordError(f"{path}: is not a manifest of records: it has no field 'format'; {AGAIN}")
    if fields["format"] != FORMAT:
        raise RecordError(f"{path}: format is {fields['format']!r}, this mpibow reads {FORMAT}; {AGAIN}")
    said = fields.pop("checksum", None)
    found = checksum_of(fields)
    if said != found:
        raise RecordError(f"{path}: is damaged or was edited: checksum is {found}, the file has {said}; {AGAIN}")
    try:
        manifest = _manifest(fields)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise RecordError(f"{path}: does not follow format {FORMAT}: {error!r}; {AGAIN}") from error
    if fault := manifest.fault():
        raise RecordError(f"{path}: {fault}; {AGAIN}")
    return manifest


def _manifest(fields: JsonObject) -> Manifest:
    single = {"name": str, "count": int, "classes": int, "source": str}
    several = {"class_names": str, "mean": float, "std": float}
    values: JsonObject = {
        **{name: kind(fields[name]) for name, kind in single.items()},
        **{name: tuple(map(kind, fields[name])) for name, kind in several.items()},
    }
    shards = [
        Shard(str(shard["file"]), *(int(shard[name]) for name in ("size", "count", "checksum")))
        for shard in fields["shards"]
    ]
    form = RecordForm(str(fields["encoding"]), str(fields["dtype"]), tuple(map(int, fields["shape"])))
    sources = {str(file): str(checksum) for file, checksum in dict(fields["sources"]).items()}
    contents = dict(fields.get("contents", {}))  # may be left out
    return Manifest(**values, form=form, shards=tuple(shards), sources=sources, contents=contents)


def _plain(name: str) -> bool:
    """Whether it can be the name of a file in the manifest's own folder."""
    try:
        return b"\0" not in os.fsencode(name) and Path(name).name == name
    except UnicodeEncodeError:
        return False


def checksum_of(fields: dict[str, object]) -> str:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return f"0x{crc32c(text.encode()):08x}"
