"""Trains digits by a rule of its own: python examples/own_rule.py, or mpirun -np 2 python examples/own_rule.py."""

from dataclasses import dataclass

from sklearn.datasets import load_digits

import mpibow as mb


@dataclass(frozen=True)
class Average(mb.Rule):
    """All learners take a share of the way to the mean of their weights, every `period` iterations."""

    name: str = "average"
    strength: float = 1.0

    @staticmethod
    def send(w, u):
        return w + u, u

    @staticmethod
    def apply(w, centre, total, *, share, strength):
        centre = centre + share * total
        return w + strength * (centre - w), centre


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    train, test = (images[360:].astype("f4"), labels[360:]), (images[:360].astype("f4"), labels[:360])
    settings = {"rule": Average(period=4), "batch_size": 8, "learners": 2, "update": {"lr": 0.1}}
    fitted = mb.fit(lambda x: mb.dense(mb.relu(mb.dense(x, 64)), 10), train, test, stop={"epochs": 8}, **settings)
    if fitted.rank == 0:
        print(fitted.summary.accuracy)
