"""Trains digits by a rule of its own: python examples/own_rule.py, or mpirun -np 2 python examples/own_rule.py."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from sklearn.datasets import load_digits

import mpibow as mb
from mpibow.bounds import AtLeast
from mpibow.sync.outbox import Outbox
from mpibow.sync.rule import RuleState
from mpibow.sync.settings import RuleSettings


@dataclass(frozen=True)
class Turn:
    turn: Annotated[int, AtLeast(0)]


class Averager:
    """All learners take the mean of their weights every `period` iterations; one sum crosses ranks."""

    alike, follows, meter = False, False, None
    numbers, arrays = Turn, {}

    def __init__(self, settings, flat, rows, initial, zeros=None):
        self.period, self.flat, self.rows, self.centre = settings.period, flat, rows, initial
        self.out, self.k, self.turn = Outbox(flat, initial.size, initial.dtype, zeros), 1, 0

    @property
    def sends(self):
        return (self.turn + 1) % self.period == 0

    @property
    def overlaps(self):
        return not self.sends

    def begin(self, k, keep=False):
        self.k = k
        if not keep:
            self.restart()

    def end_period(self):
        waits = self.turn % self.period != 0
        self.turn = self.period - 1 if waits else self.turn
        return int(waits)

    def restart(self):
        self.flat.put(self.rows.weights, self.centre)
        self.turn = 0

    def update(self, local, chunks):
        weights, states, gradients = self.rows.trained
        for i in range(len(weights)):
            row = slice(i, i + 1)
            own = tuple(state[row] for state in states)
            self.flat.sgd_update(weights[row], own, gradients[row], local=local.of(i), scale=1.0, chunks=chunks)
        self.flat.gradient_sum(weights, self.out.sums, chunks=chunks)

    def outgoing(self):
        return self.out.whole if self.sends else None

    def apply(self, local, sums):
        return (partial(self.average, sums[:, : self.out.size]),) if self.sends else ()

    def average(self, sums, chunks):
        part = slice(chunks.start * self.flat.chunk, chunks.stop * self.flat.chunk)
        self.flat.gradient_sum(sums, self.centre, chunks=chunks)
        np.multiply(self.centre[part], 1.0 / self.k, out=self.centre[part])
        self.flat.put(self.rows.weights[:, part], self.centre[part])

    def advance(self):
        if self.sends:
            self.out.turn()
        self.turn += 1

    def settle(self):
        pass

    def reset(self, i):
        self.rows.reseed(i, self.centre)
        return "starts again from the centre"

    def set_mean(self, mean, add):
        self.flat.put(self.centre, mean)
        return 0.0

    def shared(self):
        return [self.centre]

    def state(self):
        return RuleState({}, {}, {"turn": self.turn})

    def load(self, centre, state):
        self.flat.put(self.centre, centre)
        self.turn = state.numbers["turn"]


@dataclass(frozen=True)
class Average(RuleSettings):
    name: str = "average"
    period: int = 8
    rule: ClassVar = Averager


def net(image):
    return mb.dense(mb.relu(mb.dense(image, 64)), 10)


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    train, test = (images[360:].astype("f4"), labels[360:]), (images[:360].astype("f4"), labels[:360])
    settings = {"batch_size": 8, "learners": 2, "update": {"lr": 0.1}, "stop": {"epochs": 8}}
    fitted = mb.fit(net, train, test, rule=Average(period=4), **settings)
    if fitted.rank == 0:
        print(fitted.summary.accuracy)
