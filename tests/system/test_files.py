"""Only regular files are read: a FIFO that nobody writes to must end no reader's patience."""

import os
import shutil
import socket
from pathlib import Path
from threading import Thread

import pytest

from mpibow.config import load, load_mapping
from mpibow.convert.arrays import stored
from mpibow.convert.conversion import file_checksum
from mpibow.convert.synsets import synsets
from mpibow.convert.tree import mapping
from mpibow.data import open_records
from mpibow.data.manifest import load as load_manifest
from mpibow.errors import MpibowError
from mpibow.run.checkpoint import read_header
from mpibow.run.series import read_run
from mpibow.run.timelines import recorded
from mpibow.system import open_file, read_file
from tests.run import tiny
from tests.run.processes import write_run


def test_a_regular_file(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "b").symlink_to("a")
    assert read_file(tmp_path / "a") == read_file(str(tmp_path / "b")) == b"12345"
    with open_file(tmp_path / "a") as file:
        file.seek(3)
        assert file.read() == b"45"


def test_other_kinds_of_files(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, reason in ((tmp_path / "fifo", "not a regular file"), (Path("/dev/zero"), "not a regular file"),
                         (tmp_path, "Is a directory"), (tmp_path / "none", "No such file or directory")):  # fmt: skip
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match=reason):
            read_file(path)
        assert len(os.listdir("/proc/self/fd")) == before
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="No such device or address"):
            read_file(tmp_path / "socket")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run of two ranks, its records and its config."""
    folder = tmp_path_factory.mktemp("trained")
    tiny.run(tiny.job(folder / "runs", stop={"epochs": None, "iterations": 4}, checkpoint={"every": "4 iterations"}), 2)
    write_run(folder)
    return folder


POINT = "runs/run/checkpoints/iteration-0000000004"
READERS = {
    "data/train/manifest.json": lambda folder: load_manifest(folder / "data/train"),
    "data/train/train-00000.mpr": lambda folder: open_records(folder / "data/train"),
    "runs/run/metrics.jsonl": lambda folder: recorded(folder / "runs/run", 2, 3),
    f"{POINT}/checkpoint.json": lambda folder: read_header(folder / POINT),
    f"{POINT}/centre.safetensors": lambda folder: read_header(folder / POINT),
    f"{POINT}/rank-1.safetensors": lambda folder: read_header(folder / POINT),
    "labels.txt": lambda folder: mapping(folder / "labels.txt"),
    "synsets.txt": lambda folder: synsets(folder / "synsets.txt"),
    "x.npy": lambda folder: stored(folder / "x.npy"),
    "source.tar": lambda folder: file_checksum(folder / "source.tar"),
}


@pytest.mark.timeout(720)
@pytest.mark.parametrize("name", READERS)
def test_a_fifo_is_named_and_not_waited_for(tmp_path, trained: Path, name):
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder, symlinks=True)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(MpibowError, match="not a regular file") as caught:
        READERS[name](folder)
    assert str(folder / name) in str(caught.value)


@pytest.mark.timeout(720)
def test_a_config_may_come_through_a_pipe(tmp_path):
    """As a shell gives it: `train <(envsubst < template.yaml)`."""
    path = tmp_path / "run.yaml"
    os.mkfifo(path)
    writer = Thread(target=path.write_text, args=("model: {name: lenet}\ndata: {train: here}\n",))
    writer.start()
    assert load(path).batch_size == load_mapping({"model": {"name": "lenet"}, "data": {"train": "here"}}).batch_size
    writer.join()


def test_a_run_whose_metrics_are_a_fifo_is_not_drawn(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(MpibowError, match=r"is not a run directory: it has no metrics\.jsonl"):
        read_run(tmp_path)
