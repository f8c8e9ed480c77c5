"""The page of a GPU's results, of all, of a part and of nothing; what is measured beside the forecast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpibow.errors import DeviceError

FOLDER = Path(__file__).parents[2] / "benchmarks"
LENET = "lenet 8 tf32"
ABOUT = {
    "command": "python benchmarks/bench_gpu.py", "date": "2026-11-21 12:00", "gpu": "NVIDIA H200", "processor": "X",
    "cores": 8, "commit": "abc", "mpibow": {"mpibow": "0.1.0"}, "torch": {"torch": "2.13"},
}  # fmt: skip


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    def none(*arguments: Any) -> Any:
        raise DeviceError("no libnvrtc found")

    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr("mpibow.diagnose.forecast.compiled", none)
    import gpu_page

    return gpu_page


def heads(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


def test_nothing_but_the_forecast(pages: Any, tmp_path: Path) -> None:
    text = pages.whole_page(tmp_path / "none")
    assert text.startswith("# Training on a GPU\n\nNo figure is measured yet.\n")
    assert heads(text)[1:] == [
        "## A learner's iteration on an H200: by arithmetic; not run on a GPU",
        "### resnet32, batch 16, tf32", "### lenet, batch 8, tf32", "### resnet50, batch 16, bf16",
    ]  # fmt: skip


def test_a_part_of_the_results(pages: Any, tmp_path: Path) -> None:
    rate = {"images_per_second": 50.0}
    found = {f"learners {LENET} streams 1": rate, "search lenet tf32 64": {"eager": 80.0, "graphs": {"error": "no"}}}
    (tmp_path / "gpu.json").write_text(json.dumps({"about": ABOUT, "found": found}))
    (tmp_path / "steps.tsv").write_text("versions\t0\t3\nkinds\t75\t4\nkinds\t1\t9\nncu\t124\t60\n")
    (tmp_path / "versions.log").write_text("numpy: 2.5.2\n")
    text = pages.whole_page(tmp_path)
    assert heads(text)[:6] == [
        "# Training on a GPU, beside PyTorch", "## Images/s beside PyTorch", "## Learners",
        "## Steps of benchmarks/gpu_all.sh", "## The machine",
        "## A learner's iteration on an H200: by arithmetic; not run on a GPU",
    ]  # fmt: skip
    assert "| lenet | 8 | tf32 |  | not measured | its best: eager at 64 | 80.0 |" in text
    assert "lenet, batch 8, images/s.\n\n| learners | streams | fused |\n| --- | --- | --- |\n| 1 | 50.0 |  |\n" in text
    assert "| versions | done | 3 |\n| kinds | failed with 1 | 9 |\n| ncu | stopped at its time limit | 60 |\n" in text
    assert "    numpy: 2.5.2\n" in text


def test_a_profile_beside_the_forecast(pages: Any, tmp_path: Path) -> None:
    profile = {"parts": {"forward dense": {"count": 2, "seconds": 3e-5}}, "plan": 3e-5, "iteration": 5e-5}
    (tmp_path / "gpu.json").write_text(json.dumps({"about": ABOUT, "found": {f"profile {LENET}": profile}}))
    text = pages.whole_page(tmp_path)
    assert heads(text)[-2:] == ["## Profiles beside the forecast by arithmetic", "### lenet, batch 8, tf32"]
    (line,) = [line for line in text.splitlines() if line.startswith("| forward dense |")]
    assert line.endswith("| 4.0 | launch | 30.0 |")
    assert "| bound by | measured, us |" in text
    assert "How own kernels fill the device is left out: no libnvrtc found." in text


def test_the_forecast_that_is_kept_is_todays(pages: Any) -> None:
    """Made again, but for the compiler's report."""
    made = pages.forecast_of(pages.FORECAST[1])
    kept = pages.PAGE.read_text().split("### lenet, batch 8, tf32\n\n")[1]
    table = pages.by_arithmetic(made, None).split("\n\n", 1)[1].rsplit("\n\n", 1)[0]
    assert kept.startswith(table)
