"""A side that is measured now and again: one process, which waits between its turns."""

import json
import sys
import time
from collections.abc import Callable, Mapping

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
AHEAD = 512  # images that are not counted at the start of a turn: what was made ready while others had theirs


def serve(batch: Callable[[], int], versions: Mapping[str, str]) -> None:
    """Prints `versions`, then, for each line "N CLOCK", how many images/s `batch` takes, by at least N of them.

    `batch` takes one and gives the number of its images.
    """
    batch()
    print(json.dumps(dict(versions)), flush=True)
    for line in sys.stdin:
        count, clock = line.split()
        _take(batch, AHEAD)
        begin = CLOCKS[clock]()
        done = _take(batch, int(count))
        print(json.dumps(done / (CLOCKS[clock]() - begin)), flush=True)


def _take(batch: Callable[[], int], count: int) -> int:
    done = 0
    while done < count:
        done += batch()
    return done
