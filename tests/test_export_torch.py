"""PyTorch's own nets load strictly what mpibow exports, and give the same logits; theirs come in the same way."""

from functools import partial
from importlib import import_module

import numpy as np
import pytest
from safetensors.numpy import save_file

from mpibow.data import Array
from mpibow.export import export, write
from mpibow.job.starting_weights import of_program, take
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from mpibow.models.torchvision import shapes_of
from mpibow.run.stored import Stored, read_stored
from tests.oracle import pytorch
from tests.outcome import outcome

pytestmark = pytest.mark.torch
torch = pytorch()
nets = import_module("tests.models.torchvision_nets")  # imports torch itself

CLASSES = 7
THEIRS = {
    "torchvision": pytest.param(
        nets.of_torchvision, marks=pytest.mark.skipif(not nets.THERE, reason="torchvision is not installed")
    ),
    "by hand": nets.as_torchvision,
}
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}  # of the largest logit


def ours(name: str, weights, images: Array, dtype: str) -> Array:
    """Our net's logits."""
    graph = classifier(partial(MODELS[name], classes=CLASSES), images.shape[1:], dtype)(len(images))
    arrays = {"weights": weights, "statistics": weights}
    return outcome(graph, {"image": images}, dtype=dtype, training=False, **arrays)[1]["logits"]


def spoilt(net):
    """With statistics, biases and scales that are none's, else a wrong name would not be seen."""
    generator = torch.Generator().manual_seed(0)
    for key, tensor in net.state_dict().items():
        if tensor.ndim == 1:
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype))
        elif key.endswith("weight"):
            tensor.mul_(0.5)
    return net.eval()


@pytest.mark.parametrize("theirs", THEIRS.values(), ids=THEIRS)
@pytest.mark.parametrize(
    ("name", "size", "dtype"),
    [
        ("resnet18", 64, "float64"),
        ("resnet50", 64, "float64"),
        pytest.param("resnet34", 32, "float64", marks=pytest.mark.slow),
        pytest.param("vgg16", 224, "float32", marks=pytest.mark.slow),
        pytest.param("vgg_a", 224, "float32", marks=pytest.mark.slow),
    ],
)
def test_logits_are_equal_both_ways(name, size, dtype, theirs, tmp_path):
    net = spoilt(theirs(name, CLASSES).to(getattr(torch, dtype)))
    images = np.random.default_rng(0).standard_normal((2 if size < 224 else 1, 3, size, size)).astype(dtype)
    expected = net(torch.from_numpy(images)).detach().numpy()
    file = tmp_path / "theirs.safetensors"
    save_file({key: tensor.numpy() for key, tensor in net.state_dict().items()}, file)
    graph = classifier(partial(MODELS[name], classes=CLASSES), images.shape[1:], dtype)(1)
    taken = take(of_program(file), read_stored(file).weights, shapes_of(graph))
    got = ours(name, taken.arrays, images, dtype)
    scale = np.abs(expected).max()
    assert scale > 1e-3
    np.testing.assert_allclose(got / scale, expected / scale, rtol=0, atol=TOLERANCE[dtype])

    path, *_ = write(export(Stored(file, dict(taken.arrays)), "torchvision"), tmp_path / "ours.pth", "torch")
    fresh = theirs(name, CLASSES).to(getattr(torch, dtype))
    loaded = torch.load(path, weights_only=True)
    assert list(loaded) == list(fresh.state_dict())
    fresh.load_state_dict(loaded, strict=True)
    np.testing.assert_array_equal(fresh.eval()(torch.from_numpy(images)).detach().numpy(), expected)


def test_every_type_and_shape(tmp_path):
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "b": np.array(7),
        "c": np.ones((1, 2, 1), np.float64),
        "d.é": np.zeros(0, np.float16),
    }
    path, *_ = write(export(Stored(tmp_path, arrays)), tmp_path / "a.pth", "torch")
    for settings in ({"weights_only": True}, {"weights_only": True, "mmap": True}):
        found = torch.load(path, **settings)
        assert list(found) == list(arrays)
        for key, tensor in found.items():
            assert tensor.numpy().dtype == arrays[key].dtype
            np.testing.assert_array_equal(tensor.numpy(), arrays[key])
