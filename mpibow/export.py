"""Writes weights, or a whole net, for other programs: python -m mpibow.export RUN --to onnx --output net.onnx."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from safetensors.numpy import save

from .convert.pickles import write_state_dict
from .data.aside import file_aside
from .errors import CheckpointError, ConfigError
from .graph.graph import Array, ArraysByName
from .job.document import buffers_of, loaded
from .models.classifier import Build
from .models.torchvision import COUNTED, NETS, names_of
from .onnx.model import model_of
from .run.stored import Stored, read_stored
from .system.command import main_of, parser_of
from .system.json_text import JsonObject
from .system.streams import as_command

SCALED = "input"  # the key of the scaling of inputs in a safetensors file's metadata
BYTES = 255.0  # ToTensor divides by it


@dataclass(frozen=True)
class Exported:
    """Arrays under the names that their reader uses, and the scaling of the net's inputs.

    `mean` is the mean image where one is subtracted; it is written to a file of its own. `model` is the whole net's
    ONNX model, in which the arrays lie.
    """

    arrays: ArraysByName
    about: JsonObject
    mean: Array | None = None
    model: bytes = b""


Scaled = Literal["inside", "beside"]  # whether an ONNX model scales its inputs itself


def export(stored: Stored, names: str = "mpibow", *, average: bool = False) -> Exported:
    """The weights of `stored`, or the average of the centre, by mpibow's or torchvision's `names`.

    Raises ConfigError where torchvision has no net of these names and shapes, or there is no average.
    """
    weights = stored.weights_of(average)
    scaling, mean = scaling_of(stored)
    if names == "mpibow":
        buffers = {
            name: each.array for name, each in buffers_of(stored.graph, stored.arrays).items() if each.persistent
        }
        return Exported({**weights, **buffers}, {"names": names, **scaling}, mean)
    net, arrays = torchvisions(stored.path, weights)
    return Exported(arrays, {"names": names, "net": net, **scaling}, mean)


def export_onnx(stored: Stored, make: Build | None = None, *, average: bool = False, scaling: Scaled) -> Exported:
    """The net of `stored` as an ONNX model; `make` gives its graphs, by default the stored ones.

    The model takes samples as they were stored for training, or with `scaling` "beside" those that are scaled already.
    Raises ConfigError naming operators that ONNX lacks.
    """
    if make is None and stored.graph is None:
        raise CheckpointError(f"{stored.path}: has weights alone; a whole net is in a run, or in a file of Fitted.save")
    weights = stored.weights_of(average)
    entries, mean = scaling_of(stored)
    about = {"scaling": scaling, **entries}
    model = model_of(
        make or loaded(stored.graph or {}, stored.arrays),
        weights,
        scaled=scaling == "inside",
        about={SCALED: json.dumps(about)},
    )
    return Exported(weights, about, mean, model.SerializeToString())


def torchvisions(path: Path, weights: ArraysByName) -> tuple[str, dict[str, Array]]:
    """The net's name, and its weights as torchvision's state_dict has them. Raises ConfigError."""
    found = names_of(weights)
    if found is None:
        raise ConfigError(f"--names: torchvision has no net of {path}'s weights; it has {', '.join(NETS)}")
    for name, shape in found.shapes(len(weights[[*found.theirs][-1]])).items():
        if weights[name].shape != shape:
            raise ConfigError(
                f"--names: torchvision's {found.net} has {found.theirs[name]} of {shape}, {path} has {name} of "
                f"{weights[name].shape}; use --names mpibow"
            )
    arrays = {}
    for ours, theirs in found.theirs.items():
        arrays[theirs] = weights[ours]
        if theirs.endswith("running_var"):
            arrays[f"{theirs.rpartition('.')[0]}.{COUNTED}"] = np.zeros((), np.int64)
    return found.net, arrays


def scaling_of(stored: Stored) -> tuple[JsonObject, Array | None]:
    """How the net scales its inputs, by its graph; and the mean image where there is one. Empty without a graph."""
    graph = stored.graph or {}
    nodes = [node for node in graph.get("nodes", ()) if node.get("operator") == "Normalise"]
    inputs = {
        name: {"shape": entry["shape"][1:], "dtype": entry["dtype"]} for name, entry in graph.get("inputs", {}).items()
    }
    entry = inputs.get(nodes[0]["inputs"][0], inputs.get("image")) if nodes else None
    if entry is None:
        return {"inputs": inputs} if inputs else {}, None
    settings = nodes[0]["settings"]
    mean = settings["mean"]
    std = settings["std"]
    if not isinstance(mean, list):
        mean = stored.arrays[mean["array"]].tolist()
    image = None
    if len(mean) > len(std):
        image = np.array(mean).reshape(entry["shape"])
        mean = None
    found = {**entry, "mean": mean, "std": std}
    if entry["dtype"] == "uint8" and mean is not None:  # as torchvision.transforms.Normalize behind ToTensor has them
        found["to_tensor"] = {key: [value / BYTES for value in found[key]] for key in ("mean", "std")}
    return {"input": found}, image


def write(exported: Exported, output: Path, kind: str) -> list[Path]:
    """Writes `output`, an ONNX, a safetensors or a torch file by `kind`, and beside it a JSON file about the inputs.

    Returns all files. Raises ConfigError where one exists already, RecordError where it cannot be written.
    """
    about = output.with_name(f"{output.name}.json")
    mean = output.with_name(f"{output.name}.mean.npy")
    files = [output, about, *([mean] if exported.mean is not None else [])]
    if there := [file for file in files if file.exists()]:
        raise ConfigError(f"{there[0]}: exists already; choose another name")
    entries = dict(exported.about)
    if exported.mean is not None:
        entries["input"] = {**entries["input"], "mean": mean.name}
        with file_aside(mean) as file:
            np.save(file, exported.mean, allow_pickle=False)
    text = json.dumps(entries, indent=1) + "\n"
    with file_aside(output) as file:
        if kind == "torch":
            write_state_dict(file, exported.arrays)
        elif kind == "onnx":
            file.write(exported.model)
        else:  # Hugging Face's libraries require "pt"
            arrays = {name: np.asarray(array, order="C") for name, array in exported.arrays.items()}
            file.write(save(arrays, {"format": "pt", SCALED: json.dumps(entries)}))
    with file_aside(about) as file:
        file.write(text.encode())
    return files


def parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "export",
        "Writes trained weights, or a whole net, for other programs, and a JSON file about its inputs.",
        f"torchvision's names are of {', '.join(NETS)} (vgg_a is vgg11 there). JSON: input.mean and input.std "
        "are of the stored values; input.to_tensor has them as torchvision.transforms.Normalize takes them.",
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="a run directory, a checkpoint or a saved file")
    parser.add_argument(
        "--to",
        choices=["onnx", "safetensors", "torch"],
        required=True,
        help="the whole net as an ONNX model, or its weights: safetensors, or for torch.load (needs no PyTorch)",
    )
    parser.add_argument(
        "--names",
        choices=["mpibow", "torchvision"],
        default="mpibow",
        help="naming scheme of the weights (default: mpibow)",
    )
    parser.add_argument(
        "--scaling",
        choices=get_args(Scaled),
        default="inside",
        help="whether an ONNX model scales its inputs itself (inside), or takes scaled ones (beside)",
    )
    parser.add_argument("--average", action="store_true", help="export the average of the centre (a run with ema)")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="new file to write")
    return parser


def _run(options: argparse.Namespace) -> None:
    stored = read_stored(options.path)
    if options.to == "onnx":
        if options.names != "mpibow":
            raise ConfigError("--names: is of weights alone; an ONNX model has mpibow's")
        found = export_onnx(stored, average=options.average, scaling=options.scaling)
    else:
        found = export(stored, options.names, average=options.average)
    files = write(found, options.output, options.to)
    numbers = sum(array.size for array in found.arrays.values())
    print(f"{options.output}: {len(found.arrays)} arrays, {numbers:,} numbers, of {stored.path}; {files[1].name}")
    if not found.about.keys() & {"input", "inputs"}:
        print(f"{files[1].name}: has no scaling of inputs, as {stored.path} has no graph")


main = main_of(parser, _run)

if __name__ == "__main__":
    as_command(main)
