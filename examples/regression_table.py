"""Regression on a table: python examples/regression_table.py [FOLDER], as mpibow convert table writes."""

import sys
import tempfile
from pathlib import Path

import numpy as np

import mpibow as mb
from mpibow.datasets import table


def mlp(features, width=64):  # (n, f) -> (n,)
    x = mb.relu(mb.dense(features, width, name="layer0"))
    return mb.reshape(mb.dense(mb.relu(mb.dense(x, width, name="layer1")), 1, name="head"), (-1,))


def friedman(
    folder, count=2000
):  # five columns of ten matter (Friedman, Annals of Statistics 19(1), 1991, section 4.3)
    x = np.random.default_rng(0).random((count, 10))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    heads = ",".join([f"x{i}" for i in range(10)] + ["y"])
    np.savetxt(folder / "made.csv", np.column_stack([x, y]), delimiter=",", header=heads, comments="")
    table.convert(folder / "made.csv", folder / "records", test_fraction=0.2, asked=table.Asked(scale_target=True))
    return folder / "records"


if __name__ == "__main__":
    folder = sys.argv[1] if sys.argv[1:] else friedman(Path((scratch := tempfile.TemporaryDirectory()).name))
    update = {"name": "adamw", "lr": 3e-3}
    fitted = mb.fit(mlp, f"{folder}/train", f"{folder}/test", loss=mb.mse_loss, update=update, stop={"epochs": 5})
    if fitted.rank == 0:
        print(fitted.summary.test_loss)  # 1 is what the mean of all targets has
