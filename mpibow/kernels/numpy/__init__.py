"""The reference kernels: plain NumPy, float32 or float64, always available."""

from mpibow.graph.kernel import Kernel, KernelTable
from mpibow.graph.steps import Sum
from mpibow.kernels.numpy import batch_norm, conv, dense, dropout, elementwise, loss, pool
from mpibow.ops import (
    Accuracy,
    AvgPool2d,
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    MaxPool2d,
    Normalise,
    Relu,
    Sigmoid,
    SoftmaxCrossEntropy,
    Tanh,
)

OPERATORS: KernelTable = {
    Accuracy: Kernel(loss.accuracy_forward, None, loss.accuracy_buffers),
    AvgPool2d: Kernel(pool.avg_forward, pool.avg_backward, pool.avg_buffers),
    BatchNorm: Kernel(batch_norm.forward, batch_norm.backward, batch_norm.buffers),
    Conv2d: Kernel(conv.forward, conv.backward, conv.buffers),
    Dense: Kernel(dense.forward, dense.backward),
    Dropout: Kernel(dropout.forward, dropout.backward, dropout.buffers),
    MaxPool2d: Kernel(pool.max_forward, pool.max_backward, pool.max_buffers),
    Normalise: Kernel(elementwise.normalise_forward),
    Relu: Kernel(elementwise.relu_forward, elementwise.relu_backward, elementwise.relu_buffers),
    Sigmoid: Kernel(elementwise.sigmoid_forward, elementwise.sigmoid_backward, elementwise.one_scratch),
    SoftmaxCrossEntropy: Kernel(loss.cross_entropy_forward, loss.cross_entropy_backward, loss.cross_entropy_buffers),
    Sum: Kernel(elementwise.sum_forward),
    Tanh: Kernel(elementwise.tanh_forward, elementwise.tanh_backward, elementwise.one_scratch),
}
