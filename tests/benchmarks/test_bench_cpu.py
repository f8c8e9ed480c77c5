"""What the benchmarks make of their measurements, on figures that a hand can check; nothing is measured here."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.test_bench import PROFILE

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    import bench_cpu

    return bench_cpu


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    import bench_accuracy

    return bench_accuracy


def rounds(cpu: ModuleType) -> list[Any]:
    """Three rounds of our batch 4 and of PyTorch's 4 and 64, the second one on a machine at half its speed."""
    return [
        cpu.Round({4: ours}, {4: cpu.Figure(four, setting), 64: cpu.Figure(large, "2 threads, channels last")})
        for ours, four, large, setting in (
            (400.0, 100.0, 320.0, "1 thread, channels first"),
            (200.0, 50.0, 160.0, "2 threads, channels last"),
            (420.0, 140.0, 280.0, "2 threads, channels last"),
        )
    ]


def test_figures_are_medians_and_ratios_are_of_pairs(cpu: ModuleType) -> None:
    four, large = cpu.rows(cpu.Net({4: 3.2}, {4: 1.25}), rounds(cpu))
    assert (four.ours, four.peer, four.setting) == (400.0, 100.0, "2 threads, channels last")
    assert four.ratio == 4.0  # of 4, 4 and 3
    assert (four.best, four.best_batch) == (280.0, 64)
    assert four.best_ratio == 1.25  # of 1.25, 1.25 and 1.5
    assert (large.batch, large.ours, large.ratio, large.best_ratio) == (64, None, None, None)


def test_the_best_at_any_batch_may_be_another_in_each_round(cpu: ModuleType) -> None:
    made = [cpu.Round({1: 10.0}, {1: cpu.Figure(a, "x"), 2: cpu.Figure(b, "x")}) for a, b in ((5, 4), (5, 8), (2, 8))]
    row = cpu.rows(cpu.Net({1: None}), made)[0]
    assert (row.best, row.best_batch, row.best_ratio) == (8, 2, 1.25)


def test_lines_say_what_is_met(cpu: ModuleType) -> None:
    four, large = cpu.rows(cpu.Net({4: 4.5}, {4: 1.25}), rounds(cpu))
    assert cpu.line("resnet32", four) == [
        *("resnet32", "4", "400", "100", "2 threads, channels last", "4.00", "4.50", "missed"),
        *("280 at 64", "1.25", "1.25", "met"),
    ]
    assert cpu.line("resnet32", large)[:5] == ["resnet32", "64", "", "280", "2 threads, channels last"]
    assert cpu.line("resnet32", large)[5:] == [""] * 7
    assert all(len(cpu.line("resnet32", row)) == len(cpu.HEADS) for row in (four, large))


def test_without_pytorch_there_are_our_figures_alone(cpu: ModuleType) -> None:
    (row,) = cpu.rows(cpu.Net({4: 3.2}), [cpu.Round({4: 50.0}, {})])
    assert cpu.line("resnet32", row) == ["resnet32", "4", "50.0", "", "", "", "3.20", "", "", "", "", ""]


def test_the_targets(cpu: ModuleType) -> None:
    assert cpu.verdict(1.8, 1.8) == "met"
    assert cpu.verdict(1.79, 1.8) == "missed"
    assert cpu.verdict(0.55, 0.55, most=True) == "met"
    assert cpu.verdict(0.56, 0.55, most=True) == "missed"
    assert cpu.verdict(1.0, None) == cpu.verdict(None, 1.0) == ""
    for net in cpu.NETS.values():
        assert set(net.any) <= set(net.same)  # a target for a batch that is measured
        assert not {batch for batch, target in net.same.items() if target} - set(net.search)


def test_the_floor_is_its_convolutions_measured_alone(cpu: ModuleType) -> None:
    """In turn they would meet the target that they miss alone."""
    made = {**PROFILE, "iteration": 0.0141, "ratio_alone": 1.41}
    text = cpu.floor_text("resnet32", 4, 1.4, made)
    first, *rows = text.splitlines()
    assert first == (
        "resnet32, batch 4, one learner: 14.10 ms an iteration, 1.41 times its convolutions measured alone, each step "
        "repeated by itself, 10.00 ms (at most 1.40: missed); 1.19 times the same steps in turn, 10.50 ms. Beyond them "
        "alone: 0.50 ms convolutions in turn, whose data are not all in the caches, 1.00 ms all other operators, "
        "1.00 ms update, averaging, data, loop. Its 1.60 GFLOP at the rate of the fastest convolution, 200 GFLOP/s a "
        "core, would take 8.00 ms: 500 images/s a learner are the limit. In turn:"
    )
    assert rows[3:] == [
        "| forward conv | 31 | 10.50 |",
        "| sum | 15 | 1.00 |",
        "| other operators |  | 0.00 |",
        "| update, averaging, data, loop |  | 2.60 |",
    ]
    direct = cpu.floor_text("resnet32", 4, 1.4, made, {**PROFILE, "convolutions_alone": 0.0141})
    own = (
        "oneDNN's own convolutions alone (onednn.winograd=false) take 14.10 ms: the iteration takes 1.00 times these. "
    )
    assert direct.replace(own, "") == text != direct


def test_nets_of_another_size_are_refused(cpu: ModuleType) -> None:
    cpu.check_weights({"resnet32": 464_154, "lenet": 1_111_946})
    with pytest.raises(SystemExit, match="lenet: ours has 1,111,946 weights, PyTorch's has 7: not the same net"):
        cpu.check_weights({"lenet": 7})


def test_a_table_is_markdown(cpu: ModuleType) -> None:
    assert cpu.table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_the_search_scales_the_rate_and_keeps_the_fastest(accuracy: ModuleType) -> None:
    assert [(c.batch_size, c.lr) for c in accuracy.choices([8, 32])] == [(8, 0.02), (32, 0.08), (32, 0.04)]
    limits: list[float] = []

    def side(choice: Any, seed: int, limit: float) -> Any:
        limits.append(limit)
        return accuracy.Reached({0.02: 9.0, 0.08: None, 0.04: 5.0}[choice.lr], 1.0, {})

    assert accuracy.best_choice(side, [8, 32]) == accuracy.Choice(32, 0.04)
    assert limits == [float("inf"), 9.0, 9.0]


def test_a_run_that_does_not_get_there_is_no_number(accuracy: ModuleType) -> None:
    def runs(*seconds: float | None) -> list[Any]:
        return [accuracy.Reached(s, s and 2.5, {}) for s in seconds]

    assert accuracy.paired(runs(5, 6, 7), runs(10, 10, 10)) == 0.6
    assert accuracy.paired(runs(5, None, None), runs(10, 10, 10)) is None
    assert accuracy.paired(runs(5, 6, 7), runs(10, None, None)) == 0.0
    cells = accuracy.cells("mpibow", accuracy.Choice(8, 0.02), runs(5, None, 7))
    assert cells == ["mpibow", "8", "0.02", "5.0 (2.50), not reached, 7.0 (2.50)", "7.0"]
    assert accuracy.cells("mpibow", accuracy.Choice(8, 0.02), runs(5, None, None))[-1] == "not reached"
