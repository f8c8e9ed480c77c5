"""A batch script on two nodes that mpirun reaches as by ssh, which passes no variables on."""

import os
import sys
from pathlib import Path

from tests.launching import ROOT, run, well
from tests.nodes.hosts import cluster, needs_nodes

CONFIG = """
model: {name: convnet}
data: {train: data/digits/train, test: data/digits/test}
update: {schedule: {name: constant}}
stop: {epochs: 1}
learners: 1
device: numpy
"""
SSH = "HOME=/root USER=root PATH=/usr/bin:/bin"  # the variables that it sets


@needs_nodes
def test_pbs_trains_on_two_nodes(tmp_path):
    config, hosts, agent = (tmp_path / name for name in ("digits.yaml", "hosts", "agent"))
    config.write_text(f"{CONFIG}out: {tmp_path}")
    with cluster(2, "1gbit") as nodes:
        hosts.write_text("".join(f"{node.address}\n" for node in nodes.nodes))
        agent.write_text(nodes.agent.read_text().replace("env ", f"env -i {SSH} "))
        agent.chmod(0o700)
        job = {"PBS_JOBID": "77.head", "PBS_O_WORKDIR": str(ROOT), "PBS_NODEFILE": str(hosts), "config": str(config)}
        site = {"PRTE_MCA_plm_ssh_agent": str(agent), "OMPI_MCA_btl_tcp_if_include": "10.77.0.0/24"}
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        done = well(run(nodes.switch.enter("launch/pbs.sh", only_network=True), env={"PATH": path, **job, **site}))
    assert "2 rank(s), learners 1 + 1" in done.stdout + done.stderr
