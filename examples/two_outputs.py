"""Two outputs with a loss each: python examples/two_outputs.py learns the value of a function and its sign."""

import numpy as np

import mpibow as mb


def net(features):  # (n, 10) -> {"value": (n,), "sign": (n, 2)}
    x = mb.relu(mb.dense(features, 64))
    return {"value": mb.reshape(mb.dense(x, 1), (-1,)), "sign": mb.dense(x, 2)}


def data(count=2000):
    x = np.random.default_rng(0).standard_normal((count, 10))
    y = x[:, 0] * x[:, 1] + x[:, 2]
    return {"features": x}, {"value": y, "sign": (y > 0).astype(int)}


if __name__ == "__main__":
    fitted = mb.fit(
        net, data(), validation=0.2, loss={"value": mb.mse_loss, "sign": mb.cross_entropy}, loss_weights={"sign": 0.5},
        metrics={"value": ["mae", "r2"], "sign": ["accuracy"]},
        batch_size=8, learners=2, update={"name": "adamw", "lr": 3e-3}, stop={"epochs": 8},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.validation_metrics["sign.accuracy"])
