"""A net that a simulated GPU has trained, on arrays of which some labels are ignored, predicts on the host."""

from pathlib import Path

import numpy as np
import pytest

import mpibow
from mpibow.comm import Communicator
from mpibow.config import Config
from mpibow.job.choice import ROOMS
from mpibow.job.device import Device
from tests.cuda.kernels.host import needs_compiler
from tests.cuda.simulated.gpu import simulated
from tests.cuda.simulated.test_auto import rooms
from tests.run import tiny

pytestmark = needs_compiler


def net(image):
    return mpibow.dense(mpibow.relu(mpibow.dense(mpibow.flatten(image), 16)), tiny.CLASSES)


@pytest.mark.parametrize(("device", "precision"), [("cuda", "auto"), ("cuda", "float32"), ("auto", "bf16")])
def test_predict(here: Path, monkeypatch, device, precision):
    opened = []

    def found(config: Config, comm: Communicator) -> tuple[Device, str]:
        opened.append(config.precision)
        return simulated(0, "float32" if precision == "auto" else precision), ""

    monkeypatch.setitem(ROOMS, "cuda", rooms(found)["cuda"])
    images, labels = tiny.images()
    labels[::5] = -100
    found = mpibow.fit(
        net, (images, labels), tiny.images(20, seed=1), loss={"ignore_index": -100}, device=device, precision=precision,
        batch_size=3, learners=2, update={"lr": 0.02, "momentum": 0.9}, stop={"epochs": 4}, execution="streams",
    )  # fmt: skip
    assert opened == [precision]
    images, labels = tiny.images(20, seed=1)
    assert found.summary.accuracy > 0.6
    assert (found.predict(images).argmax(axis=1) == labels).mean() == pytest.approx(found.summary.accuracy, abs=0.11)
    w = found.weights
    x = (images.reshape(20, 36) - tiny.TRAIN.mean[0]) / tiny.TRAIN.std[0]
    hidden = np.maximum(x @ w["dense1.weight"].T + w["dense1.bias"], 0)
    expected = hidden @ w["dense2.weight"].T + w["dense2.bias"]
    np.testing.assert_allclose(found.predict(images, batch_size=7), expected, rtol=1e-4, atol=1e-4)
