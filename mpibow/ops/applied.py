"""Layers whose weights are tensors: they are computed, as by a weight norm, or read at several places."""

from collections.abc import Mapping
from dataclasses import fields, replace

from mpibow.graph import FLOAT, Buffers, Call, Kernel, KernelTable, Op, Run, Shape, Shapes, Weight
from mpibow.ops import batch_norm, conv, conv_transpose, gru, lstm

__all__ = ["BatchNormOf", "Conv2dOf", "ConvTranspose2dOf", "GruOf", "LstmOf"]


class WeightsAsInputs(Op):
    """The layer that stands behind it in a class, with its weights as its last inputs."""

    reads = "xy"
    fusible = False

    @property
    def count(self) -> int:
        """How many inputs are the layer's own."""
        return len(super().differentiable or ())

    @property
    def differentiable(self) -> tuple[int, ...]:
        return tuple(range(self.count + 4))

    def keys(self, *shapes: Shape) -> tuple[str, ...]:
        """The layer's names of its weights."""
        return tuple(super().weights(*shapes[: self.count]))

    def infer(self, *shapes: Shape) -> Shape:
        return super().infer(*shapes[: self.count])

    def outputs(self, *shapes: Shape) -> tuple[Shape, ...]:
        return super().outputs(*shapes[: self.count])

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        return {}

    def statistics(self, *shapes: Shape) -> Mapping[str, Weight]:
        return super().statistics(*shapes[: self.count])


class Conv2dOf(WeightsAsInputs, conv.Conv2d):
    """Conv2d of x0, with its weight x1, and its bias x2 if it has one."""

    kind = "conv_of"


class ConvTranspose2dOf(WeightsAsInputs, conv_transpose.ConvTranspose2d):
    """ConvTranspose2d of x0, with its weight x1, and its bias x2 if it has one."""

    kind = "conv_transpose_of"


class BatchNormOf(WeightsAsInputs, batch_norm.BatchNorm):
    """BatchNorm of x0, with its weight x1 and bias x2."""

    kind = "batch_norm_of"


class LstmOf(WeightsAsInputs, lstm.Lstm):
    """Lstm of x0 and its states, with its four weights behind them."""

    kind = "lstm_of"


class GruOf(WeightsAsInputs, gru.Gru):
    """Gru of x0 and its state, with its four weights behind them."""

    kind = "gru_of"


OF = (BatchNormOf, Conv2dOf, ConvTranspose2dOf, GruOf, LstmOf)
LAYERS: KernelTable = {
    op: kernel for layer in (batch_norm, conv, conv_transpose, gru, lstm) for op, kernel in layer.KERNELS.items()
}


def applied(op: Op) -> Op:
    """The layer, such as ops.Conv2d, with its weights as inputs. Raises KeyError where there is none."""
    kind = {each.__mro__[2]: each for each in OF}[type(op)]
    return kind(**{each.name: getattr(op, each.name) for each in fields(kind)})


# The reference kernels are the layers' own.


def _kernel(op: Op) -> Kernel:
    return LAYERS[type(op).__mro__[2]]


def _inner(op: WeightsAsInputs, shapes: Shapes) -> Shapes:
    return replace(shapes, x=shapes.x[: op.count], wanted=tuple(i for i in shapes.wanted if i < op.count))


def _call(call: Call) -> Call:
    op: WeightsAsInputs = call.op
    weights = dict(zip(op.keys(*call.shapes.x), call.x[op.count :], strict=True))
    return replace(call, x=call.x[: op.count], w=weights, shapes=_inner(op, call.shapes))


def buffers(op: WeightsAsInputs, shapes: Shapes) -> Buffers:
    made = _kernel(op).buffers(op, _inner(op, shapes))
    places = enumerate(op.keys(*shapes.x), op.count)
    unread = {f"d_{key}": (shapes.x[i], FLOAT) for i, key in places if i not in shapes.wanted}
    return replace(made, backward={**made.backward, **unread})


def backward(call: Call) -> Run:
    op: WeightsAsInputs = call.op
    run = _kernel(op).backward
    assert run is not None
    gradients = {
        key: call.scratch[f"d_{key}"] if dx is None else dx
        for key, dx in zip(op.keys(*call.shapes.x), call.dx[op.count :], strict=True)
    }
    return run(replace(_call(call), dx=call.dx[: op.count], dw=gradients))


KERNELS = dict.fromkeys(OF, Kernel(lambda call: _kernel(call.op).forward(_call(call)), backward, buffers))
