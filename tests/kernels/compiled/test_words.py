"""Words by which a plan's passes and other threads wait for each other: numba's and Python's do the same."""

import threading
import time

import numpy as np
import pytest

from mpibow.graph import kernel
from mpibow.kernels.compiled import words
from tests.launching import LIMIT


@pytest.mark.parametrize("wait", [kernel.waiting, words.wait])
def test_a_pass_waits_until_the_goal_is_reached(wait):
    word, goal, pauses, ended = np.zeros(1, np.int64), np.full(1, 2), np.zeros(1, np.int64), threading.Event()
    run = wait(word, goal, pauses)

    def work():
        run()
        ended.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    word[0] = 1
    end = time.monotonic() + LIMIT
    while pauses[0] < 3 and time.monotonic() < end:  # it goes on waiting, and lets Python run
        time.sleep(0.001)
    assert pauses[0] >= 3
    assert not ended.is_set()
    word[0] = 2
    assert ended.wait(LIMIT)
    before = int(pauses[0])
    run()  # open already
    assert pauses[0] == before


def test_a_pass_sets_its_word():
    word = np.zeros(1, np.int64)
    words.signal.command(word=word, number=7)()
    assert word[0] == 7
    kernel.signalling(word, 9)()
    assert word[0] == 9
