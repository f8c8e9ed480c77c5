"""Words in memory by which a plan's passes and other threads wait for each other, without Python.

Processors that store in order show a word behind all that was written before it.
"""

from mpibow.graph import Array, kernel
from mpibow.system.process import address

from .command import Command, call
from .native import Words, native


@native
def signal(word: Words, number: int) -> None:
    word[0] = number


@native
def _wait(word: Words, goal: Words, pauses: Words, pause: int, microseconds: int) -> None:
    while word[0] < goal[0]:
        pauses[0] += 1
        call(pause, microseconds, 0, 0, 0)


def wait(word: Array, goal: Array, pauses: Array) -> Command:
    """As mpibow.graph.kernel.waiting."""
    return _wait.command(
        word=word, goal=goal, pauses=pauses, pause=address("usleep"), microseconds=round(1e6 * kernel.PAUSE)
    )
