"""Forecasts a learner's iteration on a GPU by arithmetic: its kernels, their bounds, and images/s at best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from mpibow.errors import ConfigError, DeviceError
from mpibow.job import Job
from mpibow.kernels import gpu_set
from mpibow.kernels.cache import cache_folder
from mpibow.kernels.cuda.compile import compiled
from mpibow.kernels.cuda.paper import Part, listed, paper_gpu
from mpibow.kernels.cuda.roofline import H200, fills, grouped, images_per_second

KS = (1, 2, 4, 8, 16)
ARCHITECTURE = "sm_90"  # of H200
OUTSIDE = ("report", "update")  # parts of an iteration that are no steps of its plan

ASSUMED = (
    f"{H200.name}: {H200.bandwidth / 1e12:g} TB/s; dense "
    + ", ".join(f"{name} {rate / 1e12:g}" for name, rate in H200.flops.items())
    + f" TFLOP/s, by NVIDIA's data sheet; {1e6 * H200.launch:g} us for a kernel at least, an estimate",
    "a kernel takes the longest of three times: its products at the full rate, its operands at the full bandwidth, "
    "each read or written once and none found in a cache, and that of a launch",
    "a graph of cuDNN is one kernel; in truth some are several, with transposes or partial sums",
    "learners on streams: a kernel of one fills the gaps of another, and no learner waits for anything else",
    "not counted: Python and the driver, feeding, the common step and the gain of SMA, other ranks",
)


def on_paper(job: Job) -> tuple[Job, list[Part]]:
    """The job with the kernels of a GPU on paper, and the launches of one learner."""
    gpu = paper_gpu(job.config.precision)
    job = replace(job, opened=gpu_set(gpu))
    return job, listed(job.training_plan(), gpu)


def forecast(job: Job) -> dict[str, Any]:
    """The forecast by kind of step, and in total. Opens no GPU. Raises ConfigError for another device's job."""
    if job.config.device != "cuda":
        raise ConfigError(f"--paper: is for --device cuda, got {job.config.device}")
    job, parts = on_paper(job)
    precision, batch = job.precision, job.config.batch_size
    kinds = grouped(parts, precision)
    plan = [row["seconds"] for kind, row in kinds.items() if kind not in OUTSIDE]
    whole = {key: sum(row[key] for row in kinds.values()) for key in ("kernels", "operations", "bytes", "seconds")}
    try:
        own = [asdict(fill) for fill in fills(parts, lambda source: _compiled(source).usage)]
        why = ""
    except DeviceError as error:
        own, why = [], str(error)
    return {
        "model": job.title,
        "batch_size": batch,
        "precision": precision,
        "device": H200.name,
        "parts": kinds,
        "plan": sum(plan),
        "steps": sum(row["count"] for kind, row in kinds.items() if kind not in OUTSIDE),
        "iteration": whole,
        "images_per_second": {str(k): images_per_second(parts, precision, batch, k) for k in KS},
        "own": own,
        "own_missing": why,
        "assumed": list(ASSUMED),
    }


def _compiled(source: str) -> Any:
    return compiled(source, ARCHITECTURE, cache_folder() / "kernels")


def bound_of(row: Mapping[str, Any]) -> str:
    """The bound of most of a part's time, with its share where that is not all."""
    name = max(row["bound"], key=lambda each: row["bound"][each])
    share = row["bound"][name] / row["seconds"] if row["seconds"] else 1.0
    return str(name) if share > 0.995 else f"{name} {share:.0%}"


def forecast_text(found: Mapping[str, Any]) -> str:
    whole = found["iteration"]
    lines = [
        f"{found['model']}, batch {found['batch_size']}, {found['precision']}, one learner on an {found['device']}, by "
        "arithmetic; not run on a GPU",
        f"  {'':<32} steps kernels    GFLOP       MB       us  bound by",
    ]
    for kind, row in by_time(found["parts"]):
        lines.append(
            f"  {kind:<32} {row['count']:5d} {row['kernels']:7d} {row['operations'] / 1e9:8.3f} "
            f"{row['bytes'] / 1e6:8.2f} {1e6 * row['seconds']:8.1f}  {bound_of(row)}"
        )
    lines.append(
        f"  {'iteration':<38} {whole['kernels']:7d} {whole['operations'] / 1e9:8.3f} {whole['bytes'] / 1e6:8.2f} "
        f"{1e6 * whole['seconds']:8.1f}"
    )
    rates = ", ".join(f"{rate:,.0f} with {k}" for k, rate in found["images_per_second"].items())
    lines.append(f"images/s at best, by the number of learners: {rates}")
    if found["own"]:
        lines.append(f"  {'own kernel':<44} launches registers shared  B threads occupancy  waves")
    for fill in found["own"]:
        lines.append(
            f"  {fill['kernel']:<44} {fill['launches']:8d} {fill['registers']:9d} {fill['shared']:9d} "
            f"{fill['threads']:7d} {fill['occupancy']:9.0%} {fill['waves']:6.2f}"
        )
    if found["own_missing"]:
        lines.append(f"how own kernels fill the device is left out: {found['own_missing']}")
    return "\n".join([*lines, "assumed:", *(f"  {text}" for text in found["assumed"])])


def by_time(parts: Mapping[str, Mapping[str, Any]]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    return sorted(parts.items(), key=lambda part: -part[1]["seconds"])
