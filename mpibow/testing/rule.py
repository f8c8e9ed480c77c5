"""The check of a rule: the same numbers on any ranks, the same bits with any number of threads, all state saved."""

from collections.abc import Sequence

import numpy as np

from mpibow.graph import Array, Layout, Span, Weight
from mpibow.graph.formats import canonical
from mpibow.kernels import NUMPY, Local, chunks_of, share_of
from mpibow.learn.local import Stepping
from mpibow.learn.replica import Replicas
from mpibow.ops.initialisers import Constant
from mpibow.optim import Sgd
from mpibow.sync import Engine, RuleSettings, RuleState

LEARNERS = 4
PLACES = ((4,), (2, 2), (1, 3), (1, 1, 1, 1))  # learners of each rank
NEAR = 1e-10  # tolerance for another order of sums


def check_rule(settings: RuleSettings, iterations: int = 30) -> None:
    """Raises AssertionError where the rule of `settings` does not keep learners together as every rule must.

    Four learners train a quadratic with noise by SGD with momentum, in float64. The centre must be the same on all
    ranks, and near the centre of one rank with all learners. 1, 2 and 3 threads must give the same bits. Its numbers
    must form a JSON object, and a rule that loads its state must continue with the same bits. The centre must stay
    finite when the number of learners changes, averaging restarts, or a learner is reset.
    """
    name = settings.name
    if not isinstance(settings, RuleSettings):
        raise AssertionError(f"rule: must be an mpibow.sync.rule.RuleSettings, got {type(settings).__name__}")
    settings.check(LEARNERS)
    whole = _trained(settings, PLACES[0], iterations)
    for counts in PLACES[1:]:
        off = np.abs(_trained(settings, counts, iterations).centre - whole.centre).max()
        assert off < NEAR, f"rule {name}: the centre of {len(counts)} ranks is off by {off:g} of one rank's"
    for threads in (2, 3):
        same = _trained(settings, (2, 2), iterations, threads).bits() == _trained(settings, (2, 2), iterations).bits()
        assert same, f"rule {name}: {threads} threads give other bits than one"
    for cut in range(iterations - 4, iterations):
        _resumes(settings, cut, iterations)
    _survives(settings)


class _Ranks:
    """Ranks with a rule and replicas each; it sums their messages."""

    def __init__(self, settings: RuleSettings, counts: Sequence[int], threads: int = 1, keep: bool = False):
        self.name = settings.name
        self.threads = threads
        self.flat = NUMPY.flat
        self.layout = _layout()
        start = np.random.default_rng(0).standard_normal(48)
        self.rows = [Replicas(2 * LEARNERS, 48, "float64", states=("momenta",), one=settings.one_copy) for _ in counts]
        for rows, count in zip(self.rows, counts, strict=True):
            rows.resize(count)
        self.rules = [Engine(settings, self.flat, rows, start.copy()) for rows in self.rows]
        for rule in self.rules:
            rule.begin(sum(counts), keep)
        self.steps = [Stepping(Sgd(lr=0.05, momentum=0.9), self.layout, rows, self.flat) for rows in self.rows]

    def end_period(self) -> None:
        self.settle()
        for _ in range(max(rule.end_period() for rule in self.rules)):
            self._exchange([step.at(0.05, 1) for step in self.steps])
        self.settle()

    def resize(self, counts: Sequence[int]) -> None:
        self.end_period()
        for rule, rows, count in zip(self.rules, self.rows, counts, strict=True):
            rows.resize(count)
            rule.begin(sum(counts))

    def iterate(self, t: int) -> None:
        """One iteration; learner j's gradient does not depend on its rank."""
        learner = 0
        chunks = chunks_of(48, self.flat.chunk)
        locals_ = [step.at(0.05, 1) for step in self.steps]
        for rule, rows, local in zip(self.rules, self.rows, locals_, strict=True):
            for w, g in zip(rows.weights, rows.gradients, strict=True):
                g[:] = w - 1 + np.random.default_rng([t, learner]).standard_normal(48)
                learner += 1
            for thread in reversed(range(self.threads)):
                rule.update(local)(share_of(chunks, thread, self.threads))
        self._exchange(locals_)

    def _exchange(self, locals_: Sequence[Local]) -> None:
        chunks = chunks_of(48, self.flat.chunk)
        messages = [rule.outgoing() for rule in self.rules]
        sent = [message.whole for message in messages if message is not None]
        every = np.stack(sent) if sent else None
        for rule, message, local in zip(self.rules, messages, locals_, strict=True):
            sums = every
            if message is not None and every is not None and rule.overlaps:
                message.whole[:] = every.sum(axis=0)
                sums = message.rows
            for each in rule.passes(local, sums):
                for thread in range(self.threads):
                    each(share_of(chunks, thread, self.threads))
            rule.advance()

    def settle(self) -> None:
        """Completes the centres before they are read."""
        for rule in self.rules:
            rule.settle()
        if not self.rules[0].follows:
            mean = np.concatenate([rows.weights for rows in self.rows]).mean(axis=0)
            for rule in self.rules:
                rule.set_mean(mean, lambda array: None)
        first = self.rules[0].centre.tobytes()
        assert all(rule.centre.tobytes() == first for rule in self.rules), f"rule {self.name}: ranks' centres differ"

    @property
    def centre(self) -> Array:
        self.settle()
        return self.rules[0].centre

    def bits(self) -> bytes:
        return b"".join([self.centre.tobytes(), *(rows.weights.tobytes() for rows in self.rows)])


def _layout() -> Layout:
    """Two matrices and a vector."""

    def span(name: str, begin: int, size: int, *shape: int) -> Span:
        return Span(name, begin, size, shape, Weight(shape, Constant(), 1, 1), canonical(shape))

    return Layout((span("a", 0, 24, 6, 4), span("b", 24, 9, 9), span("c", 33, 15, 3, 5)), decayed=48, size=48)


def _trained(settings: RuleSettings, counts: Sequence[int], iterations: int, threads: int = 1) -> _Ranks:
    ranks = _Ranks(settings, counts, threads)
    for t in range(iterations):
        ranks.iterate(t)
    assert np.isfinite(ranks.centre).all(), f"rule {settings.name}: the centre is not finite"
    return ranks


def _resumes(settings: RuleSettings, cut: int, iterations: int) -> None:
    whole = _trained(settings, (2, 2), cut)
    resumed = _Ranks(settings, (2, 2), keep=True)
    for old, new, source, rows in zip(whole.rules, resumed.rules, whole.rows, resumed.rows, strict=True):
        state = old.state()
        rows.weights[...] = source.weights
        rows.states["momenta"][...] = source.states["momenta"]
        shared, own = ({key: value.copy() for key, value in part.items()} for part in (state.shared, state.own))
        new.load(old.centre.copy(), RuleState(shared, own, state.numbers))
    for t in range(cut, iterations + 3):
        for ranks in (whole, resumed):
            ranks.iterate(t)
    assert whole.bits() == resumed.bits(), f"rule {settings.name}: other bits after a resume at iteration {cut}"


def _survives(settings: RuleSettings) -> None:
    ranks = _Ranks(settings, (2, 2))
    for t in range(12):
        ranks.iterate(t)
        if t == 3:
            ranks.resize((1, 3))
        if t == 6:
            ranks.end_period()
            for rule in ranks.rules:
                rule.restart()
        if t == 9:
            ranks.settle()
            ranks.rules[0].reset(0)
    assert np.isfinite(ranks.centre).all(), f"rule {settings.name}: the centre is not finite after a reset"
