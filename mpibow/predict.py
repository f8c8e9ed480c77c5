"""Prints the outputs of a trained net for files: images, arrays, tables, records.

python -m mpibow.predict runs/NAME photos/ other.jpg           a line for every image
python -m mpibow.predict runs/NAME table.csv --csv > out.csv   as CSV
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tqdm import tqdm

from mpibow.comm.launch import outcome, say
from mpibow.config.strict import build
from mpibow.convert.net_inputs import NetInputs, Sample, files_of, read
from mpibow.data.columns import Columns
from mpibow.data.sample_settings import Image
from mpibow.errors import CheckpointError, ConfigError, RecordError
from mpibow.fitted import Fitted, load
from mpibow.graph.graph import FLOAT, Array
from mpibow.job.predictor import Predictor
from mpibow.run import directory
from mpibow.system.command import positive, prog
from mpibow.system.streams import as_command

WIDE = 16  # most numbers of a sample's output that fit on a line
FEW = 20  # files without a progress bar
ENDINGS = (".csv", ".npz")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code is 0 only where every file was predicted."""
    code, text = outcome(partial(_run, parser().parse_args(argv)))
    if text:
        say(text)
    return code


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=prog("predict"),
        description="Prints a trained net's likeliest classes, or its outputs, for every sample of the files.",
        epilog="A file that cannot be read is named, and the others are predicted; the exit code is then 3.",
    )
    made.add_argument("net", type=Path, metavar="RUN", help="a run directory, a checkpoint, or a file of Fitted.save")
    made.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="images (.png, .jpg), folders of images or of records, arrays (.npy, .npz) or rows of numbers (.csv)",
    )
    made.add_argument("--top", type=int, default=1, metavar="K", help="print the K likeliest classes (default: 1)")
    made.add_argument("--csv", action="store_true", help="print CSV with a header line")
    made.add_argument(
        "--output", type=Path, metavar="FILE", help="write a .csv, or an .npz with the net's whole outputs, instead"
    )
    made.add_argument("--average", action="store_true", help="predict with the average of the centre (a run with ema)")
    made.add_argument(
        "--crop", action="store_true", help="crop images of another size to the net's shape before they are scaled"
    )
    made.add_argument(
        "--batch-size", type=positive, default=32, metavar="N", help="samples that are computed at once (default: 32)"
    )
    return made


def _run(arguments: argparse.Namespace) -> int:
    threadpool_limits(1)
    fitted = load(arguments.net)
    weights = fitted.weights_of(arguments.average)
    predictor = Predictor(fitted.make, fitted.config, weights, arguments.batch_size)
    names = fitted.class_names if list(predictor.outputs) == ["logits"] else ()
    output: Path | None = arguments.output
    if output is not None and output.suffix not in ENDINGS:
        raise ConfigError(f"--output: must end in {' or '.join(ENDINGS)}, got '{output}'")
    if not 1 <= arguments.top <= max(len(names), 1):
        most = f"the net's {len(names)} classes" if names else "1, as the net gives no classes"
        raise ConfigError(f"--top: must be at least 1 and at most {most}, got {arguments.top}")
    whole = output is not None and output.suffix == ".npz"
    if not whole:
        _check_width(predictor.outputs, names)
    failures = list[str]()
    found = _predicted(predictor, _samples(arguments.files, _wanted(fitted, predictor, arguments.crop), failures))
    if whole:
        assert output is not None
        _write_arrays(output, found)
    else:
        heads = _heads(predictor.outputs, names, arguments.top)
        rows = ([sample, *_cells(values, names, arguments.top)] for sample, values in found)
        if output is not None:
            text = io.StringIO()
            _write_csv(text, heads, rows)
            directory.write(output, text.getvalue())
        elif arguments.csv:
            _write_csv(sys.stdout, heads, rows)
        else:
            for row in rows:
                print(_line(row, bool(names)))
    if failures:
        sys.stdout.flush()
        say(f"error: {len(failures)} file(s) could not be predicted")
    return RecordError.code if failures else 0


