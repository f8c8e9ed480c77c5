"""The first iteration of a rule with a single weight, so that the passes that a run begins with are compiled."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from mpibow.comm import Single
from mpibow.formulas import Formula
from mpibow.kernels import FlatKernels, Local, Matrix, StepArrays, chunks_of
from mpibow.trace import SILENT

from .buckets import ONE, Buckets
from .engine import Engine
from .rule import RuleSettings


def rehearse(
    flat: FlatKernels, settings: RuleSettings, step: Formula, learners: int, k: int, matrices: bool = False,
    nodes: bool = False,
) -> None:  # fmt: skip
    """An iteration of so many learners of a rank, of k in all, by this local step, and the end of its period.

    With `matrices` also the orthogonal step of one; with `nodes` an exchange in buckets. Other passes, such as those
    that follow a reset, are compiled when they are needed.
    """
    one = np.ones(1, np.int64)
    rows = np.zeros((learners, 1), np.float32)
    chunks = chunks_of(1, flat.chunk)
    scalars = np.zeros((learners, 1, len(step.scalars)))
    local = Local(step, 0.0, one, one - 1, lambda rate: scalars, (lambda *_: _nothing) if matrices else None)
    replicas: Any = SimpleNamespace(
        weights=rows, trained=StepArrays(rows, (rows,) * (len(step.arrays) - 2), rows), shares=None,
        forget=_nothing, level=_nothing,
    )  # fmt: skip
    engine = Engine(settings, flat, replicas, np.zeros(1, np.float32))

    def exchange() -> None:
        message = engine.outgoing()
        sums = None if message is None else message.rows
        for work in engine.passes(local, sums):
            work(chunks)
        engine.advance()
        engine.settle()

    engine.begin(k)
    update = engine.update(local)
    update(chunks)
    if flat.Recorder is not None:
        flat.Recorder().record(update, chunks)()
        if nodes and engine.in_parts(local, engine.turn):
            from mpibow.kernels.compiled.sums import rehearse as rehearse_sums

            words = np.zeros((1, 8), np.int64)
            stages: Any = SimpleNamespace(
                chunks=[[chunks]], needed=[0], extents=[()], gradients=rows, opened=words,
                learners=lambda: (words, words[:0, :3]),
            )  # fmt: skip
            steps = np.array([1, 0, 0, 0])
            Buckets(Single(), engine, stages, flat, SILENT, ONE).exchange(local, steps, np.zeros((1, 4), np.int64))
            rehearse_sums()
    exchange()
    for _ in range(engine.end_period()):
        exchange()
    if matrices:
        flat.orthogonal([Matrix(one - 1, one - 1)], np.float32)(rows[0], rows[0], 0, scale=0.0)


def _nothing(*_: Any) -> None:
    pass
