"""Buffers of a module: a run keeps them all, and gives them back by name; weights and buffers stay together."""

import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import mpibow as mb
from mpibow.errors import ConfigError
from mpibow.export import main as export
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
read = import_module("tests.torch_in.read")

X = np.random.default_rng(0).standard_normal((24, 6)).astype("f4")
Y = np.arange(24, dtype=np.int32) % 3
LASTING = {"net.0.B", "net.0.places", "net.0.mask", "net.2.num_batches_tracked"}


def net():
    return mb.from_torch(read.Fourier(), (torch.zeros(2, 6),))


def trained(net, out: Path, **settings) -> mb.Fitted:
    given = {"loss": mb.cross_entropy, "batch_size": 4, "learners": 1, "stop": {"epochs": 1}, **settings}
    return mb.fit(net, (X, Y), out=str(out), **given)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> mb.Fitted:
    return trained(net(), tmp_path_factory.mktemp("runs"))


def same(module, fitted: mb.Fitted) -> None:
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(fitted.predict(X), wanted, rtol=1e-4, atol=1e-5)
    buffers = dict(module.named_buffers())
    assert set(fitted.buffers) == {*LASTING, "net.0.shift"}
    for name, array in fitted.buffers.items():
        assert buffers[name].numpy().dtype == array.dtype
        np.testing.assert_array_equal(buffers[name].numpy(), array)


def test_a_fresh_module_of_a_run_has_its_buffers(fitted: mb.Fitted, tmp_path):
    same(fitted.to_torch(), fitted)
    same(mb.load(fitted.summary.run).to_torch(read.Fourier()), fitted)
    fitted.save(tmp_path / "net.safetensors")
    same(mb.load(tmp_path / "net.safetensors").to_torch(read.Fourier()), fitted)


@pytest.mark.parametrize("kind", ["torch", "safetensors"])
def test_an_exported_state_dict_is_whole(fitted: mb.Fitted, tmp_path, kind):
    file, module = tmp_path / "net", read.Fourier()
    assert export([fitted.summary.run, "--to", kind, "--output", str(file)]) == 0
    arrays = {name: torch.from_numpy(array) for name, array in load_file(file).items()} if kind != "torch" else None
    module.load_state_dict(arrays or torch.load(file, weights_only=True), strict=True)
    module.net[0].shift.copy_(torch.from_numpy(fitted.buffers["net.0.shift"]))  # is in no state_dict
    same(module, fitted)


def test_a_part_of_another_net(tmp_path):
    body = net()

    def tuned(x):
        with mb.scope("body"):
            made = body(x)
        return mb.dense(made, 3, name="head")

    whole = trained(tuned, tmp_path)
    module = mb.load(whole.summary.run).to_torch(read.Fourier(), scope="body.")
    np.testing.assert_array_equal(module.net[0].B.numpy(), whole.buffers["body.net.0.B"])


def test_weights_of_other_buffers_are_refused(fitted: mb.Fitted, tmp_path):
    run = fitted.summary.run
    rule = "the buffer net.0.B has other numbers than the module; fill the module before from_torch"
    for given in (run, fitted):
        with pytest.raises(ConfigError, match=f"weights: .*{rule}"):
            trained(net(), tmp_path, weights=given)
    with pytest.raises(ConfigError, match=f"{re.escape(run)}/checkpoints/iteration-0*6: {rule}"):
        trained(net(), tmp_path, resume=run, stop={"epochs": 2})
    filled = mb.load(run).to_torch(read.Fourier())
    again = mb.from_torch(filled, (torch.zeros(2, 6),))
    tuned = trained(again, tmp_path, weights=run, update={"lr": 1e-20})
    np.testing.assert_array_equal(tuned.weights["net.3.weight"], fitted.weights["net.3.weight"])
    trained(again, tmp_path, weights=tuned)


def test_a_module_without_the_buffer():
    weights = {"weight": np.ones((2, 3), "f4"), "bias": np.zeros(2, "f4")}
    with pytest.raises(ConfigError, match="to_torch: the net has the buffer mask, Linear has none of that name"):
        import_module("mpibow.pytorch").into_torch(torch.nn.Linear(3, 2), weights, buffers={"mask": np.ones(3)})
