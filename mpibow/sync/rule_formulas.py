"""The rules as formulas of one element: `send` behind a learner's local step, `apply` behind an exchange.

    send(w, u, ...) -> w, summand       w a learner's weight, u its local step, summand what all learners' are added to
    apply([w], ..., total) -> [w], ...  total the sum of all summands since the last exchange, over learners and ranks

The names between are arrays that the rule keeps, read by both and written by `apply`; numbers follow the *. Without w
`apply` moves no replica, so the exchange may run beside the next gradients. Lagging replicas are Crossbow's (PVLDB
12(11) 2019, algorithm 1), with momentum 0 synchronous EA-SGD (arXiv:1412.6651). With D = total / k the mean step:

    pulled    W = centre. At period 1 replicas are pulled in every iteration, else in a period's first one
    lagging   z = centre lags behind W = mean; replicas are pulled in a period's last iteration
    reset     replicas become W behind an exchange

    outer(D)  mean G D with the gain G (mpibow.sync.gain); momentum lr v, v <- momentum (rate / rate before) v + D:
              SlowMo, arXiv:1910.00643, line 8, where momentum is of D / rate, so that a schedule does not distort it;
              nesterov lr (D + momentum v), v <- momentum v + D: DiLoCo, as PyTorch's SGD
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal

from mpibow.formulas import Array, Formula
from mpibow.formulas.functions import where


def local(w: Array, u: Array) -> Array:
    """The local step alone: nothing is sent."""
    return w + u


def pull(w: Array, u: Array, centre: Array, *, alpha: float) -> tuple[Array, Array]:
    """w <- w + u - alpha (w - centre); steps are added up."""
    pulled = where(alpha != 0, u - alpha * (w - centre), u)
    return w + pulled, u


def mean(w: Array, centre: Array, total: Array, *, extra: float, whole: float) -> tuple[Array, Array]:
    """W <- W + G D; w <- w + (G - 1) D, as `pull` gave each w its u, whose mean is D.

    extra = (G - 1) / k, whole = 1 / k + extra. With alpha = 1, the default, an iteration ends with W <- W + G D and
    w_i = W before + u_i + (G - 1) D.
    """
    return where(extra != 0, w + extra * total, w), centre + whole * total


def momentum(
    w: Array, centre: Array, outer_velocity: Array, total: Array, *, share: float, keep: float, lr: float
) -> tuple[Array, Array, Array]:
    """share = 1 / k, keep = momentum (rate / rate before)."""
    step = share * total
    outer_velocity = keep * outer_velocity + step
    more = lr * outer_velocity - step
    return w + more, centre + step + more, outer_velocity


def nesterov(
    w: Array, centre: Array, outer_velocity: Array, total: Array, *, share: float, keep: float, ahead: float,
    rest: float,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """ahead = lr momentum, rest = lr - 1."""
    step = share * total
    outer_velocity = keep * outer_velocity + step
    more = ahead * outer_velocity + rest * step
    return w + more, centre + step + more, outer_velocity


@cache
def reset(apply: Formula) -> Formula:
    """The same outer step, behind which replicas are the centre."""
    _, centre, *others = apply.results
    return replace(apply, name=f"reset_{apply.name}", results=(centre, centre, *others))


def lag(
    centre: Array, mean: Array, previous: Array, total: Array, *, pull: float, alpha: float, mu: float, share: float
) -> tuple[Array, Array, Array]:
    """z, z_prev <- z + k alpha (W - z) + mu (z - z_prev), z and W <- W - alpha (W - z) where pull = k alpha is not 0.

    W <- W + D where a sum has come: share = 1 / k, else 0.
    """
    gap = mean - centre
    ahead = centre + mu * (centre - previous) + pull * gap
    behind = where(pull != 0, centre, previous)
    w = where(pull != 0, mean - alpha * gap, mean)
    return where(pull != 0, ahead, centre), where(share != 0, w + share * total, w), behind


# By the outer step.
APPLY: Mapping[str, Callable[..., Any]] = {"mean": mean, "momentum": momentum, "nesterov": nesterov}
Form = Literal["weights", "steps"]  # an array begins as the centre, or as 0
KEPT: Mapping[str, Form] = {  # the arrays of these formulas beside the centre
    "mean": "weights",
    "previous": "weights",
    "outer_velocity": "steps",
}
