"""Rows added to the rows of a table: in place, each as often as it is named."""

import numpy as np
import pytest

from mpibow.ops.gather import scatter


class Watched(np.ndarray):
    """Counts what is assigned to its items."""

    assigned = 0

    def __setitem__(self, key, value) -> None:
        type(self).assigned += 1
        super().__setitem__(key, value)


@pytest.mark.parametrize(("width", "assigned"), [((), 4), ((3,), 0), ((1,), 0)], ids=str)
def test_rows_are_added_in_place(width, assigned, monkeypatch):
    monkeypatch.setattr(Watched, "assigned", 0)
    generator, index = np.random.default_rng(0), np.array([2, 0, 2, 4])
    rows, table = generator.standard_normal((4, *width)), np.full((5, *width), np.nan).view(Watched)
    expected = np.zeros((5, *width))
    np.add.at(expected, index, rows)
    scatter(rows, index, table)
    np.testing.assert_array_equal(np.asarray(table), expected)
    assert Watched.assigned == assigned
