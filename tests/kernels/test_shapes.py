"""The random cases themselves: every operator is among them, as itself; and the list of looser bounds."""

import pytest
from hypothesis import given, settings, strategies as st

from mpibow.graph import Op
from mpibow.graph.formats import Reorder
from mpibow.graph.rewrite import Convert
from mpibow.ops import Flatten, Parameter
from mpibow.ops.reshape import View
from mpibow.ops.wide import WideDense
from tests.kernels.against import LOOSER
from tests.kernels.cases import kind_of
from tests.kernels.shapes import RANDOM, WIDE, asked

# Views run no kernel, a reorder is drawn with the layouts that a set knows, and cuDNN alone has WideDense.
ELSEWHERE = {Convert, Flatten, Parameter, Reorder, View, WideDense}


def operators(parent: type = Op) -> set[type]:
    found = {child for child in parent.__subclasses__() if "kind" in child.__dict__}
    return found.union(*(operators(child) for child in parent.__subclasses__()))


def test_every_operator_is_drawn():
    assert {*RANDOM, *WIDE, *ELSEWHERE} == {op for op in operators() if op.__module__.startswith("mpibow.")}


@pytest.mark.parametrize("op", [*RANDOM, *WIDE], ids=lambda op: op.__name__)
@settings(max_examples=10)
@given(data=st.data())
def test_it_draws_shapes_that_the_operator_takes(op: type, data: st.DataObject):
    case, wanted = data.draw(asked({**RANDOM, **WIDE}[op]))
    assert kind_of(case.op) is op
    assert all(extent > 0 for extent in case.op.infer(*case.shapes))
    assert set(wanted) <= set(case.op.differentiable or ())


def test_looser_bounds_are_of_operators_and_have_a_reason():
    assert LOOSER.keys() <= {op.kind for op in (*RANDOM, *WIDE)}
    for kind, (floor, reason) in LOOSER.items():
        assert reason, kind
        assert 0 < floor <= 12, kind
