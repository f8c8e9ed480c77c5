"""What the benchmarks make of their measurements, on figures that a hand can check; nothing is measured here."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.averaging import bench_accuracy as accuracy
from benchmarks.speed import bench_cpu as cpu
from benchmarks.speed import cpu_page as page
from tests.test_bench import PROFILE

FOLDER = Path(__file__).parents[2] / "benchmarks"


def rounds(page: ModuleType) -> list[Any]:
    """Three rounds of our batch 4 and of PyTorch's 4 and 64, the second one on a machine at half its speed."""
    return [
        page.Round({4: ours}, {4: page.Figure(four, setting, gain), 64: page.Figure(large, "2 threads, channels last")})
        for ours, four, large, setting, gain in (
            (400.0, 100.0, 320.0, "1 thread, channels first", 0.5),
            (200.0, 50.0, 160.0, "2 threads, channels last, compiled", 1.1),
            (420.0, 140.0, 280.0, "2 threads, channels last, compiled", 1.2),
        )
    ]


def test_figures_are_medians_and_ratios_are_of_pairs() -> None:
    four, large = page.rows(page.Net({4: 3.2}, {4: 1.25}), rounds(page))
    assert (four.ours, four.peer, four.setting) == (400.0, 100.0, "2 threads, channels last, compiled")
    assert four.compiled == 1.1
    assert four.ratio == 4.0  # of 4, 4 and 3
    assert (four.best, four.best_batch) == (280.0, 64)
    assert four.best_ratio == 1.25  # of 1.25, 1.25 and 1.5
    assert (large.batch, large.ours, large.ratio, large.best_ratio, large.compiled) == (64, None, None, None, None)


def test_the_best_at_any_batch_may_be_another_in_each_round() -> None:
    pairs = ((5, 4), (5, 8), (2, 8))
    made = [page.Round({1: 10.0}, {1: page.Figure(a, "x"), 2: page.Figure(b, "x")}) for a, b in pairs]
    row = page.rows(page.Net({1: None}), made)[0]
    assert (row.best, row.best_batch, row.best_ratio) == (8, 2, 1.25)


def test_a_round_that_is_not_over_has_no_best_at_any_batch() -> None:
    """Its batch 64, the faster one, is still to come."""
    one, two, _ = rounds(page)
    del two.peer[64]
    four, large = page.rows(page.Net({4: None}), [one, two])
    assert (four.ours, four.ratio, large.peer) == (300.0, 4.0, 320.0)
    assert (four.best, four.best_ratio) == (320.0, 1.25)


def test_lines_say_what_is_met() -> None:
    four, large = page.rows(page.Net({4: 4.5}, {4: 1.25}), rounds(page))
    assert page.line("resnet32", four) == [
        *("resnet32", "4", "400", "100", "2 threads, channels last, compiled", "1.10", "4.00", "4.50", "missed"),
        *("280 at 64", "1.25", "1.25", "met"),
    ]
    assert page.line("resnet32", large)[:5] == ["resnet32", "64", "", "280", "2 threads, channels last"]
    assert page.line("resnet32", large)[5:] == [""] * 8
    assert all(len(page.line("resnet32", row)) == len(page.HEADS) for row in (four, large))


def test_the_short_table_has_the_readmes_batches() -> None:
    made = page.rows(page.Net({4: 4.5}), rounds(page))
    assert page.short_line("resnet32", made) == ["resnet32", "", "400 (4.00)", "", "", "280, at 64"]
    assert len(page.SHORT_HEADS) == 6


def test_without_pytorch_there_are_our_figures_alone() -> None:
    made = page.rows(page.Net({4: 3.2}), [page.Round({4: 50.0}, {})])
    assert page.line("resnet32", made[0]) == ["resnet32", "4", "50.0", "", "", "", "", "3.20", "", "", "", "", ""]
    assert page.short_line("resnet32", made) == ["resnet32", "", "50.0 (?)", "", "", ""]


def test_the_targets() -> None:
    assert page.verdict(1.8, 1.8) == "met"
    assert page.verdict(1.79, 1.8) == "missed"
    assert page.verdict(0.55, 0.55, most=True) == "met"
    assert page.verdict(0.56, 0.55, most=True) == "missed"
    assert page.verdict(1.0, None) == page.verdict(None, 1.0) == ""
    for net in page.NETS.values():
        assert set(net.any) <= set(net.same)  # a target for a batch that is measured
        assert not {batch for batch, target in net.same.items() if target} - set(net.search)
        assert set(net.quoted) <= set(net.search)


