"""Training on two nodes gives the bits of training on one: the sum of two ranks has one order."""

from pathlib import Path

from tests.launching import mpirun, run
from tests.nodes.hosts import cluster, needs_nodes


@needs_nodes
def test_two_nodes_train_as_one(tmp_path):
    words = ("-m", "mpibow.train", "stop.epochs=2", "learners=1", "device=numpy", "name=run")
    one = mpirun(2, *words, f"out={tmp_path}/one")
    with cluster(2, "1gbit") as nodes:
        two = run(nodes.mpirun([1, 1], *words, f"out={tmp_path}/two"))
        again = run(nodes.mpirun([1, 1], *words, "stop.epochs=3", f"out={tmp_path}/two", "--resume", "auto"))
    assert [done.returncode for done in (one, two, again)] == [0, 0, 0], two.stderr + again.stderr
    for file in ("centre.safetensors", "rank-1.safetensors"):
        at = Path("run", "checkpoints", "iteration-0000000180", file)
        assert (tmp_path / "one" / at).read_bytes() == (tmp_path / "two" / at).read_bytes()
    assert "stopped by stop.epochs 3" in again.stderr
