"""launch/mpijob.yml: its pods against Kubernetes' published schema, its job against the fields of the MPI Operator."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from mpibow.config import load

ROOT = Path(__file__).parents[2]
JOB = yaml.safe_load((ROOT / "launch/mpijob.yml").read_text())

# Of an MPIJob's spec in kubeflow.org/v2beta1, as its resource definition has them; a set holds the allowed values.
RESTART = {"Never", "OnFailure", "ExitCode"}
REPLICA = {"replicas": int, "restartPolicy": RESTART, "template": dict}
SPEC = {
    "slotsPerWorker": int,
    "runLauncherAsWorker": bool,
    "sshAuthMountPath": str,
    "launcherCreationPolicy": {"AtStartup", "WaitForWorkersReady"},
    "mpiImplementation": {"OpenMPI", "Intel", "MPICH"},
    "runPolicy": {
        "cleanPodPolicy": {"None", "Running", "All"},
        "ttlSecondsAfterFinished": int,
        "activeDeadlineSeconds": int,
        "backoffLimit": int,
        "schedulingPolicy": dict,
        "suspend": bool,
        "managedBy": str,
    },
    "mpiReplicaSpecs": {"Launcher": REPLICA, "Worker": REPLICA},
}


def faults(value, allowed, path: str = "spec") -> list[str]:
    """Paths of what the fields do not allow."""
    if isinstance(allowed, set):
        return [] if value in allowed else [path]
    if isinstance(allowed, type):
        return [] if type(value) is allowed else [path]
    if not isinstance(value, Mapping):
        return [path]
    return [
        fault
        for name, inner in value.items()
        for fault in (faults(inner, allowed[name], f"{path}.{name}") if name in allowed else [f"{path}.{name}"])
    ]


def pod(name: str) -> dict:
    spec = JOB["spec"]["mpiReplicaSpecs"][name]["template"]["spec"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name.lower()}, "spec": spec}


def test_the_job_has_the_operators_fields():
    assert (JOB["apiVersion"], JOB["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert set(JOB) == {"apiVersion", "kind", "metadata", "spec"}
    assert faults(JOB["spec"], SPEC) == []
    assert set(JOB["spec"]["mpiReplicaSpecs"]) == {"Launcher", "Worker"}
    assert JOB["spec"]["mpiReplicaSpecs"]["Launcher"]["replicas"] == 1


@pytest.mark.parametrize("name", ["Launcher", "Worker"])
def test_pods_follow_the_schema_of_kubernetes(name):
    kubernetes = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    kubernetes.validate(pod(name), kubernetes.latest_version(), strict=True)


@pytest.mark.parametrize("name", ["Launcher", "Worker"])
def test_every_volume_that_is_mounted_is_there(name):
    spec = pod(name)["spec"]
    mounted = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}


def test_the_launcher_starts_a_rank_for_each_slot():
    (container,) = pod("Launcher")["spec"]["containers"]
    arguments = container["args"]
    assert container["command"] == ["mpirun"]
    ranks = JOB["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] * JOB["spec"]["slotsPerWorker"]
    assert arguments[arguments.index("-np") + 1] == str(ranks)
    train = arguments[arguments.index("mpibow.train") + 1 :]
    assert train[-2:] == ["--resume", "auto"]
    assert "name=$(JOB)" in train
    (variable,) = container["env"]
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    assert (variable["name"], path) == ("JOB", "metadata.labels['training.kubeflow.org/job-name']")
    name = JOB["metadata"]["generateName"] + "x7k2p"
    config = ROOT / Path(train[0]).relative_to("/opt/mpibow")  # of the image
    assert load(config, [word.replace("$(JOB)", name) for word in train[1:-2]]).name == name


def test_no_two_jobs_have_one_name():
    """A second experiment would resume the first."""
    assert set(JOB["metadata"]) == {"generateName"}


def test_a_lost_worker_ends_the_launcher():
    """Open MPI's waits as long as ssh does."""
    text = (ROOT / "launch/Dockerfile").read_text()
    assert all(f"{option} " in text for option in ("ServerAliveInterval", "ServerAliveCountMax"))


def test_workers_run_what_the_image_has():
    (container,) = pod("Worker")["spec"]["containers"]
    assert (container["command"], container["args"]) == (["/usr/sbin/sshd"], ["-De"])
    assert "openssh-server" in (ROOT / "launch/Dockerfile").read_text()
    images = {each["image"] for name in ("Launcher", "Worker") for each in pod(name)["spec"]["containers"]}
    assert images == {"mpibow"}
