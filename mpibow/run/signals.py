"""Signals of a batch system, or a hangup: the first asks for a checkpoint and an end, a second SIGTERM ends at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

ASKING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


class Signals:
    """Catches SIGTERM, SIGUSR1, SIGUSR2 and SIGHUP while it is entered; `received` names the first, '' before.

    A SIGHUP that the process was started to ignore, as by nohup, stays ignored.
    """

    def __init__(self) -> None:
        self.received = ""
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            asking = [n for n in ASKING if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._catch) for number in asking}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before = {}

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.received = self.received or signal.Signals(number).name