def test_the_floor_is_its_convolutions_measured_alone() -> None:
    """In turn they would meet the target that they miss alone."""
    made = {**PROFILE, "iteration": 0.0141, "ratio_alone": 1.41, "model": "resnet32", "batch_size": 4, "target": 1.4}
    text = page.profile_text(made)
    first, *lines = text.splitlines()
    assert first == (
        "resnet32, batch 4, one learner: 14.10 ms an iteration, 1.41 times its convolutions measured alone, each step "
        "repeated by itself, 10.00 ms (at most 1.40: missed); 1.19 times the same steps in turn, 10.50 ms. Beyond them "
        "alone: 0.50 ms convolutions in turn, whose data are not all in the caches, 1.00 ms all other operators, "
        "1.00 ms update, averaging, data, loop. Its 1.60 GFLOP at the rate of the fastest convolution, 200 GFLOP/s a "
        "core, would take 8.00 ms: 500 images/s a learner are the limit. In turn:"
    )
    assert lines[3:] == [
        "| forward conv | 31 | 10.50 |",
        "| sum | 15 | 1.00 |",
        "| other operators |  | 0.00 |",
        "| update, averaging, data, loop |  | 2.60 |",
    ]
    direct = page.profile_text({**made, "direct": 0.0141})
    own = (
        "oneDNN's own convolutions alone (onednn.winograd=false) take 14.10 ms: the iteration takes 1.00 times these. "
    )
    assert direct.replace(own, "") == text != direct


def options(**more: Any) -> argparse.Namespace:
    given = {"batches": None, "search": None, "quoted": False, "compile": "quoted", "learners": 2, "seconds": 1.0}
    return argparse.Namespace(**given | {"set": [], "models": ["lenet"], "repeats": 2} | more)


class Asked:
    """PyTorch's side, which answers with the batch and takes note of the questions."""

    def __init__(self) -> None:
        self.questions: list[tuple[object, ...]] = []

    def __call__(self, script: str, *words: object) -> dict[str, Any]:
        self.questions.append(words)
        gain = 1.25 if "compile" in words else None
        return {"images_per_second": words[2], "setting": "a", "compiled": gain}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Our batches, as they are asked for; every one is twice as fast as PyTorch's."""
    batches: list[int] = []

    def rate(model: str, batch: int, learners: int, options: argparse.Namespace) -> float:
        batches.append(batch)
        return 2.0 * batch

    monkeypatch.setattr(cpu, "images_per_second", rate)
    return batches


def test_which_cells_are_measured_and_where_pytorch_compiles(timed: list[int]) -> None:
    peer = Asked()
    *_, last = cpu.speed(options(repeats=1), peer, {})
    assert timed == [1, 2, 4, 8, 16, 64]
    assert [words[2] for words in peer.questions] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert [words[2] for words in peer.questions if "compile" in words] == [1, 4, 8, 16, 256]
    assert last["models"]["lenet"][0]["peer"][4] == {"rate": 4, "setting": "a", "compiled": 1.25}
    timed.clear()
    quoted = Asked()
    list(cpu.speed(options(repeats=1, quoted=True, compile="none"), quoted, {}))
    assert timed == [1, 4, 8, 16]
    assert [words[2:] for words in quoted.questions] == [(batch, 1.0) for batch in (1, 4, 8, 16, 256)]
    everywhere = Asked()
    list(cpu.speed(options(repeats=1, compile="all"), everywhere, {}))
    assert all("compile" in words for words in everywhere.questions)
    list(cpu.speed(options(repeats=1), None, {}))  # without PyTorch


def test_what_was_measured_is_kept_cell_by_cell_and_not_measured_again(timed: list[int]) -> None:
    """A round of all models comes before the next one, so that a run that is stopped has something of each."""
    chosen = options(models=["resnet50", "vgg16_cifar"], quoted=True)
    each = [json.loads(json.dumps(found)) for found in cpu.speed(chosen, Asked(), {})]
    assert timed == [4, 4, 8, 4, 4, 8]
    shapes = [{model: len(rounds) for model, rounds in found["models"].items()} for found in each]
    assert shapes[0] == {"resnet50": 1}
    assert shapes[2] == {"resnet50": 1, "vgg16_cifar": 1}
    assert shapes[-1] == {"resnet50": 2, "vgg16_cifar": 2}
    timed.clear()
    peer = Asked()
    *_, resumed = cpu.speed(chosen, peer, each[3])
    assert timed == [4, 8]
    assert json.loads(json.dumps(resumed)) == each[-1]
    assert list(cpu.speed(chosen, peer, each[-1])) == []
    text = page.speed_text(each[-1])
    assert "| resnet50 |  | 8.0 (2.00) |  |  | 4.0, at 4 |" in text.splitlines()
    assert "torch.compile is tried" in text
    assert "torch.compile" not in page.speed_text(next(cpu.speed(options(compile="none"), Asked(), {})))


def test_the_page_is_made_of_what_is_kept() -> None:
    results = FOLDER / "results"
    assert page.page(json.loads((results / "cpu.json").read_text())) == (results / "cpu.md").read_text()


