"""Two rules of the same replicas, the second of which takes over within a run."""

from __future__ import annotations

from typing import Any

from mpibow.kernels.passes import FlatKernels
from mpibow.sync.rule import Rule


class Switch:
    """The rule in force: every other member of `Rule` is its own."""

    def __init__(self, first: Rule, second: Rule, flat: FlatKernels) -> None:
        self._rule, self.second, self._flat, self._k = first, second, flat, 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rule, name)

    def begin(self, k: int, keep: bool = False) -> None:
        self._rule.begin(k, keep)
        self._k = k

    def switch(self) -> None:
        """After `settle`: the second rule begins at the first one's centre."""
        self._flat.put(self.second.centre, self._rule.centre)
        self._rule = self.second
        self._rule.begin(self._k)
