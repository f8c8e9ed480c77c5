"""What bench_gpu.py makes of figures that a hand can check, and what it measures, in which order; no GPU is needed."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from benchmarks import asked, sides
from benchmarks.gpu import bench_gpu, gpu_items, gpu_profile, gpu_tables
from mpibow.job.synthetic import made_up_job
from tests.cuda.kernels.host import needs_compiler
from tests.cuda.simulated.gpu import simulated


def ours(rate: float, **more) -> dict:
    return {"images_per_second": rate, "learners": [4], "execution": "fused", **more}


LENET = "lenet 8 tf32"


def found() -> dict:
    """Two rounds of LeNet; PyTorch's best is at 512."""
    return {
        f"choice {LENET}": {"learners": [4], "execution": "fused", "images_per_second": 190.0, "settled": True},
        f"pair {LENET} plain 0": {"ours": ours(300.0), "eager": 10.0, "graphs": 100.0},
        f"pair {LENET} plain 1": {"ours": ours(200.0), "eager": 10.0, "graphs": {"error": "out of memory"}},
        "search lenet tf32 64": {"eager": 80.0, "graphs": 200.0},
        "search lenet tf32 512": {"eager": 500.0, "graphs": {"error": "no"}},
    }


def lenet():
    return next(net for net in gpu_items.NETS if net.model == "lenet")


# Figures


def test_ratios_are_of_pairs():
    assert gpu_tables.beside(found(), lenet(), "eager") == (10.0, 25.0)  # of 30 and 20
    assert gpu_tables.beside(found(), lenet(), "graphs") == (100.0, 3.0)  # of the round that has both
    assert gpu_tables.beside(found(), lenet(), "compile") == (None, None)
    assert gpu_tables.best(found(), lenet()) == (500.0, 512, "eager")
    assert gpu_tables.best({}, lenet()) is None


def curve(**rates: float) -> dict:
    return {f"learners {LENET} {name.replace('_', ' ')}": ours(rate) for name, rate in rates.items()}


def test_the_tuners_choice_is_marked():
    text = gpu_tables.learners({**found(), **curve(streams_1=50, streams_4=90, fused_4=188, fused_8=200)}, lenet())
    assert text.splitlines() == [
        "lenet, batch 8, images/s; the tuner ended at 4 learners, execution fused (*): 188, 0.94 of the best "
        "(at least 0.95: missed).",
        "",
        "| learners | streams | fused |",
        "| --- | --- | --- |",
        "| 1 | 50.0 |  |",
        "| 4 | 90.0 | 188 * |",
        "| 8 |  | 200 |",
    ]


def test_what_averaging_costs():
    rounds = {
        f"sync {LENET} {i}": {"sma": ours(sma, python_share=share), "independent": ours(apart)}
        for i, (sma, apart, share) in enumerate([(95, 100, 0.1), (50, 50, 0.3), (90, 100, 0.2)])
    }
    lines = gpu_tables.sync(rounds, lenet()).splitlines()
    assert lines[2] == "| lenet | 8 | 90.0 | 100 | 0.950 | met |"
    assert lines[4] == "Python's share of an iteration: 20.0% (below 20%: met)."
    silent = {f"sync {LENET} 0": {"sma": ours(95), "independent": ours(100)}}
    assert gpu_tables.sync(silent, lenet()).splitlines()[-1] == "Python's share of an iteration is not reported."
    assert gpu_tables.sync({}, lenet()) == "lenet, batch 8: not measured.\n"


# What is measured, and when


def keys(*parts: str, rounds: int = 2) -> list[str]:
    return [item.key for item in gpu_items.items(gpu_items.NETS, parts, rounds)]


def test_the_headline_comes_first_and_every_key_once():
    everything = keys("speed", "learners", "sync", "floor")
    assert len(everything) == len(set(everything))
    assert everything[:4] == [
        "choice resnet32 16 tf32", "pair resnet32 16 tf32 plain 0", "choice lenet 8 tf32", "pair lenet 8 tf32 plain 0"
    ]  # fmt: skip
    assert [key for key in everything if key.endswith("compiled")][-1] == everything[-1]
    assert [key for key in keys("learners") if key.startswith("learners")] == [
        f"learners resnet32 16 tf32 {execution} {k}" for k in (1, 2, 4, 8, 16) for execution in ("streams", "fused")
    ]
    assert keys("floor")[-5:] == [
        "rates tf32", "rates bf16", "profile resnet32 16 tf32", "profile lenet 8 tf32", "profile resnet50 32 bf16"
    ]  # fmt: skip
    assert keys("accuracy") == []


def item(key: str, done: list[str]):
    """Of ten seconds; that of `c` fails."""

    def measure(bench, found):
        done.append(key)
        if key == "c":
            raise sides.Failed(["python", "x.py"], 7, "Traceback\nDeviceError: no GPU")
        return {"rate": 1}

    return gpu_items.Item(key, 10.0, measure)


