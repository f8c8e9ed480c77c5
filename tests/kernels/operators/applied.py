"""Layers whose weights are inputs, by the layers' own cases."""

from dataclasses import replace

from mpibow.ops.applied import applied as as_inputs
from tests.kernels.cases import Case
from tests.kernels.checked import SUM, Checked
from tests.kernels.operators import batch_norm, conv, conv_transpose, gru, lstm


def applied(case: Case) -> Case:
    weights = (weight.shape for weight in case.op.weights(*case.shapes).values())
    return replace(case, op=as_inputs(case.op), shapes=(*case.shapes, *weights), dtypes=("float",))


def of(layer: Checked) -> Checked:
    def plain(op, *args):
        assert layer.plain is not None
        inputs = args[: op.count]
        keys = op.keys(*(each.shape for each in inputs))
        return layer.plain(op, *inputs, dict(zip(keys, args[op.count : -1], strict=True)))

    assert layer.random is not None
    return replace(
        layer,
        op=type(as_inputs(layer.cases[0].op)),
        cases=[applied(case) for case in layer.cases],
        large=[applied(case) for case in layer.large],
        random=layer.random.map(applied),
        plain=None if layer.plain is None else plain,
        lengths=lambda op, shapes: (n := sum(layer.lengths(op, shapes[: op.count])), n, n),
        looser=SUM,
        lacking=("cuda", "onednn"),
    )


CHECKED = tuple(of(checked) for layer in (batch_norm, conv, conv_transpose, gru, lstm) for checked in layer.CHECKED)
