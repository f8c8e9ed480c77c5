"""An operator of a script's own: forward and backward in NumPy, as functions from arrays to arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import EVERY, FLOAT, Array, Call, InputNumbers, Kernel, Op, Run, Shape, Tensor

__all__ = ["Own", "operator"]

OfArrays = Callable[..., Any]  # a script's function: of arrays to one or several, or of shapes


class Own(Op):
    """y = forward(*x); `trained` are the inputs that backward gives a gradient for, None without backward."""

    name: str
    forward: OfArrays
    backward: OfArrays | None
    shape: OfArrays
    trained: InputNumbers | None
    reads = "xy"
    integers = EVERY

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.name

    @property
    def differentiable(self) -> InputNumbers | None:
        return self.trained

    def infer(self, *shapes: Shape) -> Shape:
        return self.outputs(*shapes)[0]

    def outputs(self, *shapes: Shape) -> tuple[Shape, ...]:
        made = self.shape(*shapes)
        return tuple(map(tuple, made)) if made and not isinstance(made[0], int) else (tuple(made),)


@dataclass(frozen=True)
class OwnOperator:
    """The return value of `operator`: a function from tensors to a tensor, or to a tuple of them."""

    name: str
    forward: OfArrays
    backward: OfArrays | None
    shape: OfArrays

    def __call__(self, *inputs: Tensor, name: str | None = None) -> Any:
        made = inputs[0].graph.add_all(self.record(*(tensor.dtype for tensor in inputs)), *inputs, name=name)
        return made[0] if len(made) == 1 else made

    def record(self, *dtypes: str) -> Own:
        """The record for inputs of these types: there is a gradient for those of the plan's precision."""
        floating = tuple(i for i, dtype in enumerate(dtypes) if dtype == FLOAT)
        return Own(self.name, self.forward, self.backward, self.shape, None if self.backward is None else floating)


def operator(
    name: str, forward: OfArrays, backward: OfArrays | None = None, *, shape: OfArrays = lambda *shapes: shapes[0]
) -> OwnOperator:
    """Makes a function from tensors to a tensor, which NumPy computes by `forward`, for nets on CPUs.

    forward(*x) takes the inputs' arrays, and returns an array or a tuple of arrays. backward(*x, y, dy) returns the
    loss's gradient by the input, or a tuple with one for every input and None for integers; y is forward's result,
    dy the gradient by y, both tuples if there are several. Without `backward` an input that depends on weights must be
    a constant, by `mpibow.detach`. shape(*shapes) returns the output's shape or a tuple of shapes; by default it is the
    first input's. The functions must neither change nor keep their arguments. `mpibow.testing.check_operator` checks
    all this. To train weights, pass mpibow.parameter as inputs.
    """
    return OwnOperator(name, forward, backward, shape)


def _put(name: str, half: str, targets: Sequence[Array | None], results: object) -> None:
    arrays = results if isinstance(results, tuple | list) else (results,)
    if len(arrays) != len(targets):
        raise ShapeError(f"{name}: {half} gives {len(arrays)} arrays, it should give {len(targets)}")
    for target, array in zip(targets, arrays, strict=True):
        if target is not None:
            if np.shape(array) != target.shape:
                raise ShapeError(f"{name}: {half} gives an array of {np.shape(array)}, it should be {target.shape}")
            np.copyto(target, array, casting="same_kind")


def own_forward(call: Call) -> Run:
    ys = call.ys or (call.y,)
    return lambda: _put(call.name, "forward", ys, call.op.forward(*call.x))


def own_backward(call: Call) -> Run:
    y, dy = (call.ys, call.dys) if call.ys else (call.y, call.dy)
    return lambda: _put(call.name, "backward", call.dx, call.op.backward(*call.x, y, dy))


KERNELS = {Own: Kernel(own_forward, own_backward)}
