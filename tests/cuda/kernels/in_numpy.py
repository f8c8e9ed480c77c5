"""What each of cuDNN's graphs means, in NumPy: on host arrays, to check all that we tell cuDNN."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mpibow.cuda.kernels.cudnn import Enqueue
from mpibow.cuda.kernels.layers import layers
from mpibow.cuda.kernels.listing import rewrite
from mpibow.cuda.kernels.operands import Operand, Precision
from mpibow.cuda.kernels.specs import (
    Cast,
    ConvData,
    ConvForward,
    ConvGeometry,
    ConvWeights,
    NormBackward,
    NormForward,
    NormInference,
    Product,
    ReluBackward,
    Spec,
)
from mpibow.graph import Array, Call, Kernel, Kernels, Run
from mpibow.graph.formats import Reorder, pack, unpack
from tests.kernels.reference import REFERENCE

WORKSPACE = 64  # bytes that every spec asks for, so that scratch is declared and handed on


def seen(array: Array, operand: Operand) -> Array:
    """The array's memory as the spec says that it lies: by the spec's shape and strides, not the array's own."""
    assert array.flags.c_contiguous
    flat = array.reshape(-1)
    if array.dtype == np.uint8 and operand.dtype in ("float16", "bfloat16"):
        flat = flat.view(np.dtype(operand.dtype))
    reach = sum((extent - 1) * stride for extent, stride in zip(operand.shape, operand.strides, strict=True))
    assert reach < flat.size, (operand, flat.size)
    return as_strided(flat, operand.shape, tuple(stride * flat.itemsize for stride in operand.strides))


@dataclass
class HostCudnn:
    """As mpibow.cuda.kernels.cudnn.Cudnn. `bound` are the specs that were bound, in order."""

    bound: list[Spec]

    def workspace(self, *specs: Spec | None) -> int:
        return WORKSPACE

    def bind(self, spec: Spec, arrays: Mapping, workspace=None) -> Enqueue:
        assert {o.name for o in spec.operands} == set(arrays), (spec.kind, sorted(arrays))
        assert workspace.nbytes == WORKSPACE
        views = {o.name: seen(arrays[o.name], o) for o in spec.operands}
        self.bound.append(spec)
        return lambda stream: compute(spec, views)


def taps(window: ConvGeometry, x: Array) -> list[tuple[int, int, Array]]:
    """Of padded x (n, c, h, w), for every element of the filter, what it sees: (n, c, rows, columns), a view."""
    (_, _, kh, kw), (_, _, rows, columns) = window.w, window.y
    found = []
    for i in range(kh):
        for j in range(kw):
            top, left = i * window.dilation[0], j * window.dilation[1]
            rows_end = top + (rows - 1) * window.stride[0] + 1
            columns_end = left + (columns - 1) * window.stride[1] + 1
            part = x[:, :, top : rows_end : window.stride[0], left : columns_end : window.stride[1]]
            found.append((i, j, part))
    return found


def padded(window: ConvGeometry, x: Array) -> Array:
    (ph, pw) = window.padding
    return np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))


def grouped(array: Array, groups: int, axis: int) -> Array:
    """One axis cut in two, groups first."""
    return array.reshape(*array.shape[:axis], groups, -1, *array.shape[axis + 1 :])


def convolve(window: ConvGeometry, x: Array, w: Array) -> Array:
    g, y = window.groups, np.zeros(window.y)
    for i, j, part in taps(window, padded(window, x)):
        y += np.einsum("ngchw,goc->ngohw", grouped(part, g, 1), grouped(w[:, :, i, j], g, 0)).reshape(window.y)
    return y


def convolve_data(window: ConvGeometry, dy: Array, w: Array) -> Array:
    g, dx = window.groups, padded(window, np.zeros(window.x))
    for i, j, part in taps(window, dx):
        part += np.einsum("ngohw,goc->ngchw", grouped(dy, g, 1), grouped(w[:, :, i, j], g, 0)).reshape(part.shape)
    (ph, pw), (_, _, h, width) = window.padding, window.x
    return dx[:, :, ph : ph + h, pw : pw + width]


