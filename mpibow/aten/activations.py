"""Functions of one element, as ATen calls them: `x` is what it calls self."""

from math import log

from mpibow import ops
from mpibow.graph.graph import Tensor

from .site import Function, of_floats


def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    low, high = float(min_val), float(max_val)
    return ops.affine(ops.clipped_relu(ops.affine(x, 1.0, -low), high - low), 1.0, low)


def hardsigmoid(x: Tensor) -> Tensor:
    return ops.clipped_relu(x + 3.0) * (1 / 6)


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    y = ops.softplus(x * float(beta)) / float(beta)
    return y if threshold >= 20 else ops.where(ops.gt(x * float(beta), float(threshold)), x, y)


def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    below = ops.exp(-ops.maximum(-x, ops.full(x.shape, 0.0)) * float(input_scale))  # exp(x) could overflow
    return ops.where(ops.gt(x, 0.0), x, (below - 1.0) * float(alpha)) * float(scale)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    values, gates = ops.split(x, x.shape[dim] // 2, axis=dim)
    return values * ops.sigmoid(gates)


# Functions of the same name here.
SAME = ("abs", "cos", "erf", "exp", "floor", "log", "log1p", "relu", "sigmoid", "sign", "silu", "sin", "sqrt", "tanh")
OPERATORS: dict[str, Function] = of_floats(
    {
        **{name: getattr(ops, name) for name in SAME},
        "ceil": lambda x: -ops.floor(-x),
        "celu": lambda x, alpha=1: elu(x, alpha, input_scale=1 / alpha),
        "elu": elu,
        "exp2": lambda x: ops.exp(x * log(2.0)),
        "expm1": lambda x: ops.exp(x) - 1.0,
        "gelu": lambda x, approximate="none": ops.gelu(x, tanh=approximate == "tanh"),
        "glu": glu,
        "hardsigmoid": hardsigmoid,
        "hardswish": lambda x: x * hardsigmoid(x),
        "hardtanh": hardtanh,
        "leaky_relu": lambda x, negative_slope=0.01: ops.leaky_relu(x, float(negative_slope)),
        "log10": lambda x: ops.log(x) / log(10.0),
        "log2": lambda x: ops.log(x) / log(2.0),
        "log_sigmoid": lambda x: -ops.softplus(-x),
        "log_softmax": lambda x, dim: ops.log_softmax(x, dim),
        "mish": lambda x: x * ops.tanh(ops.softplus(x)),
        "reciprocal": lambda x: ops.power(x, -1.0),
        "relu6": ops.clipped_relu,
        "rsqrt": lambda x: ops.power(ops.sqrt(x), -1.0),
        "softmax": lambda x, dim: ops.softmax(x, dim),
        "softplus": softplus,
    }
)