def test_what_is_there_is_kept_what_does_not_fit_left_out_and_a_failure_ends_its_own_item():
    entries = {"a": {"rate": 5}, "b": {"error": "out of memory"}}
    done, kept, left = [], [], iter([30.0, 20.0, 9.9, 10.0])
    items = [item(key, done) for key in "abcde"]
    bench = gpu_items.Bench(None, lambda: next(left))
    ends = gpu_items.measure_all(items, bench, entries, lambda i, bad: kept.append((i.key, bad)))
    assert done == ["b", "c", "e"]
    assert kept == [("b", False), ("c", True), ("e", False)]
    assert ends == (["d"], ["c"])
    rate = {"rate": 1}
    assert entries == {"a": {"rate": 5}, "b": rate, "c": {"error": "DeviceError: no GPU"}, "e": rate}


def test_our_figures_are_those_of_bench_train(monkeypatch):
    said = []

    def run(*arguments: str, limit: float) -> str:
        said.append((arguments, limit))
        return 'a warning\n{"images_per_second": 3.0}'

    monkeypatch.setattr(gpu_items, "ours", run)
    bench = gpu_items.Bench(None, lambda: 99.0, more=["seed=2"])
    assert bench.train(lenet(), 4, "fused") == {"images_per_second": 3.0}
    arguments = "train lenet --batch-size 8 --learners 4 --json --seconds 2.0 update.weight_decay=1e-4 device=cuda"
    assert said == [(("bench", *arguments.split(), "precision=tf32", "execution=fused", "seed=2"), 99.0)]
    other = gpu_items.Bench(None, lambda: 99.0, device="numpy")
    assert other.on("tf32") == ["device=numpy"]  # which has neither precision nor execution of that name


def test_one_setting_that_pytorch_cannot_do():
    def peer(limit: float, **question):
        if question["setting"] == "graphs":
            raise asked.Refused("RuntimeError: no graph")
        return {"images_per_second": question["batch"] * 2.0}

    bench = gpu_items.Bench(peer, lambda: 9.0, settings=("eager", "graphs"))
    answers = bench.theirs("lenet", 8, "tf32", ("eager", "graphs", "compile"), keep=True)
    assert answers == {"eager": 16.0, "graphs": {"error": "RuntimeError: no graph"}}
    assert gpu_items.numbers(answers) == {"eager": 16.0}


# Files, and processes that stay


@pytest.fixture
def side() -> Iterator[Callable]:
    """A process that answers with its number, or as it is told."""
    program = (
        "import json, os, sys, time\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    if asked.get('end'): sys.exit('the words of its end')\n"
        "    if asked.get('sleep'): time.sleep(60)\n"
        "    print(json.dumps(asked.get('say') or os.getpid()), flush=True)\n"
    )
    made = asked.Asked([sys.executable, "-c", program])
    yield made
    made.close()


def test_one_process_answers_all(side):
    first = side(720)
    assert side(720) == first
    with pytest.raises(asked.Refused, match=r"^ValueError: no$"):
        side(720, say={"error": "ValueError: no"})
    with pytest.raises(asked.Refused, match=r" -c ended with code 1: the words of its end$"):
        side(720, end=True)
    second = side(720)
    assert second != first
    with pytest.raises(asked.Refused, match=r" -c ended with code -9: "):
        side(0.2, sleep=True)


@needs_compiler
def test_a_pass_for_a_profiler(tmp_path):
    """On a simulated GPU: all steps by themselves, then as one graph."""
    given = {"model": "logistic", "batch_size": 2, "shape": None, "classes": None, "device": "cuda", "overrides": []}
    job = replace(made_up_job(argparse.Namespace(**given), str(tmp_path)), device=simulated(precision="tf32"))
    found = gpu_profile.profile(job, alone=True)
    assert found == {"steps": len(job.training_plan().program.steps), "kernels": "a simulation"}
    machine = job.device.gpu.machine
    assert machine.stream.launches == 1
    assert machine.stream.done


def test_ours_alone_starts_no_pytorch(monkeypatch, tmp_path):
    """What was said of PyTorch before stays."""
    said = {"about": {"torch": {"torch": "2.13"}}, "found": {}}
    (tmp_path / "gpu.json").write_text(json.dumps(said))
    monkeypatch.setattr(gpu_items, "ours", lambda *_, **__: json.dumps({"images_per_second": 3.0}))
    monkeypatch.setattr(bench_gpu, "first_words", lambda *_: pytest.fail("PyTorch is started"))
    key = f"learners {LENET} streams 16"
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py", "--resume", "--output", str(tmp_path), "--item", key])
    assert bench_gpu.main() == 0
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert kept["found"] == {key: {"images_per_second": 3.0}}
    assert kept["about"]["torch"] == {"torch": "2.13"}