def test_parts_that_are_not_measured_again_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timed: list[int]
) -> None:
    """The command as it is typed, with both sides replaced."""
    (tmp_path / "cpu.json").write_text((FOLDER / "results/cpu.json").read_text())
    before = json.loads((tmp_path / "cpu.json").read_text())
    monkeypatch.setattr(cpu, "Peer", lambda *_: type("None", (), {"missing": lambda self: "no PyTorch"})())
    monkeypatch.setattr(cpu, "ours", lambda *_: json.dumps({"versions": {"python": "3"}, "kernels": "numpy"}))
    line = ["bench_cpu.py", "--only", "speed", "--models", "lenet", "--batches", "2", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", [*line, "--output", str(tmp_path)])
    cpu.main()
    after = json.loads((tmp_path / "cpu.json").read_text())
    assert {part: after[part] for part in ("scaling", "floor")} == {part: before[part] for part in ("scaling", "floor")}
    assert after["speed"]["models"] == {"lenet": [{"ours": {"2": 4.0}, "peer": {}}]}
    assert after["speed"]["about"]["mpibow"] == {"python": "3", "kernels": "numpy"}
    assert "| lenet | 2 | 4.0 |" in (tmp_path / "cpu.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cpu.json", "cpu.md"]


@pytest.mark.parametrize(
    ("gain", "wanted", "setting", "rate"),
    [(1.25, True, "2 threads, channels last, compiled", 50.0), (0.5, True, "2 threads, channels last", 40.0),
     (1.25, False, "2 threads, channels last", 40.0)],
)  # fmt: skip
def test_pytorch_takes_the_best_of_eager_and_compiled(
    monkeypatch: pytest.MonkeyPatch, gain: float, wanted: bool, setting: str, rate: float
) -> None:
    """Compiled is tried with the best of the eager settings alone; steps that take no time, rates by hand."""
    pytest.importorskip("torch")
    from benchmarks.speed import torch_peer

    speeds, tried = {(1, "first"): 3.0, (1, "last"): 4.0, (2, "first"): 6.0, (2, "last"): 10.0}, []

    def trainer(model: str, batch: int, threads: int, layout: str, compiled: bool) -> Any:
        tried.append((threads, layout, compiled))
        reached = speeds[threads, layout] * (gain if compiled else 1)
        return type("Step", (), {"__call__": lambda self: None, "reached": reached})()

    names = {f"{k} thread{'s' * (k > 1)}, channels {layout}": (k, layout) for k, layout in speeds}
    monkeypatch.setattr(torch_peer, "settings", lambda: names)
    monkeypatch.setattr(torch_peer, "trainer", trainer)
    monkeypatch.setattr(torch_peer, "rate", lambda step, seconds: step.reached)
    found = torch_peer.speed("lenet", 4, 1.0, wanted)
    assert (found["setting"], found["images_per_second"]) == (setting, rate)
    assert found["compiled"] == (gain if wanted else None)
    assert [each for each in tried if each[2]] == [(2, "last", True)] * wanted


def test_nets_of_another_size_are_refused() -> None:
    cpu.check_weights({"resnet32": 464_154, "lenet": 1_111_946})
    with pytest.raises(SystemExit, match="lenet: ours has 1,111,946 weights, PyTorch's has 7: not the same net"):
        cpu.check_weights({"lenet": 7})


def test_a_table_is_markdown() -> None:
    assert page.table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_the_search_scales_the_rate_and_keeps_the_fastest() -> None:
    assert [(c.batch_size, c.lr) for c in accuracy.choices([8, 32])] == [(8, 0.02), (32, 0.08), (32, 0.04)]
    limits: list[float] = []

    def side(choice: Any, seed: int, limit: float) -> Any:
        limits.append(limit)
        return accuracy.Reached({0.02: 9.0, 0.08: None, 0.04: 5.0}[choice.lr], 1.0, {})

    assert accuracy.best_choice(side, [8, 32]) == accuracy.Choice(32, 0.04)
    assert limits == [float("inf"), 9.0, 9.0]


def test_a_run_that_does_not_get_there_is_no_number() -> None:
    def runs(*seconds: float | None) -> list[Any]:
        return [accuracy.Reached(s, s and 2.5, {}) for s in seconds]

    assert accuracy.paired(runs(5, 6, 7), runs(10, 10, 10)) == 0.6
    assert accuracy.paired(runs(5, None, None), runs(10, 10, 10)) is None
    assert accuracy.paired(runs(5, 6, 7), runs(10, None, None)) == 0.0
    cells = accuracy.cells("mpibow", accuracy.Choice(8, 0.02), runs(5, None, 7))
    assert cells == ["mpibow", "8", "0.02", "5.0 (2.50), not reached, 7.0 (2.50)", "", "7.0"]
    assert accuracy.cells("mpibow", accuracy.Choice(8, 0.02), runs(5, None, None))[-1] == "not reached"
    assert accuracy.cells("mpibow", accuracy.Choice(8, 0.02), runs(4, 6))[-2:] == ["5.0 ± 1.0", "5.0"]


def test_the_page_of_seconds_is_made_of_what_is_kept() -> None:
    results = FOLDER / "results"
    assert accuracy.page(json.loads((results / "accuracy.json").read_text())) == (results / "accuracy.md").read_text()
