"""The stages of a backward pass: which gradients are there, and which weights are not read any more."""

import numpy as np
import pytest

import mpibow as mb
from mpibow.graph import choose_layout, compile_plan
from mpibow.graph.bound import Signals
from mpibow.graph.stages import stages_of, steps_in
from mpibow.kernels import NUMPY
from mpibow.models.classifier import classifier
from tests.run import tiny

CHUNK = 32


def plan_of(net):
    graph = classifier(net, (1, 6, 6), "uint8")(2, training=True)
    return compile_plan(graph, choose_layout(graph, NUMPY), NUMPY, "float64", training=True)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("net", [tiny.plain, tiny.normed])
def test_every_chunk_is_in_one_stage_and_done_behind_its_step(net, count):
    plan = plan_of(net)
    size = plan.layout.size
    stages = stages_of(plan, size, CHUNK, count)
    assert sorted(c for stage in stages for part in stage.chunks for c in part) == [*range(-(-size // CHUNK))]
    assert [stage.step for stage in stages] == sorted({stage.step for stage in stages})
    assert steps_in(plan, stages, size, CHUNK)[1] == [stage.step for stage in stages]
    assert len(stages) <= 2 * count
    generator = np.random.default_rng(0)
    weights, gradients = generator.standard_normal(size), np.zeros(size)
    words = np.zeros(1, np.int64)
    bound = plan.bind(
        weights, gradients, signals=Signals({stage.step: (words, b + 1) for b, stage in enumerate(stages)})
    )
    for array in bound.inputs.values():
        array[...] = generator.integers(0, 3, array.shape)
    bound.run()
    whole = gradients.copy()
    for b, stage in enumerate(stages):  # from here on these weights may change, and their gradients do not
        words[0] = 0
        elements = [slice(part.start * CHUNK, part.stop * CHUNK) for part in stage.chunks]
        before = weights.copy()
        for run in bound.runs:
            run()
            if words[0] == b + 1 and weights[elements[0]].any():
                for each in elements:
                    np.testing.assert_array_equal(gradients[each], whole[each])
                    weights[each] = np.nan
        earlier = np.isfinite(gradients)
        assert earlier.all(), f"stage {b} is still read"
        weights[...] = before


def test_a_weight_that_is_used_twice_is_done_behind_its_last_use():
    def tied(image):
        x = mb.flatten(image)
        w = mb.parameter((36, 36), name="w")
        return mb.dense(mb.matmul(mb.relu(mb.matmul(x, w)), w), 3)

    plan = plan_of(tied)
    stages = stages_of(plan, plan.layout.size, CHUNK, 100)
    assert stages[0].extents[0][0] > 0 or len(stages) > 1
    assert max(stage.step for stage in stages if stage.extents[0][0] == 0) == stages[-1].step
