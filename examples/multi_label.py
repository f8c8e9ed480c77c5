"""Several labels a sample: python examples/multi_label.py learns four properties of scikit-learn's digits."""

import numpy as np
from sklearn.datasets import load_digits

import mpibow as mb

PROPERTIES = {"even": [0, 2, 4, 6, 8], "prime": [2, 3, 5, 7], "round": [0, 6, 8, 9], "large": [5, 6, 7, 8, 9]}


def net(pixels):  # (n, 64) -> logits (n, 4)
    return mb.dense(mb.relu(mb.dense(pixels, 48, name="hidden")), len(PROPERTIES), name="head")


def data():
    pixels, digits = load_digits(return_X_y=True)
    return pixels / 16, np.stack([np.isin(digits, having) for having in PROPERTIES.values()], axis=1).astype(float)


if __name__ == "__main__":
    fitted = mb.fit(
        net, data(), validation=0.2, loss=mb.binary_cross_entropy_with_logits, metrics=["accuracy", "f1"],
        batch_size=8, learners=2, update={"name": "adamw", "lr": 3e-3}, stop={"epochs": 6},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.validation_metrics["f1"])  # the mean over the four properties
