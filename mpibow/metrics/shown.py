"""A confusion matrix as text: counts, and the precision, recall and F1 of every class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibow.metrics.metric import Array

WIDEST = 120  # characters of a line: a matrix that needs more is left out
PAIRS = 10  # the most frequent confusions that are shown in its place


def confusion_table(counts: Sequence[Sequence[float]], names: Sequence[str]) -> str:
    """Counts (classes, classes), a row for each label, as text; then precision, recall and F1 of every class.

    The most frequent confusions take the place of a matrix that is too wide.
    """
    matrix = np.array(counts, np.int64)
    rows = [["label \\ predicted", *names], *([name, *map(str, row)] for name, row in zip(names, matrix, strict=True))]
    text = _aligned(rows)
    if max(map(len, text)) > WIDEST:
        text = _aligned([["label", "predicted", "samples"], *_confused(matrix, names)])
    return "\n".join([*text, "", *_aligned([["class", "precision", "recall", "f1", "samples"], *_each(matrix, names)])])


def _confused(matrix: Array, names: Sequence[str]) -> list[list[str]]:
    wrong = matrix * (1 - np.eye(len(matrix), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[:PAIRS]
    found = [divmod(int(place), len(matrix)) for place in order]
    return [[names[label], names[guess], f"{wrong[label, guess]:,}"] for label, guess in found if wrong[label, guess]]


def _each(matrix: Array, names: Sequence[str]) -> list[list[str]]:
    both, guessed, wanted = np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1)
    return [
        [name, _share(both[i], guessed[i]), _share(both[i], wanted[i]), _share(2 * both[i], guessed[i] + wanted[i]),
         f"{wanted[i]:,}"]
        for i, name in enumerate(names)
    ]  # fmt: skip


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "-"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
