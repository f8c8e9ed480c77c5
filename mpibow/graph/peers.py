"""Peers: the learners of a rank that compute an operator together, and what each of them shows the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mpibow.graph.graph import Array


class Peers(Protocol):
    def show(self, key: str, array: Array) -> Callable[[], Sequence[Array]]:
        """Shows `array` to the peers as `key`, for good: it must be no part of an arena, which others write.

        The call that is returned waits until every peer has made it, and gives all their arrays in the learners' order.
        A learner writes its own before it, once a pass.
        """
        ...


class Alone:
    """There are no others."""

    def show(self, key: str, array: Array) -> Callable[[], Sequence[Array]]:
        own = (array,)
        return lambda: own


ALONE: Peers = Alone()
