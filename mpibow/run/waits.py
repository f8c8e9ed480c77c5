"""How long a rank's learners waited for data and for other ranks, and how much of averaging was hidden from them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Waits:
    """Seconds since this process started, by the names of metrics.jsonl; `sync_busy` is that of the all-reduces."""

    data_wait: float = 0.0
    sync_wait: float = 0.0
    sync_busy: float = 0.0

    def shares(self, seconds: float) -> dict[str, float]:
        """The waits as fractions of so many seconds of training."""
        return {name: waited / max(seconds, 1e-9) for name, waited in vars(self).items()}

    def hidden(self, before: "Waits | None" = None) -> float | None:
        """The fraction of the all-reduces since `before` that was hidden behind compute, 0 to 1; None where none ended.

        An all-reduce takes from this rank's call to its end, so waiting for ranks that come later is part of it, and is
        hidden as long as this rank's learners compute meanwhile. 1 means that they never stood still for it, not that
        the network was fast. If ranks differ in speed, the slowest has the shortest all-reduces.
        """
        before = before or Waits()
        wait = self.sync_wait - before.sync_wait
        busy = self.sync_busy - before.sync_busy
        return min(max(1.0 - wait / busy, 0.0), 1.0) if busy > 0 else None
