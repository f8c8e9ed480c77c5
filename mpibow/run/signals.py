"""Signals that ask for a checkpoint and an end: a batch system's, a hangup, Ctrl-C. A second one ends at once."""

import os
import signal
import threading
import time
from types import FrameType
from typing import Self

from mpibow.errors import Interrupted
from mpibow.system.process import ASKING

URGENT = (signal.SIGTERM, signal.SIGINT)
IGNORABLE = (signal.SIGHUP, signal.SIGINT)  # by nohup, and of a script's background processes
ONCE = 0.1  # seconds: a launcher, and the terminal beside it, may send the same signal twice


class Signals:
    """Catches ASKING while it is entered; `received` names the first, '' before.

    Another one of URGENT ends at once: SIGINT as Python has it, so that a prompt or a notebook is left alive. One of
    IGNORABLE that the process was started to ignore stays ignored.
    """

    def __init__(self) -> None:
        self.received = ""
        self._at = 0.0
        self._before = dict[signal.Signals, object]()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {
                number: signal.signal(number, self._catch)
                for number in ASKING
                if number not in IGNORABLE or signal.getsignal(number) is not signal.SIG_IGN
            }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before = {}

    def _catch(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.received:
            self.received = signal.Signals(number).name
            self._at = now
            self.first()
        elif number in URGENT and now - self._at > ONCE:
            self.again(number)

    def first(self) -> None:
        """Called at the first signal."""

    def again(self, number: int) -> None:
        """Called at another one of URGENT."""
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def interruption(name: str, text: str = "") -> KeyboardInterrupt | Interrupted:
    """The exception that ends a program after the signal `name`."""
    return KeyboardInterrupt(text) if name == signal.SIGINT.name else Interrupted(text)
