"""Prints the outputs of a trained net for files: images, arrays, tables, texts, records.

python -m mpibow.predict runs/NAME photos/ other.jpg                      a line for every image
python -m mpibow.predict runs/NAME 'photos/*.jpg' --top 5 --format jsonl  as JSON lines
python -m mpibow.predict runs/NAME table.csv --output out.csv             as CSV, to a file
"""

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tqdm import tqdm

from .comm.launch import say
from .convert.net_inputs import NetInputs
from .convert.sample_sources import samples
from .errors import ConfigError, OutputError, RecordError
from .fitted import load
from .graph.graph import Array, Shape
from .job.predictor import Prediction
from .run import directory
from .system.command import main_of, parser_of, positive
from .system.files import refusal, whole_file
from .system.streams import as_command

WIDE = 16  # most numbers of a sample's output that fit on a line
TEXT = "text"
CSV = "csv"
JSONL = "jsonl"
NPZ = "npz"
Row = tuple[str, dict[str, Array]]  # the name of a sample, and the net's outputs for it by name


def parser() -> argparse.ArgumentParser:
    made = parser_of(
        "predict",
        "Prints a trained net's likeliest classes, or its outputs, for every sample of the files.",
        "A file or a row of a table that cannot be read is named, and the others are predicted; the exit code "
        "is then 3.",
    )
    made.add_argument("net", type=Path, metavar="RUN", help="a run directory, a checkpoint, or a file of Fitted.save")
    made.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="images (.png, .jpg), folders of images or of records, arrays (.npy, .npz), tables (.csv, .parquet), "
        "texts, or globs of these ('photos/**/*.jpg')",
    )
    made.add_argument("--top", type=int, default=1, metavar="K", help="print the K likeliest classes (default: 1)")
    made.add_argument(
        "--format",
        choices=[TEXT, CSV, JSONL, NPZ],
        help="lines to read, CSV with a header line, JSON lines, or whole outputs as arrays (default: the ending of "
        "--output, else text)",
    )
    made.add_argument("--csv", action="store_const", dest="format", const=CSV, help="the same as --format csv")
    made.add_argument("--output", "--out", type=Path, metavar="FILE", help="write a .csv, .jsonl or .npz instead")
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
    predictor = fitted.predictor(arguments.batch_size, arguments.average)
    names = predictor.classes(fitted.class_names)
    output: Path | None = arguments.output
    form = arguments.format or (TEXT if output is None else output.suffix[1:])
    if form not in (TEXT, CSV, JSONL, NPZ):
        raise ConfigError(f"--output: must end in .csv, .jsonl or .npz, or have a --format, got '{output}'")
    if not 1 <= arguments.top <= max(len(names), 1):
        most = f"the net's {len(names)} classes" if names else "1, as the net gives no classes"
        raise ConfigError(f"--top: must be at least 1 and at most {most}, got {arguments.top}")
    failures = []

    def failed(error: RecordError) -> None:
        failures.append(error)
        tqdm.write(f"error: {error}", file=sys.stderr)

    wanted = NetInputs.of(predictor, fitted.input, fitted.folder, arguments.crop)
    rows = predictor.each(samples(arguments.files, wanted, failed))
    if form == NPZ:
        if output is None:
            raise ConfigError("--format: npz needs --output FILE.npz")
        _write_arrays(output, rows)
    elif names:
        predictions = (Prediction.of(name, outputs["logits"], names, arguments.top) for name, outputs in rows)
        _write(output, _of_classes(form, predictions, arguments.top))
    else:
        _write(output, _of_outputs(form, rows, predictor.outputs))
    if failures:
        sys.stdout.flush()
        say(f"error: {len(failures)} file(s) or row(s) could not be predicted")
    return RecordError.code if failures else 0


def _of_classes(form: str, predictions: Iterable[Prediction], top: int) -> Iterator[str]:
    """A line for each sample, with its likeliest classes."""
    if form == CSV:
        more = [f"{head}_{n}" for n in range(2, top + 1) for head in ("class", "probability")]
        yield _csv(["sample", "class", "probability", *more])
    for each in predictions:
        pairs = list(zip(each.classes, each.probabilities, strict=True))
        if form == JSONL:
            yield json.dumps(vars(each))
        elif form == CSV:
            yield _csv([each.sample, *(cell for name, likely in pairs for cell in (name, f"{likely:.6f}"))])
        else:
            yield f"{each.sample}  " + ", ".join(f"{name} {likely:.2%}" for name, likely in pairs)


def _of_outputs(form: str, rows: Iterable[Row], outputs: Mapping[str, Shape]) -> Iterator[str]:
    """A line for each sample, with the numbers of the net's outputs. Raises ConfigError where they are too many."""
    counts = {name: int(np.prod(shape)) for name, shape in outputs.items()}
    for name, count in counts.items():
        if form != JSONL and count > WIDE:
            raise ConfigError(
                f"{name}: is {outputs[name]} for a sample, too much for a line; write it with --output FILE.npz"
            )
    if form == CSV:
        heads = [
            head
            for name, shape in outputs.items()
            for head in ([f"{name}[{n}]" for n in range(counts[name])] if shape else [name])
        ]
        yield _csv(["sample", *heads])
    for sample, values in rows:
        if form == JSONL:
            yield json.dumps({"sample": sample, **{name: array.tolist() for name, array in values.items()}})
            continue
        cells = [f"{number:.9g}" for array in values.values() for number in np.ravel(array).tolist()]
        yield _csv([sample, *cells]) if form == CSV else "  ".join([sample, *cells])


def _csv(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def _write(output: Path | None, lines: Iterator[str]) -> None:
    """Prints the lines, or writes them to a file, whole or not at all."""
    if output is None:
        for line in lines:
            tqdm.write(line)
        return
    with refusal(OutputError, output), whole_file(output) as file:
        file.writelines(f"{line}\n".encode(errors="surrogateescape") for line in lines)


def _write_arrays(path: Path, rows: Iterable[Row]) -> None:
    """The samples' names as `sample`, and each output (n, ...) by name."""
    found = list(rows)
    names = found[0][1] if found else ()
    arrays: dict[str, Any] = {name: np.stack([values[name] for _, values in found]) for name in names}
    arrays["sample"] = np.array([sample for sample, _ in found], str)
    content = io.BytesIO()
    np.savez(content, **arrays)
    directory.write(path, content.getvalue())


main = main_of(parser, _run)

if __name__ == "__main__":
    as_command(main)
