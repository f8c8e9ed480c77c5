"""All of mpibow's own CUDA kernels by name, and how one is launched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from mpibow.cuda.device.array import PlanArray
from mpibow.errors import ShapeError
from mpibow.graph import Array

THREADS = 256  # of a block: as in each.cuh
WARP = 32
BLOCKS = 8192  # of a grid whose threads take several turns: enough to fill any device
TYPES = {"float32": "float", "float16": "half", "bfloat16": "bfloat16"}  # of activations: dtype and C++ type
INTEGERS = {"int32": "int", "int64": "long long"}  # of labels and indices
CONDITIONS = {"bool": "unsigned char", "uint8": "unsigned char", **INTEGERS}  # of arrays compared with 0, or counted
# A stand-in for any type of so many bytes; only labels and indices have 8.
UNITS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}

Grid = tuple[int, int, int]

_CONDITION = tuple(dict.fromkeys(CONDITIONS.values()))
_FLOAT, _INTEGER, _UNIT = tuple(TYPES.values()), tuple(INTEGERS.values()), tuple(UNITS.values())[:3]
# Images as they are stored, or as an earlier kernel made them, and the kernels' outputs.
_PIXELS = [(pixel, kind) for kind in _FLOAT for pixel in dict.fromkeys(("unsigned char", "float", kind))]
_PACKED = tuple((kind, str(v)) for kind, wide in zip(_FLOAT, (4, 8, 8), strict=True) for v in (1, wide))
_FUNCTOR = ("Relu", "LeakyRelu", "ClippedRelu", "Sigmoid", "Tanh", "Gelu", "TanhGelu", "Scale")

Values = Sequence[tuple[str, ...]]  # of the template's parameters, one tuple for each kernel that is made of it


def _of(*parameters: Sequence[str]) -> Values:
    """Every combination of the parameters' values."""
    return list(product(*parameters))


_FAMILIES: Mapping[str, Mapping[tuple[str, ...], Values]] = {  # source -> kernels -> what their templates are made for
    "steps.cu": {("sma_alone", "sgd_update"): _of()},
    "update.cu": {("update",): _of()},
    "apply.cu": {("apply",): _of()},
    "flat.cu": {
        (
            "rows_mean",
            "gradient_sum",
            "chunk_squares",
            "clamp",
            "shorten",
            "report_batch",
            "enter_reports",
            "follow_gain",
            "follow_scale",
            "join_rows",
            "part_rows",
        ): _of(),
        ("sum_parts",): _of(("double", "float")),
    },
    "elementwise.cu": {
        ("unary",): _of(_FUNCTOR, _FLOAT),
        ("unary_back",): _of(_FUNCTOR[:-1], _FLOAT),
        ("linear", "product", "larger", "larger_back", "fill"): _of(_FLOAT),
        ("cast",): _of(_FLOAT, _FLOAT),
    },
    "pointwise.cu": {("value", "gradient"): _of(_FLOAT)},
    "choices.cu": {("chosen", "chosen_back"): _of(_CONDITION, _FLOAT), ("counted",): _of(_FLOAT, _CONDITION[:2])},
    "dropout.cu": {("dropout", "dropout_back"): _of(_FLOAT)},
    "loss.cu": {
        ("softmax", "softmax_back", "soft_cross_entropy", "scale_rows"): _of(_FLOAT),
        ("cross_entropy", "among_the_best"): _of(_FLOAT, _INTEGER),
    },
    "norm.cu": {
        ("layer_norm", "layer_norm_back", "layer_norm_weights", "local_response", "local_response_back"): _of(_FLOAT)
    },
    "pool.cu": {
        ("max_pool", "max_pool_back"): _PACKED,
        ("average", "average_back"): [(kind, *each) for kind in ("Sliding", "Adaptive") for each in _PACKED],
    },
    "image.cu": {
        ("window",): _of(_UNIT),
        ("cutout",): _of(_UNIT[1:]),
        ("jitter", "normalise"): _PIXELS,
        ("mix_shares",): _of(),
        ("mix",): _of(_FLOAT),
        ("one_hot",): _of(_INTEGER),
    },
    "layout.cu": {("transpose",): _of(_UNIT[1:]), ("copy_runs",): _of((*_UNIT[1:], UNITS[8], "Pack<float, 4>"))},
    "gather.cu": {("gather",): _of((UNITS[1], "Pack<float, 4>"))},
    "factorise.cu": {("squared_errors", "gathered"): _of(_INTEGER, _INTEGER)},
}


def instance(kernel: str, *values: str) -> str:
    """The C++ name of a kernel, for NVRTC."""
    return f"{kernel}<{', '.join(values)}>" if values else kernel


KERNELS: Mapping[str, str] = {  # kernel -> its source
    instance(kernel, *values): source
    for source, families in _FAMILIES.items()
    for kernels, family in families.items()
    for kernel in kernels
    for values in family
}


@dataclass(frozen=True, eq=False)
class Constant:
    """An array of the host. The launcher copies it to the device once, before the first launch."""

    array: Array


@dataclass(frozen=True)
class Launch:
    """One launch: which kernel, on how many blocks of how many threads, with which arguments in its own order.

    An argument is an array on the device or a Constant, whose address is passed, None for no array, an int or a float
    of 32 bits, or a NumPy scalar where the kernel takes another type; a struct by value is a NumPy void. `formula` is
    the text that stands for the header of the source's own, where that has one: of a local step, or of an operator of
    one element.
    """

    kernel: str
    grid: Grid
    arguments: tuple[PlanArray, ...]
    block: Grid = (THREADS, 1, 1)
    formula: str = ""

    def __post_init__(self) -> None:
        assert self.kernel in KERNELS, self.kernel
        assert max(self.grid[1:]) < 1 << 16, (self.kernel, self.grid)
        object.__setattr__(self, "arguments", tuple(map(_typed, self.arguments)))


Launches = list[Launch]


def launch(kernel: str, grid: Grid, *arguments: PlanArray, of: Sequence[str] = ()) -> Launches:
    """One launch of a kernel, of the one made for the types `of` where it is a template."""
    return [Launch(instance(kernel, *of), grid, arguments)]


def _typed(argument: PlanArray) -> PlanArray:
    """Python's numbers as C++ takes them: int and float."""
    if isinstance(argument, np.generic):  # np.float64 is a float too
        return argument
    if isinstance(argument, int):
        return np.int32(argument)
    return np.float32(argument) if isinstance(argument, float) else argument


def turns(count: int, at_once: int = 1) -> Grid:
    """The grid whose threads share `count` elements, each `at_once` of them at a turn."""
    return (max(1, min(-(-count // (THREADS * at_once)), BLOCKS)), 1, 1)


def warps(rows: int) -> Grid:
    """The grid whose warps take a row each."""
    return (-(-rows * WARP // THREADS), 1, 1)


def lanes(*dtypes: npt.DTypeLike) -> int:
    """Elements that a thread takes at once of arrays of these types: 16 bytes of the widest."""
    return 16 // max(np.dtype(dtype).itemsize for dtype in dtypes)


def kind(array: Array) -> str:
    """The C++ type of an array of activations."""
    return TYPES[array.dtype.name]


def integer(array: Array) -> str:
    """The C++ type of an array of labels or indices. Raises ShapeError for a type that no kernel has."""
    if array.dtype.name not in INTEGERS:
        raise ShapeError(
            f"labels and indices are {' or '.join(INTEGERS)} on a GPU, got {array.dtype.name}: convert them, or set "
            "device=onednn or device=numpy"
        )
    return INTEGERS[array.dtype.name]
