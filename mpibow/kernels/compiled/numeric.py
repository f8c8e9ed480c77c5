"""Shared by compiled loops: float32 functions without branches or calls, so that loops over them run in vector
registers (libm's do not), indices of either width, and Philox."""

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value
from numba import njit, types

from mpibow.graph import Array

from .code_cache import PART, F
from .command import instruction
from .native import FAST, integers, words

Block = tuple[np.uint64, np.uint64, np.uint64, np.uint64]  # of Philox: 32 bits each
_f = np.float32
_u = np.uint64
LOW = _u(0xFFFFFFFF)
SHIFT = _u(32)
M0 = _u(0xD2511F53)
M1 = _u(0xCD9E8D57)
W0 = _u(0x9E3779B9)
W1 = _u(0xBB67AE85)

# erfc(z) exp(z^2) (3 + z) / 3 as a polynomial in (3 - z) / (3 + z): the reference's (see its gelu.py), its Chebyshev
# series cut where float32 ends: below 3e-8 relative.
E0, E1, E2, E3, E4, E5, E6, E7, E8, E9, E10 = map(
    _f,
    (
        0.35800230503082275,
        0.29446473717689514,
        0.19674265384674072,
        0.10349056869745255,
        0.039844099432229996,
        0.008933907374739647,
        -0.0004107903514523059,
        -0.0009911236120387912,
        -0.00016928352124523371,
        7.030989218037575e-05,
        2.2609878215007484e-05,
    ),
)


def inlined(function: F) -> F:
    """Divisions by zero are as NumPy has them: Python's check is a branch, so a loop with a division stays scalar."""
    return njit(**PART, forceinline=True, fastmath=FAST, error_model="numpy")(function)


def stepwise(function: F) -> F:
    """For results that must be NumPy's to the bit: every product and sum is rounded; none is fused or reordered."""
    return njit(**PART, forceinline=True, fastmath=False, error_model="numpy")(function)


@instruction(types.float32, types.int32)
def as_float(context: object, builder: IRBuilder, bits: Value) -> Value:
    """The float32 with the bits of an int32."""
    return builder.bitcast(bits, ir.FloatType())


@instruction(types.int32, types.float32)
def as_bits(context: object, builder: IRBuilder, x: Value) -> Value:
    """The int32 with the bits of a float32."""
    return builder.bitcast(x, ir.IntType(32))


@inlined
def order(bits: np.int32) -> np.int32:
    """Bits of a float32 to an integer of the same order, and back: maxima of integers run in vector registers."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@inlined
def largest(bits: Array) -> np.float32:
    """The largest float32 of a row given as integers; NaN may be above or below all others."""
    best = order(bits[0])
    for j in range(1, len(bits)):
        best = max(best, order(bits[j]))
    return as_float(order(best))


@inlined
def exp(x: np.float32) -> np.float32:
    """e^x to 1e-7 and |x| 6e-8, relative: 2^n e^r, |r| <= log(2) / 2, polynomial by Moshier (Cephes, expf).

    Denormal results become 0, results above 2.3e38 infinite; NaN stays.
    """
    z = x if x > _f(-87.3) else _f(-87.3)  # NaN as well: its conversion to an integer would be undefined
    z = z if z < _f(88.7) else _f(88.7)
    n = np.rint(z * _f(1.4426950408889634))
    r = z - n * _f(0.6931471805599453)
    p = _f(1.9875691500e-4) * r + _f(1.3981999507e-3)
    p = p * r + _f(8.3334519073e-3)
    p = p * r + _f(4.1665795894e-2)
    p = p * r + _f(1.6666665459e-1)
    p = p * r + _f(5.0000001201e-1)
    p = p * (r * r) + (r + _f(1))
    y = p * as_float((np.int32(n) + np.int32(127)) << np.int32(23))
    y = y if x > _f(-87.3) else _f(0)
    return y if x == x else x


@stepwise
def log(x: np.float32) -> np.float32:
    """The natural logarithm to 1e-7 relative: 2^n (1 + r), a polynomial in r by Moshier (Cephes, logf)."""
    low = x < _f(1.17549435e-38)
    bits = as_bits(x * _f(8388608) if low else x)
    n = _f((bits >> np.int32(23)) - np.int32(126)) - (_f(23) if low else _f(0))
    m = as_float((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000))  # 0.5 to 1
    small = m < _f(0.70710678)
    r = (m + m if small else m) - _f(1)
    n = n - _f(1) if small else n
    s = r * r
    p = _f(7.0376836292e-2) * r - _f(1.1514610310e-1)
    p = p * r + _f(1.1676998740e-1)
    p = p * r - _f(1.2420140846e-1)
    p = p * r + _f(1.4249322787e-1)
    p = p * r - _f(1.6668057665e-1)
    p = p * r + _f(2.0000714765e-1)
    p = p * r - _f(2.4999993993e-1)
    p = p * r + _f(3.3333331174e-1)
    y = p * r * s - _f(2.12194440e-4) * n - _f(0.5) * s
    y = r + y + _f(0.693359375) * n
    y = y if x < _f(np.inf) else x  # infinity, and NaN
    return y if x > _f(0) else _f(-np.inf) if x == _f(0) else _f(np.nan)


@stepwise
def log1p(x: np.float32) -> np.float32:
    """log(1 + x), corrected by the rounding error of 1 + x."""
    whole = _f(1) + x
    lost = ((whole - _f(1)) - x) / whole
    return log(whole) - (lost if abs(lost) < _f(1) else _f(0))  # not where whole is 0 or infinite


@inlined
def sigmoid(x: np.float32) -> np.float32:
    return _f(1) / (_f(1) + exp(-x))


@inlined
def logistic(x: np.float32) -> tuple[np.float32, np.float32]:
    """s = sigmoid(x) and its derivative s (1 - s), without the error of 1 - s."""
    e = exp(-abs(x))
    r = _f(1) / (_f(1) + e)
    return (r if x >= _f(0) else e * r), e * r * r


@inlined
def tanh(x: np.float32) -> np.float32:
    """Eigen's quotient of polynomials (generic_fast_tanh_float), a few units in the last place; NaN stays."""
    z = x if x > _f(-7.9053111) else _f(-7.9053111)
    z = z if z < _f(7.9053111) else _f(7.9053111)
    s = z * z
    p = _f(-2.76076847742355e-16) * s + _f(2.00018790482477e-13)
    p = p * s + _f(-8.60467152213735e-11)
    p = p * s + _f(5.12229709037114e-08)
    p = p * s + _f(1.48572235717979e-05)
    p = p * s + _f(6.37261928875436e-04)
    p = p * s + _f(4.89352455891786e-03)
    q = _f(1.19825839466702e-06) * s + _f(1.18534705686654e-04)
    q = q * s + _f(2.26843463243900e-03)
    q = q * s + _f(4.89352518554385e-03)
    y = z * p / q
    return y if x == x else x


