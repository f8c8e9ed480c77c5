"""The least time that kernels take on a device by its data sheet, and how many threads of them it holds at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

from mpibow.kernels.cuda.compile import Usage
from mpibow.kernels.cuda.kernels import KERNELS, WARP, Launch
from mpibow.kernels.cuda.paper import Kernel, Part

BOUNDS = ("products", "memory", "launch")  # the bounds of a kernel


@dataclass(frozen=True)
class Rates:
    """`flops` by precision, dense; `bandwidth` in bytes/s; `launch` the seconds that the smallest kernel takes in a
    CUDA graph, from the end of the kernel before it. Below them the limits of one multiprocessor."""

    name: str
    flops: Mapping[str, float]
    bandwidth: float
    launch: float
    multiprocessors: int
    registers: int = 65536
    threads: int = 2048
    blocks: int = 32
    shared: int = 228 << 10
    reserved: int = 1 << 10  # of shared memory, for each block


# NVIDIA's data sheet of the H200 SXM (its rates with sparsity, halved); the CUDA C++ programming guide's table of
# compute capability 9.0. `launch` is an estimate: nothing here is measured.
H200 = Rates(
    "NVIDIA H200", {"fp32": 67e12, "tf32": 494e12, "bf16": 989e12, "fp16": 989e12}, 4.8e12, 2e-6, multiprocessors=132
)


@dataclass(frozen=True)
class Least:
    """Seconds that a kernel, or several one after the other, need by each bound alone."""

    products: float
    memory: float
    launch: float

    @property
    def working(self) -> float:
        """Seconds for which one kernel keeps the whole device busy."""
        return max(self.products, self.memory)

    @property
    def seconds(self) -> float:
        """Seconds that one kernel takes at least."""
        return max(self.working, self.launch)

    @property
    def bound(self) -> str:
        times = dict(zip(BOUNDS, (self.products, self.memory, self.launch), strict=True))
        return max(times, key=lambda name: times[name])


def least(kernel: Kernel, precision: str, rates: Rates = H200) -> Least:
    """`precision` is one of mpibow.kernels.cuda.operands.PRECISIONS."""
    return Least(kernel.operations / rates.flops[precision], kernel.bytes / rates.bandwidth, rates.launch)


def grouped(parts: Sequence[Part], precision: str, rates: Rates = H200) -> dict[str, dict[str, Any]]:
    """By kind: steps, kernels, operations, bytes, seconds, and how many of these seconds each bound accounts for."""
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        row = found.setdefault(
            part.kind,
            {
                "count": 0,
                "kernels": 0,
                "operations": 0.0,
                "bytes": 0,
                "seconds": 0.0,
                "bound": dict.fromkeys(BOUNDS, 0.0),
            },
        )
        row["count"] += 1
        for kernel in part.kernels:
            time = least(kernel, precision, rates)
            row["kernels"] += 1
            row["operations"] += kernel.operations
            row["bytes"] += kernel.bytes
            row["seconds"] += time.seconds
            row["bound"][time.bound] += time.seconds
    return found


def images_per_second(parts: Sequence[Part], precision: str, batch: int, k: int, rates: Rates = H200) -> float:
    """The least time of k learners on streams. No learner is faster than its own kernels one after the other.
    All kernels together keep the device as busy as k times one's."""
    times = [least(kernel, precision, rates) for part in parts for kernel in part.kernels]
    alone = sum(time.seconds for time in times)
    return k * batch / max(alone, k * sum(time.working for time in times))


@dataclass(frozen=True)
class Fill:
    """How one of mpibow's own kernels fills the device: ptxas's figures, `resident` blocks of a multiprocessor,
    its `occupancy` (threads resident of those that may be), and `waves`, the grid's blocks over all that are resident.
    """

    kernel: str
    launches: int
    registers: int
    shared: int
    threads: int
    resident: int
    occupancy: float
    waves: float


def resident(usage: Usage, threads: int, rates: Rates = H200) -> int:
    """Blocks of so many threads that a multiprocessor holds at once: registers go to warps, in pieces of 256."""
    warps = -(-threads // WARP)
    pieces = -(-usage.registers * WARP // 256) * 256
    return int(
        min(
            rates.blocks,
            rates.threads // (warps * WARP),
            rates.registers // pieces // warps if pieces else inf,
            rates.shared // (usage.shared + rates.reserved),
        )
    )


def fills(
    parts: Sequence[Part], usage: Callable[[str], Mapping[str, Usage]], rates: Rates = H200
) -> list[Fill]:  # fmt: skip
    """The figures of every own kernel, at its largest grid; `usage` gives that of all kernels of a source."""
    launches: dict[str, list[Launch]] = {}
    for part in parts:
        for kernel in part.kernels:
            if kernel.launch is not None:
                launches.setdefault(kernel.launch.kernel, []).append(kernel.launch)
    found = []
    for name, all_ in sorted(launches.items()):
        used, largest = usage(KERNELS[name])[name], max(all_, key=lambda one: prod(one.grid))
        threads = prod(largest.block)
        blocks = resident(used, threads, rates)
        found.append(
            Fill(
                name, len(all_), used.registers, used.shared, threads, blocks, blocks * threads / rates.threads,
                prod(largest.grid) / (blocks * rates.multiprocessors),
            )
        )  # fmt: skip
    return found
