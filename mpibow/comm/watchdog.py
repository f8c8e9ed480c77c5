"""The watchdog: a thread of a rank that ends it if its node makes no progress for too long, and names the hung ranks.

A blocking call of MPI has no time limit, and neither has a disk. It counts its own ticks: a job that was suspended
whole, as batch systems and laptops do, has not stood still.
"""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from traceback import walk_stack

from mpibow.errors import EXIT_STALLED, CommunicationError
from mpibow.system.process import state
from mpibow.tune.words import shortened

from .pulse import Pulse, Sign, Signs

TICK = 1.0  # seconds
GRACE = 5  # ticks in which a rank's own message, or the launcher, may come first
DEBUGGERS = ("bdb.py", "pdb.py", "pydevd.py")
DOING = {
    "start": "starting or ending",
    "iteration": "in an iteration",
    "evaluation": "in an evaluation",
    "checkpoint": "at a checkpoint",
}


class Quiet:
    """Ticks since each rank of a node made progress, and how long a step of each phase has taken this rank."""

    def __init__(self) -> None:
        self.since = dict[int, int]()  # ticks without progress, by rank
        self.silent = dict[int, int]()  # ticks without a sign of life, by rank
        self._last = dict[int, Sign]()
        self._steps = dict[str, tuple[int, int]]()  # ticks and beats, by phase

    def tick(self, signs: Mapping[int, Sign], own: int) -> int:
        """Counts a tick; returns the ticks since the last progress of any rank."""
        for rank, sign in signs.items():
            last = self._last.get(rank)
            if last is None or (last.phase, last.beats) != (sign.phase, sign.beats):
                if last is not None and rank == own:
                    ticks, beats = self._steps.get(last.phase, (0, 0))
                    self._steps[last.phase] = ticks + self.since[rank] + 1, beats + sign.beats - last.beats
                self.since[rank] = -1
            if last is None or last.ticks != sign.ticks:
                self.silent[rank] = -1
            self.since[rank] += 1
            self.silent[rank] += 1
            self._last[rank] = sign
        return min(self.since.values(), default=0)

    def mean(self, phase: str) -> float:
        """The mean ticks from step to step of `phase`, 0 if none is over."""
        ticks, beats = self._steps.get(phase, (0, 0))
        return ticks / max(beats, 1)


