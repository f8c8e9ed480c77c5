"""Cores near a GPU, from what the kernel says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpibow.cuda.device.find import has_gpu, near_cores, parse_cores, share_of_cores


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("0-3,8,10-11\n", [0, 1, 2, 3, 8, 10, 11]),
        ("5", [5]),
        ("2,1,1-2", [1, 2]),
        ("", []),
        ("all", []),
        ("1-", [1]),
        ("1-x", []),
    ],
)
def test_lists_of_cores(text: str, cores: list[int]) -> None:
    assert parse_cores(text) == cores


def test_an_address_as_cuda_or_nvml_writes_it(tmp_path: Path) -> None:
    folder = tmp_path / "bus/pci/devices/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "local_cpulist").write_text("0-1,4-5\n")
    for bus in ("0000:3b:00.0", "00000000:3B:00.0"):
        assert near_cores(bus, tmp_path) == [0, 1, 4, 5]
    assert near_cores("0000:5e:00.0", tmp_path) == []


@given(
    allowed=st.sets(st.integers(0, 40), min_size=1),
    near=st.sets(st.integers(0, 40)),
    ranks=st.integers(1, 8),
)
def test_ranks_beside_one_another_never_share_a_core_where_there_are_enough(
    allowed: set[int], near: set[int], ranks: int
) -> None:
    shares = [share_of_cores(sorted(allowed), [sorted(near)] * ranks, rank) for rank in range(ranks)]
    both = allowed & near
    if both and len(both) >= ranks:
        assert sorted(core for share in shares for core in share) == sorted(both)
        assert all(shares)
    else:
        assert shares == [sorted(allowed)] * ranks


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], False),
        (["dev/nvidiactl"], False),
        (["dev/nvidia0"], True),
        (["0x10de", "0x030200"], True),
        (["0x10de", "0x040300"], False),  # its sound
        (["0x8086", "0x030000"], False),
    ],
)
def test_a_gpu_is_there_with_or_without_its_driver(tmp_path: Path, files: list[str], expected: bool) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    for name, text in zip(("vendor", "class"), files, strict=False):
        (tmp_path / text if text.startswith("dev") else device / name).write_text(f"{text}\n")
    assert has_gpu(tmp_path) == expected
