"""The page of a GPU's results, of all, of a part and of nothing."""

import json

from benchmarks.gpu import gpu_page as pages

LENET = "lenet 8 tf32"
ABOUT = {
    "command": "python -m benchmarks.gpu.bench_gpu", "date": "2026-11-21 12:00", "gpu": "NVIDIA H200", "processor": "X",
    "cores": 8, "commit": "abc", "mpibow": {"mpibow": "0.1.0"}, "torch": {"torch": "2.13"},
}  # fmt: skip


def heads(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


def test_nothing(tmp_path):
    assert pages.whole_page(tmp_path / "none") == "# Training on a GPU\n\nNo figure is measured yet.\n"


def test_a_part_of_the_results(tmp_path):
    rate = {"images_per_second": 50.0}
    found = {f"learners {LENET} streams 1": rate, "search lenet tf32 64": {"eager": 80.0, "graphs": {"error": "no"}}}
    (tmp_path / "gpu.json").write_text(json.dumps({"about": ABOUT, "found": found}))
    (tmp_path / "steps.tsv").write_text("versions\t0\t3\nkinds\t75\t4\nkinds\t1\t9\nncu\t124\t60\n")
    (tmp_path / "versions.log").write_text("numpy: 2.5.2\n")
    text = pages.whole_page(tmp_path)
    assert heads(text) == [
        "# Training on a GPU, beside PyTorch", "## Images/s beside PyTorch", "## Learners",
        "## Steps of benchmarks/gpu_all.sh", "## The machine",
    ]  # fmt: skip
    assert "| lenet | 8 | tf32 |  | not measured | its best: eager at 64 | 80.0 |" in text
    assert "lenet, batch 8, images/s.\n\n| learners | streams | fused |\n| --- | --- | --- |\n| 1 | 50.0 |  |\n" in text
    assert "| versions | done | 3 |\n| kinds | failed with 1 | 9 |\n| ncu | stopped at its time limit | 60 |\n" in text
    assert "    numpy: 2.5.2\n" in text
