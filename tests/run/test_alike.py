"""All ranks begin equal: what differs is refused by name, and the numbers that a rank drew become rank 0's."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from mpibow import constant, dense, fit, flatten, parameter
from mpibow.comm import Communicator, Single
from mpibow.data import ArrayData, NamedArrays, Weighed, open_records
from mpibow.data.digits import write_digits
from mpibow.errors import CommunicationError, OutputError
from mpibow.evaluate import evaluate
from mpibow.graph import Array, Tensor
from mpibow.job.fingerprint import contents_of
from mpibow.run import alike
from mpibow.run.session import Session
from mpibow.train import train
from tests.comm.threads import on_threads
from tests.launching import mpirun, needs_mpi, well
from tests.refusals import refuses
from tests.run import tiny


def drawn(seed: int) -> Callable[[Tensor], Tensor]:
    """A net whose weights, table and factor are a rank's own."""
    rng = np.random.default_rng(seed)
    table, factor, weights = rng.standard_normal(36), float(rng.random()), rng.standard_normal((36, 3))

    def net(image: Tensor) -> Tensor:
        own = parameter((36, 3), initial=lambda *_: weights)
        return dense(flatten(image) * constant(table) * factor, 3, bias=False) + (flatten(image) @ own) * 0.1

    return net


@pytest.mark.parametrize("rule", tiny.RULES)
def test_ranks_that_draw_numbers_train_rank_0s(tmp_path, rule):
    """The bits are those of ranks that all drew what rank 0 drew."""
    settings = {"rule": rule, "stop": {"epochs": None, "iterations": 12}, "evaluate": {"every": 0.2}}

    def body(comm: Communicator, seeds: tuple[int, ...], out: str) -> Mapping[str, Array]:
        job = tiny.job(tmp_path / out, net=drawn(seeds[comm.rank]), **settings)
        trained = train(job, comm)
        assert trained.summary.mismatches == 0
        graph = trained.build(2)
        return {**trained.weights, "table": np.array(next(n.op.values for n in graph.nodes if n.op.kind == "constant"))}  # type: ignore[attr-defined]

    wanted = on_threads(2, lambda comm: body(comm, (5, 5), "same"))
    found = on_threads(2, lambda comm: body(comm, (5, 6), "own"))
    assert all(tiny.same_bits(each, wanted[0]) for each in (*wanted, *found))
    log = (tmp_path / "own/run/log.txt").read_text()
    assert "the ranks made different numbers in constant1.values, affine1.scale: all use rank 0's" in log
    assert "the ranks made different weights: all start from rank 0's" in log
    assert "different" not in (tmp_path / "same/run/log.txt").read_text()


def test_a_net_that_draws_whenever_it_is_built_is_refused(tmp_path):
    def net(image: Tensor) -> Tensor:
        return dense(flatten(image) * constant(np.random.default_rng().random(36)), 3)

    with refuses(
        "net: has other numbers each time it is built, in constant1.values; draw them once, before the function"
    ):
        train(tiny.job(tmp_path, net=net), Single())


IMAGES, LABELS = tiny.images()


def wider(image: Tensor) -> Tensor:
    return dense(dense(flatten(image), 13), tiny.CLASSES)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 1}, "other settings than rank 0: seed is 1, on rank 0 0; start all ranks with the same"),
        ({"update": {"lr": 0.1}}, "other settings than rank 0: update.lr is 0.1, on rank 0 0.05, update.weight_"),
        ({"learners": [1, 2, 1]}, "other settings than rank 0: learners is [1, 2, 1], on rank 0 1; start all ranks"),
        ({"net": wider}, "another net than rank 0: dense1, relu1, dense2; build the same one on all ranks"),
        ({"train": ArrayData(IMAGES[::-1], LABELS)}, "other data than rank 0: train; give the same to all ranks"),
        ({"train": ArrayData(IMAGES, LABELS[::-1])}, "other data than rank 0: train; give the same to all ranks"),
        ({"test": None}, "other data than rank 0: test; give the same to all ranks"),
    ],
    ids=["seed", "rate", "learners", "net", "images", "labels", "test"],
)
def test_what_differs_is_named(tmp_path, other, message):
    def body(comm: Communicator) -> None:
        with Session(tiny.job(tmp_path, **({"seed": 0} | (other if comm.rank == 1 else {}))), comm):
            pass

    with tiny.unchanged(tmp_path), pytest.raises(CommunicationError) as caught:
        on_threads(3, body)
    assert str(caught.value).startswith(f"rank 1: has {message}")


def test_another_mpibow_is_named(tmp_path):
    for name in ("same", "changed"):
        shutil.copytree(alike.PACKAGE / "sync", tmp_path / name / "sync")
    (tmp_path / "changed/sync/rule.py").write_text("# changed")

    def body(comm: Communicator) -> None:
        sources = alike.sources_of(tmp_path / ("changed" if comm.rank == 2 else "same"))
        alike.compare(comm, "another mpibow", sources, "install the same one on all nodes")

    with pytest.raises(CommunicationError, match=r"^rank 2: has another mpibow than rank 0: sync/rule\.py is 0x"):
        on_threads(3, body)