@inlined
def expm1(x: np.float32) -> np.float32:
    """e^x - 1, exact near 0."""
    return tanh(_f(0.5) * x) * (exp(x) + _f(1))


@inlined
def normal(x: np.float32, bell: np.float32) -> np.float32:
    """The normal distribution function P(x), given bell = exp(-x^2 / 2)."""
    t = _f(2) / (abs(x) * _f(0.5**0.5 / 3) + _f(1))  # 6 / (3 + z), z = |x| / sqrt(2)
    u = t - _f(1)
    p = E10 * u + E9
    p = p * u + E8
    p = p * u + E7
    p = p * u + E6
    p = p * u + E5
    p = p * u + E4
    p = p * u + E3
    p = p * u + E2
    p = p * u + E1
    p = p * u + E0
    tail = p * t * _f(0.25) * bell  # P(-|x|)
    return tail if x < _f(0) else _f(1) - tail


@inlined
def philox(c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64, k0: np.uint64, k1: np.uint64) -> Block:
    """Philox4x32-10 of one counter, in 64-bit integers that hold 32 bits each; see mpibow.ops.philox."""
    for _ in range(10):
        p0 = c0 * M0
        p1 = c2 * M1
        c0 = (p1 >> SHIFT) ^ c1 ^ k0
        c1 = p1 & LOW
        c2 = (p0 >> SHIFT) ^ c3 ^ k1
        c3 = p0 & LOW
        k0 = (k0 + W0) & LOW
        k1 = (k1 + W1) & LOW
    return c0, c1, c2, c3


@inlined
def counter_of(address: int, i: int) -> Block:
    """Seed, epoch and the two words of its number of sample i of the counters (n, 4) at `address`."""
    counter = integers(address + 16 * i, 4)
    seed = _u(np.uint32(counter[0]))
    epoch = _u(np.uint32(counter[1]))
    return seed, epoch, _u(np.uint32(counter[2])), _u(np.uint32(counter[3]))


@inlined
def first_block(address: int, i: int, node: int) -> Block:
    """The first Philox block of the sample."""
    seed, epoch, low, high = counter_of(address, i)
    return philox(_u(0), low, high, epoch, seed, _u(node))


@inlined
def index_at(indices: tuple[int, int], i: int) -> int:
    """Integer i of an argument that is Indices: its address, and whether it is int64."""
    address, wide = indices
    return words(address, i + 1)[i] if wide else int(np.int64(integers(address, i + 1)[i]))
