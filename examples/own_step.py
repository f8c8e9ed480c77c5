"""Trains digits by a step of its own: python examples/own_step.py, or mpirun -np 2 python examples/own_step.py."""

from dataclasses import dataclass

from sklearn.datasets import load_digits

import mpibow as mb
from mpibow.formulas import formula
from mpibow.formulas.functions import abs
from mpibow.optim import Update


def bounded(w, g, velocity, *, rate, momentum):
    velocity = momentum * velocity + g
    return -rate * velocity / (0.01 + abs(velocity)), velocity


@dataclass(frozen=True)
class Bounded(Update):
    name: str = "bounded"
    momentum: float = 0.9
    formula = formula(bounded)

    def scalars(self, rate, count):
        return rate, self.momentum


def net(image):
    return mb.dense(mb.relu(mb.dense(image, 64)), 10)


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    train, test = (images[360:].astype("f4"), labels[360:]), (images[:360].astype("f4"), labels[:360])
    fitted = mb.fit(net, train, test, update=Bounded(lr=0.002), batch_size=8, learners=2, stop={"epochs": 4})
    if fitted.rank == 0:
        print(fitted.summary.accuracy)