def test_contents_of_every_kind_of_data(tmp_path):
    write_digits(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    records, copy, others = (open_records(tmp_path / name) for name in ("a/train", "b/train", "a/test"))
    copy.manifest = replace(copy.manifest, source="converted again")
    assert contents_of(records) == contents_of(copy) != contents_of(others)
    rows = np.arange(20)
    assert contents_of(records.part(rows)) == contents_of(copy.part(rows)) != contents_of(copy.part(rows + 1))
    x, y = np.ones((4, 3), np.float32), np.arange(4)
    arrays = [NamedArrays({"x": x, "y": each}) for each in (y, y.copy(), y[::-1])]
    one, same, other = map(contents_of, arrays)
    assert one == same != other
    light, heavy = (Weighed(arrays[0], np.full(4, n, np.float32)) for n in (1, 2))
    assert contents_of(light) != contents_of(heavy)
    assert "float32" in contents_of(light)


def test_a_state_that_differs_is_named(tmp_path):
    """As where ranks on different nodes read different copies of a file."""
    short = {"rule": {"name": "crossbow"}, "stop": {"epochs": None, "iterations": 4}}
    tiny.train(tmp_path, 2, checkpoint={"every": "4 iterations"}, **short)

    def body(comm: Communicator) -> None:
        job = tiny.job(tmp_path, **short)
        if comm.rank == 1:
            comm = Other(comm)
        with Session(job, comm, str(tmp_path / "run")):
            pass

    class Other:
        """A rank that does not receive rank 0's weights."""

        def __init__(self, comm: Communicator) -> None:
            self._comm = comm

        def __getattr__(self, name: str):
            return getattr(self._comm, name)

        def broadcast(self, array: Array, root: int = 0) -> None:
            received = array.copy()
            self._comm.broadcast(received, root)
            array.view(np.uint8)[:1] ^= 1

    with pytest.raises(CommunicationError, match=r"^rank 1: has another state to begin with than rank 0: centre is "):
        on_threads(2, body)


SCRIPT = """
import os, sys
import numpy as np
import torch
from mpi4py import MPI
import mpibow as mb

comm = MPI.COMM_WORLD
os.makedirs(sys.argv[1], exist_ok=True)
torch.manual_seed(comm.rank)


class Fourier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", torch.randn(6, 8))
        self.norm, self.head = torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)
        self.norm.running_mean += torch.rand(8)

    def forward(self, x):
        return self.head(self.norm((x @ self.frequencies).tanh()))


rng = np.random.default_rng(0)
x, y = rng.random((40, 6), np.float32), rng.integers(0, 3, 40).astype("i4")
for rule in ("sma", "crossbow", "ssgd", "local_sgd", "diloco", "slowmo", "easgd", "independent"):
    net = mb.from_torch(Fourier(), (torch.zeros(2, 6),))
    fitted = mb.fit(
        net, (x, y), loss=mb.cross_entropy, batch_size=4, learners=1, rule={"name": rule}, update={"lr": 0.1},
        stop={"epochs": 2}, out=sys.argv[1], name=rule,
    )
    found = comm.gather((fitted.predict(x), fitted.weights, fitted.source.program.buffers["frequencies"].array))
    if comm.rank == 0:
        np.testing.assert_equal(*found)
print("equal")
"""


@pytest.mark.torch
@needs_mpi
def test_modules_that_every_rank_makes_unseeded(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "run.py").write_text(SCRIPT)
    assert well(mpirun(2, "run.py", "runs", cwd=tmp_path)).stdout.count("equal") == 2


@needs_mpi
def test_a_run_directory_that_ranks_do_not_share(tmp_path):
    """As on nodes with a disk of their own each."""
    (tmp_path / "run.py").write_text(
        "import os\nfrom mpi4py import MPI\nfrom mpibow.run import lock\nfrom mpibow.train import main\n"
        "lock.sees.__defaults__ = (1.0,)\n"  # seconds that a file may be late
        "os.makedirs(f'node{MPI.COMM_WORLD.rank}')\nos.chdir(f'node{MPI.COMM_WORLD.rank}')\n"
        f"main(['model.name=mlp', 'data.train={tmp_path}/digits/train', 'name=a', 'stop.epochs=1'])\n"
    )
    write_digits(tmp_path / "digits")
    done = mpirun(2, "run.py", cwd=tmp_path)
    assert done.returncode == OutputError.code, done.stderr
    assert "error: out: rank 1 on host " in done.stderr
    assert " does not see runs/a, which rank 0 made on host " in done.stderr
    assert "; set out=DIR to a directory that all nodes share\n" in done.stderr
    assert not (tmp_path / "node0/runs/a/lock").exists()


def test_ranks_that_evaluate_other_data_or_weights(tmp_path):
    """As where every node has files of its own at one path: data are refused, weights are rank 0's."""
    rng = np.random.default_rng(0)
    x, y = rng.random((20, 4), np.float32), rng.random((20, 2), np.float32)
    fitted = fit(
        lambda x: dense(x, 2), (x, y), loss="mse_loss", batch_size=4, learners=1, out=str(tmp_path), stop={"epochs": 1}
    )  # fmt: skip
    for rank in (0, 1):
        other = {name: array + rank for name, array in fitted.weights.items()}
        replace(fitted, weights=other).save(tmp_path / f"{rank}.safetensors")
        np.savez(tmp_path / f"{rank}.npz", x=x + rank, target=y)

    def body(comm: Communicator, net: int, data: int) -> float:
        found = evaluate(tmp_path / f"{net * comm.rank}.safetensors", str(tmp_path / f"{data * comm.rank}.npz"), comm)
        return found.loss

    alone = body(Single(), 0, 0)
    assert on_threads(2, lambda comm: body(comm, 0, 0)) == [pytest.approx(alone)] * 2
    assert on_threads(2, lambda comm: body(comm, 1, 0)) == [pytest.approx(alone)] * 2
    with pytest.raises(CommunicationError, match=r"^rank 1: has other data than rank 0: "):
        on_threads(2, lambda comm: body(comm, 0, 1))
