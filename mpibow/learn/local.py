"""The local step of every iteration: an optimiser's formula with the scalars of each replica and group of weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mpibow.graph import Array, Layout, Span
from mpibow.kernels import FlatKernels, Local, States
from mpibow.optim import Muon, Update
from mpibow.optim.groups import group_of
from mpibow.optim.muon import OnMatrices

from .directions import Directions
from .replica import PartStates, Replicas


@dataclass(frozen=True)
class UpdateGroup:
    """Weights that are updated alike: their optimiser, and the factor of their learning rate."""

    update: Update
    lr_scale: float = 1.0


@dataclass(frozen=True, eq=False)
class UpdateGroups:
    """The groups and their places: span number p ends before element ends[p] and belongs to groups[p]."""

    groups: Sequence[UpdateGroup]
    ends: Array
    which: Array


def groups_of(update: Update, layout: Layout, start: int, stop: int, matrices: Sequence[Span] = ()) -> UpdateGroups:
    """The groups of the weights in [start, stop), a part of the layout.

    A weight's group is by its name, by whether it decays, and by whether it is one of Muon's matrices.
    """
    groups = list[UpdateGroup]()
    ends = list[int]()
    which = list[int]()
    spans = [span for span in layout.spans if start <= span.offset < stop]
    for span in sorted(spans, key=lambda span: span.offset):
        group = _group_of(update, span)
        if span in matrices:
            assert isinstance(group.update, Muon)
            group = replace(group, update=OnMatrices.of(group.update))
        if group not in groups:
            groups.append(group)
        if which and which[-1] == groups.index(group):
            continue
        if ends:
            ends[-1] = span.offset  # with the padding in front of it
        ends.append(stop)
        which.append(groups.index(group))
    return UpdateGroups(groups, np.array(ends, np.int64), np.array(which, np.int64))


def _group_of(update: Update, span: Span) -> UpdateGroup:
    own = group_of(update.groups, span.name)
    changes = dict[str, Any]()
    for name in ("weight_decay", "l1"):
        given = None if own is None else getattr(own, name)
        if given is not None or not span.decays:
            changes[name] = given or 0.0
    if isinstance(update, Muon) and changes:
        update = replace(update, fallback=replace(update.fallback, **changes))
    scale = (1.0 if own is None else own.lr_scale) * span.weight.trained  # 0 without a gradient
    return UpdateGroup(replace(update, **changes) if changes else update, scale)


def kept_of(update: Update, layout: Layout, lasting: int) -> list[PartStates]:
    """The local step's states of each part of the layout: none from element `lasting` on, as these stay frozen."""
    return [
        PartStates(start, stop, own.states, own.counts) if start < lasting else PartStates(start, stop)
        for (start, stop), own in zip(layout.parts, _optimisers(update, layout), strict=True)
    ]


def arrays_of(parts: Sequence[PartStates], layout: Layout) -> float:
    """The size of these states, in arrays of all weights."""
    return sum((part.stop - part.start) * len(part.states) for part in parts) / max(layout.size, 1)


def _optimisers(update: Update, layout: Layout) -> list[Update]:
    """The optimiser of each part of the layout."""
    return [
        update.optimiser_of(next(s.name for s in layout.spans if start <= s.offset < stop))
        for start, stop in layout.parts
    ]


class Stepping:
    """Makes the local steps of a rank's replicas."""

    def __init__(
        self, update: Update, layout: Layout, replicas: Replicas, flat: FlatKernels, matrices: Sequence[Span] = ()
    ):
        """`matrices` take Muon's step."""
        self._lr = update.lr
        self._replicas = replicas
        self._layout = layout
        self._updates = _optimisers(update, layout)
        self._groups = [
            groups_of(own, layout, *part, matrices if isinstance(own, Muon) else ())
            for own, part in zip(self._updates, layout.parts, strict=True)
        ]
        self._steps = [own.step for own in self._updates]
        self.samples = 0  # of the current update
        self._known: tuple[object, ...] = ()  # what the last step depends on
        self._step: Local | None = None  # that step
        self._directions = list[Directions]()  # one for each part
        if isinstance(update, Muon):
            l1 = {span.name: _group_of(update, span).update.l1 for span in layout.spans}
            dtype = replicas.weights.dtype
            self._directions = [
                Directions([s for s in matrices if start <= s.offset < stop], update, flat, dtype, l1, start)
                for start, stop in layout.parts
            ]

    def at(self, rate: float, samples: int) -> Local:
        """The next local step, at this learning rate and of so many samples. A replica's scalars are computed when they
        are first read."""
        known = rate, samples, self._replicas.count, self._replicas.size
        if self._step is None or self._replicas.counts or self._known != known:
            self._known = known
            self.samples = samples
            first, *beside = (
                Local(
                    self._steps[p],
                    rate,
                    self._groups[p].ends,
                    self._groups[p].which,
                    partial(self._scalars, p),
                    start=self._layout.parts[p][0],
                )
                for p in self._replicas.active
            )
            directs = partial(self._directs, self._replicas.weights) if self._directions else None
            self._step = replace(first, directs=directs, beside=tuple(beside))
        return self._step

    def _directs(self, weights: Array, states: States, gradients: Array) -> Callable[[range], None]:
        works = list[Callable[[range], None]]()
        place = 0
        for p in self._replicas.active:
            update = self._updates[p].at(self.samples)
            if isinstance(update, Muon):
                works.append(self._directions[p].works(weights, states[place], gradients, update))
            place += len(self._updates[p].states)

        def direct(chunks: range) -> None:
            for work in works:
                work(chunks)

        return direct

    def _scalars(self, p: int, rate: float) -> Array:
        """(replicas, groups, scalars) of the update that the states of every replica's part p have next."""
        rows = self._replicas
        now = self.samples
        turns = [(1, now)] * rows.count
        if self._updates[p].counts:
            turns = list(zip((rows.updates[:, p] + 1).tolist(), (rows.seen[:, p] + now).tolist(), strict=True))
        rate *= self._updates[p].lr / self._lr
        penalised = self._updates[p].penalised
        found = {
            (count, seen): [
                (
                    *group.update.scalars_at(rate * group.lr_scale, count, now, seen),
                    *([group.update.penalty] if penalised else ()),
                )
                for group in self._groups[p].groups
            ]
            for count, seen in {*turns}
        }
        return np.array([found[turn] for turn in turns], np.float64)