def convolve_weights(window: ConvGeometry, x: Array, dy: Array) -> Array:
    g, dw = window.groups, np.zeros(window.w)
    for i, j, part in taps(window, padded(window, x)):
        product = np.einsum("ngohw,ngchw->goc", grouped(dy, g, 1), grouped(part, g, 1))
        dw[:, :, i, j] = product.reshape(window.w[:2])
    return dw


def compute(spec: Spec, a: Mapping[str, Array]) -> None:
    """One run of `spec` on views of its operands."""
    axes = (0, 2, 3)
    match spec:
        case ConvForward():
            y = convolve(spec.window, a["x"], a["w"])
            y = y + a["bias"] if spec.bias else y
            if spec.norm is not None:
                y = (y - a["mean"]) / np.sqrt(a["variance"] + spec.norm) * a["scale"] + a["shift"]
            a["y"][...] = ended(y, a, spec.added, spec.relu)
        case ConvData():
            a["dx"][...] = convolve_data(spec.window, a["dy"], a["w"])
        case ConvWeights():
            a["dw"][...] = convolve_weights(spec.window, a["x"], a["dy"])
        case ReluBackward():
            dz = a["dy"] * (a["y"] > 0) if spec.relu else a["dy"]
            if spec.relu:
                a["dz"][...] = dz
            if spec.sums:
                a["sums"][...] = dz.sum(axes, keepdims=True)
        case NormForward():
            x = a["x"].astype(np.float64)
            mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
            inverse, count = 1 / np.sqrt(variance + spec.epsilon), x.size // x.shape[1]
            y = ended((x - mean) * inverse * a["weight"] + a["bias"], a, spec.added, spec.relu)
            m = spec.momentum
            a["y"][...], a["mean"][...], a["inverse"][...] = y, mean, inverse
            a["next_mean"][...] = (1 - m) * a["running_mean"] + m * mean
            a["next_variance"][...] = (1 - m) * a["running_variance"] + m * variance * count / (count - 1)
            if spec.relu:
                a["mask"][...] = y > 0
        case NormBackward():
            dz = a["dy"] * a["mask"] if spec.relu else a["dy"]
            if spec.added:
                a["dz"][...] = dz
            normal = (a["x"] - a["mean"]) * a["inverse"]
            dweight, dbias = (dz * normal).sum(axes, keepdims=True), dz.sum(axes, keepdims=True)
            each = dweight.shape[1] / dz.size
            dx = a["weight"] * a["inverse"] * (dz - (dbias + normal * dweight) * each)
            a["dx"][...], a["dweight"][...], a["dbias"][...] = dx, dweight, dbias
        case NormInference():
            y = (a["x"] - a["mean"]) / np.sqrt(a["variance"] + spec.epsilon) * a["scale"] + a["shift"]
            a["y"][...] = ended(y, a, spec.added, spec.relu)
        case Product():
            c = a["a"] @ a["b"]
            c = c + a["bias"] if spec.bias is not None else c
            a["c"][...] = c
        case Cast():
            a["y"][...] = a["x"]


def ended(y: Array, a: Mapping[str, Array], added: bool, relu: bool) -> Array:
    y = y + a["z"] if added else y
    return np.maximum(y, 0) if relu else y


def host_kernels(precision: Precision) -> tuple[Kernels, list[Spec]]:
    """NumPy's kernels with cuDNN's layers in their place, as this file computes them; and the specs that get bound."""
    cudnn = HostCudnn([])
    table = {op: _kernel(kernel) for op, kernel in layers(cudnn, precision).items()}
    return Kernels({**REFERENCE, Reorder: Kernel(_reorder, _reorder_back), **table}, fuse=rewrite), cudnn.bound


def _kernel(kernel: Kernel) -> Kernel:
    def of(half) -> Callable[[Call], Run]:
        def bind(call: Call) -> Run:
            run = half(call)
            return lambda: run(None)

        return bind

    return replace(kernel, forward=of(kernel.forward), backward=kernel.backward and of(kernel.backward))


def _reorder(call: Call) -> Run:
    op, shape = call.op, call.shapes.y
    return lambda: np.copyto(call.y, pack(unpack(call.x[0], op.source, shape), op.target))


def _reorder_back(call: Call) -> Run:
    op, shape, (dx,) = call.op, call.shapes.y, call.dx
    return lambda: np.copyto(dx, pack(unpack(call.dy, op.target, shape), op.source))
