"""oneDNN 3 through its C interface: the library with its engine and stream, and constructors of its objects."""

import ctypes
import ctypes.util
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from functools import cache
from pathlib import Path
from platform import machine
from typing import TypeVar

from mpibow.errors import DeviceError, ShapeError
from mpibow.graph import Shape, Shapes
from mpibow.kernels.compiled.command import Command, call
from mpibow.kernels.compiled.native import native
from mpibow.kernels.isa import ISA, OPTIONS
from mpibow.ops.window import Pair

from .capi import (
    DST,
    FLOAT32,
    FORMAT_KIND,
    INFERENCE,
    INNER_AXES,
    INNER_COUNT,
    INNER_SIZES,
    INSTALL,
    ISAS,
    LIMITS,
    NDIMS,
    NEEDED,
    PADDED_DIMS,
    RELU,
    RUNTIMES,
    SRC,
    STATUS,
    STRIDES,
    TRAINING,
    UNIMPLEMENTED,
    Dims,
)
from .primitives import Descriptor, Halves, Handle, Primitive, Trio

H = TypeVar("H", bound=Handle)


class Unimplemented(ShapeError):
    """The library has no implementation of the requested primitive."""


class _Version(ctypes.Structure):
    _fields_ = (("major", c_int), ("minor", c_int), ("patch", c_int), ("hash", c_char_p), ("cpu", c_uint))


