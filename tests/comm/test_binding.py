"""Cores that a process may use, and the advice where they are too few."""

import os
import resource

import psutil
import pytest

from mpibow.comm import allowed_cores, binding_warning, cgroups
from mpibow.comm.binding import binding_limit
from mpibow.comm.cgroups import cpu_quota, machine_cores, memory_left
from mpibow.job import memory


def test_this_process_has_cores():
    assert 1 <= allowed_cores() <= machine_cores() <= (os.cpu_count() or 1)


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A made-up /sys/fs/cgroup and /proc/self/cgroup: call it with the latter's text and files of the former."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "sys")
    monkeypatch.setattr(cgroups, "GROUPS", tmp_path / "cgroup")

    def make(text: str, **files: str) -> None:
        (tmp_path / "cgroup").write_text(text)
        for name, content in files.items():
            path = tmp_path / "sys" / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    return make


@pytest.mark.parametrize(
    ("group", "name", "held"),
    [("0::/job/step\n", "job__cpuset_DOT_cpus_DOT_effective", "8-9,12\n"),
     ("7:cpuset:/job\n0::/\n", "cpuset__job__cpuset_DOT_cpus", "0-2\n")],
)  # fmt: skip
def test_a_batch_systems_set_of_cores(groups, monkeypatch, group, name, held):
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    groups(group, **{name: held})
    assert machine_cores() == 3


def test_no_quota(groups):
    groups("0::/\n", cpu_DOT_max="max 100000\n")
    assert cpu_quota() is None
    groups("")
    assert cpu_quota() is None


def test_version_2_takes_the_lowest_on_the_way_up(groups):
    groups("0::/job/step\n", job__cpu_DOT_max="250000 100000\n", job__step__cpu_DOT_max="400000 100000\n")
    assert cpu_quota() == 2.5


def test_version_2_in_a_container_that_is_its_own_root(groups):
    groups("0::/docker/123\n", cpu_DOT_max="150000 50000\n")
    assert cpu_quota() == 3.0


def test_version_1(groups):
    files = {"cpu,cpuacct__pod__cpu_DOT_cfs_quota_us": "50000\n", "cpu,cpuacct__pod__cpu_DOT_cfs_period_us": "100000\n"}
    groups("4:memory:/pod\n3:cpu,cpuacct:/pod\n", **files)
    assert cpu_quota() == 0.5
    files = {"cpu,cpuacct__pod__cpu_DOT_cfs_quota_us": "-1\n"}
    groups("3:cpu,cpuacct:/pod\n", **files)
    assert cpu_quota() is None


def test_memory_without_a_limit(groups):
    groups("0::/\n", memory_DOT_max="max\n", memory_DOT_current="5\n")
    assert memory_left() is None
    groups("")
    assert memory_left() is None


def test_version_2_leaves_the_least_memory_on_the_way_up(groups):
    groups(
        "0::/job/step\n", job__memory_DOT_max="1000\n", job__memory_DOT_current="900\n",
        job__memory_DOT_stat="anon 250\nactive_file 400\ninactive_file 200\nshmem 50\n",
        job__step__memory_DOT_max="900\n", job__step__memory_DOT_current="100\n",
    )  # fmt: skip
    assert memory_left() == 1000 - (900 - 400 - 200)


def test_version_1_leaves_memory(groups):
    files = {"memory__pod__memory_DOT_limit_in_bytes": "1000\n", "memory__pod__memory_DOT_usage_in_bytes": "700\n"}
    stat = "cache 9\nactive_file 9\ntotal_active_file 30\ntotal_inactive_file 70\n"
    where = "4:memory:/pod\n3:cpu,cpuacct:/pod\n"
    groups(where, **files, memory__pod__memory_DOT_stat=stat)
    assert memory_left() == 400
    files["memory__pod__memory_DOT_usage_in_bytes"] = "1200\n"
    groups(where, **files)
    assert memory_left() == 0


def test_a_rank_has_its_share_of_what_the_group_leaves(monkeypatch):
    monkeypatch.setattr(memory, "memory_left", lambda: 1001)
    assert memory.free_memory(2) == 500
    monkeypatch.setattr(memory, "memory_left", lambda: 1 << 62)
    assert 1000 < memory.free_memory(1) < 1 << 62


def test_a_rank_has_what_its_own_limit_leaves(monkeypatch):
    taken = psutil.Process().memory_info().vms
    monkeypatch.setattr(memory, "memory_left", lambda: 1 << 30)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (taken + 2**28, resource.RLIM_INFINITY))
    assert 2**27 < memory.free_memory(1) < 2**29  # this process may have grown in between
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1000, 1000))
    assert memory.free_memory(1) == 0


@pytest.mark.parametrize(
    ("allowed", "machine", "learners", "ranks"), [(1, 1, 1, 1), (2, 16, 2, 8), (16, 16, 4, 4), (8, 8, 8, 1)]
)
def test_enough_cores(allowed, machine, learners, ranks):
    assert binding_warning(allowed, machine, learners, ranks) is None


@pytest.mark.parametrize(
    ("launcher", "remedy"),
    [
        ("Open MPI's mpirun", "mpirun --bind-to none, or --map-by ppr:2:node:pe=4"),
        (
            "mpiexec of MPICH or Intel MPI",
            "mpiexec -bind-to none, or -bind-to core:4; with Intel MPI -genv I_MPI_PIN 0",
        ),
        ("MVAPICH2's mpirun", "mpirun -env MV2_ENABLE_AFFINITY 0"),
        ("Slurm's srun", "srun --cpus-per-task=4, or --cpu-bind=none"),
        ("", "give it more, with taskset, the container's --cpus, or the batch system's cores per task"),
    ],
)
def test_bound_to_too_few(launcher, remedy):
    said = binding_warning(1, 16, 4, 2, launcher)
    assert said == f"this process may use 1 of 16 cores, but has 4 learners: {remedy}"


def test_a_machine_too_small():
    assert binding_warning(2, 2, 4, 1) == (
        "this process may use 2 of 2 cores, but has 4 learners: use learners=2, or more cores"
    )
    assert binding_warning(1, 2, 2, 2, "Open MPI's mpirun") == (
        "this process may use 1 of 2 cores, but has 2 learners: "
        "mpirun --bind-to none lets it share them all, or use learners=1, or more cores"
    )
    assert binding_warning(4, 4, 2, 4) == (
        "4 ranks with 2 learners each share the node's 4 cores: use fewer ranks, or learners=1"
    )
    assert binding_warning(2, 2, 1, 3) == "3 ranks with 1 learner each share the node's 2 cores: use fewer ranks"


def test_binding_that_sets_the_limit():
    assert binding_limit(2, 16, 2, 2, "Slurm's srun") == (
        "2 learners on the 2 of 16 cores that it is bound to: binding sets the limit, not the model; "
        "srun --cpus-per-task=8, or --cpu-bind=none"
    )
    assert binding_limit(1, 2, 1, 1).startswith("1 learner on the 1 of 2 cores that it is bound to: ")


@pytest.mark.parametrize(
    ("allowed", "machine", "learners", "ranks"),
    [
        (2, 16, 1, 2),  # the model sets it: a core is left
        (8, 16, 8, 2),  # the node has no more for each of two
        (16, 16, 16, 2),  # not bound
        (1, 2, 1, 4),  # more ranks than cores
        (1, 1, 3, 1),
    ],
)
def test_binding_that_sets_no_limit(allowed, machine, learners, ranks):
    assert binding_limit(allowed, machine, learners, ranks) is None
