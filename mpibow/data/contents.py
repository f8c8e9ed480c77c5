"""The contents of a data set of records: as fields for a script, and in a few lines for a reader."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain, islice

import numpy as np

from mpibow.errors import RecordError
from mpibow.system import JsonObject

from .dataset import Array
from .image_header import sides_of
from .recordset import RecordSet

LISTED = 20  # classes that are listed one by one
ENDS = 5  # of more classes, that many of the smallest and of the largest
SAMPLED = 100  # encoded images whose sizes are read


def contents(data: RecordSet) -> JsonObject:
    """The contents as fields for JSON. `class_counts`: records by the number of their class, where there are any.

    `sizes`: smallest, median and largest of `sampled` encoded images, None where images are raw.
    """
    known = asdict(data.manifest)
    form = known.pop("form")
    shards = known.pop("shards")
    labels, counts = np.unique(data.labels(), return_counts=True)
    return {
        "path": str(data.folder),
        **{name: value for name, value in (known | form).items() if name != "contents" or value},
        "class_counts": dict(zip(labels.tolist(), counts.tolist(), strict=True)),
        "sizes": None if form["encoding"] == "raw" else _sizes(data),
        "shards": len(shards),
        "first_shard": shards[0]["file"],
        "bytes": sum(shard["size"] for shard in shards),
    }


def summary(data: RecordSet) -> str:
    """The same contents as lines of text."""
    known = contents(data)
    counts: dict[int, int] = known["class_counts"]
    least = min(counts.values()) if len(counts) == data.classes else 0
    shape = f" {data.shape}" if data.shape else ""
    lines = [
        known["path"],
        f"  name      {data.name}",
        f"  records   {data.count:,} {known['encoding']} images, {data.dtype}{shape}",
        f"  classes   {data.classes:,}, of {least:,} to {max(counts.values()):,} records each",
        *(f"            {line}" for line in _balance(data, counts)),
        *([f"  holds     {_held(known['contents'])}"] if "contents" in known else []),
        f"  mean      {'  '.join(f'{mean:.6g}' for mean in data.mean)}",
        f"  std       {'  '.join(f'{std:.6g}' for std in data.std)}",
    ]
    if known["sizes"]:
        lines.append(f"  sizes     {_sizes_line(known['sizes'], data.count)}")
    lines += [
        f"  shards    {known['shards']:,}, {known['bytes'] / 1e6:,.1f} MB in all, from {known['first_shard']}",
        f"  source    {known['source'] or 'unknown'}",
    ]
    lines += [f"            {file}  {checksum}" for file, checksum in known["sources"].items()]
    return "\n".join(lines)


def _held(known: Mapping[str, object]) -> str:
    """The contents of records that are no images, as their converter wrote them."""
    parts = [f"{key} {len(value) if isinstance(value, dict | list) else value}" for key, value in known.items()]
    return ", ".join([str(known["kind"]), *(part for part in parts if not part.startswith("kind "))])


def _balance(data: RecordSet, counts: dict[int, int]) -> list[str]:
    def line(classes: Sequence[int]) -> str:
        return ", ".join(f"{data.class_name(number)}: {counts.get(number, 0):,}" for number in classes)

    if data.classes <= LISTED:
        return [line(range(data.classes))]
    empty = (number for number in range(data.classes) if number not in counts)
    fewest = list(islice(chain(empty, sorted(counts, key=counts.__getitem__)), ENDS))
    most = sorted(counts, key=lambda number: -counts[number])[:ENDS]
    return [f"fewest  {line(fewest)}", f"most    {line(most)}"]


def _sizes(data: RecordSet) -> JsonObject:
    chosen = pick(np.arange(data.count), SAMPLED, seed=0)
    rows = []
    for sample in chosen:
        try:
            image, _ = data.record(sample)
            (height, width), _ = sides_of(image)
            rows.append((width, height, len(image)))
        except (RecordError, ValueError):
            continue
    found: dict[str, object] = {"sampled": len(chosen), "unreadable": len(chosen) - len(rows)}
    for name, values in zip(("width", "height", "bytes"), zip(*rows, strict=True), strict=False):
        found[name] = [min(values), int(np.median(values)), max(values)]
    return found


def _sizes_line(sizes: JsonObject, count: int) -> str:
    parts = []
    for name in ("width", "height", "bytes") if "width" in sizes else ():
        low, middle, high = sizes[name]
        parts.append(f"{name} {low:,} to {high:,} (median {middle:,})")
    if sizes["unreadable"]:
        parts.append(f"{sizes['unreadable']:,} cannot be read, verify --decode names them")
    return f"of {sizes['sampled']:,} sampled images of {count:,}: {', '.join(parts)}"


def pick(samples: Array, wanted: int, seed: int) -> list[int]:
    """At most `wanted` of the samples (n,), drawn at random, in their order."""
    return sorted(np.random.default_rng(seed).choice(samples, min(wanted, len(samples)), replace=False).tolist())
