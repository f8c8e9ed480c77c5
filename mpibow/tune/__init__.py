"""The auto-tuner: how many learners every rank should have, from measured times alone; pure, the same on all ranks.

An iteration is as long as its slowest rank: with k_r learners of batch b on rank r

    images/s = b (k_1 + ... + k_n) / (max_r t_r(k_r) + rest)

t_r(k) is the time of rank r for an iteration of its own k learners, without waiting for other ranks; `rest` is the
exposed part of the all-reduce, which hides behind no rank's work. A `Meter` measures on every rank; a `Window` holds
all ranks' readings, a `History` the windows since the tuner began to look; `decide(history)` returns what to run next.
The formula proposes learners from the curves t_r; they are settled on only after they were measured together:

    history = History.begin(ranks, batch)
    decision = decide(history, tuner)                         all ranks go to decision.counts at one iteration
    meter = Meter(decision.span)                              on every rank; then after each iteration
        meter.add(own, whole)                                 true: worth asking all ranks for their readings
        enough(readings, decision.span)                       all have them: true: the window closes, else it goes on
    history = history.add(Window.of(decision, readings), tuner)
    history = history.out_of_memory(rank, k)                  instead, where k learners did not fit
    decision = decide(history, tuner)                         and so on, also when it is settled

Once settled, it looks again if speeds have changed, and ever more rarely if none has: `History.add`.

To be read in this order: decide.py, look.py (the formula), history.py (when to look again), meter.py.
"""

from .decide import decide
from .history import Cap, Counts, Decision, History, Window
from .meter import Meter, Reading, enough
from .tuner import Tuner, WindowSpan
from .words import as_sum, shortened
