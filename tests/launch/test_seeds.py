"""launch/seeds.sh: a task of each scheduler's job array is one seed of one sweep."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpibow.errors import EXIT_REQUEUE
from mpibow.run.directory import PASSING
from tests.launch.test_scripts import CODES, LAUNCH, ROOT, WAITS, Site

TASKS = {
    "slurm": {"SLURM_JOB_ID": "80", "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "3"},
    "pbs": {"PBS_JOBID": "77[3].head.site", "PBS_ARRAY_INDEX": "3", "PBS_O_WORKDIR": "{folder}"},
    "lsf": {"LSB_JOBID": "77", "LSB_JOBINDEX": "3"},
}
QUEUE_AGAIN = {"slurm": ["scontrol requeue 77_3"], "pbs": ["qrerun 77[3].head.site"], "lsf": []}


def start(folder: Path, scheduler: str | None, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
    """The script in `folder`, with its fakes first on the PATH where there are any."""
    task = {key: value.format(folder=folder) for key, value in TASKS.get(scheduler or "", {}).items()}
    python = Path(sys.executable).parent
    return subprocess.Popen(
        ["bash", str(LAUNCH / "seeds.sh"), *arguments],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder}/bin:{python}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        | task
        | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def site(tmp_path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("scheduler", TASKS)
def test_a_task_is_a_seed_of_one_sweep(scheduler, site: Site, tmp_path):
    site.fake("python", "exit 0")
    process = start(tmp_path, scheduler, "launch/lenet-mnist.yaml", "update.lr=0.01,0.02", ranks="2")
    assert process.wait(720) == 0
    sweep = "python -m mpibow.sweep launch/lenet-mnist.yaml update.lr=0.01,0.02 seed=3"
    assert site.calls() == [f"{sweep} --output sweeps/seeds-77 --ranks 2"]


def test_an_array_goes_on_in_the_folder_of_an_earlier_one(site: Site, tmp_path):
    site.fake("python", "exit 0")
    assert start(tmp_path, "lsf", output="sweeps/seeds-12").wait(720) == 0
    assert site.calls() == ["python -m mpibow.sweep launch/digits.yaml seed=3 --output sweeps/seeds-12 --ranks 1"]


def test_pbs_asks_for_the_state_two_minutes_before_the_end(site: Site, tmp_path):
    site.fake("timeout", 'shift 5; exec "$@"')
    site.fake("python", "exit 0")
    assert start(tmp_path, "pbs").wait(720) == 0
    begin = "timeout --foreground --preserve-status --kill-after=90 --signal=TERM 14280 python -m mpibow.sweep"
    assert site.calls()[0].startswith(begin)


@pytest.mark.parametrize("scheduler", TASKS)
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_task_saves_and_is_queued_again_unless_it_was_cancelled(
    scheduler, number: signal.Signals, site: Site, tmp_path
):
    waits = WAITS.replace('got TERM" >> "{log}"; exit 143\' TERM', 'got TERM" >> "{log}"; exit 75\' TERM')
    site.fake("python", waits)
    site.walltime("")  # else `timeout` is between
    process = start(tmp_path, scheduler)
    for _ in range(4800):
        if "python runs" in site.calls():
            break
        time.sleep(0.05)
    process.send_signal(number)
    output, _ = process.communicate(timeout=720)
    saved = number == signal.SIGUSR1
    assert process.returncode == (75 if saved else 143), output
    assert site.calls()[1:] == ["python runs", "python got TERM", *(QUEUE_AGAIN[scheduler] if saved else [])]


@pytest.mark.parametrize("scheduler", TASKS)
@pytest.mark.parametrize("code", CODES)
def test_a_task_is_queued_again_after_a_signal_or_a_loss(scheduler, code, site: Site, tmp_path):
    site.fake("python", f"exit {code}")
    process = start(tmp_path, scheduler)
    output, _ = process.communicate(timeout=720)
    again = code in (EXIT_REQUEUE, *PASSING)
    assert process.returncode == (EXIT_REQUEUE if again and scheduler == "lsf" else code), output
    assert site.calls()[1:] == (QUEUE_AGAIN[scheduler] if again else [])


def test_outside_an_array_it_names_the_option(site: Site, tmp_path):
    process = start(tmp_path, None)
    output, _ = process.communicate(timeout=720)
    assert process.returncode == 2
    assert output.startswith("no job array: ")
    assert site.calls() == []
