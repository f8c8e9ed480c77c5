"""The line of many ranks on few cores."""

import os

import pytest

from mpibow.system.crowd import warn_of_crowd


@pytest.mark.parametrize(("rank", "ranks", "said"), [("0", 64, True), ("1", 64, False), ("0", 8, False)])
@pytest.mark.parametrize(
    "names", [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), ("PMI_RANK", "MPI_LOCALNRANKS")]
)
def test_rank_0_says_that_ranks_are_many(capsys, monkeypatch, names, rank, ranks, said):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for name, value in zip(names, (rank, str(ranks)), strict=True):
        monkeypatch.setenv(name, value)
    warn_of_crowd()
    assert ("64 ranks start on this node's 2 cores" in capsys.readouterr().err) == said
