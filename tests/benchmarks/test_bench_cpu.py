"""What the benchmarks make of their measurements, on figures that a hand can check; nothing is measured here."""

import argparse
import json

import pytest

from benchmarks.averaging import bench_accuracy as accuracy
from benchmarks.speed import bench_cpu as cpu, cpu_page as page


def options(**more) -> argparse.Namespace:
    given = {"batches": None, "search": None, "quoted": False, "compile": "quoted", "learners": 2, "seconds": 1.0}
    return argparse.Namespace(**given | {"set": [], "models": ["lenet"], "repeats": 2} | more)


class Asked:
    """PyTorch's side, which answers with the batch and takes note of the questions."""

    def __init__(self) -> None:
        self.questions = []

    def __call__(self, script: str, *words: object) -> dict:
        self.questions.append(words)
        gain = 1.25 if "compile" in words else None
        return {"images_per_second": words[2], "setting": "a", "compiled": gain}


@pytest.fixture
def timed(monkeypatch) -> list[int]:
    """Our batches, as they are asked for; every one is twice as fast as PyTorch's."""
    batches = []

    def rate(model: str, batch: int, learners: int, options: argparse.Namespace) -> float:
        batches.append(batch)
        return 2.0 * batch

    monkeypatch.setattr(cpu, "images_per_second", rate)
    return batches


def test_which_cells_are_measured_and_where_pytorch_compiles(timed):
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


def test_what_was_measured_is_kept_cell_by_cell_and_not_measured_again(timed):
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


@pytest.mark.parametrize(
    ("gain", "wanted", "setting", "rate"),
    [(1.25, True, "2 threads, channels last, compiled", 50.0), (0.5, True, "2 threads, channels last", 40.0),
     (1.25, False, "2 threads, channels last", 40.0)],
)  # fmt: skip
def test_pytorch_takes_the_best_of_eager_and_compiled(monkeypatch, gain, wanted, setting, rate):
    """Compiled is tried with the best of the eager settings alone; steps that take no time, rates by hand."""
    pytest.importorskip("torch")
    from benchmarks.speed import torch_peer

    speeds, tried = {(1, "first"): 3.0, (1, "last"): 4.0, (2, "first"): 6.0, (2, "last"): 10.0}, []

    def trainer(model: str, batch: int, threads: int, layout: str, compiled: bool):
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


def test_the_search_scales_the_rate_and_keeps_the_fastest():
    assert [(c.batch_size, c.lr) for c in accuracy.choices([8, 32])] == [(8, 0.02), (32, 0.08), (32, 0.04)]
    limits = []

    def side(choice, seed: int, limit: float):
        limits.append(limit)
        return accuracy.Reached({0.02: 9.0, 0.08: None, 0.04: 5.0}[choice.lr], 1.0, {})

    assert accuracy.best_choice(side, [8, 32]) == accuracy.Choice(32, 0.04)
    assert limits == [float("inf"), 9.0, 9.0]


def test_a_run_that_does_not_get_there_is_no_number():
    def runs(*seconds: float | None) -> list:
        return [accuracy.Reached(s, s and 2.5, {}) for s in seconds]

    assert accuracy.paired(runs(5, 6, 7), runs(10, 10, 10)) == 0.6
    assert accuracy.paired(runs(5, None, None), runs(10, 10, 10)) is None
    assert accuracy.paired(runs(5, 6, 7), runs(10, None, None)) == 0.0
    cells = accuracy.cells("mpibow", accuracy.Choice(8, 0.02), runs(5, None, 7))
    assert cells == ["mpibow", "8", "0.02", "5.0 (2.50), not reached, 7.0 (2.50)", "", "7.0"]
    assert accuracy.cells("mpibow", accuracy.Choice(8, 0.02), runs(5, None, None))[-1] == "not reached"
    assert accuracy.cells("mpibow", accuracy.Choice(8, 0.02), runs(4, 6))[-2:] == ["5.0 ± 1.0", "5.0"]
