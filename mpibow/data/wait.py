"""A warning when learners wait too long for data, with advice."""

from __future__ import annotations

MOST = 0.05  # of the time may be spent waiting
SECONDS = 10.0  # of training before the first warning


class Watch:
    """Warns once, and again where the share of the time has doubled since."""

    def __init__(self, remedy: str) -> None:
        self._remedy, self._said = remedy, MOST / 2
        self._begin: tuple[float, float] | None = None

    def __call__(self, seconds: float, waited: float) -> str:
        """The warning, '' for none; `waited` of `seconds` of training, both since some start.

        The wait before the first call is the first run's reading, which nothing can hide.
        """
        if self._begin is None:
            self._begin = seconds, waited
        seconds, waited = seconds - self._begin[0], waited - self._begin[1]
        if seconds < SECONDS or waited <= max(MOST, 2 * self._said) * seconds:
            return ""
        self._said = waited / seconds
        return f"warning: learners wait for data {self._said:.0%} of the time; {self._remedy}"
