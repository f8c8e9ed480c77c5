"""ONNX's own test cases through mpibow.from_onnx, on NumPy's and oneDNN's kernels: passed, refused by name, or wrong.

    python -m tests.onnx_models.suite [--kind node] [--kernels numpy] [--list refused] [PART_OF_A_NAME ...]

The cases are those of the package onnx: its node tests, and its models with data. A case whose inputs behind the first
must be constant in a net, such as a convolution's weight, is read with these stored in the file.
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from mpibow.errors import ConfigError, ShapeError
from mpibow.graph import Kernels
from mpibow.kernels import find_kernels
from mpibow.onnx.comparison import evaluated
from mpibow.onnx.reader import net_of
from tests.onnx_models.runtime import onnx

numpy_helper = onnx.numpy_helper
load_model_tests = import_module("onnx.backend.test.loader").load_model_tests

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
Arrays = dict[str, np.ndarray]
PRECISIONS = {"numpy": "float64", "onednn": "float32"}


@dataclass(frozen=True)
class Outcome:
    """`kind` is passed, refused, or wrong; `text` is the refusal or the difference."""

    kind: str
    text: str = ""


def cases(kinds: Sequence[str], parts: Sequence[str]) -> Iterator[Any]:
    """The cases of these kinds whose names have one of `parts`."""
    for kind in kinds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = light_models(parts) if kind == "light" else load_model_tests(kind=kind)
        yield from (each for each in found if not parts or any(part in each.name for part in parts))


def light_models(parts: Sequence[str]) -> Iterator[Any]:
    """Whole nets, whose files have nodes that make the weights; here these are stored."""
    runner = import_module("onnx.backend.test.runner").Runner
    for file in sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx")):
        if parts and not any(part in file.stem for part in parts):
            continue
        model, nodes = onnx.load(file), list[Any]()
        shapes = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type != "ConstantOfShape":
                nodes.append(node)
                continue
            array = np.full(shapes[node.input[0]], *numpy_helper.to_array(node.attribute[0].t))
            shapes[node.output[0]] = array
            model.graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
            model.graph.input.append(onnx.helper.make_tensor_value_info(node.output[0], 1, array.shape))
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        (image,) = (each for each in model.graph.input if each.name not in shapes)
        sample = runner.generate_dummy_data(image, seed=0, name=file.stem, random=False)
        output = numpy_helper.to_array(onnx.load_tensor(str(file).replace(".onnx", "_output_0.pb")))
        names = [each.name for each in model.graph.input]
        inputs = [sample if name == image.name else shapes[name] for name in names]
        case = {"name": file.stem, "model": model, "data_sets": [(inputs, [output])], "model_dir": None}
        yield SimpleNamespace(**case, rtol=1e-3, atol=1e-7)


def data_of(case: Any, model: Any) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The inputs by name and the outputs of a case's first data set. Raises ConfigError where they are no arrays."""
    if case.model_dir is None:
        inputs, outputs = case.data_sets[0]
    else:
        folder = Path(case.model_dir) / "test_data_set_0"
        inputs, outputs = (
            [numpy_helper.to_array(onnx.load_tensor(file)) for file in sorted(folder.glob(f"{part}_*.pb"))]
            for part in ("input", "output")
        )
    inputs, outputs = (
        [numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else each for each in part]
        for part in (inputs, outputs)
    )
    if not all(isinstance(each, np.ndarray | np.generic) for each in (*inputs, *outputs)):
        raise ConfigError("sequences and optional values")
    names = [each.name for each in model.graph.input]
    return dict(zip(names, map(np.asarray, inputs), strict=False)), list(map(np.asarray, outputs))


def outcome(case: Any, kernels: Kernels) -> Outcome:
    """The case with all its inputs given to the net; if that is refused, with all behind the first in the file."""
    model = case.model or onnx.load(Path(case.model_dir) / "model.onnx")
    try:
        inputs, outputs = data_of(case, model)
    except (ConfigError, ValueError) as error:
        return Outcome("refused", str(error))
    first = _compared(case, model, inputs, outputs, kernels)
    if first.kind != "refused" or len(inputs) < 2:
        return first
    stored = onnx.ModelProto()
    stored.CopyFrom(model)
    for name in list(inputs)[1:]:
        stored.graph.initializer.append(numpy_helper.from_array(inputs.pop(name), name))
    return _compared(case, stored, inputs, outputs, kernels)


def _compared(
    case: Any,
    model: Any,
    inputs: dict[str, np.ndarray],
    outputs: Sequence[np.ndarray],
    kernels: Kernels,
) -> Outcome:
    largest = max(
        (np.nanmax(np.abs(each), initial=0) for each in inputs.values() if each.dtype == np.float64), default=0
    )
    if PRECISIONS[kernels.name] == "float32" and largest > np.finfo(np.float32).max:
        return Outcome("refused", "numbers beyond float32")
    try:
        net = net_of(model, case.name, shapes={name: array.shape[1:] for name, array in inputs.items()})
        results = evaluated(net, inputs, kernels, PRECISIONS[kernels.name])
    except (ConfigError, ShapeError) as error:
        return Outcome("refused", str(error))
    except Exception as error:
        return Outcome("wrong", f"{type(error).__name__}: {error}")
    for (name, found), wanted in zip(results.items(), outputs, strict=True):
        numbers = np.asarray(wanted, found.dtype if wanted.dtype.kind not in "fiub" else wanted.dtype)
        if found.dtype.kind.replace("u", "i") != numbers.dtype.kind.replace("u", "i"):
            return Outcome("wrong", f"{name}: {found.dtype}, not {wanted.dtype}")
        if found.shape != wanted.shape:
            return Outcome("wrong", f"{name}: {found.shape}, not {wanted.shape}")
        rounded = 2.0**-7 if wanted.dtype.name == "bfloat16" else case.rtol
        if not np.allclose(found, numbers, rounded, max(case.atol, 1e-6), equal_nan=True):
            return Outcome("wrong", f"{name}: differs by {np.nanmax(np.abs(found - numbers.astype(float))):.3g}")
    return Outcome("passed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART_OF_A_NAME", help="run only cases with one of these")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all")
    parser.add_argument("--kernels", action="append", choices=[*PRECISIONS], help="default: all")
    parser.add_argument("--list", choices=["passed", "refused", "wrong"], default="wrong", help="print these cases")
    arguments = parser.parse_args()
    wrong = 0
    for name in arguments.kernels or PRECISIONS:
        kernels, _ = find_kernels(name, "auto", None)
        for kind in arguments.kind or KINDS:
            found = {case.name: outcome(case, kernels) for case in cases([kind], arguments.parts)}
            counts = Counter(each.kind for each in found.values())
            print(f"{name:8} {kind:18}", *(f"{each} {counts[each]:5}" for each in ("passed", "refused", "wrong")))
            for case, each in found.items():
                if each.kind == arguments.list:
                    print(f"    {case}: {each.text.replace(chr(10), ' ')}")
            wrong += counts["wrong"]
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
