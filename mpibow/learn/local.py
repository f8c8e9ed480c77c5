"""The local step of every iteration: an optimiser's formula with the scalars of each replica and group of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.layout import Layout
from mpibow.kernels.passes import FlatKernels, Local, States
from mpibow.learn.directions import Directions, matrices_of
from mpibow.learn.replica import Replicas
from mpibow.optim.muon import Muon, OnMatrices
from mpibow.optim.update import Update


@dataclass(frozen=True)
class Group:
    """Weights that are updated alike: the optimiser as it is for them, and how many times the rate."""

    update: Update
    lr_scale: float = 1.0


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups, and where they lie: span number p ends in front of element ends[p] and is of groups[p]."""

    groups: Sequence[Group]
    ends: Array
    which: Array


def groups_of(update: Update, layout: Layout) -> Groups:
    """Weights that decay, and those that do not; of each, Muon's matrices and all else."""
    still = replace(update, weight_decay=0.0)
    if not (isinstance(update, Muon) and isinstance(still, Muon)):
        return _joined([Group(update), Group(still)], [(layout.decayed, 0), (layout.size, 1)])
    groups = [Group(each) for each in (update, still, OnMatrices.of(update), OnMatrices.of(still))]
    ends = {layout.decayed: 0, layout.size: 1}
    for span in matrices_of(layout, update):
        decays = span.offset < layout.decayed
        ends.setdefault(span.offset, 0 if decays else 1)
        ends[span.offset + span.size] = 2 if decays else 3
    return _joined(groups, sorted(ends.items()))


def _joined(groups: Sequence[Group], spans: Sequence[tuple[int, int]]) -> Groups:
    """`spans` are ends and groups, ascending: empty ones go, and neighbours of equal groups are one."""
    ends, which, before = list[int](), list[int](), 0
    for end, group in spans:
        group = groups.index(groups[group])
        if end == before:
            continue
        if which and which[-1] == group:
            ends[-1] = end
        else:
            ends.append(end)
            which.append(group)
        before = end
    return Groups(groups, np.array(ends, np.int64), np.array(which, np.int64))


class Stepping:
    """Makes the local steps of a rank's replicas."""

    def __init__(self, update: Update, layout: Layout, replicas: Replicas, flat: FlatKernels) -> None:
        self._update, self._replicas, self._groups = update, replicas, groups_of(update, layout)
        self._samples, self._now = 0, self._groups.groups  # the groups as they are where an update takes so many
        self._directions: Directions | None = None
        if isinstance(update, Muon):
            self._directions = Directions(layout, update, flat, replicas.weights.dtype)

    @property
    def width(self) -> int:
        """How many scalars a replica has."""
        return len(self._groups.groups) * len(self._update.formula.scalars)

    def at(self, rate: float, samples: int) -> Local:
        """The next one, at this learning rate and of so many samples. A replica's scalars are those of when they are
        first read."""
        if samples != self._samples:
            self._samples = samples
            self._now = [replace(group, update=group.update.at(samples)) for group in self._groups.groups]
        return Local(self._update.formula, rate, self._groups.ends, self._groups.which, self._scalars, self._directs())

    def _directs(self) -> Callable[[States, Array], Callable[[range], None]] | None:
        if self._directions is None:
            return None
        directions, update = self._directions, self._now[0].update
        assert isinstance(update, Muon)
        return lambda states, gradients: directions.works(states[0], gradients, update)

    def _scalars(self, rate: float) -> Array:
        """(replicas, groups, scalars) of the update that every replica's states have next."""
        counts = (self._replicas.updates + 1).tolist() if self._update.counts else [1] * self._replicas.count
        found = {count: [g.update.scalars(rate * g.lr_scale, count) for g in self._now] for count in {*counts}}
        return np.array([found[count] for count in counts], np.float64)
