"""oneDNN 3 through its C interface: memory descriptors, primitives, and the commands that run them."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mpibow.errors import DeviceError, ShapeError
from mpibow.graph.graph import Array, Shape
from mpibow.graph.kernel import Formats, Shapes
from mpibow.kernels.compiled.command import Command, call_address
from mpibow.ops.window import Pair

MAX_DIMS = 12
Dims = c_int64 * MAX_DIMS
UNIMPLEMENTED = 3
STATUS = {1: "out of memory", 2: "invalid arguments", UNIMPLEMENTED: "unimplemented", 5: "runtime error"}
TYPES = {"float32": 3, "int32": 4, "uint8": 6}  # dnnl_data_type_t
RUNTIMES = {1: "sequential", 2: "OpenMP", 4: "TBB", 8: "threadpool", 512: "SYCL"}
ISAS = {
    0x1: "SSE4.1", 0x3: "AVX", 0x7: "AVX2", 0xF: "AVX2 VNNI", 0x1F: "AVX2 VNNI 2", 0x27: "AVX-512",
    0x67: "AVX-512 VNNI", 0xE7: "AVX-512 BF16", 0x1EF: "AVX-512 FP16", 0xFEF: "AMX", 0x1FEF: "AMX FP16",
}  # fmt: skip

# dnnl_prop_kind_t
TRAINING, INFERENCE, BACKWARD = 64, 96, 128
# dnnl_alg_kind_t
DIRECT = 1
RELU = 0x20
MAX_POOLING, AVG_POOLING, AVG_POOLING_INSIDE = 0x1FF, 0x2FF, 0x3FF
LRN_ACROSS = 0xAFF
ADD, MULTIPLY = 0x1FFF0, 0x1FFF1
SOFTMAX = 0x30000
# execution arguments
SRC, SRC_1, DST, WEIGHTS, BIAS, MEAN, VARIANCE, SCALE, SHIFT = 1, 2, 17, 33, 41, 49, 50, 51, 52
WORKSPACE, SCRATCHPAD, DIFF_SRC, DIFF_DST, DIFF_WEIGHTS, DIFF_BIAS = 64, 80, 129, 145, 161, 169
DIFF_SCALE, DIFF_SHIFT, THEN = 255, 256, 32768
# dnnl_query_t
IMPLEMENTATION, STRIDES, EXEC_ARG_MD, NDIMS, PADDED_DIMS = 8, 14, 255, 256, 260
FORMAT_KIND, INNER_COUNT, INNER_SIZES, INNER_AXES = 262, 263, 264, 265

# What it needs of the system, which slim images lack
INSTALL = {
    "libgomp.so.1": "apt-get install libgomp1, or dnf install libgomp",
    "libstdc++.so.6": "apt-get install libstdc++6, or dnf install libstdc++",
}

NEEDED = (
    "dnnl_version", "dnnl_get_effective_cpu_isa", "dnnl_engine_create", "dnnl_engine_destroy", "dnnl_stream_create",
    "dnnl_stream_destroy", "dnnl_memory_desc_create_with_tag", "dnnl_memory_desc_query", "dnnl_memory_desc_get_size",
    "dnnl_memory_desc_clone", "dnnl_memory_desc_destroy", "dnnl_memory_create", "dnnl_memory_destroy",
    "dnnl_primitive_desc_query", "dnnl_primitive_desc_query_md", "dnnl_primitive_desc_destroy",
    "dnnl_primitive_create", "dnnl_primitive_execute", "dnnl_primitive_destroy", "dnnl_primitive_attr_create",
    "dnnl_primitive_attr_destroy", "dnnl_primitive_attr_set_scratchpad_mode", "dnnl_primitive_attr_set_post_ops",
    "dnnl_post_ops_create", "dnnl_post_ops_destroy", "dnnl_post_ops_append_eltwise", "dnnl_post_ops_append_binary",
    "dnnl_convolution_forward_primitive_desc_create", "dnnl_convolution_backward_data_primitive_desc_create",
    "dnnl_convolution_backward_weights_primitive_desc_create", "dnnl_inner_product_forward_primitive_desc_create",
    "dnnl_inner_product_backward_data_primitive_desc_create",
    "dnnl_inner_product_backward_weights_primitive_desc_create",
    "dnnl_batch_normalization_forward_primitive_desc_create",
    "dnnl_batch_normalization_backward_primitive_desc_create", "dnnl_pooling_forward_primitive_desc_create",
    "dnnl_pooling_backward_primitive_desc_create", "dnnl_lrn_forward_primitive_desc_create",
    "dnnl_lrn_backward_primitive_desc_create", "dnnl_softmax_forward_primitive_desc_create",
    "dnnl_softmax_backward_primitive_desc_create", "dnnl_reorder_primitive_desc_create",
)  # fmt: skip


class Unimplemented(ShapeError):
    """The library has no implementation of what was asked for."""


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", c_int), ("minor", c_int), ("patch", c_int), ("hash", c_char_p), ("cpu", c_uint), ("gpu", c_uint),
    )  # fmt: skip


class _Argument(ctypes.Structure):
    _fields_ = (("number", c_int), ("memory", c_void_p))


class Handle:
    """An object of the library, destroyed with this one."""

    def __init__(self, value: c_void_p, destroy: Any) -> None:
        self._as_parameter_, self._destroy = value, destroy

    def __del__(self) -> None:
        self._destroy(self._as_parameter_)


class Descriptor(Handle):
    """A memory descriptor: shape, type, layout."""

    tag: str
    bytes: int


class Primitive(Handle):
    """A primitive descriptor: what would run, and in which layouts."""

    library: Library

    def layout(self, argument: int) -> Descriptor:
        """The descriptor of an execution argument."""
        return self.library.wrap(self.library.c.dnnl_primitive_desc_query_md(self, EXEC_ARG_MD, argument))

    @property
    def implementation(self) -> str:
        text = c_char_p()
        self.library.check(
            self.library.c.dnnl_primitive_desc_query(self, IMPLEMENTATION, 0, byref(text)), "implementation"
        )
        return (text.value or b"").decode()

    @property
    def slow(self) -> bool:
        """Whether it is the library's reference code: one number after the other."""
        return "ref" in self.implementation

    @property
    def scratch(self) -> int:
        """Bytes that it needs during a call."""
        return self.layout(SCRATCHPAD).bytes

    def command(self, arrays: Mapping[int, Array]) -> Command:
        """Its run on the arrays by execution argument; each must lie as `layout` says."""
        library = self.library
        primitive = library.make("primitive", library.c.dnnl_primitive_create, library.c.dnnl_primitive_destroy, self)
        kept: list[Any] = [primitive, arrays]
        block = (_Argument * len(arrays))()
        for slot, (number, array) in zip(block, arrays.items(), strict=True):
            layout = self.layout(number)
            assert array.nbytes >= layout.bytes, (number, array.shape, array.nbytes, layout.bytes)
            memory = library.make(
                "memory", library.c.dnnl_memory_create, library.c.dnnl_memory_destroy, layout, library.engine,
                c_void_p(array.ctypes.data),
            )  # fmt: skip
            kept.append(memory)
            slot.number, slot.memory = number, memory._as_parameter_.value
        row = (
            library.execute, primitive._as_parameter_.value, library.stream._as_parameter_.value, len(block),
            ctypes.addressof(block),
        )  # fmt: skip
        return Command([*library.one_thread, row], kept, block)