class Library:
    """One libdnnl with its engine and stream. Raises DeviceError with the reason if it cannot be used."""

    def __init__(self, path: str):
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
        self.wide = ISA in ("AVX-512", "AVX2")
        if ISA in LIMITS and (ISA != "AVX2" or not OPTIONS):  # else oneDNN's own limit is as low
            c.dnnl_set_max_cpu_isa(LIMITS[ISA])
        number = int(c.dnnl_get_effective_cpu_isa())
        self.isa = ISAS.get(number, f"ISA {number:#x}") if ISA else machine()  # elsewhere numbers mean other sets
        self.engine = self.make(Handle, "engine", c_int(1), c_size_t(0))
        self.stream = self.make(Handle, "stream", self.engine, c_uint(1))
        self.execute = ctypes.cast(c.dnnl_primitive_execute, c_void_p).value or 0
        # OpenMP's number of threads belongs to the calling thread, and learners' threads come and go.
        self._limit = limit = getattr(c, "omp_set_num_threads", None)
        place = ctypes.cast(limit, c_void_p).value if limit else None
        self.one_thread = _ignore.command(function=place, argument=1) if place else Command([])

    def check(self, status: int, what: str) -> None:
        if status == UNIMPLEMENTED:
            raise Unimplemented(f"oneDNN {self.version} has no {what} of these shapes: use device=numpy")
        if status:
            raise DeviceError(f"oneDNN {self.version}: {what}: {STATUS.get(status, f'status {status}')}")

    def make(self, kind: type[H], what: str, *arguments: object, by: str = "", about: str = "") -> H:
        """An object of dnnl_WHAT_create, or of another function `by` name; `about` names it in an error."""
        value = c_void_p()
        self.check(getattr(self.c, f"dnnl_{by or f'{what}_create'}")(byref(value), *arguments), about or what)
        return kind(value, getattr(self.c, f"dnnl_{what}_destroy"))

    # Memory descriptors

    def descriptor(self, shape: Shape, tag: str = "any") -> Descriptor:
        """The descriptor of a float32 array of a tensor (shape); `any` leaves its layout to a primitive."""
        number = 1 if tag == "any" else _tags(self, len(shape))[tag]
        arguments = len(shape), Dims(*shape), FLOAT32, number
        by = "memory_desc_create_with_tag"
        about = f"memory {shape} {tag}"
        descriptor = self.make(Descriptor, "memory_desc", *arguments, by=by, about=about)
        descriptor.tag = tag
        size = self.c.dnnl_memory_desc_get_size
        descriptor.bytes = 0 if tag == "any" else int(size(descriptor))
        return descriptor

    def wrap(self, borrowed: int | None) -> Descriptor:
        """A copy of a descriptor that belongs to a primitive; one of size 0 where there is none."""
        copy = self.make(Descriptor, "memory_desc", c_void_p(borrowed), by="memory_desc_clone")
        copy.bytes = int(self.c.dnnl_memory_desc_get_size(copy))
        copy.tag = self._tag(copy) if copy.bytes else ""
        return copy

    def _number(self, descriptor: Descriptor, what: int) -> int:
        result = c_int()
        self.check(self.c.dnnl_memory_desc_query(descriptor, what, byref(result)), f"query {what}")
        return result.value

    def _numbers(self, descriptor: Descriptor, what: int, count: int) -> list[int]:
        result = POINTER(c_int64)()
        self.check(self.c.dnnl_memory_desc_query(descriptor, what, byref(result)), f"query {what}")
        return result[:count]

    def _tag(self, descriptor: Descriptor) -> str:
        """A descriptor's layout as a tag of the library; '' where no tag describes it."""
        tag, ones = self._spelt(descriptor)
        if not ones or tag in (known := _tags(self, self._number(descriptor, NDIMS))):
            return tag
        fixed = _without(tag, ones)  # as the library's tag with these axes elsewhere: (1, 1, 1, h, w) as hwigo
        return next((other for other in known if _without(other, ones) == fixed), tag)

    def _spelt(self, descriptor: Descriptor) -> tuple[str, str]:
        """Its layout as a tag, '' where no tag describes it, and the letters of axes of one element (or one block)."""
        if self._number(descriptor, FORMAT_KIND) != 2:
            return "", ""
        rank = self._number(descriptor, NDIMS)
        strides = self._numbers(descriptor, STRIDES, rank)
        count = self._number(descriptor, INNER_COUNT)
        sizes = self._numbers(descriptor, INNER_SIZES, count)
        axes = self._numbers(descriptor, INNER_AXES, count)
        extents = self._numbers(descriptor, PADDED_DIMS, rank)
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
        self, name: str, *arguments: object, then: Sequence[tuple[int, Descriptor]] = (), relu: bool = False
    ) -> Primitive:
        """A primitive descriptor whose scratch is the caller's. Raises Unimplemented.

        Its result goes through the binary operations `then`, with operands as described, and through a relu.
        """
        attributes = self.make(Handle, "primitive_attr")
        self.check(self.c.dnnl_primitive_attr_set_scratchpad_mode(attributes, c_int(1)), "scratchpad mode")
        if then or relu:
            after = self.make(Handle, "post_ops")
            for kind, operand in then:
                self.check(self.c.dnnl_post_ops_append_binary(after, c_int(kind), operand), "post-ops")
            if relu:
                zero = c_float(0.0)
                self.check(self.c.dnnl_post_ops_append_eltwise(after, c_int(RELU), zero, zero), "post-ops")
            self.check(self.c.dnnl_primitive_attr_set_post_ops(attributes, after), "post-ops")
        head = () if name == "reorder" else (self.engine,)
        by = f"{name}_primitive_desc_create"
        with self.single():
            made = self.make(Primitive, "primitive_desc", *head, *arguments, attributes, by=by, about=name)
        made.library = self
        return made

    def halves(self, shapes: Shapes, layer: str, forward: Sequence[object], backward: Sequence[object]) -> Halves:
        """Both halves' primitives, each from its own arguments: forward's kind, and backward's hint, which is the
        forward one, are added here."""
        there = self.primitive(f"{layer}_forward", _kind(shapes), *forward)
        return Halves(there, self.primitive(f"{layer}_backward", *backward, there) if shapes.training else None)

    def trio(
        self,
        shapes: Shapes,
        layer: str,
        image: tuple[Descriptor | None, ...],
        window: Sequence[object] = (),
        *,
        algorithm: Sequence[object] = (),
        relu: bool = False,
    ) -> Trio:
        """The primitives of a layer whose `image` is the descriptors of x, weight, bias and y."""
        x, weight, bias, y = image
        forward = f"{layer}_forward"
        kind = _kind(shapes)
        there = self.primitive(forward, kind, *algorithm, *image, *window, relu=relu)
        if not shapes.training:
            return Trio(there, None, None)
        x = there.layout(SRC)
        y = there.layout(DST)
        behind = *window, self.primitive(forward, kind, *algorithm, x, weight, bias, y, *window) if relu else there
        return Trio(
            there,
            self.primitive(f"{layer}_backward_data", *algorithm, x, weight, y, *behind) if shapes.wanted else None,
            self.primitive(f"{layer}_backward_weights", *algorithm, x, weight, bias, y, *behind),
        )

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
        """The primitive that copies a tensor (shape) from one layout to another."""
        return self.primitive(
            "reorder", self.descriptor(shape, source), self.engine, self.descriptor(shape, target), self.engine
        )


def _kind(shapes: Shapes) -> c_int:
    return c_int(TRAINING if shapes.training else INFERENCE)


@cache
def _tags(library: Library, rank: int) -> dict[str, int]:
    """The numbers of the library's tags for tensors of `rank` axes, found by a query of each number."""
    c = library.c
    found = dict[str, int]()
    for number in range(2, 1000):
        value = c_void_p()
        if c.dnnl_memory_desc_create_with_tag(byref(value), rank, Dims(*[64] * rank), FLOAT32, number) != 0:
            continue
        descriptor = Descriptor(value, c.dnnl_memory_desc_destroy)
        if library._number(descriptor, NDIMS) == rank:
            found.setdefault(library._spelt(descriptor)[0], number)
    return found


def _without(tag: str, axes: str) -> str:
    """The tag without the outer places of `axes`; blocks stay."""
    outer = re.match(r"[a-zA-Z]*", tag)
    assert outer is not None
    return "".join(letter for letter in outer[0] if letter.lower() not in axes) + tag[outer.end() :]


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


@native
def _ignore(function: int, argument: int) -> None:
    """Calls the C function at an address with one integer; the return value is ignored."""
    call(function, argument, 0, 0, 0)
