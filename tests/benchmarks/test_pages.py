"""The pages of benchmarks/results are what their commands make of the figures beside them; nothing is measured here."""

import json
from pathlib import Path

import pytest

from benchmarks.averaging import batch_page, bench_accuracy, bench_copies
from benchmarks.nets import bench_finetune, bench_from_torch, nets_page
from benchmarks.speed import bench_tuner, cpu_page

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
PAGES = {
    "accuracy": bench_accuracy.page,
    "batches": batch_page.page,
    "copies": bench_copies.page,
    "cpu": cpu_page.page,
    "finetune": bench_finetune.page,
    "from-torch": bench_from_torch.page,
    "nets": nets_page.page,
    "tuner": bench_tuner.page,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_made_of_what_is_kept(name):
    found = json.loads((RESULTS / f"{name}.json").read_text())
    assert PAGES[name](found) == (RESULTS / f"{name}.md").read_text()