def slow(forward: Primitive, data: Primitive | None = None, weights: Primitive | None = None) -> tuple[str, ...]:
    """Those of an operator's halves that are the library's reference code."""
    parts = {"output": forward, "gradient of its input": data, "gradient of its weights": weights}
    return tuple(name for name, part in parts.items() if part is not None and part.slow)


@dataclass(frozen=True)
class Trio:
    """The primitives of an operator with weights; those of its backward half only where they are needed."""

    forward: Primitive
    data: Primitive | None
    weights: Primitive | None

    @property
    def weight(self) -> str:
        return self.forward.layout(WEIGHTS).tag

    @property
    def back(self) -> str:
        return self.data.layout(WEIGHTS).tag if self.data else self.weight

    @property
    def gradient(self) -> str:
        return self.weights.layout(DIFF_WEIGHTS).tag if self.weights else self.weight

    def formats(self, x: str, y: str) -> Formats:
        return Formats((x,), y, {"weight": self.weight}, {"weight": self.back}, {"weight": self.gradient})


class Library:
    """One libdnnl with its engine and stream. Raises DeviceError naming what is wrong with it."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.c = c = ctypes.CDLL(path)
        except OSError as error:
            remedy = next((f"; as root: {what}" for name, what in INSTALL.items() if name in str(error)), "")
            raise DeviceError(f"onednn.library: {path} cannot be loaded: {error}{remedy}") from None
        missing = [name for name in NEEDED if not hasattr(c, name)]
        if "dnnl_version" not in missing:
            c.dnnl_version.restype = POINTER(_Version)
            found = c.dnnl_version().contents
            self.version = f"{found.major}.{found.minor}.{found.patch}"
            if found.major != 3:
                raise DeviceError(f"onednn.library: {path} is oneDNN {self.version}, mpibow needs 3.x")
            self.runtime = RUNTIMES.get(found.cpu, f"runtime {found.cpu}")
            if found.cpu not in (1, 2):  # others cannot be held to one thread a learner
                raise DeviceError(
                    f"onednn.library: {path} (oneDNN {self.version}) computes by {self.runtime}, mpibow's learner "
                    "threads need a library built for OpenMP or sequential: pip install onednn-cpu-gomp"
                )
        if missing:
            raise DeviceError(
                f"onednn.library: {path} lacks {', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}; "
                "it must be oneDNN 3.x: pip install onednn-cpu-gomp"
            )
        c.dnnl_memory_desc_get_size.restype = c_size_t
        c.dnnl_primitive_desc_query_md.restype = c_void_p
        isa = int(c.dnnl_get_effective_cpu_isa())
        self.isa = ISAS.get(isa, f"ISA {isa:#x}")
        self.wide = self.isa.startswith(("AVX-512", "AMX"))  # it has vectors of 16 floats
        self.engine = self.make("engine", c.dnnl_engine_create, c.dnnl_engine_destroy, c_int(1), c_size_t(0))
        self.stream = self.make("stream", c.dnnl_stream_create, c.dnnl_stream_destroy, self.engine, c_uint(1))
        self.execute = ctypes.cast(c.dnnl_primitive_execute, c_void_p).value or 0
        # OpenMP's number of threads belongs to the calling thread, and learners' threads come and go.
        limit = getattr(c, "omp_set_num_threads", None)
        self._limit = limit
        self.one_thread = [call_address(ctypes.cast(limit, c_void_p).value or 0, 1)] if limit else []

    def check(self, status: int, what: str) -> None:
        if status == UNIMPLEMENTED:
            raise Unimplemented(f"oneDNN {self.version} has no {what} of these shapes: take device=numpy")
        if status:
            raise DeviceError(f"oneDNN {self.version}: {what}: {STATUS.get(status, f'status {status}')}")

    def make(self, what: str, create: Any, destroy: Any, *arguments: Any, kind: type[Handle] = Handle) -> Any:
        value = c_void_p()
        self.check(create(byref(value), *arguments), what)
        return kind(value, destroy)

    # Memory descriptors

    def descriptor(self, shape: Shape, tag: str = "any", dtype: str = "float32") -> Descriptor:
        """The descriptor of an array of a tensor (shape); `any` leaves its layout to a primitive."""
        number = 1 if tag == "any" else _tags(self, len(shape))[tag]
        made: Descriptor = self.make(
            f"memory {shape} {tag}", self.c.dnnl_memory_desc_create_with_tag, self.c.dnnl_memory_desc_destroy,
            len(shape), Dims(*shape), TYPES[dtype], number, kind=Descriptor,
        )  # fmt: skip
        made.tag, made.bytes = tag, 0 if tag == "any" else int(self.c.dnnl_memory_desc_get_size(made))
        return made

    def wrap(self, borrowed: int | None) -> Descriptor:
        """A copy of a descriptor that belongs to a primitive; one of size 0 where there is none."""
        copy: Descriptor = self.make(
            "memory", self.c.dnnl_memory_desc_clone, self.c.dnnl_memory_desc_destroy, c_void_p(borrowed),
            kind=Descriptor,
        )  # fmt: skip
        copy.bytes = int(self.c.dnnl_memory_desc_get_size(copy))
        copy.tag = self._tag(copy) if copy.bytes else ""
        return copy

    def _query(self, descriptor: Descriptor, what: int, kind: Any) -> Any:
        result = kind()
        self.check(self.c.dnnl_memory_desc_query(descriptor, what, byref(result)), f"query {what}")
        return result

    def _tag(self, descriptor: Descriptor) -> str:
        """Its layout as a tag that the library knows; '' where no tag says it."""
        tag, ones = self._spelt(descriptor)
        if not ones or tag in (known := _tags(self, self._query(descriptor, NDIMS, c_int).value)):
            return tag
        fixed = _without(tag, ones)  # as what the library knows with these axes elsewhere: (1, 1, 1, h, w) as hwigo
        return next((other for other in known if _without(other, ones) == fixed), tag)

    def _spelt(self, descriptor: Descriptor) -> tuple[str, str]:
        """Its layout as a tag, '' where no tag says it, and the letters of axes of one element (or one block)."""
        if self._query(descriptor, FORMAT_KIND, c_int).value != 2:
            return "", ""
        rank = self._query(descriptor, NDIMS, c_int).value
        strides = self._query(descriptor, STRIDES, POINTER(c_int64))[:rank]
        count = self._query(descriptor, INNER_COUNT, c_int).value
        sizes = self._query(descriptor, INNER_SIZES, POINTER(c_int64))[:count]
        axes = self._query(descriptor, INNER_AXES, POINTER(c_int64))[:count]
        extents = self._query(descriptor, PADDED_DIMS, POINTER(c_int64))[:rank]
        for size, axis in zip(sizes, axes, strict=True):
            extents[axis] //= size
        # An axis of one element may stand anywhere: behind its equals, as most tags that exist have it.
        order = sorted(range(rank), key=lambda axis: (-strides[axis], extents[axis] == 1, axis))
        letters = [chr(ord("a") + axis) for axis in range(rank)]
        outer = "".join(letters[axis].upper() if axis in axes else letters[axis] for axis in order)
        tag = outer + "".join(f"{size}{letters[axis]}" for size, axis in zip(sizes, axes, strict=True))
        return tag, "".join(letters[axis] for axis in range(rank) if extents[axis] == 1)

    # Primitives

    def primitive(
        self, name: str, *arguments: Any, then: Sequence[tuple[int, Descriptor]] = (), relu: bool = False
    ) -> Primitive:
        """A primitive descriptor whose scratch is the caller's. Raises Unimplemented.

        Its result goes through the binary operations `then`, with operands as described, and through a relu.
        """
        attributes = self.make("attributes", self.c.dnnl_primitive_attr_create, self.c.dnnl_primitive_attr_destroy)
        self.check(self.c.dnnl_primitive_attr_set_scratchpad_mode(attributes, c_int(1)), "scratchpad mode")
        if then or relu:
            after = self.make("post-ops", self.c.dnnl_post_ops_create, self.c.dnnl_post_ops_destroy)
            for kind, operand in then:
                self.check(self.c.dnnl_post_ops_append_binary(after, c_int(kind), operand), "post-ops")
            if relu:
                zero = c_float(0.0)
                self.check(self.c.dnnl_post_ops_append_eltwise(after, c_int(RELU), zero, zero), "post-ops")
            self.check(self.c.dnnl_primitive_attr_set_post_ops(attributes, after), "post-ops")
        create = getattr(self.c, f"dnnl_{name}_primitive_desc_create")
        head = () if name == "reorder" else (self.engine,)
        with self.single():
            made: Primitive = self.make(
                name, create, self.c.dnnl_primitive_desc_destroy, *head, *arguments, attributes, kind=Primitive
            )
        made.library = self
        return made

    @contextmanager
    def single(self) -> Iterator[None]:
        """Primitives are made for as many threads as OpenMP would take now: one."""
        if self._limit is None:
            yield
            return
        before = self.c.omp_get_max_threads()
        self._limit(1)
        try:
            yield
        finally:
            self._limit(before)

    def reorder(self, shape: Shape, source: str, target: str) -> Primitive:
        """What copies a tensor (shape) from one layout to another."""
        return self.primitive(
            "reorder", self.descriptor(shape, source), self.engine, self.descriptor(shape, target), self.engine
        )


@cache
def _tags(library: Library, rank: int) -> dict[str, int]:
    """The numbers of the library's tags for tensors of `rank` axes, found by asking what each of them means."""
    c, found = library.c, dict[str, int]()
    for number in range(2, 1000):
        value = c_void_p()
        if c.dnnl_memory_desc_create_with_tag(byref(value), rank, Dims(*[64] * rank), 3, number) != 0:
            continue
        descriptor = Descriptor(value, c.dnnl_memory_desc_destroy)
        if library._query(descriptor, NDIMS, c_int).value == rank:
            found.setdefault(library._spelt(descriptor)[0], number)
    return found


def _without(tag: str, axes: str) -> str:
    """The tag without the outer places of `axes`; blocks stay."""
    outer = re.match(r"[a-zA-Z]*", tag)
    assert outer is not None
    return "".join(letter for letter in outer[0] if letter.lower() not in axes) + tag[outer.end() :]


def dims(*extents: int) -> Any:
    return Dims(*extents)


def behind(shapes: Shapes, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair = (1, 1)) -> Pair:
    """How far windows over an image reach behind it: less than the padding where the stride leaves a rest."""
    rows, columns = (
        (shapes.y[2 + i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - shapes.x[0][2 + i] - padding[i]
        for i in (0, 1)
    )
    return rows, columns


def find_library() -> str | None:
    """The libdnnl that comes with the PyPI package, else the system's."""
    for folder in (Path(sys.prefix) / "lib", *(Path(entry).parent.parent for entry in sys.path)):
        if (folder / "libdnnl.so.3").is_file():
            return str(folder / "libdnnl.so.3")
    return ctypes.util.find_library("dnnl")


@cache
def load(path: str) -> Library:
    return Library(path)
