"""Gelu (Hendrycks and Gimpel, arXiv:1606.08415), and the error function."""

import math

import numpy as np

from mpibow.graph import FLOAT, Array, Arrays, Buffers, Call, Kernel, Op, Run, Shapes, Tensor, runs

from .pointwise import of_one

__all__ = ["Erf", "Gelu", "erf", "gelu"]


class Gelu(Op):
    """y = x P(x), P the normal distribution's function, or the paper's form of it by tanh (arXiv:1606.08415, 2)."""

    tanh: bool
    kind = "gelu"
    reads = "x"


class Erf(Op):
    """y = erf(x) = 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""

    kind = "erf"
    reads = "x"


erf = of_one(Erf(), "The error function, of any shape.")


def gelu(x: Tensor, *, tanh: bool = False, name: str | None = None) -> Tensor:
    """x (1 + erf(x / sqrt(2))) / 2, or with `tanh` x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    return Gelu(tanh)(x, name=name)


# The reference kernels: a cache-sized chunk at a time.
#
# NumPy has no erf; math.erf a number at a time makes objects and holds the GIL. Here it is one polynomial without
# branches, so that it runs as NumPy passes: erfc(z) = t exp(-z^2) p(2 t - 1) with t = 3 / (3 + z), for z >= 0 (the form
# of Press et al., Numerical Recipes, section 6.2.2). p interpolates erfcx(z) / t at 60 Chebyshev nodes, computed to 50
# digits; the error of P is below 4e-16, and below 5e-15 relative where P is small (a test holds it to math.erf).

CHUNK = 4096
TERMS = (
    0.3580023023627799,
    0.294464817723293,
    0.19674278570136933,
    0.10348908730032487,
    0.039842587095666314,
    0.008942411537958437,
    -0.00040413887394316183,
    -0.0010113539579816233,
    -0.00018276991424949872,
    9.225899997789508e-05,
    3.585392363681283e-05,
    -1.0131578675156923e-05,
    -5.823857407636006e-06,
    1.5801189369395156e-06,
    9.225829640201406e-07,
    -3.2798388174368307e-07,
    -1.3722842699705352e-07,
    7.241314802770536e-08,
    1.6652640553590825e-08,
    -1.3174436327282527e-08,
    -1.1893885619092368e-09,
    1.3433763579088608e-09,
    2.3183140775046786e-12,
)
SCALE, CUBE = (2 / math.pi) ** 0.5, 0.044715  # of the form by tanh


def normal(x: Array, p: Array, bell: Array, work: Array, mask: Array) -> None:
    """p <- P(x) and bell <- exp(-x^2 / 2); all of one shape and dtype, but `mask` is bool."""
    np.multiply(x, x, out=bell)
    bell *= -0.5
    np.exp(bell, out=bell)
    np.abs(x, out=work)
    work *= 0.5**0.5 / 3  # z / 3, z = |x| / sqrt(2)
    work += 1
    np.divide(2, work, out=work)
    work -= 1  # u = 2 t - 1
    p.fill(TERMS[-1])
    for term in TERMS[-2::-1]:
        p *= work
        p += term
    work += 1
    work *= 0.25  # t / 2
    p *= work
    p *= bell  # P(-|x|) = erfc(z) / 2
    np.subtract(1, p, out=work)
    np.greater_equal(x, 0, out=mask)
    np.copyto(p, work, where=mask)


def buffers(op: Op, shapes: Shapes) -> Buffers:
    chunk = min(CHUNK, math.prod(shapes.y))
    scratch = {"bell": ((chunk,), FLOAT), "work": ((chunk,), FLOAT), "mask": ((chunk,), "bool")}
    return Buffers(forward=scratch, backward=scratch)


def chunks_of(call: Call, *arrays: Array) -> list[Arrays]:
    """Every chunk of `arrays`, all of one size, with bell, work and mask of its length."""
    scratch = [call.scratch[key] for key in ("bell", "work", "mask")]
    size = arrays[0].size
    return [
        (
            *(array.reshape(-1)[start : start + CHUNK] for array in arrays),
            *(array[: min(CHUNK, size - start)] for array in scratch),
        )
        for start in range(0, size, CHUNK)
    ]


def forward(call: Call) -> Run:
    chunks = chunks_of(call, call.x0, call.y)

    def by_erf() -> None:
        for x, y, bell, work, mask in chunks:
            normal(x, y, bell, work, mask)
            y *= x

    def by_tanh() -> None:  # x (1 + tanh(s x (1 + c x^2))) / 2
        for x, y, *_ in chunks:
            np.multiply(x, x, out=y)
            y *= SCALE * CUBE
            y += SCALE
            y *= x
            np.tanh(y, out=y)
            y += 1
            y *= x
            y *= 0.5

    return by_tanh if call.op.tanh else by_erf


def backward(call: Call) -> Run:
    chunks = chunks_of(call, call.x0, call.dy, call.dx0)

    def by_erf() -> None:  # P + x P'
        for x, dy, dx, bell, work, mask in chunks:
            normal(x, dx, bell, work, mask)
            bell *= x
            bell *= (2 * math.pi) ** -0.5
            dx += bell
            dx *= dy

    def by_tanh() -> None:  # with T the tanh: (1 + T) (1 + x (1 - T) s (1 + 3 c x^2)) / 2
        for x, dy, dx, square, t, _ in chunks:
            np.multiply(x, x, out=square)
            np.multiply(square, SCALE * CUBE, out=t)
            t += SCALE
            t *= x
            np.tanh(t, out=t)
            np.multiply(square, 3 * SCALE * CUBE, out=dx)
            dx += SCALE
            dx *= x
            np.subtract(1, t, out=square)
            dx *= square
            dx += 1
            t += 1
            dx *= t
            dx *= 0.5
            dx *= dy

    return by_tanh if call.op.tanh else by_erf


def erf_forward(call: Call) -> Run:
    chunks = chunks_of(call, call.x0, call.y, call.scratch["part"])

    def run() -> None:  # 2 P(sqrt(2) x) - 1
        for x, y, part, bell, work, mask in chunks:
            np.multiply(x, 2**0.5, out=part)
            normal(part, y, bell, work, mask)
            y *= 2
            y -= 1

    return run


@runs
def erf_backward(x: Array, dy: Array, dx: Array) -> None:
    np.multiply(x, x, out=dx)
    np.negative(dx, out=dx)
    np.exp(dx, out=dx)
    dx *= 2 / np.pi**0.5
    dx *= dy


KERNELS = {
    Erf: Kernel(
        erf_forward,
        erf_backward,
        lambda op, shapes: Buffers(forward={**buffers(op, shapes).forward, "part": (shapes.y, FLOAT)}),
    ),
    Gelu: Kernel(forward, backward, buffers),
}
