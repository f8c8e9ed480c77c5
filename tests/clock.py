"""A clock that is made up: it goes on only where a test moves it."""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest


class Clock:
    """`perf_counter` of the modules that are given, until the test ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.now = 0.0
        for module in modules:
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=self.read))

    def read(self) -> float:
        return self.now

    def slowed(self, function: Callable, seconds: float) -> Callable:
        """The function, which takes so long."""

        def slow(*args, **kwargs):
            self.now += seconds
            return function(*args, **kwargs)

        return slow
