"""A short selection for compute-sanitizer, which takes a hundred times as long: `make sanitize`.

Every own kernel in float32 once, the passes over flat arrays, and a run of each execution, with cuDNN in its net.
"""

from dataclasses import replace

import numpy as np
import pytest

from mpibow.cuda.kernels import flat, formulas as cuda_source
from mpibow.cuda.kernels.table import LAUNCHED
from mpibow.formulas import formula
from mpibow.sync import rule_formulas
from tests.cuda.kernels.test_flat import device, row, rows, step
from tests.cuda.kernels.test_operators import MINE, layouts
from tests.gpu import opened
from tests.gpu.test_runs import WAYS, job
from tests.kernels.cases import Bench
from tests.run import tiny
from tests.stepping import sgd_step

pytestmark = opened.needs_gpu(pytest.mark.timeout(580))
FIRST = {type(case.op): case for case in reversed(MINE)}  # one of each operator


def test_every_operator():
    for op, case in FIRST.items():
        for tags in layouts(case):
            mirror = opened.Mirror()
            bench = Bench(case, opened.apart(mirror.own(op), mirror), "float32", given=tags)
            bench.forward()
            if LAUNCHED[op].backward is not None and case.op.differentiable is not None:
                bench.backward()


def test_the_flat_passes():
    generator, k, size = np.random.default_rng(0), 3, 5000
    w, v, g = (rows(generator, k, size) for _ in range(3))
    total, centre, mean = (row(generator, size) for _ in range(3))
    numbers, chunks = step(alpha=0.3, gain=1.0, begin=1, scale=0.5, number0=0.3, number1=0.5), -(-size // flat.CHUNK)
    local, pull = sgd_step(0.1, 0.9), formula(rule_formulas.pull)
    own = device(local)
    sent = replace(own, formula=cuda_source.sending(local.formula, pull))
    squares, sums, norms = np.zeros((k, chunks)), np.zeros((chunks, 2)), np.zeros(k)
    for launches in (
        flat.stepped("update", w, (v,), (g, total, np.zeros(chunks), *flat.filled([centre]), numbers), sent),
        flat.stepped("sma_alone", w, (v,), (g, sums, numbers), own),
        flat.rows_mean(w, mean),
        flat.gradient_sum(g, total),
        flat.stepped("sgd_update", w, (v,), (total, mean, numbers), own),
        flat.apply(cuda_source.applying(formula(rule_formulas.mean)), w, (centre,), total, numbers),
        flat.squared_norms(g, squares, norms),
    ):
        opened.run_all(launches)
    assert np.isfinite(w).all()


@pytest.mark.parametrize("way", WAYS)
def test_a_run(tmp_path, way):
    stop = {"epochs": None, "iterations": 5}
    found = tiny.run(job(tmp_path, net=opened.by_eights, learners=2, stop=stop, **WAYS[way]))
    assert all(np.isfinite(array).all() for array in found.weights.values())