def _wanted(fitted: Fitted, predictor: Predictor, crop: bool) -> NetInputs:
    """The net's inputs, and how images became samples in training. Raises CheckpointError."""
    tensors = [predictor.graph.tensors[name] for name in predictor.inputs]
    inputs = {each.name: (each.shape[1:], "float32" if each.dtype == FLOAT else each.dtype) for each in tensors}
    settings = fitted.input.get("image")
    try:
        image = None if settings is None else build(Image, settings, path="input.image")
        contents = fitted.input.get("contents") or {}
        columns = Columns.of(contents) if contents.get("kind") == "table" else None
    except (ConfigError, RecordError) as error:
        raise CheckpointError(str(error)) from None
    return NetInputs(inputs, image, crop, columns)


def _samples(paths: Sequence[Path], wanted: NetInputs, failures: list[str]) -> Iterator[Sample]:
    """All samples of the files in order; a file's error is printed and kept in `failures`."""

    def failed(error: RecordError) -> None:
        failures.append(str(error))
        tqdm.write(f"error: {error}", file=sys.stderr)

    files = list[Path]()
    for path in paths:
        try:
            files += files_of(path)
        except RecordError as error:
            failed(error)
    for path in tqdm(files, unit=" files", disable=True if len(files) < FEW else None, leave=False):
        try:
            yield from read(path, wanted)
        except RecordError as error:
            failed(error)


def _predicted(predictor: Predictor, samples: Iterator[Sample]) -> Iterator[tuple[str, dict[str, Array]]]:
    """Each sample's name and outputs."""
    while batch := list(islice(samples, predictor.batch_size)):
        given = {name: np.stack([arrays[name] for _, arrays in batch]) for name in predictor.inputs}
        found = predictor(given)
        for row, (name, _) in enumerate(batch):
            yield name, {output: array[row] for output, array in found.items()}


def _check_width(outputs: Mapping[str, tuple[int, ...]], names: Sequence[str]) -> None:
    for name, shape in outputs.items():
        if not names and int(np.prod(shape)) > WIDE:
            raise ConfigError(f"{name}: is {shape} for a sample, too much for a line; write it with --output FILE.npz")


def _heads(outputs: Mapping[str, tuple[int, ...]], names: Sequence[str], top: int) -> list[str]:
    if names:
        more = [f"{head}_{n}" for n in range(2, top + 1) for head in ("class", "probability")]
        return ["sample", "class", "probability", *more]
    cells = [
        [name] if not shape else [f"{name}[{n}]" for n in range(int(np.prod(shape)))] for name, shape in outputs.items()
    ]
    return ["sample", *(cell for part in cells for cell in part)]


def _cells(values: Mapping[str, Array], names: Sequence[str], top: int) -> list[str]:
    """The likeliest classes with their probabilities; for other nets the numbers of the outputs."""
    if not names:
        return [f"{number:.7g}" for array in values.values() for number in np.ravel(array).tolist()]
    logits = values["logits"][: len(names)].astype(np.float64)
    likely = np.exp(logits - logits.max())
    likely /= likely.sum()
    order = np.argsort(-likely, kind="stable")[:top]
    return [cell for n in order.tolist() for cell in (names[n], f"{likely[n]:.6f}")]


def _line(row: Sequence[str], classes: bool) -> str:
    """A row as a person reads it."""
    sample, *cells = row
    if not classes:
        return f"{sample}  {'  '.join(cells)}"
    pairs = zip(cells[::2], cells[1::2], strict=True)
    return f"{sample}  " + ", ".join(f"{name} {float(probability):.2%}" for name, probability in pairs)


def _write_csv(file: TextIO, heads: Sequence[str], rows: Iterator[list[str]]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)


def _write_arrays(path: Path, found: Iterator[tuple[str, dict[str, Array]]]) -> None:
    """The samples' names as `sample`, and each output (n, ...) by name."""
    rows = list(found)
    names = rows[0][1] if rows else ()
    arrays: dict[str, Any] = {name: np.stack([values[name] for _, values in rows]) for name in names}
    arrays["sample"] = np.array([sample for sample, _ in rows], str)
    content = io.BytesIO()
    np.savez(content, **arrays)
    directory.write(path, content.getvalue())


if __name__ == "__main__":
    as_command(main)
