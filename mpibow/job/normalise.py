"""data.normalise: the scaling of stored values to a net's inputs, and its form in a checkpoint."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from mpibow.config import show
from mpibow.data import Array, ArraysByName, Dataset, NamedArrays, NamedSamples, RecordSet, Samples, unweighed
from mpibow.data.decoded import Decoded
from mpibow.data.moments import mean_image
from mpibow.data.text import Windows
from mpibow.errors import ConfigError
from mpibow.models.augmentation import Normalisation
from mpibow.system import JsonObject

HALF = 127.5  # of 255


@dataclass(frozen=True)
class Scaling:
    """The net's input is (image - mean) / std: `std` has a value a channel, `mean` too, or one for each image value."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def entries(self) -> dict[str, object]:
        """The entries of a checkpoint's header: a mean image is named there and lies in `arrays`."""
        return {"mean": "mean" if self.arrays() else list(self.mean), "std": list(self.std)}

    def arrays(self) -> dict[str, Array]:
        """The arrays that are too long for a header: by name, float64."""
        return {"mean": np.array(self.mean)} if len(self.mean) > len(self.std) else {}

    @classmethod
    def of(cls, entries: JsonObject, arrays: Callable[[], ArraysByName]) -> "Scaling":
        """The inverse of `entries` and `arrays`; these are read only where they are needed."""
        mean = entries["mean"]
        return cls(tuple(arrays()[mean].tolist() if isinstance(mean, str) else mean), tuple(entries["std"]))


def input_entries(data: Samples, scaling: Scaling | None, sources: Mapping[str, object] | None = None) -> JsonObject:
    """The facts about the training data that an evaluation needs, for a checkpoint's header; `sources` are Job's."""
    data = unweighed(data)
    more = dict[str, Any](sources=dict(sources or {}))
    if isinstance(data, NamedSamples):
        facts: JsonObject = {"inputs": {key: [list(shape), str(dtype)] for key, (shape, dtype) in data.inputs.items()}}
        pictures = getattr(data, "pictures", None)
    else:
        assert scaling is not None
        facts = {"shape": data.shape, "dtype": str(data.dtype), "classes": data.classes, **scaling.entries()}
        pictures = data
    if isinstance(pictures, Decoded):
        more["image"] = asdict(pictures.image)
    return {**facts, **{key: value for key, value in {**more, **meaning(data)}.items() if value}}


def meaning(data: Samples) -> JsonObject:
    """What the numbers of `data` stand for, as converted: the names of classes, the columns of a table, tokens."""
    data = unweighed(data)
    pictures = getattr(data, "pictures", data)
    records = pictures.records if isinstance(pictures, Decoded) else pictures
    if isinstance(records, RecordSet):
        return {"class_names": list(records.manifest.class_names), "contents": dict(records.manifest.contents)}
    return {"contents": data.contents if isinstance(data, NamedArrays | Windows) else {}}


def difference(data: Samples, expected: JsonObject) -> str:
    """Where the `meaning` of `data` contradicts that of the training data, the first place; '' for nowhere."""
    for what, given in meaning(data).items():
        found, known = (
            {name: number for number, name in enumerate(each)} if isinstance(each, list) else each
            for each in (given, expected.get(what, {}))
        )
        for name, value in found.items():
            if (there := known.get(name, None if known and what == "class_names" else value)) != value:
                return (
                    f"{data.name} has {what}.{name} {show(value)}, the data that were trained on have {show(there)}; "
                    "convert both together"
                )
    return ""


def scaling_of(normalise: str, data: Dataset, note: Callable[[str], None]) -> Scaling:
    """The scaling of `data.normalise` for training data. `pixel` reads all images; `note` is called if it takes long.

    Raises ConfigError where it doesn't fit the data, RecordError where they are damaged.
    """
    channels = data.shape[0]
    match normalise:
        case "channel":
            return Scaling(data.mean, data.std)
        case "pixel":
            if isinstance(data, Decoded):
                raise ConfigError(
                    f"data.normalise: pixel needs raw images, {data.name} has {data.records.manifest.form.encoding} "
                    "ones; write channel"
                )
            return Scaling(tuple(mean_image(data, note).ravel().tolist()), data.std)
        case "half":
            if data.dtype != np.uint8:
                raise ConfigError(
                    f"data.normalise: half needs uint8 images, {data.name} has {data.dtype} ones; write channel or none"
                )
            return Scaling((HALF,) * channels, (HALF,) * channels)
        case "none":
            return Scaling((0.0,) * channels, (1.0,) * channels)
    raise ConfigError(f"data.normalise: must be one of {', '.join(get_args(Normalisation))}, got {show(normalise)}")
