"""A metric of your own that ends the run: python examples/early_stopping.py learns a table until it stands still."""

import numpy as np

import mpibow as mb

WITHIN = mb.Metric(  # the share of outputs at most 0.3 from their targets: sums of every batch, and what they come to
    "within",
    sums=lambda output, target: np.array([(np.abs(output - target) <= 0.3).sum(), len(target)]),
    close=lambda sums: sums[0] / sums[1],
)


def net(features):  # (n, 5) -> (n,)
    return mb.reshape(mb.dense(mb.relu(mb.dense(features, 64, name="hidden")), 1, name="head"), (-1,))


if __name__ == "__main__":
    x = np.random.default_rng(0).standard_normal((2000, 5))
    fitted = mb.fit(
        net, (x, np.sin(x[:, 0]) + x[:, 1]), validation=0.2, loss=mb.huber_loss, metrics=[WITHIN, "mae"],
        callbacks=[mb.EarlyStopping("within", patience=3, min_delta=0.002)], checkpoint={"metric": "within"},
        batch_size=8, learners=2, update={"lr": 0.02, "momentum": 0.9}, stop={"epochs": 60},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.best_metric, fitted.summary.stopped)
