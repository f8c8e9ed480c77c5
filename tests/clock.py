"""A clock that is made up: it goes on only where a test moves it."""

import threading
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


class Awaited(Clock):
    """A second goes by with each look at it; `begun` is set by the first, with which a wait begins."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        super().__init__(monkeypatch, *modules)
        self.begun = threading.Event()

    def read(self) -> float:
        self.begun.set()
        self.now += 1.0
        return self.now
