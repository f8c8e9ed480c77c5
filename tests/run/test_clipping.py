"""Gradient clipping in a run: what the settings say is what its learners do, by the formula on plain arrays."""

from pathlib import Path

import numpy as np
import pytest

from mpibow import dense, flatten
from mpibow.data import Array
from mpibow.graph import Tensor, initial_weights
from tests.run import tiny

LR, MOMENTUM, ITERATIONS = 0.1, 0.9, 6
VALUE, NORM = 0.2, 0.5  # most gradients of this run have larger elements, and are longer


def linear(image: Tensor) -> Tensor:
    return dense(flatten(image), tiny.CLASSES)


def job(out: Path, **limits: float) -> tiny.Job:
    return tiny.job(
        out, net=linear, update={"lr": LR, "momentum": MOMENTUM, **limits},
        iterations=ITERATIONS,
    )  # fmt: skip


def expected(
    work: tiny.Job, batches: list[list[Array]], clip_value: float | None = None, clip_norm: float | None = None
) -> tuple[Array, Array, int]:
    """Weight (3, 36) and bias of softmax regression after momentum SGD on `batches`, and how often a limit bound."""
    images, labels = tiny.images()
    start = work.layout.views(initial_weights(work.layout, work.config.seed, "float64"))
    w, b = start["dense1.weight"].copy(), start["dense1.bias"].copy()
    velocity, bound = np.zeros(w.size + b.size), 0
    for (samples,) in batches:
        x = (images[samples].reshape(len(samples), -1) - tiny.TRAIN.mean[0]) / tiny.TRAIN.std[0]
        odds = np.exp(x @ w.T + b)
        dy = (odds / odds.sum(axis=1, keepdims=True) - np.eye(3)[labels[samples]]) / len(samples)
        free = gradient = np.concatenate([(dy.T @ x).ravel(), dy.sum(axis=0)])
        if clip_value is not None:
            gradient = np.minimum(np.maximum(gradient, -clip_value), clip_value)
        if clip_norm is not None:
            gradient = gradient * min(1.0, clip_norm / np.sqrt((gradient**2).sum()))
        bound += not np.array_equal(gradient, free)
        velocity = MOMENTUM * velocity + gradient
        w, b = w - LR * velocity[: w.size].reshape(w.shape), b - LR * velocity[w.size :]
    return w, b, bound


@pytest.mark.parametrize(
    "limits", [{"clip_value": VALUE}, {"clip_norm": NORM}, {"clip_value": VALUE, "clip_norm": NORM}], ids=" and ".join
)
def test_a_run_clips_its_gradients(tmp_path, limits):
    work = job(tmp_path / "clipped", **limits)
    (seen,) = tiny.replay(work)
    w, b, bound = expected(work, seen.samples, **limits)
    assert bound > ITERATIONS // 2
    np.testing.assert_allclose(seen.weights["dense1.weight"], w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(seen.weights["dense1.bias"], b, rtol=1e-9, atol=1e-12)
    (free,) = tiny.replay(job(tmp_path / "free"))
    assert tiny.distance(seen.weights, free.weights) > 0.01
