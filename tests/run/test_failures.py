"""A run that was lost may start again three times without a new checkpoint, and no other run may."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpibow import again
from mpibow.errors import EXIT_CODES
from mpibow.run.directory import KILLED, PASSING, may_start_again


def checkpoint(run: Path, iteration: int) -> None:
    folder = run / f"checkpoints/iteration-{iteration:010d}"
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").touch()


def starts(run: Path, times: int, code: int = 8) -> list[bool]:
    return [may_start_again(code, run) for _ in range(times)]


def test_three_times_and_again_after_a_newer_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "runs/job"
    assert starts(run, 5) == [True] * 3 + [False] * 2  # it came to no checkpoint
    for iteration in (90, 1000):
        checkpoint(run, iteration)
        assert starts(run, 5, KILLED) == [True] * 3 + [False] * 2


def test_a_checkpoint_that_was_not_completed_does_not_count(tmp_path: Path) -> None:
    assert starts(tmp_path / "job", 3) == [True] * 3
    (tmp_path / "job/checkpoints/iteration-0000000001").mkdir(parents=True)
    assert starts(tmp_path / "job", 1) == [False]


def test_a_count_that_is_damaged_begins_anew(tmp_path: Path) -> None:
    starts(tmp_path / "job", 3)
    (tmp_path / "job.failures.json").write_text("{")
    assert starts(tmp_path / "job", 4) == [True] * 3 + [False]


@pytest.mark.parametrize("code", [0, *sorted({*EXIT_CODES} - {*PASSING}), 143])
def test_other_codes_are_no_reason(code: int, tmp_path: Path) -> None:
    assert not may_start_again(code, tmp_path / "job")
    assert list(tmp_path.iterdir()) == []


def test_the_command_takes_the_folder_of_the_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.yaml").write_text("{model: {name: mlp}, data: {train: a, test: b}, out: elsewhere}")
    arguments = ["137", f"{tmp_path}/run.yaml", f"out={tmp_path}/there", "name=job-7"]
    assert [again.main(arguments) for _ in range(4)] == [0, 0, 0, 1]
    assert (tmp_path / "there/job-7.failures.json").exists()
    said = "exit code 137: not queued again; 5, 8 and 137 are, 3 times without a new checkpoint\n"
    assert capsys.readouterr().out == said
    assert again.main(["8", f"{tmp_path}/none.yaml"]) == 1