class Watchdog:
    """Watches a pulse and those of the node's other ranks, from its construction until `pulse.stop()`."""

    def __init__(
        self,
        pulse: Pulse,
        rank: int = 0,
        size: int = 1,
        signs: Signs | None = None,
        say: Callable[[str], None] = print,
        end: Callable[[int], None] = os._exit,
    ):
        """`size` is the number of the job's ranks, 0 if unknown; without `signs` no other rank is watched."""
        self._pulse = pulse
        self._rank = rank
        self._size = size
        self._signs = signs
        self._say = say
        self._end = end
        self._ticks = 0
        self._quiet = Quiet()
        self._warned = False
        self._lost = dict[int, int]()  # ticks since a process was found to have ended, by rank
        self._stopped = threading.Event()
        self._showing = threading.Lock()
        self._seen: Mapping[int, Sign] = {}
        pulse.show = self._show
        pulse.stop = self.stop
        self._show()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """The others may go on without this rank, and it without them."""
        self._pulse.phase = ""
        self._stopped.set()
        self._show()

    def _watch(self) -> None:
        while not self._stopped.wait(TICK):
            self._ticks += 1
            self.tick()

    def tick(self) -> None:
        own = self._show()
        phase = self._pulse.phase
        self._seen = {self._rank: own} if self._signs is None else self._signs.read()
        quiet = self._quiet.tick(self._seen, self._rank)
        if self._ranks_lost() or not phase:
            return
        limit = self._pulse.limits.seconds(phase, self._quiet.mean(phase) * TICK) / TICK
        if quiet < limit / 10:
            self._warned = False
        elif debugged():
            self._pulse.beat()
        elif quiet >= limit + GRACE * (not self._speaks()):  # the rank that prints for the node must not be cut short
            self._finish(EXIT_STALLED, self._told(quiet, phase) if self._speaks() else "")
        elif not self._warned and self._speaks() and quiet < limit:
            self._warned = True
            what = f"no progress for {quiet * TICK:g} s; limits.{phase} ends the run after {limit * TICK:g} s"
            self._say("\n".join([f"warning: {what}", *self._standing()]))

    def _show(self) -> Sign:
        """Shows this rank's sign to the others."""
        with self._showing:
            pulse = self._pulse
            own = Sign(os.getpid(), self._ticks, pulse.beats, pulse.phase, pulse.waiting)
            if self._signs is not None:
                self._signs.write(own)
            return own

    def _speaks(self) -> bool:
        """Whether this rank prints for its node: the first one that can."""
        alive = [rank for rank, sign in self._seen.items() if sign.phase and self._quiet.silent[rank] < GRACE]
        return self._rank == min(alive, default=self._rank)

    def _ranks_lost(self) -> bool:
        """Ends this rank if another one's process has ended silently and the launcher leaves the others running."""
        gone = [rank for rank, sign in self._seen.items() if sign.phase and not state(sign.pid)]
        self._lost = {rank: self._lost.get(rank, 0) + 1 for rank in gone}
        if not gone or max(self._lost.values()) <= GRACE:
            return False
        rank = gone[0]
        pid = self._seen[gone[0]].pid
        text = f"error: rank {rank}, process {pid}, has ended without a message; its launcher did not end the others"
        self._finish(CommunicationError.code, text)
        return True

    def _told(self, quiet: int, phase: str) -> str:
        again = "" if phase == "start" else ", --resume auto continues from the last checkpoint"
        return "\n".join(
            [
                f"error: no progress for {quiet * TICK:g} s, which is the limit; the run ends with code {EXIT_STALLED}",
                *self._standing(),
                f"try: limits.{phase}=SECONDS waits longer, null for ever{again}; this rank's threads stand at",
            ]
        )

    def _standing(self) -> list[str]:
        """Lines for ranks of this node, those that others wait for first, and one for the ranks out of sight."""
        lines = list[str]()
        waiting = list[str]()
        here = {rank: sign for rank, sign in sorted(self._seen.items()) if sign.phase}
        for rank, sign in here.items():
            seconds = self._quiet.since[rank] * TICK
            waits = f", waits for the others in: {sign.waiting}" if sign.waiting else ""
            if state(sign.pid) == "T":
                waits = f", was stopped by a signal: kill -CONT {sign.pid} continues it"
            elif self._quiet.silent[rank] >= GRACE:
                waits = ", does not respond"
            (waiting if "others" in waits else lines).append(
                f"  rank {rank}, process {sign.pid}: {DOING[sign.phase]} for {seconds:g} s{waits}"
            )
        lines = shortened(lines + waiting, "ranks of this node")
        ranks = self._pulse.ranks
        if ranks is not None and ranks[0] > ranks[1]:
            lines.append(f"  {ranks[0] - ranks[1]} rank(s) of other nodes: not visible from here; see their output")
        elif ranks is None and (missing := [rank for rank in range(self._size) if rank not in here]):
            names = ", ".join(map(str, missing[:8])) + ", ..." * (len(missing) > 8)
            lines.append(
                f"  rank {names}: not visible from here: it has not called mpibow (fit?) yet, or it is on another node"
            )
        return lines

    def _finish(self, code: int, text: str) -> None:
        """Prints `text`, dumps the stacks, and ends the process, though standard error or a disk may hang too."""

        def speak() -> None:
            folder = self._pulse.folder
            if text:
                self._say(text)
                dump_stacks(None)
            if folder is not None:
                dump_stacks(folder / f"stacks-rank-{self._rank}.txt")

        speaker = threading.Thread(target=speak, daemon=True)
        speaker.start()
        speaker.join(GRACE * TICK)
        if self._signs is not None:
            self._signs.forget()
        self._end(code)


def dump_stacks(path: Path | None) -> None:
    """Writes the stacks of all threads of this process to `path`, or to standard error."""
    with suppress(OSError, ValueError, AttributeError):
        if path is None:
            faulthandler.dump_traceback(sys.__stderr__ or 2)
            return
        with path.open("w", encoding="utf-8") as file:
            faulthandler.dump_traceback(file)


def debugged() -> bool:
    """Whether a thread of this process stands in a debugger, so that a person is at work on it."""
    return any(
        os.path.basename(frame.f_code.co_filename) in DEBUGGERS
        for innermost in sys._current_frames().values()
        for frame, _ in walk_stack(innermost)
    )
