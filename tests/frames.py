"""Data frames: pandas' and polars' where they are installed, and one that has no more than they share."""

from typing import Any

import numpy as np
import pytest

KINDS = ("OwnFrame", "pandas", "polars")


class OwnFrame:
    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns, self._cells = list(columns), columns

    def __getitem__(self, name: Any) -> Any:
        return OwnFrame({each: self._cells[each] for each in name}) if isinstance(name, list) else self._cells[name]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(list(self._cells.values()), dtype).T


def frame(kind: str, columns: dict[str, list[Any]]) -> Any:
    return OwnFrame(columns) if kind == "OwnFrame" else pytest.importorskip(kind).DataFrame(columns)
