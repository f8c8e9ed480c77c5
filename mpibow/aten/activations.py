"""Functions of one element, as ATen calls them: `x` is what it calls self."""

from math import log

from mpibow import ops
from mpibow.graph import Tensor

from .site import Function, of_floats


def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """It has no gradient at the limits."""
    low = float(min_val)
    high = float(max_val)
    if low == 0 < high:
        return ops.clipped_relu(x, high)
    return ops.where(ops.ge(x, high), high, ops.where(ops.le(x, low), low, x))


def hardsigmoid(x: Tensor) -> Tensor:
    return ops.clipped_relu(x + 3.0) / 6.0


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    y = ops.softplus(x * float(beta)) / float(beta)
    return y if threshold >= 20 else ops.where(ops.gt(x * float(beta), float(threshold)), x, y)


def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    above = ops.gt(x, 0.0)
    below = ops.expm1(ops.where(above, 0.0, x) * float(input_scale))  # of x it could overflow
    return ops.where(above, x, below * float(alpha)) * float(scale)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    values, gates = ops.split(x, x.shape[dim] // 2, axis=dim)
    return values * ops.sigmoid(gates)


# Functions of the same name here.
SAME = "cos", "erf", "exp", "expm1", "floor", "log", "log1p", "sigmoid", "silu", "sin", "sqrt", "tanh"
OPERATORS: dict[str, Function] = of_floats(
    {
        **{name: getattr(ops, name) for name in SAME},
        "ceil": lambda x: -ops.floor(-x),
        "celu": lambda x, alpha=1.0: elu(x, alpha, 1, 1 / alpha),
        "elu": elu,
        "exp2": lambda x: ops.exp(x * log(2.0)),
        "gelu": lambda x, approximate="none": ops.gelu(x, tanh=approximate == "tanh"),
        "glu": glu,
        "hardsigmoid": hardsigmoid,
        "hardswish": lambda x: x * hardsigmoid(x),
        "hardtanh": hardtanh,
        "leaky_relu": lambda x, negative_slope=0.01: ops.leaky_relu(x, float(negative_slope)),
        "log10": lambda x: ops.log(x) / log(10.0),
        "log2": lambda x: ops.log(x) / log(2.0),
        "log_sigmoid": lambda x: -ops.softplus(-x),
        "log_softmax": lambda x, dim=-1: ops.log_softmax(x, dim),
        "mish": lambda x: x * ops.tanh(ops.softplus(x)),
        "reciprocal": lambda x: ops.power(x, -1.0),
        "relu6": ops.clipped_relu,
        "rsqrt": lambda x: ops.power(ops.sqrt(x), -1.0),
        "softmax": lambda x, dim=-1: ops.softmax(x, dim),
        "softplus": softplus,
    }
)
