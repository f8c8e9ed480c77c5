"""The local step of every iteration: an optimiser's formula with the scalars of each replica and group of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.layout import Layout, Span
from mpibow.kernels.passes import FlatKernels, Local, States
from mpibow.learn.directions import Directions
from mpibow.learn.replica import Replicas
from mpibow.optim.groups import group_of
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


def groups_of(update: Update, layout: Layout, matrices: Sequence[Span] = ()) -> Groups:
    """A weight's group is by its name, by whether it decays, and by whether it is one of Muon's matrices."""
    groups, ends, which = list[Group](), list[int](), list[int]()
    for span in sorted(layout.spans, key=lambda span: span.offset):
        group = _group_of(update, span, span.offset < layout.decayed)
        if span in matrices:
            assert isinstance(group.update, Muon)
            group = replace(group, update=OnMatrices.of(group.update))
        if group not in groups:
            groups.append(group)
        if which and which[-1] == groups.index(group):
            continue
        if ends:
            ends[-1] = span.offset  # with the padding in front of it
        ends.append(layout.size)
        which.append(groups.index(group))
    return Groups(groups, np.array(ends, np.int64), np.array(which, np.int64))


def _group_of(update: Update, span: Span, decays: bool) -> Group:
    own, changes = group_of(update.groups, span.name), dict[str, Any]()
    for name in ("weight_decay", "l1"):
        given = None if own is None else getattr(own, name)
        if given is not None or not decays:
            changes[name] = given or 0.0
    if isinstance(update, Muon) and changes:
        update = replace(update, fallback=replace(update.fallback, **changes))
    settings = replace(update, **changes) if changes else update
    return Group(settings) if own is None else Group(settings, 0.0 if own.freeze else own.lr_scale)


class Stepping:
    """Makes the local steps of a rank's replicas."""

    def __init__(
        self, update: Update, layout: Layout, replicas: Replicas, flat: FlatKernels, matrices: Sequence[Span] = ()
    ) -> None:
        """`matrices` take Muon's step."""
        self._update, self._replicas, self._groups = update, replicas, groups_of(update, layout, matrices)
        self._step, self._penalised = update.step, update.penalised
        self.samples = 0  # of the update that is made
        self._directions: Directions | None = None
        if isinstance(update, Muon):
            l1 = {span.name: _group_of(update, span, span.offset < layout.decayed).update.l1 for span in layout.spans}
            self._directions = Directions(matrices, update, flat, replicas.weights.dtype, l1)

    @property
    def width(self) -> int:
        """How many scalars a replica has."""
        return len(self._groups.groups) * len(self._step.scalars)

    def at(self, rate: float, samples: int) -> Local:
        """The next one, at this learning rate and of so many samples. A replica's scalars are those of when they are
        first read."""
        self.samples = samples
        return Local(self._step, rate, self._groups.ends, self._groups.which, self._scalars, self._directs())

    def _directs(self) -> Callable[[States, Array], Callable[[range], None]] | None:
        if self._directions is None:
            return None
        directions, update = self._directions, self._update.at(self.samples)
        assert isinstance(update, Muon)
        weights = self._replicas.weights
        return lambda states, gradients: directions.works(weights, states[0], gradients, update)

    def _scalars(self, rate: float) -> Array:
        """(replicas, groups, scalars) of the update that every replica's states have next."""
        rows, now, turns = self._replicas, self.samples, [(1, self.samples)] * self._replicas.count
        if self._update.counts:
            turns = list(zip((rows.updates + 1).tolist(), (rows.seen + now).tolist(), strict=True))
        found = {turn: [self._of(group, rate, *turn) for group in self._groups.groups] for turn in {*turns}}
        return np.array([found[turn] for turn in turns], np.float64)

    def _of(self, group: Group, rate: float, count: int, seen: int) -> tuple[float, ...]:
        scalars = group.update.scalars_at(rate * group.lr_scale, count, self.samples, seen)
        return (*scalars, group.update.penalty) if self._penalised else scalars
