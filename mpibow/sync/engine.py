"""The engine of all rules: a rank's flat arrays change around one sum, over the ranks, of one message.

An iteration, with u the local steps of all learners:

    update(local)(chunks)   by all learner threads, each its chunks: `send` of every learner, and the sums of summands
    outgoing()              the message to be summed over the ranks, or None where this iteration sends nothing
    passes(local, sums)     of the rule's `apply`: they make the centre, and move the replicas
    advance()               the iteration is counted: the passes are made; where the rule `overlaps` they are still due

Between iterations:

    settle()                before anything reads or changes the centre; the centre then includes the last update.
                            Reading it earlier is an AssertionError
    reset(i)                after the gradients and before `update`, on the rank whose replica is not finite
    end_period()            before a restart and at the run's end, by all ranks: sums that wait are exchanged
    begin(k)                after `replicas.resize`, so that new rows start again too; `settle` comes before both

A pass takes any chunks, each of them once. Each exchange: the data sent, the ranks that wait, who makes the centre:

    one rank, period 1          the numbers beside the sums alone; `settle` makes the centre, the replicas' mean
      after a reset             as several ranks, until the next `set_mean`
    apply moves replicas        sums, once in `period` iterations; all wait; `apply` makes the centre
      in between                nothing, but now and then the numbers alone
    apply moves none            sums, hidden behind the next gradients, once in `period` iterations
    gradients are summed        all wait; one step moves all replicas, which are the centre
    nothing is sent             the numbers alone, once in `period` iterations; `set_mean` makes the centre
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np

from mpibow.formulas import Formula
from mpibow.graph import Array
from mpibow.kernels import FlatKernels, Half, Local, chunks_of

from .gain import GainMeter, Reductions
from .outbox import Message, Outbox, Zeros
from .rows import Rows
from .rule import RuleSettings
from .state import UNSENT, RuleNumbers, RuleState, Stored
from .summed import SummedGradients

TALK = 50  # iterations after which ranks talk, if a period is longer
OnChunks = Callable[..., None]  # of a range
Add = Callable[[Array], None]


class Engine:
    """Keeps `rows` together by the rule of `settings`, its centre at `initial` (size,), which it takes over.

    `zeros` makes the arrays that it sends.
    """

    def __init__(
        self, settings: RuleSettings, flat: FlatKernels, rows: Rows, initial: Array, zeros: Zeros | None = None
    ):
        self._flat = flat
        self._rows = rows
        self._zeros = zeros if flat.meter is None else None
        self._settings = settings
        self._make(initial)

    def _make(self, initial: Array) -> None:
        """All arrays, for a centre of this size."""
        flat = self._flat
        rule = self._settings
        size = initial.size
        dtype = initial.dtype
        self._centre = initial
        self._stale = False  # whether replicas have moved on since it was made their mean
        if flat.meter is not None:  # the host's array is not where the passes are
            self._centre = flat.zeros(size, dtype)
            flat.put(self._centre, initial)
        self.point = rule.of(1)
        self._chunks = chunks_of(size, flat.chunk)
        chunks = len(self._chunks)
        sends = self.point.sends != "nothing"
        self._out = Outbox(flat, size * sends, dtype, chunks, self._zeros if sends else None)
        self._numbers_only = Message(flat.zeros(self._out.next.beside.whole.size, dtype))
        self._summed = SummedGradients(flat, self._rows, self._out)
        self._begun = False  # else, where replicas are alike, the first one is the centre
        self._arrays = {name: flat.zeros(size, dtype) for name in rule.kept}
        self._sums = flat.zeros((chunks, 2), "float64")  # of one pass, by chunk: sum |u|^2, |sum u|^2
        self._reductions = Reductions(rule, flat, chunks)
        self._together = False  # all learners are this rank's, and one pass moves them
        self._apart = False  # one of them was reset since W was set to their mean
        self._turn = 0
        self._rows_before = 0
        self._fresh = True  # no sums wait: the next update overwrites them
        # Rate and sums of the iteration whose sums are being applied.
        self._applied: tuple[float, Array | None] = 0.0, None

    # What the rule is

    @property
    def alike(self) -> bool:
        return self._settings.alike

    @property
    def follows(self) -> bool:
        return self._settings.follows

    @property
    def overlaps(self) -> bool:
        """Whether an exchange may run beside the next gradients: `sums` are one row then, which no pass writes.

        Replicas wait for a sum that moves them, unless one pass makes it.
        """
        return not self.alike and (self._one_pass or not self._sends or not self._settings.formulas.moves)

    @property
    def turn(self) -> int:
        """The number of this iteration."""
        return self._turn

    def in_parts(self, local: Local, turn: int) -> bool:
        """Whether the sums of iteration `turn` may be sent and applied in parts.

        Not where a step needs all of them first, or nothing is sent then.
        """
        if self.alike:
            return local.directs is None and self._rows.shares is None
        return self.point.sends_at(turn) and not self._one_pass and self._settings.formulas.moves

    @property
    def sending(self) -> Array:
        """The array that updates are adding sums to, with the numbers at its end: `outgoing` gives it later."""
        return self._out.next.whole

    @property
    def size(self) -> int:
        """Its sums."""
        return self._out.sums.size

    @property
    def meter(self) -> GainMeter | None:
        """The meter of the gain, if the rule has one."""
        return self._reductions.meter if self._reductions.gains else None

    @property
    def arrays(self) -> Mapping[str, Stored]:
        """Every array that the state ever has."""
        if self.point.sends != "steps":
            return {}
        return {**{name: Stored("all", form) for name, form in self._settings.kept.items()}, **UNSENT}

    @property
    def centre(self) -> Array:
        """(size,), to be read and changed after `settle`, until the next update."""
        assert not self._stale, "settle() comes first"
        return cast(Array, self._rows.weights[0]) if self.alike and self._begun else self._centre

    @property
    def _one_pass(self) -> bool:
        return self._together and not self._apart

    @property
    def _sends(self) -> bool:
        """Whether this iteration's exchange is one of sums, where it is not `_one_pass`."""
        return self.point.sends_at(self._turn)

    # The learners

    def begin(self, k: int, keep: bool = False) -> None:
        """k learners over all ranks from here on, by a restart; `keep` goes on instead, and `load` comes next.

        The rows are those of `replicas.resize` already, so this rank's number has changed; new ones hold no weights.
        """
        centre = self.centre
        begun = self._begun
        before = self._rows_before
        count = len(self._rows.weights)
        self.point = self._settings.of(k)
        self._begun = True
        self._rows_before = count
        self._reductions.count(k)
        self._together = count == k and self.point.in_one_pass
        if self.alike:
            self._centre = self._flat.zeros(0, centre.dtype)  # whose memory is free
        if keep:
            return
        if not self.follows:  # the others go on
            self._flat.put(self._rows.weights[before:], centre)
            return
        if self.alike and not begun:
            self._flat.put(self._rows.weights[0], centre)
        self._restart(centre)

    def restart(self) -> None:
        """Every replica starts again from the centre; the period's counter and the sums that wait are 0."""
        self.point = self._settings.of(self.point.k)  # whose period may have been cut short
        self._restart(self.centre)
        if self._settings.forgets:
            for name, form in self._settings.kept.items():
                if form == "steps":
                    self._flat.put(self._arrays[name], 0)

    def _restart(self, centre: Array) -> None:
        if self._settings.forgets:
            self._rows.forget()
        if self.alike:
            self._flat.put(self._rows.weights[1:], centre)
            self._rows.level()
            return
        for name, form in self._settings.kept.items():
            if form == "weights":
                self._flat.put(self._arrays[name], centre)
        self._flat.put(self._rows.weights, centre)
        if self.follows:
            self._turn = 0
            self._apart = False
            self._fresh = True

    def switch(self, settings: RuleSettings) -> None:
        """After `settle`: another rule begins at the centre."""
        centre = self._flat.host(self.centre).copy()
        k = self.point.k
        self._settings = settings
        self._make(centre)
        self.begin(k)

    def grow(self, centre: Array, size: int, k: int) -> None:
        """Elements [0, size) are averaged from here on, by k learners; the whole `centre` is on the host.

        Averaging goes on, after `settle`: all that is kept of other weights stays.
        """
        state = self.state()
        arrays = self.arrays
        host = self._flat.host
        shared, own = (
            {key: arrays[key].narrower(arrays[key].wider(host(array), centre), size) for key, array in each.items()}
            for each in (state.shared, state.own)
        )
        self._make(centre[:size].copy())
        self.begin(k, keep=True)
        self.load(centre[:size], RuleState(shared, own, state.numbers))

    def reset(self, i: int, spoilt: Sequence[tuple[int, int]] = ()) -> str:
        """Resets this rank's replica i, which is not finite and learns nothing from this iteration; returns a message.

        Where its loss is finite it does so in the `spoilt` elements alone: those of weights whose gradients are not.

        Called after `settle`, by this rank alone: the others are informed later.
        """
        if self.alike:  # its weights, and what its local step keeps, are those of all replicas
            self._rows.leave_out(i, spoilt)
            return f"is left out{_in(spoilt)}"
        self._rows.reseed(i, self.centre, spoilt)
        self._apart = self._together and not self.point.plain
        return f"starts again from the centre{_in(spoilt)}"

    # The iteration

    def update(self, local: Local) -> OnChunks:
        """What moves this rank's replicas by their local steps in chunks, and adds up what is to be sent.

        Every learner thread calls that at the same time, with chunks of its own, in one or several goes: it writes
        nothing outside them but what all threads write alike. Each chunk comes once. Where the rule overlaps, the
        last `passes` were made on these chunks just before; on others perhaps not yet.
        """
        if self.alike:
            return self._summed.update(self.point, local)
        local = local.fixed()
        if self._one_pass:
            alpha = self.point.correction if self.point.corrects(self._turn) else 0.0
            self._stale = True
            extra = self._reductions.meter.common
            step = partial(self._flat.sma_alone, self._rows.trained, self._sums, local=local, alpha=alpha, extra=extra)
        else:
            half = self._half(self._settings.formulas.send, local.rate, False)
            arrays = self._named(half.formula.arrays[2:])
            out = self._out
            step = partial(
                self._flat.update, self._rows.trained, out.sums, out.squares, arrays,
                local=local, send=half, begin=self._fresh,
            )  # fmt: skip
        return lambda chunks, **more: step(chunks=chunks, **more)

    def outgoing(self) -> Message | None:
        """Called once, after the last `update`. All ranks decide alike: by the settings, k, and a count of iterations.

        The synchroniser fills in losses, hits and this rank's request to talk. Signals and the tuner wait until that
        has been summed: a rule that sends nothing for many iterations sends the numbers meanwhile.
        """
        if self.alike:
            return self._summed.outgoing()
        if self._one_pass:
            return self._out.next.beside
        self._fresh = self._sends
        if self._sends:
            return self._out.close()
        every = self.point.period if self.point.sends == "nothing" else TALK
        return self._numbers_only if (self._turn + 1) % every == 0 else None

    def passes(self, local: Local, sums: Array | None) -> Sequence[OnChunks]:
        """The rule's `apply` in this iteration; `sums` (n, size + numbers) add up to the ranks' message, in row order.

        Every rank calls it, every iteration; `sums` are None where nothing was sent. The centre becomes the same bits
        on all ranks. Passes hold all that they need, as `advance` may come first.

        Where the rule overlaps, it is called beside the next gradients, on another thread, and writes no array itself.
        `sums` are one row, and passes run a few chunks at a time in front of the next `update`, or in `settle`: a
        pass reads no chunk that another one writes. Else learners run each pass over all chunks before the next one,
        at once; then `sums` are the arrays that the ranks sent, where they lie, and a pass does not write them.
        """
        self._applied = local.rate, sums
        if self.alike:
            assert sums is not None
            return self._summed.passes(self.point, local, sums)
        received = sums if self._sends else None
        corrects = self.point.lags and self.point.corrects(self._turn)
        if self._one_pass or (received is None and not corrects):
            return ()
        apply = self._settings.formulas.apply
        assert apply is not None
        half = self._half(apply, local.rate, received is not None)
        arrays = self._named(apply.arrays[half.moves : -1])
        rows = self._out.next.rows[:0] if received is None else received
        return (partial(self._flat.apply, half, self._rows.weights, arrays, rows, self._reductions.squares),)

    def advance(self) -> None:
        """The exchange is over: the iteration counts, and what follows from its sums is for the next one.

        Called once an iteration, by all ranks; after the passes, or before them where the rule overlaps. The outbox
        turns where the next update would write what other ranks still read.
        """
        rate, sums = self._applied
        if self._one_pass:
            if self.meter is not None:
                self.meter.follow_alone(self.point.k, rate, self._sums)
        elif self.alike:
            self._out.swap()
        elif self._sends:
            assert sums is not None
            self._reductions.follow(rate, sums, self._out.sums.size, passed=not self.overlaps)
            if not self.overlaps:
                self._out.swap()
        self._turn += 1

    def end_period(self) -> int:
        """Ends a period of exchanges early: `outgoing`, `apply` and `advance` follow so many times, then a restart.

        0 if no sums wait for an exchange. Called after `settle`, by all ranks alike, before a restart and at the end.
        """
        point = self.point
        if self.alike or not self.follows or self._one_pass or not point.unfinished(self._turn):
            return 0
        if point.lags:  # the exchange of sums that wait, and the correction that follows it
            self.point = replace(point, period=2)
            self._turn = int(self._fresh)
            return 2 - self._turn
        self.point = replace(point, period=self._turn % point.period)
        self._turn = self.point.period - 1
        return 1

    def settle(self) -> None:
        """Makes the centre that of after the last update, where `passes` have not.

        Nothing is under way, and those passes are made. Ranks call it at different times, and as often as they like: it
        sends nothing, and the iterations to come give the same bits without it.
        """
        if self._stale:
            self._flat.rows_mean(self._rows.weights, self._centre, chunks=self._chunks)
            self._stale = False

    def set_mean(self, mean: Array, add: Add) -> float:
        """The centre's mean W <- mean (size,), on the host, the replicas' true one; |W - mean| / |mean|, the drift.

        `add` sums an array over the ranks, in place: all of them call it alike. Replicas that are reset follow W, not W
        them.
        """
        if self.alike or (self.point.replicas == "reset" and self.follows and not self._one_pass):
            return 0.0
        w = self._arrays["mean"] if self.point.lags and not self.point.plain else self.centre
        own = self._flat.host(w)
        steps = None
        if not self.follows:
            self._flat.put(w, mean)
            return 0.0
        if not self._fresh and not self._one_pass:
            self._flat.put(self._out.spare, self._out.sums)
            add(self._out.spare)
            steps = self._flat.host(self._out.spare) * mean.dtype.type(1.0 / self.point.k)
        if steps is not None and self.point.lags:  # W takes the sums that wait
            own = own + steps
            self._fresh = True
        elif steps is not None:  # W is that of the last exchange
            mean = mean - steps
        size = float(np.linalg.norm(mean))
        drift = float(np.linalg.norm(own - mean)) / size if size else 0.0
        self._flat.put(w, mean)
        self._apart = False
        return drift

    # The state

    def shared(self) -> list[Array]:
        """The arrays that must be the same bits on all ranks."""
        return [self.centre, *self._shared().values()]

    def _shared(self) -> dict[str, Array]:
        return {} if self.point.plain else {name: self._arrays[name] for name in self._settings.kept}

    def state(self) -> RuleState:
        """All that the next iteration reads beside the replicas and the centre."""
        waits = self.point.sends == "steps" and not self._one_pass and not self._fresh
        gain, averages = self._reductions.meter.state()
        numbers = RuleNumbers(self._turn, gain, averages, self._apart, self._reductions.rate, self._reductions.norm)
        return RuleState(self._shared(), self._out.unsent() if waits else {}, numbers)

    def load(self, centre: Array, state: RuleState) -> None:
        """Restores the centre and the return value of `state`; `begin(..., keep=True)` comes first."""
        numbers = state.numbers
        self._stale = False
        self._flat.put(self.centre, centre)
        for name, array in self._shared().items():
            self._flat.put(array, state.shared[name])
        self._turn = numbers.turn
        self._apart = numbers.apart
        self._reductions.load(numbers.gain, numbers.averages, numbers.rate, numbers.norm)
        self._fresh = "pending" not in state.own
        if not self._fresh:
            self._out.load(state.own)

    # The numbers of a formula

    def _half(self, formula: Formula, rate: float, received: bool) -> Half:
        """The numbers change from one iteration to the next, and not in between."""
        point = self.point
        before = self._reductions.rate
        known = {
            **point.numbers(self._turn, rate / before if before else 1.0, received),
            **self._reductions.of_formulas(rate),
            "turn": self._turn % point.period,
            **point.settings,
        }
        return Half(formula, tuple(known[name] for name in formula.scalars))

    def _named(self, names: Sequence[str]) -> tuple[Array, ...]:
        return tuple(self._centre if name == "centre" else self._arrays[name] for name in names)


def _in(spoilt: Sequence[tuple[int, int]]) -> str:
    count = sum(stop - start for start, stop in spoilt)
    return f" in the {count:,} elements of weights whose gradient is not" if spoilt else ""


def gain_of(engine: Engine) -> float:
    """The ratio of the centre's step to the mean step, as last measured; 1 if a rule has no gain."""
    return 1.0 if engine.meter is None else engine.meter.gain
