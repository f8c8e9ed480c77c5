"""Peers: the learners of a rank that compute an operator together, and the arrays that each of them shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mpibow.graph.graph import Array


class Peers(Protocol):
    def show(self, key: str, array: Array) -> Callable[[], Sequence[Array]]:
        """Shares `array` with the peers as `key`, for good: it must not lie in an arena, which others write.

        The returned function waits until every peer has called its own, and returns all their arrays in the learners'
        order. A learner writes its own array before that call, once a pass.
        """
        ...


class Alone:
    """A learner without peers."""

    def show(self, key: str, array: Array) -> Callable[[], Sequence[Array]]:
        own = (array,)
        return lambda: own


ALONE: Peers = Alone()
