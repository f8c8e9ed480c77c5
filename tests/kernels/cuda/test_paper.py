"""What a GPU would launch and the least time it needs, in numbers that a hand can check; no device is needed."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpibow.device.array import DeviceArray
from mpibow.diagnose.forecast import bound_of, forecast, forecast_text, on_paper
from mpibow.errors import ConfigError, DeviceError, install
from mpibow.job.made_up import made_up_job
from mpibow.kernels.cuda import compile as own
from mpibow.kernels.cuda.compile import Usage
from mpibow.kernels.cuda.kernels import Launch
from mpibow.kernels.cuda.operands import PRECISIONS
from mpibow.kernels.cuda.paper import Kernel, Part, of_launch, of_spec
from mpibow.kernels.cuda.roofline import Rates, fills, grouped, images_per_second, least, resident
from mpibow.kernels.cuda.specs import ConvForward, ConvGeometry, ConvWeights, NormForward, Product

TF32, BF16 = PRECISIONS["tf32"], PRECISIONS["bf16"]
# 2 images of 8 channels and 6 x 6 pixels, 16 filters of 3 x 3: 2 * 16 * 36 outputs of 72 products each
WINDOW = ConvGeometry((2, 8, 6, 6), (16, 8, 3, 3), (2, 16, 6, 6), (1, 1), (1, 1), (1, 1))
ONE = Rates("one", {"tf32": 100.0}, bandwidth=10.0, launch=2.0, multiprocessors=2)


def array(*shape: int, dtype: str = "float32") -> DeviceArray:
    return DeviceArray(None, 1 << 20, shape, dtype)


def job(model: str, batch: int, *settings: str, device: str = "cuda", tmp_path: Path) -> Any:
    asked: dict[str, Any] = {"shape": None, "classes": None, "overrides": list(settings)}
    return made_up_job(argparse.Namespace(model=model, batch_size=batch, device=device, **asked), str(tmp_path))


# One kernel


def test_a_convolution() -> None:
    x, w, y = 2 * 8 * 36, 16 * 8 * 9, 2 * 16 * 36
    assert of_spec(ConvForward(WINDOW, TF32)) == Kernel("conv_forward", 2.0 * y * 72, 4 * (x + w + y))
    assert of_spec(ConvForward(WINDOW, BF16, bias=True)).bytes == 2 * (x + w + y + 16)
    assert of_spec(ConvWeights(WINDOW, TF32)).operations == 2.0 * y * 72


def test_a_norm() -> None:
    """Image in and out, its mask of a bit an element, and eight values a channel of float32."""
    spec = NormForward((2, 8, 6, 6), BF16, 1e-5, 0.1, relu=True)
    assert of_spec(spec) == Kernel("norm_forward", 0.0, 2 * 2 * 576 + 576 // 8 + 8 * 4 * 8)


def test_a_dense_layer() -> None:
    """(16, 32) @ (32, 10), and how the matrices lie costs nothing."""
    spec = Product(1, 16, 32, 10, (512, 32, 1), (320, 1, 32), (160, 10, 1), "float32", BF16, (10, 10, 1))
    assert of_spec(spec) == Kernel("product", 2.0 * 16 * 32 * 10, 2 * (512 + 320 + 10) + 4 * 160)


def test_own_kernels() -> None:
    numbers = np.int64(100), np.float32(1)
    assert (
        of_launch(Launch("linear<float>", (1, 1, 1), (array(100), array(100), None, array(100), *numbers))).bytes
        == 1200
    )
    states = array(1, 4096), None, None, None
    rows = array(1, 4096), *states, array(1, 4096), array(2, 2, dtype="float64")
    updated = of_launch(Launch("sma_alone", (2, 1, 1), rows))
    assert updated.bytes == 5 * 4 * 4096 + 32  # weights and momenta read and written
    # 3 runs of 4 elements go into runs of 6: 12 are read, 18 written; the array that they are part of is larger
    copied = (array(1000), array(1000), *map(np.int64, (3, 4, 2, 4, 6)))
    assert of_launch(Launch("copy_runs<unsigned>", (1, 1, 1), copied)).bytes == 4 * 30
    assert of_launch(Launch("copy_runs<Pack<float, 4>>", (1, 1, 1), copied)).bytes == 16 * 30


# Times


@pytest.mark.parametrize(
    ("operations", "moved", "seconds", "bound"),
    [(1000.0, 10, 10.0, "products"), (100.0, 50, 5.0, "memory"), (100.0, 10, 2.0, "launch")],
)
def test_what_binds_a_kernel(operations: float, moved: int, seconds: float, bound: str) -> None:
    time = least(Kernel("", operations, moved), "tf32", ONE)
    assert (time.seconds, time.bound) == (seconds, bound)


PARTS = [  # 5 seconds by memory; 2 and 2 by launches, of which the device works 1 and 0
    Part("forward conv", [Kernel("a", 100.0, 50)]),
    Part("forward conv", [Kernel("b", 100.0, 10), Kernel("c", 0.0, 0)]),
]


def test_steps_of_a_kind_are_summed() -> None:
    (row,) = grouped(PARTS, "tf32", ONE).values()
    assert (row["count"], row["kernels"], row["operations"], row["bytes"], row["seconds"]) == (2, 3, 200.0, 60, 9.0)
    assert row["bound"] == {"products": 0.0, "memory": 5.0, "launch": 4.0}
    assert bound_of(row) == "memory 56%"


def test_learners_share_the_device() -> None:
    """One takes 9 seconds and keeps the device busy for 6: two take 12."""
    assert [images_per_second(PARTS, "tf32", 36, k, ONE) for k in (1, 2, 4)] == [4.0, 6.0, 6.0]


@pytest.mark.parametrize(
    ("usage", "threads", "blocks"),
    [
        (Usage(32, 0, 0), 256, 8),  # by threads
        (Usage(33, 0, 0), 256, 6),  # 8 warps of 33 * 32 = 1056, as 1280, registers
        (Usage(64, 0, 0), 256, 4),
        (Usage(16, 0, 0), 32, 32),  # by blocks
        (Usage(16, 113 << 10, 0), 256, 2),  # by shared memory, with a KiB that CUDA takes
    ],
)
def test_how_many_blocks_are_resident(usage: Usage, threads: int, blocks: int) -> None:
    assert resident(usage, threads, ONE) == blocks


def test_how_own_kernels_fill_the_device() -> None:
    launches = [Kernel("clamp", 0.0, 0, Launch("clamp", (blocks, 1, 1), ())) for blocks in (2, 8)]
    (fill,) = fills([Part("", launches), *PARTS], lambda source: {"clamp": Usage(64, 0, 0)}, ONE)
    assert (fill.launches, fill.resident, fill.occupancy, fill.waves) == (2, 4, 0.5, 1.0)


# Whole models


@pytest.mark.parametrize(("model", "precision"), [("resnet20", "tf32"), ("lenet", "bf16"), ("resnet18", "float32")])
def test_products_are_those_of_the_graph(model: str, precision: str, tmp_path: Path) -> None:
    """Counted from the layers alone: forward, weights, and data of all but the first."""
    listed, parts = on_paper(job(model, 2, f"precision={precision}", tmp_path=tmp_path))
    graph = listed.build(2, True)
    layers = [node for node in graph.nodes if "weight" in node.weights and len(node.weights["weight"].shape) > 1]
    once = [
        2 * math.prod(graph.tensors[node.name].shape) * math.prod(node.weights["weight"].shape[1:]) for node in layers
    ]
    assert sum(kernel.operations for part in parts for kernel in part.kernels) == 3 * sum(once) - once[0]


def test_parts_are_the_plans_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*arguments: Any) -> Any:
        raise DeviceError("no libnvrtc found")

    monkeypatch.setattr("mpibow.diagnose.forecast.compiled", none)
    found = forecast(job("convnet", 4, "precision=bf16", tmp_path=tmp_path))
    assert found["parts"]["forward conv+relu"]["count"] == found["parts"]["backward conv+relu"]["count"] == 2
    assert found["parts"]["weights in 16 bits"]["kernels"] == found["parts"]["update"]["kernels"] == 1
    assert found["parts"]["report"]["kernels"] == 3
    outside = sum(found["parts"][kind]["seconds"] for kind in ("report", "update"))
    assert found["iteration"]["seconds"] == pytest.approx(found["plan"] + outside)
    text = forecast_text(found).splitlines()
    assert text[0] == ("convnet, batch 4, bf16, one learner on an NVIDIA H200, by arithmetic; not run on a GPU")
    assert "how own kernels fill the device is left out: no libnvrtc found" in text
    assert len(text) == 6 + len(found["parts"]) + len(found["assumed"])


def test_a_net_that_is_not_for_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--paper: is for --device cuda, got numpy$"):
        forecast(job("convnet", 4, device="numpy", tmp_path=tmp_path))


@pytest.mark.skipif(own.libraries.load("nvrtc") is None, reason=f"no libnvrtc found: {install('cuda-check')}")
def test_the_compilers_report_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpibow.diagnose.forecast.cache_folder", lambda: Path(__file__).parents[3] / "build/cuda-paper")
    found = forecast(job("logistic", 4, tmp_path=tmp_path))
    assert found["own_missing"] == ""
    (update,) = [fill for fill in found["own"] if fill["kernel"] == "sma_alone"]
    assert update["registers"] <= 96
    assert 0.25 <= update["occupancy"] <= 1.0
