"""What bench_sma.py runs and makes of it, on figures that a hand can check; nothing is trained here."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mpibow.config.strict import plain
from mpibow.errors import MpibowError
from mpibow.sweep.kept import Kept, Result
from mpibow.sweep.running import Outcome

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    import bench_sma

    return bench_sma


@pytest.fixture
def sma_cells(bench: ModuleType) -> ModuleType:
    import sma_cells

    return sma_cells


@pytest.fixture
def page(bench: ModuleType) -> ModuleType:
    import sma_page

    return sma_page


def cell(epochs: list[float], accuracies: list[float], command: str = "c", gain: float = 1.0) -> dict[str, Any]:
    return {"epochs": epochs, "accuracies": accuracies, "gains": [1.0, gain], "command": command}


def speeds(learners: int, one: float, auto: float, torch: float) -> dict[str, Any]:
    return {"learners": learners, "images_per_second": {"one": one, "auto": auto, "torch": torch}, "command": "c"}


def found() -> dict[str, Any]:
    """Batch 8: all but PyTorch's second seed; batch 32: one learner with both rates; batch 64: speed alone."""
    return {
        "speed | LeNet | 8 | seed 0": speeds(2, 1000.0, 2000.0, 1500.0),
        "speed | LeNet | 32 | seed 0": speeds(1, 4000.0, 3900.0, 3000.0),
        "speed | LeNet | 64 | seed 0": speeds(3, 5000.0, 6000.0, 4000.0),
        "batches | learners 1 | 8 | seed 1": cell([1.0, 2.0], [0.98, 0.99]),
        "batches | learners 1 | 8 | seed 2": cell([1.0, 2.0], [0.985, 0.995]),
        "batches | learners 2 | 8 | seed 1": cell([1.0, 2.0, 3.0], [0.97, 0.985, 0.995]),
        "batches | PyTorch | 8 | seed 1": cell([1.0, 2.0], [0.98, 0.989]),
        "batches | learners 1 | 32 | seed 1": cell([3.0, 4.0], [0.98, 0.99]),
        "batches | learners 1, root rate | 32 | seed 1": cell([2.0, 3.0], [0.98, 0.99]),
    }


