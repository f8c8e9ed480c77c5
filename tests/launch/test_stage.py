"""launch/stage.sh: a copy is whole, and only copies are removed; and the batch scripts that call it."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mpibow.data import open_records, write_records
from tests.launch.test_scripts import JOBS, LAUNCH, LAUNCHER, ROOT, Site
from tests.launching import well

STAGE = LAUNCH / "stage.sh"
PATH = f"{ROOT}/.venv/bin:{os.environ['PATH']}"


def stage(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(STAGE), *map(str, arguments)],
        env={**os.environ, "PATH": PATH, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def data(tmp_path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 1, 6, 6), dtype=np.uint8)
    for part in ("train", "test"):
        write_records(tmp_path / "data" / part, ((image, n % 3) for n, image in enumerate(pixels)), classes=3)
    return tmp_path / "data"


def test_a_copy_is_the_same_and_is_removed(data: Path, tmp_path):
    target = tmp_path / "scratch/mpibow-77"
    assert well(stage("copy", data, target)).stdout.endswith(f"{data} is copied to {target} and verified\n")
    files = [path.relative_to(data) for path in data.rglob("*") if path.is_file()]
    assert [path for path in files if (target / path).read_bytes() != (data / path).read_bytes()] == []
    assert open_records(target / "train").count == 20
    assert target.stat().st_mode & 0o777 == 0o700  # nobody else may change it
    assert stage("copy", data, target).returncode == 0  # again, over what an earlier turn has left
    assert stage("remove", target).returncode == 0
    assert not target.exists()
    assert stage("remove", target).returncode == 0  # nothing is there: all is well


def test_a_damaged_copy_is_refused_and_removed(data: Path, tmp_path):
    (shard,) = (data / "train").glob("*.mpr")
    damaged = bytearray(shard.read_bytes())
    damaged[200] ^= 8
    shard.write_bytes(damaged)
    done = stage("copy", data, tmp_path / "scratch")
    assert done.returncode == 1
    assert "checksum" in done.stderr
    assert done.stderr.endswith(f"the copy differs from {data}: see above\n")
    assert not (tmp_path / "scratch").exists()


def test_other_folders_are_left_alone(data: Path, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years")
    done = stage("copy", data, mine)
    assert done.returncode == 1
    assert f"{mine}: exists already, and is no copy of this script" in done.stderr
    assert stage("remove", mine).returncode == 0
    assert (mine / "thesis.txt").read_text() == "years"


def test_a_link_and_another_users_folder_are_left_alone(data: Path, tmp_path):
    """Whoever made them could change the data, or have the job remove a folder of its user's."""
    copy, link = tmp_path / "copy", tmp_path / "link"
    assert stage("copy", data, copy).returncode == 0
    link.symlink_to(copy)
    if os.getuid() == 0:
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs/.mpibow-staged").touch()
        os.chown(tmp_path / "theirs", 65534, 65534)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for place in {link, tmp_path / "dangling", tmp_path / "theirs"} & {*tmp_path.iterdir()}:
        done = stage("copy", data, place)
        assert (done.returncode, f"{place}: exists already, and is no copy of" in done.stderr) == (1, True)
        stage("remove", place)
        assert place in tmp_path.iterdir()
    assert (copy / "train").exists()


def test_what_is_wrong_is_named(data: Path, tmp_path):
    done = stage("copy", tmp_path / "nowhere", tmp_path / "scratch")
    assert (done.returncode, "nowhere: there is no such folder" in done.stderr) == (1, True)
    (tmp_path / "empty").mkdir()
    done = stage("copy", tmp_path / "empty", tmp_path / "scratch")
    assert (done.returncode, "has no manifest.json" in done.stderr) == (1, True)
    (tmp_path / "file").write_text("")
    done = stage("copy", data, tmp_path / "file/scratch")
    assert (done.returncode, "cannot be written; choose another disk with STAGE_TO=DIR" in done.stderr) == (1, True)
    assert stage("copy", data).returncode == 2
    assert not (tmp_path / "scratch").exists()


def test_a_disk_that_is_too_small_is_refused_before_the_copy(data: Path, tmp_path):
    fakes = tmp_path / "bin"
    fakes.mkdir()
    (fakes / "df").write_text("#!/bin/sh\necho head; echo 'disk 100 99 1 99% /tmp'\n")
    (fakes / "cp").write_text("#!/bin/sh\nexit 9\n")
    for name in ("df", "cp"):
        (fakes / name).chmod(0o755)
    done = stage("copy", data, tmp_path / "scratch", PATH=f"{fakes}:{PATH}")
    assert done.returncode == 1
    assert "MiB, 0 MiB are free; choose another disk with STAGE_TO=DIR" in done.stderr
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize("script", JOBS)
def test_a_job_trains_from_the_copy_and_removes_it(script, data: Path, tmp_path):
    """The launcher is one that runs stage.sh itself, and writes down what training finds."""
    (tmp_path / "site").mkdir()
    site = Site(tmp_path / "site")
    launcher, disk = LAUNCHER[script], tmp_path / "disk"
    site.fake(
        launcher,
        'while [ $# -gt 0 ]; do case $1 in launch/stage.sh) shift; exec STAGE "$@";; data.train=*) break;; esac; '
        'shift; done; ls "${{1#data.train=}}" >> "{log}"'.replace("STAGE", str(STAGE), 1),
    )
    code, output = site.run(
        script, STAGE=str(data), STAGE_TO=str(disk), SLURM_NNODES="2", PYTHONPATH=str(ROOT), PATH=f"{site.bin}:{PATH}"
    )
    assert code == 0, output
    calls = site.calls()
    scratch = calls[0].split()[-1]
    assert calls[0].endswith(f"launch/stage.sh copy {data} {scratch}")
    assert calls[-1].endswith(f"launch/stage.sh remove {scratch}")
    assert "manifest.json" in calls  # it was there when training began
    assert list(disk.iterdir()) == []


def test_a_copy_that_fails_ends_the_job(tmp_path):
    (tmp_path / "site").mkdir()
    site = Site(tmp_path / "site")
    site.fake("srun", 'case "$*" in *copy*) exit 1;; esac')
    code, _ = site.run("slurm.sbatch", STAGE="data/none", STAGE_TO=str(tmp_path), SLURM_NNODES="2")
    assert code == 1
    assert ["copy" in call or "remove" in call for call in site.calls()] == [True, True]
