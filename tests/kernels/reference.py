"""NumPy's kernels of every operator, those among them that only other kernel sets have: what all are compared with."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mpibow import ops
from mpibow.graph import FLOAT, Array, Call, Kernel, Run, Shapes
from mpibow.graph.formats import Reorder
from mpibow.graph.rewrite import Convert
from mpibow.kernels.numpy import OPERATORS as NUMPY
from mpibow.ops.fused import (
    AddRelu,
    ConvNormAddRelu,
    ConvRelu,
    ExpandAdd,
    ExpandMultiply,
    HeadsAttention,
    NormAddRelu,
    TurnedMatmul,
)
from mpibow.ops.wide import (
    Beside,
    WideConcat,
    WideDropout,
    WideLayerNorm,
    WideLocalResponseNorm,
    WidePadChannels,
    WideSoftmax,
)
from tests.kernels.operators import attention


def added(call: Call) -> Run:
    return lambda: np.copyto(call.y, np.maximum(call.x[0] + call.x[1], 0))


def added_back(call: Call) -> Run:
    def run() -> None:
        for dx in call.dx:
            if dx is not None:
                np.copyto(dx, call.dy * (call.y > 0))

    return run


def broadcast(multiply: bool) -> Kernel:
    """The sum, or the product, of x1 and x0 broadcast to it."""

    def forward(call: Call) -> Run:
        s, x = call.x
        return lambda: np.copyto(call.y, x * s if multiply else x + s)

    def backward(call: Call) -> Run:
        (s, x), (ds, dx), dy = call.x, call.dx, call.dy

        def run() -> None:
            if ds is not None:
                whole = ds.reshape((1,) * (dy.ndim - ds.ndim) + ds.shape)
                axes = tuple(i for i, extent in enumerate(whole.shape) if extent != dy.shape[i])
                np.copyto(whole, (dy * x if multiply else dy).sum(axis=axes, keepdims=True))
            if dx is not None:
                np.copyto(dx, dy * s if multiply else dy)

        return run

    return Kernel(forward, backward)


def cut(op: HeadsAttention, arrays) -> list:
    """Views (n, heads, t, d) of q, k and v, or of their gradients; None where one is not wanted."""
    if op.packed:
        arrays = [None] * 3 if arrays[0] is None else np.split(arrays[0], 3, -1)

    def view(array):
        return None if array is None else np.swapaxes(array.reshape(*array.shape[:2], op.heads, -1), 1, 2)

    return list(map(view, arrays[:3]))


def heads_apart(call: Call) -> Run:
    """Attention by its slow definition, of heads that are cut out and joined again."""

    def run() -> None:
        q, k, v = cut(call.op, call.x)
        y = attention.plain(call.op.attention, q, k, v, *masks_of(call.op, call.x), {})
        np.copyto(call.y, np.swapaxes(y, 1, 2).reshape(call.y.shape))

    return run


def heads_apart_back(call: Call) -> Run:
    def run() -> None:
        q, k, v = cut(call.op, call.x)
        dy = np.swapaxes(call.dy.reshape(*call.dy.shape[:2], call.op.heads, -1), 1, 2)
        found = attention.back(call.op.attention, q, k, v, *masks_of(call.op, call.x), dy=dy)
        for its, mine in zip([*cut(call.op, call.dx), *masks_of(call.op, call.dx)], found, strict=False):
            if its is not None:
                its[...] = mine

    return run


def straight(op: TurnedMatmul, arrays) -> list:
    """Views of the factors, or of their gradients, as they are multiplied."""
    pairs = zip(arrays, op.turned, strict=True)
    return [np.swapaxes(array, -1, -2) if array is not None and turned else array for array, turned in pairs]


def turned_product(call: Call) -> Run:
    a, b = straight(call.op, call.x)
    return lambda: np.copyto(call.y, np.matmul(a, b))


def turned_product_back(call: Call) -> Run:
    (a, b), (da, db), dy = straight(call.op, call.x), straight(call.op, call.dx), call.dy

    def run() -> None:
        if da is not None:
            da[...] = np.matmul(dy, np.swapaxes(b, -1, -2))
        if db is not None:
            whole = np.matmul(np.swapaxes(a, -1, -2), dy)
            db[...] = whole.reshape(-1, *whole.shape[-2:]).sum(0) if db.ndim == 2 else whole

    return run


def masks_of(op: HeadsAttention, arrays):
    return arrays[1 if op.packed else 3 :]


def before_relu(own: type, inner: Callable) -> Kernel:
    """The operator inner(op), + x1 where there is one, then relu."""
    kernel = NUMPY[own]
    back = kernel.backward
    assert back is not None

    def forward(call: Call) -> Run:
        run, others, y = kernel.forward(replace(call, op=inner(call.op))), call.x[1:], call.y

        def relu() -> None:
            run()
            for x in others:
                np.add(y, x, out=y)
            np.maximum(y, 0, out=y)

        return relu

    def backward(call: Call) -> Run:
        dz = np.empty_like(call.dy)
        run, others = back(replace(call, op=inner(call.op), dy=dz)), call.dx[1:]

        def behind_relu() -> None:
            np.multiply(call.dy, call.y > 0, out=dz)
            run()
            for dx in others:
                if dx is not None:
                    np.copyto(dx, dz)

        return behind_relu

    return Kernel(forward, backward, lambda op, shapes: kernel.buffers(inner(op), shapes))


def normed(call: Call) -> Run:
    """Convolution, batch norm by running statistics, sum, relu, one after the other."""
    op, z = call.op, np.empty_like(call.y)

    def part(own, x: Array, y: Array, prefix: str) -> Run:
        shapes, kernel = Shapes((x.shape,), y.shape, training=False), NUMPY[type(own)]
        buffers = kernel.buffers(own, shapes)
        saved, scratch = (
            {key: np.empty(shape, y.dtype if kind == FLOAT else kind) for key, (shape, kind) in specs.items()}
            for specs in (buffers.saved, buffers.forward)
        )
        w, statistics = (
            {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            for arrays in (call.w, call.statistics)
        )
        return kernel.forward(
            replace(call, op=own, x=(x,), y=y, w=w, statistics=statistics, saved=saved, scratch=scratch, shapes=shapes)
        )

    convolve, norm = part(op.conv, call.x[0], z, ""), part(op.norm, z, call.y, "batch_norm.")

    def run() -> None:
        convolve()
        norm()
        for x in call.x[1:]:
            np.add(call.y, x, out=call.y)
        if op.relu:
            np.maximum(call.y, 0, out=call.y)

    return run


def reordered(call: Call) -> Run:
    return lambda: np.copyto(call.y, call.x[0])


def reordered_back(call: Call) -> Run:
    return lambda: np.copyto(call.dx[0], call.dy)


def by_replica(x: Array, k: int) -> Array:
    """(n, k c, ...) as (n, k, c, ...)."""
    return x.reshape(x.shape[0], k, -1, *x.shape[2:])


def wide_concatenated(call: Call) -> Run:
    k = call.op.replicas
    return lambda: np.copyto(by_replica(call.y, k), np.concatenate([by_replica(x, k) for x in call.x], axis=2))


def wide_concatenated_back(call: Call) -> Run:
    k, ends = call.op.replicas, np.cumsum([x.shape[1] // call.op.replicas for x in call.x])[:-1]

    def run() -> None:
        for dx, part in zip(call.dx, np.split(by_replica(call.dy, k), ends, axis=2), strict=True):
            if dx is not None:
                np.copyto(by_replica(dx, k), part)

    return run


def wide_padded(call: Call) -> Run:
    k = call.op.replicas

    def run() -> None:
        call.y[...] = 0
        by_replica(call.y, k)[:, :, : call.x[0].shape[1] // k] = by_replica(call.x[0], k)

    return run


def wide_padded_back(call: Call) -> Run:
    (dx,), k = call.dx, call.op.replicas
    return lambda: np.copyto(by_replica(dx, k), by_replica(call.dy, k)[:, :, : dx.shape[1] // k])


def apart(own: type, settings: Callable) -> Kernel:
    """What an operator without weights does of k replicas: NumPy's kernel of one, on k times as many samples."""

    def samples(shape: tuple[int, ...], k: int) -> tuple[int, ...]:
        return (k * shape[0], shape[1] // k, *shape[2:])

    def shapes_of(op, shapes: Shapes) -> Shapes:
        x = tuple(samples(shape, op.replicas) for shape in shapes.x)
        return replace(shapes, x=x, y=samples(shapes.y, op.replicas))

    def one(call: Call) -> Call:
        def seen(array):
            return None if array is None else array.reshape(samples(array.shape, call.op.replicas))

        return replace(
            call, op=settings(call.op), x=tuple(map(seen, call.x)), y=seen(call.y), dy=seen(call.dy),
            dx=tuple(map(seen, call.dx)), shapes=shapes_of(call.op, call.shapes),
        )  # fmt: skip

    kernel = NUMPY[own]
    back = kernel.backward
    return Kernel(
        lambda call: kernel.forward(one(call)),
        lambda call: back(one(call)),
        lambda op, shapes: kernel.buffers(settings(op), shapes_of(op, shapes)),
    )


def normalised(call: Call) -> tuple[Array, Array, Array, tuple[int, ...]]:
    """Of every replica (n, k, c, ...): the normalised x, 1 / deviation, the weights as they go with it, the axes."""
    op, x = call.op, by_replica(call.x[0], call.op.replicas)
    axes = tuple(range(x.ndim - op.axes, x.ndim))
    inverse = 1 / np.sqrt(x.var(axis=axes, keepdims=True) + op.epsilon)
    weights = of_replicas(call.w["weight"], x, op)
    return (x - x.mean(axis=axes, keepdims=True)) * inverse, inverse, weights, axes


def of_replicas(weight: Array, x: Array, op) -> Array:
    return weight.reshape(op.replicas, *(1,) * (x.ndim - 2 - op.axes), *x.shape[x.ndim - op.axes :])


def wide_layer_norm(call: Call) -> Run:
    def run() -> None:
        h, _, weight, _ = normalised(call)
        np.copyto(by_replica(call.y, call.op.replicas), h * weight + of_replicas(call.w["bias"], h, call.op))

    return run


def wide_layer_norm_back(call: Call) -> Run:
    def run() -> None:
        (h, inverse, weight, axes), dy = normalised(call), by_replica(call.dy, call.op.replicas)
        others = tuple(axis for axis in range(h.ndim) if axis not in (1, *axes))
        for key, part in (("weight", dy * h), ("bias", dy)):
            call.dw[key][...] = part.sum(axis=others).reshape(call.dw[key].shape)
        g = dy * weight
        back = g - g.mean(axis=axes, keepdims=True) - h * (g * h).mean(axis=axes, keepdims=True)
        if (dx := call.dx[0]) is not None:
            by_replica(dx, call.op.replicas)[...] = back * inverse

    return run


REFERENCE = {
    **NUMPY,
    AddRelu: Kernel(added, added_back),
    Convert: Kernel(reordered, reordered_back),
    Beside: NUMPY[ops.Concat],
    ConvNormAddRelu: Kernel(normed),
    ConvRelu: before_relu(ops.Conv2d, lambda op: op.conv),
    ExpandAdd: broadcast(multiply=False),
    ExpandMultiply: broadcast(multiply=True),
    HeadsAttention: Kernel(heads_apart, heads_apart_back),
    NormAddRelu: before_relu(ops.BatchNorm, lambda op: op.norm),
    Reorder: Kernel(reordered, reordered_back),
    TurnedMatmul: Kernel(turned_product, turned_product_back),
    WideConcat: Kernel(wide_concatenated, wide_concatenated_back),
    WideDropout: apart(ops.Dropout, lambda op: ops.Dropout(op.rate)),
    WideLayerNorm: Kernel(wide_layer_norm, wide_layer_norm_back),
    WideLocalResponseNorm: apart(
        ops.LocalResponseNorm, lambda op: ops.LocalResponseNorm(op.size, op.alpha, op.beta, op.k)
    ),
    WidePadChannels: Kernel(wide_padded, wide_padded_back),
    WideSoftmax: apart(ops.Softmax, lambda op: ops.Softmax(op.axis)),
}
