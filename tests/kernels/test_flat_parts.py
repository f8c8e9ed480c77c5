"""Passes over rows that are the first elements of longer ones, by the local steps of several parts: the same bits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mpibow.formulas import formula
from mpibow.graph import Array
from mpibow.kernels import FlatKernels, Half, Local, StepArrays, chunks_of, share_of
from mpibow.optim import Adam, Sgd
from mpibow.sync.rule_formulas import mean as mean_step, pull
from tests.stepping import END, local_of

SIZE, BEHIND = 300_000, 48  # elements of a row, and those behind them that no pass may touch: two of NumPy's chunks
CUTS = [(), (96,), (16384,), (16384, 131088), (48, 96, 200_000)]  # where parts begin


def in_parts(local: Local, cuts: Sequence[int]) -> Local:
    """The same step as that of several parts."""
    starts, ends = (0, *cuts), (*cuts, END)
    first, *beside = (
        replace(local, start=start, ends=np.array([end]), groups=np.zeros(1, np.int64))
        for start, end in zip(starts, ends, strict=True)
    )
    return replace(first, beside=tuple(beside))


def of_parts(states: Sequence[Array], cuts: Sequence[int]) -> tuple[Array, ...]:
    """Each part's states, in arrays of their own."""
    starts, ends = (0, *cuts), (*cuts, SIZE)
    return tuple(s[:, a:b].copy() for a, b in zip(starts, ends, strict=True) for s in states)


def joined(states: Sequence[Array], count: int) -> list[Array]:
    return [np.concatenate(states[n::count], axis=1) for n in range(count)]


def numbers(k: int, dtype: str, count: int) -> tuple[Array, list[Array], Array]:
    """Weights and gradients, the first elements of longer rows; states."""
    generator = np.random.default_rng(0)
    weights, gradients = (generator.standard_normal((k, SIZE + BEHIND)).astype(dtype) for _ in range(2))
    states = [np.abs(generator.standard_normal((k, SIZE))).astype(dtype) for _ in range(count)]
    return weights, states, gradients


@pytest.mark.parametrize("update", [Sgd(lr=0.1, momentum=0.9), Adam(lr=0.1)], ids=["sgd", "adam"])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("name", ["sma_alone", "update", "sgd_update"])
def test_parts_give_the_same_bits(flat: FlatKernels, name, k, update: Sgd | Adam):
    local, count, chunks = local_of(update), len(update.states), chunks_of(SIZE, flat.chunk)
    results, summed = list[tuple[Array, ...]](), list[tuple[Array, Array]]()
    for cuts in CUTS:
        weights, states, gradients = numbers(k, "float32", count)
        before = weights[:, SIZE:].copy()
        w, g, own = weights[:, :SIZE], gradients[:, :SIZE], of_parts(states, cuts)
        total, centre = np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32)
        squares, sums = np.zeros(len(chunks)), np.zeros((len(chunks), 2))
        step = in_parts(local, cuts)
        for share in (share_of(chunks, 1, 2), share_of(chunks, 0, 2)):
            if name == "sma_alone":
                flat.sma_alone(StepArrays(w, own, g), sums, local=step, alpha=0.25, extra=0.5, chunks=share)
            elif name == "update":
                send = Half(formula(pull), (0.25,))
                flat.update(
                    StepArrays(w, own, g), total, squares, (centre,), local=step, send=send, begin=True, chunks=share
                )
            else:
                flat.sgd_update(StepArrays(w, own, g), local=step, scale=0.5, chunks=share)
        np.testing.assert_array_equal(weights[:, SIZE:], before)
        results.append((weights, *joined(own, count), total))
        summed.append((squares, sums))
    for others, mine in zip(results[1:], summed[1:], strict=True):
        for one, other in zip(others, results[0], strict=True):
            np.testing.assert_array_equal(one, other)
        for one, other in zip(mine, summed[0], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_steps_of_two_optimisers_beside_each_other(flat: FlatKernels):
    """Each is what it is alone, whoever's states are how many."""
    cut, (sgd, adam) = 20_000, (local_of(Sgd(lr=0.1)), local_of(Adam(lr=0.1)))
    both = replace(sgd, ends=np.array([cut]), beside=(replace(adam, start=cut),))
    chunks, alone = chunks_of(SIZE, flat.chunk), []
    for local in (sgd, adam):
        weights, states, gradients = numbers(2, "float64", len(local.formula.arrays) - 2)
        sums = np.zeros((len(chunks), 2))
        step = StepArrays(weights[:, :SIZE], tuple(states), gradients[:, :SIZE])
        flat.sma_alone(step, sums, local=local, alpha=0.0, extra=0.0, chunks=chunks)
        alone.append((weights, states))
    weights, states, gradients = numbers(2, "float64", 2)
    own = tuple(state[:, cut:].copy() for state in states)
    flat.sma_alone(
        StepArrays(weights[:, :SIZE], own, gradients[:, :SIZE]), sums, local=both, alpha=0.0, extra=0.0, chunks=chunks
    )
    np.testing.assert_array_equal(weights[:, :cut], alone[0][0][:, :cut])
    np.testing.assert_array_equal(weights[:, cut:], alone[1][0][:, cut:])
    for mine, other in zip(own, alone[1][1], strict=True):
        np.testing.assert_array_equal(mine, other[:, cut:])


def test_other_passes_leave_what_is_behind_as_it_is(flat: FlatKernels):
    rows, chunks = numbers(3, "float32", 0)[0], chunks_of(SIZE, flat.chunk)
    before, w, mean, total = rows.copy(), rows[:, :SIZE], np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32)
    flat.rows_mean(w, mean, chunks=chunks)
    np.testing.assert_array_equal(mean, (before[0] + before[1] + before[2])[:SIZE] * np.float32(1 / 3))
    flat.gradient_sum(w, mean, chunks=chunks)
    np.testing.assert_array_equal(mean, (before[0] + before[1] + before[2])[:SIZE])
    half = Half(formula(mean_step), (2.0, 1.0))
    flat.apply(half, w, (mean,), total[np.newaxis], np.zeros(len(chunks)), chunks)
    np.testing.assert_array_equal(rows[:, SIZE:], before[:, SIZE:])
    np.testing.assert_array_equal(w, before[:, :SIZE] + np.float32(2))