def test_a_cells_run_is_a_sweeps(
    bench: ModuleType, sma_cells: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its words, the data's places and what is set."""
    started = list[dict[str, Any]]()

    def ends(cells: dict[str, Any], kept: Kept, launch: list[str]) -> Outcome:
        ((name, (cell, config)),) = cells.items()
        started.append(dict(cell.settings))
        kept.run(name).mkdir(parents=True)
        (kept.run(name) / "metrics.jsonl").write_text('{"event": "evaluate", "accuracy": 0.5, "epoch": 1.0}\n')
        kept.save(name, Result(cell.settings, plain(config), {"accuracy": 0.5}))
        return Outcome(1, (), 0, 0)

    monkeypatch.setattr(bench, "run_cells", ends)
    options = argparse.Namespace(mnist=tmp_path, runs=tmp_path / "runs", set=["stop.epochs=1"])
    words = ("launch/lenet-mnist.yaml", "rule={name: ssgd}", "learners=2")
    found = bench.run(sma_cells.Cell("mnist", "S-SGD", "2", 1, words), options)
    assert (found["code"], found["accuracies"], found["epochs"]) == (0, [0.5], [1.0])
    assert found["command"] == "python -m mpibow.train launch/lenet-mnist.yaml rule={name: ssgd} learners=2"
    assert started == [
        {
            "rule": {"name": "ssgd"}, "learners": 2, "data.train": f"{tmp_path}/train",
            "data.test": f"{tmp_path}/test", "stop.epochs": 1,
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
def test_epochs_to_a_target(sma_cells: ModuleType, accuracies: list[float], epochs: float | None) -> None:
    assert sma_cells.epochs_to(0.99, cell([0.5, 1.0, 1.5], accuracies)) == (epochs and pytest.approx(epochs))


def test_what_has_not_run_reaches_nothing(sma_cells: ModuleType) -> None:
    assert sma_cells.epochs_to(0.99, None) is None
    assert sma_cells.epochs_to(None, cell([1.0], [1.0])) is None


def test_rates_grow_with_the_batch(sma_cells: ModuleType) -> None:
    each = {batch: [(r.name, r.lr, r.warmup) for r in sma_cells.rates(batch)] for batch in (2, 8, 16, 32, 256)}
    assert each == {
        2: [("", 0.00075, 0)],
        8: [("", 0.003, 0)],
        16: [("", 0.006, 0)],
        32: [("", 0.012, 1), (", root rate", 0.006, 0)],
        256: [("", 0.096, 1), (", root rate", 0.0169706, 0)],
    }


def test_a_seed_comes_after_the_other_and_no_cell_twice(sma_cells: ModuleType) -> None:
    each = list(sma_cells.cells(("speed", "batches", "mnist", "cifar"), found()))
    seeds = [cell.seed for cell in each]
    assert seeds == sorted(seeds)
    assert len({cell.key for cell in each}) == len(each)
    assert {(cell.part, cell.seed) for cell in each} == {
        *(("speed", 0), ("batches", 1), ("cifar", 1)), *(("mnist", seed) for seed in (1, 2, 3))
    }  # fmt: skip
    mnist = [cell.column for cell in each if (cell.part, cell.seed) == ("mnist", 2)]
    assert mnist == ["1", *6 * ["16"], *6 * ["4"], *6 * ["8"], *6 * ["2"]]


def test_auto_trains_with_what_the_tuner_settled_on(sma_cells: ModuleType) -> None:
    def learners(found: dict[str, Any]) -> dict[str, set[str]]:
        rows: dict[str, set[str]] = {}
        for each in sma_cells.cells(("batches",), found):
            if not each.torch:
                rows.setdefault(each.column, set()).add(each.row)
        return rows

    assert learners({})["8"] == {"learners 1"}
    known = learners(found())
    assert known["8"] == {"learners 1", "learners 2"}
    assert known["32"] == {"learners 1", "learners 1, root rate"}  # it settled on one: that is the same run
    assert known["64"] == {f"learners {k}{name}" for k in (1, 3) for name in ("", ", root rate")}


def test_all_sides_have_the_same_settings(sma_cells: ModuleType) -> None:
    mine, torch = (
        next(each for each in sma_cells.cells(("batches",), {}) if (each.row, each.column) == (row, "256"))
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


def test_points_are_of_the_better_rate(page: ModuleType) -> None:
    each = {(point.side, point.batch): point for point in page.points(found())}
    one, auto, torch = (each[side, 8] for side in ("one learner", "auto", "PyTorch"))
    assert one.by_seed == (2.0, pytest.approx(1.5))
    assert (one.epochs, one.seconds) == (pytest.approx(1.75), pytest.approx(1.75 * 60))
    assert (auto.learners, auto.epochs, auto.seconds) == (2, pytest.approx(2.5), pytest.approx(2.5 * 30))
    assert (torch.epochs, torch.seconds, torch.speed) == (None, None, 1500.0)  # it did not get there
    assert (each["one learner", 32].lr, each["one learner", 32].epochs) == (0.006, 3.0)
    assert each["auto", 32].by_seed == (3.0,)
    assert each["auto", 32].seconds == pytest.approx(3.0 * 60000 / 3900)
    assert (each["auto", 64].speed, each["auto", 64].epochs) == (6000.0, None)
    assert not {batch for _, batch in each} & {2, 4, 16, 256}


def test_a_mean_is_of_seeds_that_all_got_there(page: ModuleType) -> None:
    some = found() | {"batches | learners 1 | 8 | seed 3": cell([1.0], [0.98])}
    point = next(point for point in page.points(some) if (point.side, point.batch) == ("one learner", 8))
    assert (point.epochs, point.seconds) == (None, None)


def test_the_table_of_batches(page: ModuleType) -> None:
    lines = page.tables(found()).splitlines()
    assert "| 8 | one learner | 1 | 0.003 | 2 | 1.75 ± 0.25 (2.00, 1.50) | 1,000 | 105.0 |" in lines
    assert "| 8 | auto | 2 | 0.003 | 1 | 2.50 | 2,000 | 75.0 |" in lines
    assert "| 8 | PyTorch |  | 0.003 | 1 | not reached | 1,500 |  |" in lines
    assert "| 64 | PyTorch |  | 0.024 | 0 |  | 4,000 |  |" in lines


def test_the_table_of_rules(page: ModuleType) -> None:
    text = page.tables({
        "mnist | SMA, mean step | 16 | seed 1": cell([0.5, 1.0, 1.5, 2.01], [0.9, 0.97, 0.98, 0.99], "the command", 15),
        "mnist | SGD | 1 | seed 1": cell([0.5, 1.0, 1.5, 2.0], [0.9, 0.97, 0.99, 0.985]),
        "mnist | SGD | 1 | seed 2": cell([0.5, 1.0, 1.5, 2.0], [0.9, 0.97, 0.98, 0.985]),
        "mnist | S-SGD | 16 | seed 3": cell([0.5, 1.0], [0.8, 0.9]) | {"code": 6},
        "mnist | SMA, mean step | 2 | seed 1": cell([0.5, 1.0], [0.8, 0.9]),
    })  # fmt: skip
    assert "## LeNet on MNIST, batch 8, to 99%\n\n" in text
    assert "`the command` and the like.\n" in text
    lines = text.splitlines()
    assert "| 1 | SGD | 2 | 1.50, not reached |  | 98.50 ± 0.00 | 97.00 98.50 | 1.00 |" in lines
    assert "| 16 | SMA, mean step, the default | 1 | 2.01 | 1.34 | 99.00 | 97.00 99.00 | 15.00 |" in lines
    assert "| 16 | S-SGD | 1 | not reached |  | diverged | 90.00 | 1.00 |" in lines
    assert "| 2 | SMA, mean step, the default | 1 | not reached |  | 90.00 | 90.00 | 1.00 |" in lines
    assert "did not get there, the accuracy at the end, in %; 1 to 2 seeds; bold: the default." in text
    first = lines.index("| rule | 1 learner | 2 | 16 |")
    assert lines[first + 2 : first + 5] == [
        "| SGD | 98.50 ± 0.00 % |  |  |",
        "| SMA, mean step |  | **90.00 %** | **2.01** |",
        "| S-SGD |  |  | diverged |",
    ]
    for said in ("(Jordan et al., 2024), another optimiser than SGD", "both momenta 0.9"):
        assert said in text
    assert "CIFAR" not in text


def test_cifars_target_is_one_learners(sma_cells: ModuleType, page: ModuleType) -> None:
    ten = [float(epoch) for epoch in range(1, 11)]
    one = [0.1 * min(epoch, 7.5) for epoch in ten]  # 0.75 after 8
    cells = {
        "cifar | SGD | 1 | seed 1": cell(ten, one),
        "cifar | SMA, mean step | 16 | seed 1": cell(ten, [0.08 * epoch for epoch in ten]),
    }
    assert sma_cells.cifar_target(cells) == 0.75
    assert sma_cells.cifar_target({}) is None
    text = page.tables(cells)
    assert "| 16 | SMA, mean step, the default | 1 | 9.38 | 1.17 | 80.00 |" in text
    assert "The target, 75.00%, is one learner's accuracy after 8 epochs: one point of one run." in text
    assert "Accuracy at the end, in %; one seed; bold: the default.\n" in text
    assert "| SMA, mean step |  | **80.00** |" in text.splitlines()


def test_the_page_is_made_of_what_is_kept(page: ModuleType) -> None:
    results = FOLDER / "results"
    assert page.tables(json.loads((results / "sma.json").read_text())) == (results / "sma.md").read_text()


def test_a_second_seed_of_what_the_first_cannot_tell_apart(sma_cells: ModuleType) -> None:
    def to(epochs: float) -> dict[str, Any]:
        return cell([1.0, epochs, 11.0], [0.1, 0.8, 0.8])

    cells = {
        "cifar | SGD | 1 | seed 1": to(8.0),
        "cifar | SMA, mean step | 16 | seed 1": to(8.3),
        "cifar | SMA, mean step, delay 1 | 16 | seed 1": to(8.9),
        "cifar | S-SGD | 16 | seed 1": to(9.5),
        "cifar | SMA as published | 16 | seed 1": cell([10.0], [0.7]),
        "cifar | SMA, mean step | 4 | seed 1": to(9.0),
        "cifar | S-SGD | 4 | seed 1": to(9.3),
    }
    assert sma_cells.undecided(cells) == {("SMA, mean step", 16), ("SMA, mean step", 4), ("S-SGD", 4)}
    second = [each for each in sma_cells.cells(("cifar",), cells) if each.seed == 2]
    assert [(each.row, each.column) for each in second] == [
        ("SGD", "1"), ("SMA, mean step", "16"), ("SMA, mean step", "4"), ("S-SGD", "4")
    ]  # fmt: skip
    assert all("seed=2" in each.words for each in second)


def test_what_a_speed_cell_keeps(bench: ModuleType) -> None:
    rounds = [
        {"one": one, "auto": auto, "learners": learners, "torch": torch}
        for one, auto, learners, torch in ((10.0, 19.0, 2, 5.0), (12.0, 40.0, 3, 7.0), (11.0, 21.0, 2, 6.0))
    ]
    kept = bench.settled(rounds)
    assert kept == {"learners": 2, "images_per_second": {"one": 11.0, "auto": 20.0, "torch": 6.0}, "rounds": rounds}


def test_what_a_cell_keeps_of_a_run(bench: ModuleType) -> None:
    events = [
        {"event": "start"},
        *({"event": "train", "images_per_second": 10.0 * i, "gain": 1 + i / 3, "learners": [2]} for i in (1, 2, 6)),
        {"event": "evaluate", "accuracy": 0.5, "epoch": 0.25},
    ]
    assert bench.trained(events) == {
        "accuracies": [0.5], "epochs": [0.25], "images_per_second": 20.0, "gains": [1.333, 1.667, 3.0], "learners": [2]
    }  # fmt: skip
    assert bench.trained(events[:1]) == {
        "accuracies": [], "epochs": [], "images_per_second": None, "gains": [], "learners": []
    }  # fmt: skip


def test_a_cell_of_a_run_with_validation_data(bench: ModuleType) -> None:
    events = [
        {"event": "evaluate", "data": "validation", "accuracy": 0.5, "epoch": 1.0},
        {"event": "evaluate", "data": "validation", "accuracy": 0.4, "epoch": 2.0},
        {"event": "evaluate", "data": "test", "accuracy": 0.3, "epoch": 2.0},
        {"event": "evaluate", "data": "test", "accuracy": 0.6, "epoch": 2.0, "checkpoint": "of epoch 1"},
    ]
    kept = bench.trained(events)
    assert (kept["accuracies"], kept["epochs"], kept["test_accuracy"]) == ([0.5, 0.4], [1.0, 2.0], 0.3)


def test_what_is_missing(bench: ModuleType) -> None:
    options = argparse.Namespace(torch=None, seeds=[1])
    assert not any(each.torch or each.seed != 1 for each in bench.missing(("batches",), found(), options))
    options.torch = "python"
    left = {each.key for each in bench.missing(("speed", "batches"), found(), options)}
    assert not left & set(found())
    assert "batches | PyTorch | 2 | seed 1" in left
    assert "speed | LeNet | 2 | seed 0" in left


def test_the_plot_leaves_out_what_is_missing(
    bench: ModuleType, page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    import sma_plot

    figures = []
    monkeypatch.setattr(sma_plot, "save", lambda figure, path: figures.append(figure))
    sma_plot.draw(page.points(found()), tmp_path / "sma.svg")
    drawn = [{line.get_label(): list(line.get_ydata()) for line in axes.lines} for axes in figures[0].axes]
    nan = pytest.approx(math.nan, nan_ok=True)
    assert drawn[0]["auto, its learners below"] == pytest.approx(
        [math.nan, math.nan, 75.0, math.nan, 3.0 * 60000 / 3900, math.nan, math.nan], nan_ok=True
    )
    assert drawn[0]["PyTorch"] == 7 * [nan]
    assert drawn[2]["1 learner"] == [nan, nan, 1000.0, nan, 4000.0, 5000.0, nan]
    assert [text.get_text() for text in figures[0].axes[0].texts] == ["2", "1"]


def test_the_plot_is_written(bench: ModuleType, page: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import sma_plot

    one, two = (sma_plot.draw(page.points(found()), tmp_path / name).read_bytes() for name in ("1.svg", "2.svg"))
    assert one == two
    assert one.startswith(b"<?xml")


def test_nothing_to_draw(bench: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import sma_plot

    with pytest.raises(MpibowError) as caught:
        sma_plot.draw([], tmp_path / "sma.svg")
    assert str(caught.value) == "nothing to draw yet: no cell of --only batches or of --only speed has run"
    assert not (tmp_path / "sma.svg").exists()
