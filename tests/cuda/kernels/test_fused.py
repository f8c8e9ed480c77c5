"""What learners of one plan take: a graph of several replicas side by side."""

import pytest

from mpibow import ops
from mpibow.cuda.kernels.fused import without_form
from mpibow.graph import Graph


def net(between) -> Graph:
    graph = Graph()
    x = ops.dense(graph.input("x", (4, 6)), 8)
    graph.output("loss", ops.softmax_cross_entropy(ops.dense(between(x), 3), graph.input("label", (4,), "int32")))
    return graph


@pytest.mark.parametrize("between", [ops.silu, ops.exp, lambda x: x**2, lambda x: 2 * x + 1, lambda x: x / (x + 3)])
def test_operators_of_one_element_are_of_all_replicas(between):
    assert without_form(net(between)) == ""


def test_what_has_no_such_form_is_named():
    assert (
        without_form(net(lambda x: ops.where(ops.gt(x, 0.0), x, -x)))
        == "compare1 (compare) has no form for fused learners"
    )
