"""Nodes on one machine: namespaces with a hostname, processes and shared memory of their own, joined by slow links.

python -m tests.nodes.hosts --nodes 2 --ranks-per-node 1 --rate 1gbit -- -m mpibow.train CONFIG   # as root

A node lives as long as a shell that reads from this process: whatever ends it, the node ends with all its processes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from tests.launching import OPEN_MPI, launcher, needs_mpi

HEAD = "10.77.0.254"  # where mpirun runs, on the switch; no rank does
HOST = ("--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
MEMORY = "mount -t tmpfs tmpfs /dev/shm;"
BURST = "128kb"  # as much as a packet that the network card would cut up


@dataclass(frozen=True)
class Node:
    """A network namespace, and on hosts of ranks all else that processes of two machines do not share."""

    address: str
    holder: subprocess.Popen[bytes]
    cores: str = ""  # those that its processes have alone, as taskset writes them; all where there are too few

    def enter(self, *command: str, only_network: bool = False) -> list[str]:
        """`command` as a process of this node."""
        pid = self.holder.pid
        apart = () if only_network else ("--uts", "--ipc", "--mount", f"--pid=/proc/{pid}/ns/pid_for_children")
        bound = ("taskset", "--cpu-list", self.cores) if self.cores else ()
        return [*bound, "nsenter", f"--target={pid}", "--net", *apart, f"--wd={os.getcwd()}", *command]

    def run(self, command: str) -> None:
        subprocess.run(self.enter(*command.split(), only_network=True), check=True)

    def lose(self) -> None:
        """Ends the node and all its processes, as a power failure does."""
        self.holder.kill()
        self.holder.wait()


@dataclass(frozen=True)
class Cluster:
    """Nodes behind a switch, to which mpirun is connected too."""

    switch: Node
    nodes: list[Node]
    agent: Path

    def mpirun(self, ranks: Sequence[int], *arguments: str, network: str = "10.77.0.0/24") -> list[str]:
        """The command of `python arguments...` with so many ranks on each node, the first ranks on the first node, that
        exchange by `network`: a subnet, or an interface by name."""
        hosts = ",".join(f"{node.address}:{count}" for node, count in zip(self.nodes, ranks, strict=True))
        subnet = ("--mca", "btl_tcp_if_include", network, "--prtemca", "plm_ssh_agent", str(self.agent))
        idle = ("--mca", "mpi_yield_when_idle", str(int(sum(ranks) > (os.cpu_count() or 1))))
        program = [str(launcher()), "--host", hosts, "--map-by", "slot", "-n", str(sum(ranks)), *subnet, *idle]
        return self.switch.enter(*program, sys.executable, *arguments, only_network=True)


@cache
def missing() -> str:
    """Why this machine cannot have nodes, or nothing."""
    if os.geteuid() != 0:
        return "namespaces need root"
    try:
        with cluster(1, "1gbit"):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no namespaces here: {error}"


def needs_nodes(test):
    """Marks a test that needs nodes; skipped, with the reason, where the machine forbids them."""
    return needs_mpi(pytest.mark.skipif(bool(missing()), reason=missing())(test))


@contextmanager
def cluster(count: int, rate: str) -> Iterator[Cluster]:
    """`count` nodes whose links carry `rate` in each direction, as tc writes it."""
    with ExitStack() as stack:
        switch = stack.enter_context(_held(HEAD, "--net"))
        for line in ("link set lo up", "link add switch type bridge", f"addr add {HEAD}/24 dev switch"):
            switch.run(f"ip {line}")
        switch.run("ip link set switch up")
        nodes, cores = [], sorted(os.sched_getaffinity(0))
        for number in range(1, count + 1):
            node = stack.enter_context(_held(f"10.77.0.{number}", *HOST, first=f"hostname node{number}; {MEMORY}"))
            own = cores[number - 1 :: count] if count <= len(cores) else []
            node = replace(node, cores=",".join(map(str, own)))
            switch.run(f"ip link add port{number} type veth peer name eth0 netns {node.holder.pid}")
            switch.run(f"ip link set port{number} master switch up")
            for line in ("link set lo up", f"addr add {node.address}/24 dev eth0", "link set eth0 up"):
                node.run(f"ip {line}")
            for end, device in ((node, "eth0"), (switch, f"port{number}")):
                end.run(f"tc qdisc add dev {device} root tbf rate {rate} burst {BURST} latency 100ms")
            nodes.append(node)
        agent = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "agent"
        enter = 'env TMPDIR=/dev/shm sh -c "$*"'
        cases = "".join(f"{node.address}) {' '.join(node.enter(enter))};;\n" for node in nodes)
        agent.write_text(f"#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}esac\n")
        agent.chmod(0o700)
        yield Cluster(switch, nodes, agent)


@contextmanager
def _held(address: str, *namespaces: str, first: str = "") -> Iterator[Node]:
    """New namespaces, until the end or this process's."""
    command = ["unshare", "--net", *namespaces, "sh", "-c", f"{first} echo ready; exec cat > /dev/null"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as holder:
        if not holder.stdout.readline():
            raise OSError(f"{' '.join(command)} ended with code {holder.wait()}")
        yield Node(address, holder)


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs python ARGUMENTS... as ranks on nodes of its own.")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks-per-node", type=int, nargs="+", default=[1], help="one number, or one for each node")
    parser.add_argument("--rate", default="1gbit", help="of each link and direction, as tc writes it")
    parser.add_argument("arguments", nargs="+", metavar="ARGUMENTS", help="behind --: -m mpibow.train CONFIG ...")
    options = parser.parse_args()
    ranks = options.ranks_per_node
    with cluster(options.nodes, options.rate) as nodes:
        command = nodes.mpirun(ranks if len(ranks) > 1 else ranks * options.nodes, *options.arguments)
        return subprocess.run(command, env={**os.environ, **OPEN_MPI}).returncode


if __name__ == "__main__":
    sys.exit(main())
