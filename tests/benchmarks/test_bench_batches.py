"""What bench_batches.py runs and makes of it, on figures that a hand can check; nothing is trained here."""

import argparse
import json

import pytest

from benchmarks.averaging import batch_cells, batch_page as page, bench_batches as bench
from mpibow.config import plain
from mpibow.sweep.folder import CellResult, SweepFolder
from tests.launching import ROOT


def test_a_cells_run_is_a_sweeps(tmp_path, monkeypatch):
    """Of its words and the data's places."""
    started = []

    def ends(cells: dict, kept: SweepFolder, launch: list[str]) -> tuple[list[str], int, int]:
        ((name, (cell, config)),) = cells.items()
        started.append(dict(cell.settings))
        kept.run(name).mkdir(parents=True)
        (kept.run(name) / "metrics.jsonl").write_text('{"event": "evaluate", "accuracy": 0.5, "epoch": 1.0}\n')
        kept.save(name, CellResult(cell.settings, plain(config), {"accuracy": 0.5}))
        return [], 0, 0

    monkeypatch.setattr(bench, "run_cells", ends)
    options = argparse.Namespace(mnist=tmp_path, runs=tmp_path / "runs")
    words = ("launch/lenet-mnist.yaml", "update.schedule={name: cosine, epochs: 4}", "learners=2")
    found = bench.run(batch_cells.Cell("batches", "learners 2", 8, words), options)
    assert (found["code"], found["accuracies"], found["epochs"]) == (0, [0.5], [1.0])
    assert found["command"] == f"python -m mpibow.train {' '.join(words)}"
    assert started == [
        {
            "update.schedule": {"name": "cosine", "epochs": 4}, "learners": 2, "data.train": f"{tmp_path}/train",
            "data.test": f"{tmp_path}/test",
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("accuracies", "epochs"),
    [
        ([0.97, 0.98, 1.0], 1.25),  # half of the way from the second to the third, 0.5 apart
        ([0.97, 0.99, 0.98], 1.0),
        ([0.995, 0.97, 0.98], 0.5),  # nothing is known of before the first
        ([0.97, 0.98, 0.989], None),
        ([0.97, 0.96, 0.9925], 1.0 + 0.5 * 0.03 / 0.0325),
    ],
)
def test_epochs_to_the_target(accuracies, epochs):
    assert page.epochs_to_target({"epochs": [0.5, 1.0, 1.5], "accuracies": accuracies}) == (
        epochs and pytest.approx(epochs)
    )


def test_rates_grow_with_the_batch():
    each = {batch: [(r.name, r.lr, r.warmup) for r in batch_cells.rates(batch)] for batch in (2, 8, 16, 32, 256)}
    assert each == {
        2: [("", 0.00075, 0)],
        8: [("", 0.003, 0)],
        16: [("", 0.006, 0)],
        32: [("", 0.012, 1), (", root rate", 0.006, 0)],
        256: [("", 0.096, 1), (", root rate", 0.0169706, 0)],
    }


def test_all_sides_have_the_same_settings():
    mine, torch = (
        next(each for each in batch_cells.cells("batches", {}) if (each.row, each.batch) == (row, 256))
        for row in ("learners 1", "PyTorch")
    )
    task = json.loads(torch.words[0])
    assert {
        "update.momentum=0.9", "update.schedule={name: cosine, epochs: 4}", "stop.epochs=4", "evaluate.every=0.25",
        "stop.accuracy=0.99", "batch_size=256", "update.lr=0.096", "learners=1", "seed=1", "update.warmup.epochs=1",
    } < set(mine.words)  # fmt: skip
    assert task == {
        "batch_size": 256, "lr": 0.096, "seed": 1, "epochs": 4, "momentum": 0.9, "accuracy": 0.99, "warmup": 1
    }  # fmt: skip


def test_what_a_speed_cell_keeps():
    rounds = [
        {"one": one, "auto": auto, "learners": learners, "torch": torch}
        for one, auto, learners, torch in ((10.0, 19.0, 2, 5.0), (12.0, 40.0, 3, 7.0), (11.0, 21.0, 2, 6.0))
    ]
    kept = bench.settled(rounds)
    assert kept == {"learners": 2, "images_per_second": {"one": 11.0, "auto": 20.0, "torch": 6.0}, "rounds": rounds}


def test_the_plot_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks.averaging import batch_plot

    found = json.loads((ROOT / "benchmarks/results/batches.json").read_text())
    one, two = (batch_plot.draw(page.points(found), tmp_path / name).read_bytes() for name in ("1.svg", "2.svg"))
    assert one == two
    assert one.startswith(b"<?xml")
