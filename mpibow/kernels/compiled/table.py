"""The kernels that numba compiles, by operator."""

from mpibow.graph.kernel import Kernel, KernelTable
from mpibow.graph.steps import Sum
from mpibow.kernels.compiled import (
    combine,
    copies,
    dropout,
    elementwise,
    factorise,
    gelu,
    layer_norm,
    loss,
    mean_pool,
    normalise,
)
from mpibow.kernels.compiled.elementwise import as_given, unpadded
from mpibow.ops import (
    Accuracy,
    Add,
    ClippedRelu,
    Concat,
    Dropout,
    Gelu,
    GlobalAvgPool2d,
    LayerNorm,
    LeakyRelu,
    MatrixFactorisation,
    Maximum,
    Multiply,
    Normalise,
    PadChannels,
    Relu,
    Sigmoid,
    SoftCrossEntropy,
    SoftmaxCrossEntropy,
    Tanh,
)
from mpibow.ops.fused import AddRelu

OPERATORS: KernelTable = {
    Accuracy: Kernel(loss.accuracy_forward),
    Add: Kernel(combine.add_forward, combine.add_backward, formats=as_given),
    AddRelu: Kernel(elementwise.add_relu_forward, elementwise.add_relu_backward, formats=as_given),
    ClippedRelu: Kernel(elementwise.clipped_forward, elementwise.clipped_backward, formats=as_given),
    Concat: Kernel(copies.concat_forward, copies.concat_backward, formats=copies.concat_formats),
    Dropout: Kernel(dropout.forward, dropout.backward, dropout.buffers),
    Gelu: Kernel(gelu.forward, gelu.backward, formats=as_given),
    GlobalAvgPool2d: Kernel(mean_pool.forward, mean_pool.backward, mean_pool.buffers, mean_pool.formats),
    LayerNorm: Kernel(layer_norm.forward, layer_norm.backward, layer_norm.buffers),
    LeakyRelu: Kernel(elementwise.leaky_forward, elementwise.leaky_backward, formats=as_given),
    MatrixFactorisation: Kernel(factorise.forward, factorise.backward, factorise.buffers),
    Maximum: Kernel(combine.maximum_forward, combine.maximum_backward, combine.maximum_buffers, as_given),
    Multiply: Kernel(combine.multiply_forward, combine.multiply_backward, formats=as_given),
    Normalise: Kernel(normalise.forward),
    PadChannels: Kernel(copies.pad_forward, copies.pad_backward, formats=copies.pad_formats),
    Relu: Kernel(elementwise.relu_forward, elementwise.relu_backward, formats=as_given),
    Sigmoid: Kernel(elementwise.sigmoid_forward, elementwise.sigmoid_backward, formats=unpadded),
    SoftCrossEntropy: Kernel(loss.soft_forward, loss.cross_entropy_backward, loss.cross_entropy_buffers),
    SoftmaxCrossEntropy: Kernel(loss.cross_entropy_forward, loss.cross_entropy_backward, loss.cross_entropy_buffers),
    Sum: Kernel(combine.sum_forward, formats=as_given),
    Tanh: Kernel(elementwise.tanh_forward, elementwise.tanh_backward, formats=as_given),
}
