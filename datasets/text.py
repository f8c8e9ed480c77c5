"""Writes text as records of tokens: mpibow convert text --source shakespeare.txt --output data/shakespeare

--source is a text file in UTF-8, or a folder with such files (*.txt, also in folders below). They are joined in the
order of their names, 2 before 10; what is left out is printed.
--tokens chars numbers the characters that occur, --tokens bytes takes the bytes, and --tokens tokenizer.json is a
tokenizer of the package tokenizers. The test part is the end of the text. Training cuts the stream into windows of
data.text.context tokens. The converter prints the size of the vocabulary: the net needs it.
"""

import argparse
from pathlib import Path

import numpy as np

from mpibow.convert import arguments
from mpibow.convert.conversion import Part, file_checksum, progress, write_parts
from mpibow.convert.folders import Left, say_left, walk
from mpibow.convert.source_files import by_numbers
from mpibow.data import Array
from mpibow.data.aside import content_of
from mpibow.data.text import BYTES, CHARS, FILE, Tokens, bytes_of, chars_of, contents_of, read_tokens, records_of
from mpibow.errors import RecordError
from mpibow.system.command import some
from mpibow.system.streams import as_command

PIECE = 1 << 20  # characters that are encoded at once, up to the end of a line


def convert(
    source: Path, output: Path, *, tokens: str = CHARS, test_fraction: float | None = None, overwrite: bool = False
) -> None:
    """Writes output/train, and output/test if asked for, and verifies them; prints the size of the vocabulary."""
    arguments.prepare(output, overwrite)
    files = _files(source)
    texts = [_read(path, errors="surrogateescape" if tokens == BYTES else "strict") for path in files]
    if not any(texts):
        raise RecordError(f"{source}: has no text")
    known = _tokens(tokens, texts)
    stream = _encoded(known, texts, source)
    cut = len(stream) - round(len(stream) * (test_fraction or 0.0))
    streams = {"train": stream[:cut]} | ({"test": stream[cut:]} if test_fraction else {})
    for name, part in streams.items():
        if len(part) < 2:
            raise RecordError(f"{source}: has {len(stream):,} tokens, {name} must have at least 2, got {len(part)}")
    about = some([path.name for path in files], 3)
    about += f": {len(stream):,} tokens, {known.kind}" + (f"; test: the last {test_fraction}" if test_fraction else "")
    sources = {path.name: file_checksum(path) for path in files}
    parts = {}
    for name, part in streams.items():
        records = [*records_of(part, known.size)]
        parts[name] = Part(
            len(records), records, sources=sources, contents=contents_of(part, known), files={FILE: known.content}
        )
    write_parts(output, parts, classes=known.size, source=about, overwrite=overwrite)
    print(f"vocabulary: {known.size:,} tokens")


def _files(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    left = Left()
    found = [source / name for name in walk(source, left, (".txt",))]
    say_left(source, left)
    if not found:
        raise RecordError(f"{source}: has no *.txt files")
    return sorted(found, key=by_numbers)


def _read(path: Path, errors: str) -> str:
    try:
        return content_of(path).decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise RecordError(
            f"{path}: byte {error.start} is no UTF-8; convert the file, or pass --tokens bytes"
        ) from error


def _tokens(given: str, texts: list[str]) -> Tokens:
    if given == CHARS:
        return chars_of("".join(set().union(*texts)))
    return bytes_of() if given == BYTES else read_tokens(Path(given))


def _encoded(known: Tokens, texts: list[str], source: Path) -> Array:
    found = []
    with progress(sum(map(len, texts)), f"{source}: encode", " characters") as bar:
        for text in texts:
            start = 0
            while start < len(text):
                end = text.find("\n", start + PIECE) + 1 or len(text)
                found.append(known.encode(text[start:end]))
                bar.update(end - start)
                start = end
    return np.concatenate(found)


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("text", __doc__)
    arguments.add_source(made, "text file, or folder with *.txt files")
    arguments.add_output(made, "data/text")
    made.add_argument(
        "--tokens",
        default=CHARS,
        metavar="KIND",
        help="chars, bytes, or the path of a tokenizer.json (default: %(default)s)",
    )
    made.add_argument(
        "--test-fraction",
        type=arguments.fraction,
        metavar="X",
        help="share of the text, its end, to split off as test data, above 0 and below 1",
    )
    arguments.add_shared(made, "overwrite")
    return made


main = arguments.command(parser, convert)

if __name__ == "__main__":
    as_command(main)
