"""The kernel set of a GPU: operator -> mpibow's own kernels or cuDNN's layer, in one table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpibow import ops
from mpibow.cuda.kernels import elementwise, image, layout, loss, norm, pointwise, pool
from mpibow.graph import Buffers, Call, Formats, Kernel, KernelTable, Op, Run, Shapes, Tags, as_given, canonical_formats
from mpibow.graph.formats import Reorder
from mpibow.graph.rewrite import Convert, Widths
from mpibow.graph.steps import Sum
from mpibow.ops.fused import AddRelu
from mpibow.ops.wide import (
    Beside,
    WideConcat,
    WideDense,
    WideDropout,
    WideLayerNorm,
    WideLocalResponseNorm,
    WidePadChannels,
    WideSoftmax,
)

from .cudnn import Cudnn
from .kernels import Launch
from .launcher import Bind
from .layers import layers
from .operands import Precision

# Float32 in every precision: losses, hits, targets and the arrays they are mixed of. cuDNN's layers never are; own
# kernels make their inputs from stored images of any type.
WIDTHS = Widths(
    wide=(
        ops.Accuracy,
        ops.MatrixFactorisation,
        ops.MixShares,
        ops.OneHot,
        ops.SoftCrossEntropy,
        ops.SoftmaxCrossEntropy,
    ),
    narrow=(ops.BatchNorm, ops.Conv2d, ops.Dense, WideDense, ops.Jitter, ops.Normalise),
    leading=(ops.Mix,),
)


def operators(bind: Bind, cudnn: Cudnn, precision: Precision) -> KernelTable:
    """Its kernels bind runs that take the stream they enqueue on."""

    runs: Any = bind
    return {**{op: kernel.bound(runs) for op, kernel in LAUNCHED.items()}, **layers(cudnn, precision)}


Launching = Callable[[Call], Sequence[Launch]]


@dataclass(frozen=True)
class LaunchKernel:
    """As mpibow.graph.kernel.Kernel, but its halves return launches instead of computing."""

    forward: Launching
    backward: Launching | None = None
    buffers: Callable[[Any, Shapes], Buffers] = lambda op, shapes: Buffers()
    formats: Callable[[Any, Shapes, Tags], Formats] = canonical_formats

    def bound(self, bind: Callable[[Sequence[Launch]], Run]) -> Kernel:
        """The kernel whose launches `bind` turns into a run."""
        back = self.backward
        return Kernel(
            lambda call: bind(self.forward(call)),
            None if back is None else lambda call: bind(back(call)),
            self.buffers,
            self.formats,
        )


_same = partial(LaunchKernel, formats=as_given)  # the kernel of an operator that takes any layout
_UNARY = _same(elementwise.unary_forward, elementwise.unary_backward)
_AVERAGE = LaunchKernel(pool.average_forward, pool.average_backward, formats=pool.formats)
_DROPOUT = LaunchKernel(
    elementwise.dropout_forward, elementwise.dropout_backward, elementwise.dropout_buffers, elementwise.counter_formats
)
_LAYER_NORM = LaunchKernel(norm.layer_forward, norm.layer_backward, norm.layer_buffers)
_RESPONSE = _same(
    norm.response_forward,
    norm.response_backward,
    lambda op, shapes: Buffers(saved={"base": (shapes.y, "float32")}),
)
_SOFTMAX = _same(loss.softmax_forward, loss.softmax_backward)


def _pointwise(op: type[Op]) -> LaunchKernel:
    """An operator of one element. Integers are not reordered, so arrays that may hold them are canonical."""
    back = None if op.differentiable is None else pointwise.backward
    formats = canonical_formats if op in (ops.Cast, ops.Compare, ops.Where) else as_given
    return LaunchKernel(pointwise.forward, back, formats=formats)


LAUNCHED: Mapping[type[Op], LaunchKernel] = {
    **{op: _pointwise(op) for op in ops.POINTWISE},
    AddRelu: _same(partial(elementwise.sum_forward, least=0.0), elementwise.add_relu_backward),
    Convert: _same(
        lambda call: [elementwise.cast(call.x0, call.y)], lambda call: [elementwise.cast(call.dy, call.dx0)]
    ),
    Reorder: LaunchKernel(
        layout.reorder_forward,
        layout.reorder_backward,
        formats=lambda op, shapes, given: Formats((op.source,), op.target),
    ),
    Sum: _same(elementwise.sum_forward),
    ops.Accuracy: LaunchKernel(loss.accuracy_forward),
    ops.AdaptiveAvgPool2d: _AVERAGE,
    ops.Add: _same(elementwise.add_forward, elementwise.add_backward),
    ops.Augment: LaunchKernel(image.augment_forward),
    ops.AvgPool2d: _AVERAGE,
    ops.CentreCrop: LaunchKernel(lambda call: image.window(call, None, 0, False)),
    ops.ClippedRelu: _UNARY,
    ops.Concat: _same(layout.concat_forward, layout.concat_backward),
    ops.Cutout: LaunchKernel(image.cutout_forward, formats=elementwise.counter_formats),
    ops.Dropout: _DROPOUT,
    ops.Gelu: _UNARY,
    ops.GlobalAvgPool2d: _AVERAGE,
    ops.Jitter: LaunchKernel(image.jitter_forward),
    ops.LayerNorm: _LAYER_NORM,
    ops.LeakyRelu: _UNARY,
    ops.LocalResponseNorm: _RESPONSE,
    ops.MatrixFactorisation: LaunchKernel(
        loss.factorisation_forward, loss.factorisation_backward, loss.factorisation_buffers
    ),
    ops.MaxPool2d: LaunchKernel(pool.max_forward, pool.max_backward, pool.max_buffers, pool.formats),
    ops.Maximum: _same(elementwise.maximum_forward, elementwise.maximum_backward, elementwise.maximum_buffers),
    ops.Mix: LaunchKernel(image.mix_forward, formats=lambda op, shapes, given: Formats((given[0], "a"), given[0])),
    ops.MixShares: LaunchKernel(image.shares_forward),
    ops.Multiply: _same(elementwise.multiply_forward, elementwise.multiply_backward),
    ops.Normalise: LaunchKernel(image.normalise_forward, formats=image.normalise_formats),
    ops.OneHot: LaunchKernel(image.one_hot_forward),
    ops.PadChannels: _same(layout.pad_forward, layout.concat_backward),
    ops.Relu: _UNARY,
    ops.Sigmoid: _UNARY,
    ops.SoftCrossEntropy: LaunchKernel(loss.soft_forward, loss.scale_rows, loss.cross_entropy_buffers),
    ops.Softmax: _SOFTMAX,
    ops.SoftmaxCrossEntropy: LaunchKernel(loss.cross_entropy_forward, loss.scale_rows, loss.cross_entropy_buffers),
    ops.Tanh: _UNARY,
    Beside: _same(layout.concat_forward),
    WideConcat: LaunchKernel(layout.concat_forward, layout.concat_backward, formats=layout.last_formats),
    WideDropout: _DROPOUT,
    WideLayerNorm: _LAYER_NORM,
    WideLocalResponseNorm: _RESPONSE,
    WidePadChannels: LaunchKernel(layout.pad_forward, layout.concat_backward, formats=layout.last_formats),
    WideSoftmax: _SOFTMAX,
}
