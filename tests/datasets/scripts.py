"""The scripts in datasets/, which is no package, as modules; and a script run beside a folder for its output."""

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from mpibow.data import RecordSet, open_records
from tests.data.photos import encode

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"datasets_{name}", ROOT / "datasets" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Converter:
    """A script whose output is folder/output; `words` are its options in every call."""

    module: ModuleType
    words: tuple[str, ...] = ()

    def __call__(self, folder: Path, *words: object) -> int:
        return int(self.module.main([*self.words, *map(str, words), "--output", f"{folder}/output"]))

    def refusal(self, folder: Path, capsys: pytest.CaptureFixture[str], *words: object) -> str:
        """The message; nothing may be left behind."""
        before = sorted(os.listdir(folder))
        assert self(folder, *words) == 3
        assert sorted(os.listdir(folder)) == before
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        return error.removeprefix("error: ").removesuffix("\n")

    def of(self, source: Path, *words: object) -> int:
        """The output of a source lies beside it."""
        return self(source.parent, "--source", source, *words)

    def refusal_of(self, source: Path, capsys: pytest.CaptureFixture[str], *words: object) -> str:
        return self.refusal(source.parent, capsys, "--source", source, *words)


def stored(data: RecordSet) -> list[tuple[bytes, int]]:
    """All images and labels of a data set."""
    return [data.record(sample) for sample in range(data.count)]


def records(path: Path) -> list[tuple[bytes, int]]:
    return stored(open_records(path))


def records_of(source: Path, part: str = "train") -> list[tuple[bytes, int]]:
    return records(source.parent / "output" / part)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Files by their paths in the folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def flat(number: int, form: str = "JPEG", mode: str = "RGB", size: tuple[int, int] = (8, 6)) -> bytes:
    """An image of this height and width whose pixels are all `number`, also once a JPEG is decoded."""
    return encode(Image.new("L", size[::-1], number).convert(mode), form)
