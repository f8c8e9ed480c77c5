"""Regression on a table: python examples/table_mlp.py [FILE.csv], one line of heads, the last column is the target."""

import sys

import numpy as np

import mpibow as mb


def mlp(features, width=64, layers=2):  # (n, f) -> (n,)
    x = features
    for i in range(layers):
        x = mb.relu(mb.dense(x, width, name=f"layer{i}"))
    return mb.reshape(mb.dense(x, 1, name="head"), (-1,))


def friedman(count=2000):  # five columns of ten matter (Friedman, Annals of Statistics 19(1), 1991, section 4.3)
    generator = np.random.default_rng(0)
    x = generator.random((count, 10))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return np.column_stack([x, y + generator.standard_normal(count)])


if __name__ == "__main__":
    table = np.loadtxt(sys.argv[1], delimiter=",", skiprows=1) if sys.argv[1:] else friedman()
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    fitted = mb.fit(
        mlp, (table[:, :-1], table[:, -1]), validation=0.2, loss=mb.mse_loss, batch_size=8, learners=2,
        update={"name": "adamw", "lr": 3e-3}, stop={"epochs": 10},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.validation_loss)  # 1 is what the mean of all targets has
