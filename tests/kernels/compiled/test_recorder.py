"""A pass recorded as a command has its bits; one recorder records passes that change from time to time."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from mpibow.formulas import formula
from mpibow.graph import Array
from mpibow.kernels import Half, StepArrays, chunks_of, share_of
from mpibow.kernels.compiled import flat
from mpibow.kernels.compiled.code_cache import jit
from mpibow.optim import Adam, Sgd
from mpibow.sync.rule_formulas import pull
from tests.kernels.test_flat_parts import SIZE, in_parts, numbers, of_parts
from tests.stepping import local_of

CHUNKS = chunks_of(SIZE, flat.chunk)
Case = tuple[Callable[..., Any], tuple[Array, ...]]


def case(name: str, k: int = 2, dtype: str = "float32", update: Sgd | Adam | None = None, cut: int = 20_000) -> Case:
    """A pass of two parts, and all arrays that it writes."""
    update = update or Sgd(lr=0.1, momentum=0.9)
    weights, states, gradients = numbers(k, dtype, len(update.states))
    own, total = of_parts(states, (cut,) if cut else ()), np.ones(SIZE, dtype)
    sums, squares = np.zeros((len(CHUNKS), 2)), np.zeros(len(CHUNKS))
    step = StepArrays(weights[:, :SIZE], own, gradients[:, :SIZE])
    local = in_parts(local_of(update), (cut,) if cut else ())
    send = Half(formula(pull), (0.25,))
    more = {
        "sma_alone": (step, sums, {"local": local, "alpha": 0.25, "extra": 0.5}),
        "update": (step, total, squares, (total.copy(),), {"local": local, "send": send, "begin": False}),
        "sgd_update": (step, {"local": local, "scale": 0.5}),
        "gradient_sum": (step.gradients, total, {}),
    }
    *arguments, named = more[name]

    def work(chunks: range, **do: Any) -> None:
        getattr(flat, name)(*arguments, **named, chunks=chunks, **do)

    return work, (weights, *own, total, sums, squares)


def same(ours: Case, theirs: Case, *recorders: Any) -> None:
    """Our pass, recorded by a recorder each worker, is theirs."""
    for i, recorder in enumerate(recorders):
        recorder.record(ours[0], share_of(CHUNKS, i, len(recorders)))()
    theirs[0](CHUNKS)
    for mine, other in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("name", ["sma_alone", "update", "sgd_update", "gradient_sum"])
@pytest.mark.parametrize(("k", "dtype"), [(2, "float32"), (3, "float64")])
def test_every_pass_by_two_workers(name, k, dtype):
    make = partial(case, name, k, dtype, Adam(lr=0.1))
    same(make(), make(), flat.Recorder(), flat.Recorder())


def test_one_recorder_after_another_pass_more_parts_and_fewer():
    recorder = flat.Recorder()
    for make in (partial(case, "sma_alone"), partial(case, "update", 3), partial(case, "sma_alone", cut=0)) * 2:
        same(make(), make(), recorder)


def test_numbers_that_change_are_those_of_the_last_record():
    rows, recorder = numbers(2, "float32", 0)[0], flat.Recorder()
    total = np.zeros(SIZE, np.float32)
    for stop in (1, 2, len(CHUNKS)):
        command = recorder.record(lambda chunks, do: flat.gradient_sum(rows, total, chunks=chunks, do=do), range(stop))
        total[:] = 0
        command()
        end = min(stop * flat.chunk, SIZE)
        np.testing.assert_array_equal(total[:end], rows[0, :end] + rows[1, :end])
        assert not total[end:].any()


@jit
def no_memory(array: Array) -> None:
    raise MemoryError


def test_a_pass_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="command 0 of 1 failed"):
        flat.Recorder().record(lambda chunks, do: do(no_memory, np.zeros(3)), CHUNKS)()


def test_arrays_with_gaps_are_refused():
    with pytest.raises(AssertionError):
        flat.Recorder().record(lambda chunks, do: do(flat._gradient_sum, np.zeros((2, 4))[:, ::2]), CHUNKS)
