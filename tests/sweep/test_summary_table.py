"""Tables: means and intervals by hand, rows in order, what diverged is said, what chooses are validation data."""

import math
from dataclasses import replace

import pytest

from mpibow.errors import ConfigError
from mpibow.sweep.folder import CellResult
from mpibow.sweep.summary_table import mean_of, students, table
from tests.refusals import refuses


def result(lr: float, seed: int, **summary) -> CellResult:
    config = {"update": {"lr": lr, "momentum": 0.9}, "seed": seed, "rule": {"name": "sma"}}
    entries = {"validation_accuracy": None, "accuracy": None, "epochs_to_target": None, "seconds": 10.0, **summary}
    return CellResult({"update.lr": lr, "seed": seed}, config, entries or None)


def diverged(lr: float, seed: int) -> CellResult:
    return replace(result(lr, seed), summary=None)


def made(*results: CellResult, keys: tuple[str, ...] = ()) -> list[str]:
    return table({str(n): each for n, each in enumerate(results)}, keys).splitlines()


# Fisher and Yates, Statistical Tables, 1963, table III: two-sided 5 % points
@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (8, 2.306), (9, 2.262), (30, 2.042), (120, 1.980)],
)
def test_students_t(freedom, expected):
    assert students(freedom, 0.95) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("t", [0.1, 1.0, 3.0, 30.0])
def test_its_distribution_in_closed_form(t):
    assert students(1, 2 / math.pi * math.atan(t)) == pytest.approx(t, rel=1e-7)  # Cauchy's
    assert students(2, t / math.sqrt(2 + t * t)) == pytest.approx(t, rel=1e-7)
    assert students(10**5, math.erf(min(t, 3) / math.sqrt(2))) == pytest.approx(min(t, 3), rel=1e-4)


def test_a_mean_by_hand():
    found = mean_of([1.0, 2.0, 3.0], 4)
    assert (found.mean, found.count, found.of) == (2.0, 3, 4)
    assert found.half == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert found.text(2) == "2.00 ± 2.48 (3 of 4)"
    assert mean_of([1.5], 1).text(1) == "1.5"


def test_losses_that_are_not_finite_have_no_mean():
    lines = made(*(result(0.1, seed, test_loss=loss) for seed, loss in enumerate((0.5, math.nan, math.inf))))
    assert lines[2].split("|")[2].strip() == "0.5000 (1 of 3)"


def test_rows_rise_and_the_best_is_by_validation_data():
    """Though the other is better on test data."""
    lines = made(
        result(0.1, 1, validation_accuracy=0.9, accuracy=0.5), result(0.1, 2, validation_accuracy=0.8, accuracy=0.5),
        result(0.02, 1, validation_accuracy=0.7, accuracy=0.6), result(0.02, 2, validation_accuracy=0.7, accuracy=0.6),
    )  # fmt: skip
    assert lines == [
        "| update.lr | runs  | validation accuracy, % | test accuracy, % | seconds        |",
        "| --------- | ----- | ---------------------- | ---------------- | -------------- |",
        "| 0.02      | 2     | 70.00 ± 0.00           | 60.00 ± 0.00     | 10.0 ± 0.0     |",
        "| **0.1**   | **2** | **85.00 ± 63.53**      | **50.00 ± 0.00** | **10.0 ± 0.0** |",
        "",
        "Mean over seed ± half of its 95% interval (Student's t), without the runs that diverged. "
        "Bold: the best on validation data.",
    ]


def test_nothing_is_best_without_validation_data_or_in_a_tie():
    assert "**" not in "".join(made(result(0.1, 1, accuracy=0.9), result(0.2, 1, accuracy=0.8)))
    tie = made(result(0.1, 1, validation_accuracy=0.9), result(0.2, 1, validation_accuracy=0.9))
    assert "**" not in "".join(tie)
    assert tie[-1] == "One run a row."


def test_what_diverged_and_what_did_not_reach_the_target_is_said():
    lines = made(
        result(0.1, 1, accuracy=0.9, epochs_to_target=2.0), result(0.1, 2, accuracy=0.9),
        diverged(0.1, 3), diverged(0.5, 1),
    )  # fmt: skip
    assert lines[2].split("|")[2:5] == [" 3, 1 diverged ", " 90.00 ± 0.00     ", " 2.00 (1 of 2)    "]
    assert [cell.strip() for cell in lines[3].split("|")[1:-1]] == ["0.5", "1, 1 diverged", "", "", ""]


def test_losses_stand_where_there_are_no_accuracies():
    assert "test loss" in made(result(0.1, 1, test_loss=0.25))[0]
    assert "test loss" not in made(result(0.1, 1, test_loss=0.25, accuracy=0.5))[0]


def test_keys_that_are_asked_for():
    """A setting that nobody typed too; what is not in the rows is named."""
    runs = [result(lr, seed, accuracy=lr) for lr in (0.1, 0.3) for seed in (1, 2)]
    lines = made(*runs, keys=("rule.name",))
    assert lines[2].startswith("| sma       | 4    | 20.00 ± ")
    assert lines[-1].startswith("Mean over update.lr, seed ± ")
    assert len(made(*runs, keys=("update.lr", "seed"))) == 8
    with refuses("--table: no run has a setting update.rate; the keys that differ: update.lr, seed"):
        made(*runs, keys=("update.rate",))
    with pytest.raises(ConfigError, match="no cell has ended yet"):
        table({})


def test_a_setting_that_changed_between_two_commands_is_a_key():
    before, after = result(0.1, 1, accuracy=0.5), result(0.1, 2, accuracy=0.7)
    after.config["update"]["momentum"] = 0.5
    after.config["model"] = {"drop": 0.0}
    heads = made(before, after)[0].split(" | ")
    assert [each.strip("| ") for each in heads[:3]] == ["model.drop", "update.momentum", "runs"]
