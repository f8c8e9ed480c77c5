"""What bench_imagenet_sample.py makes of the sample, and of two checkpoints; nothing is trained here."""

import numpy as np
import pytest

from benchmarks.data import bench_imagenet_sample as bench
from mpibow.data import open_records


def test_64_images_in_16_classes(tmp_path):
    if not bench.SAMPLE.exists():
        pytest.skip(f"{bench.SAMPLE} is not there")
    data = open_records(bench.prepare(bench.SAMPLE, tmp_path))
    assert (data.count, data.classes, data.manifest.form.encoding) == (64, 16, "jpeg")
    assert np.bincount(data.labels()).tolist() == [4] * 16


def test_what_differs(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        for name in ("centre", "rank-0"):
            (folder / f"{name}.safetensors").write_bytes(name.encode())
    (one / "checkpoint.json").write_text("when")
    assert bench.differing(one, other) == []
    (other / "centre.safetensors").write_bytes(b"centrf")
    (one / "rank-1.safetensors").write_bytes(b"")
    assert bench.differing(one, other) == ["centre.safetensors", "rank-1.safetensors"]
    with pytest.raises(SystemExit, match=r"have no arrays$"):
        bench.differing(tmp_path, tmp_path)


def test_the_report():
    about = {"command": "C", "date": "D", "processor": "P", "cores": 2, "commit": "abc", "versions": {"numpy": "2.4"}}
    found = [{"epoch": 1.0, "accuracy": 0.0625, "loss": 352.43}, {"epoch": 2.0, "accuracy": 0.96875, "loss": 0.0625}]
    text = bench.report(about, ["learners=1"], found, [])
    assert "trained on: 96.9% after 2 epochs: met.\n" in text
    assert "all arrays of the last checkpoint are the same bytes.\n" in text
    assert text.endswith("| 1 | 6.2% | 352 |\n| 2 | 96.9% | 0.0625 |\n")
