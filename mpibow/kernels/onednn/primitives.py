"""oneDNN's objects: memory descriptors, and primitives with the commands that run them."""

import ctypes
from collections.abc import Callable, Mapping
from ctypes import byref, c_char_p, c_int, c_void_p
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from mpibow.graph import Array, Buffers, Call, Formats, Kernel, Op, Run, Shapes, Specs, Tags
from mpibow.kernels.compiled.command import Command

from .capi import ARGUMENTS, DIFF_WEIGHTS, DST, EXEC_ARG_MD, IMPLEMENTATION, SCRATCHPAD, SRC, WEIGHTS, WORKSPACE

if TYPE_CHECKING:
    from .library import Library


M = TypeVar("M")
R = TypeVar("R", bound=Op)


class _Argument(ctypes.Structure):
    _fields_ = (("number", c_int), ("memory", c_void_p))


class Handle:
    """An object of the library, destroyed with this one."""

    def __init__(self, value: c_void_p, destroy: Callable[[c_void_p], int]):
        self._as_parameter_ = value
        self._destroy = destroy

    def __del__(self) -> None:
        self._destroy(self._as_parameter_)


class Descriptor(Handle):
    """A memory descriptor: shape, type, layout."""

    tag: str
    bytes: int


class Primitive(Handle):
    """A primitive descriptor: an implementation and its layouts."""

    library: "Library"

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

    @property
    def needs(self) -> Specs:
        """The buffer of these bytes."""
        return {"scratch": ((self.scratch,), "uint8")}

    def on(self, call: Call, others: Mapping[int, Array] | None = None, **named: Array | None) -> Command:
        """Its run on a call's arrays by name (ARGUMENTS), except those in `named`, and on `others`, by number."""
        arrays = {**call.arrays, **named}
        mine = {number: arrays[name] for number, name in ARGUMENTS.items() if self.layout(number).bytes}
        return self.command({**mine, **(others or {})})

    def command(self, arrays: Mapping[int, Array | None]) -> Command:
        """Its run on the arrays by execution argument; each must have the layout that `layout` returns."""
        library = self.library
        primitive = library.make(Handle, "primitive", self)
        kept = [primitive, arrays]
        block = (_Argument * len(arrays))()
        for slot, (number, array) in zip(block, arrays.items(), strict=True):
            layout = self.layout(number)
            assert array is not None, number
            assert array.nbytes >= layout.bytes, (number, array.shape, array.nbytes, layout.bytes)
            memory = library.make(Handle, "memory", layout, library.engine, c_void_p(array.ctypes.data))
            kept.append(memory)
            slot.number = number
            slot.memory = memory._as_parameter_.value
        row = (
            library.execute,
            primitive._as_parameter_.value or 0,
            library.stream._as_parameter_.value or 0,
            len(block),
            ctypes.addressof(block),
        )
        return Command([*library.one_thread.rows, row], library.one_thread, kept, block)


def slow(forward: Primitive, data: Primitive | None = None, weights: Primitive | None = None) -> tuple[str, ...]:
    """The halves of an operator that are the library's reference code."""
    parts = {"output": forward, "gradient of its input": data, "gradient of its weights": weights}
    return tuple(name for name, part in parts.items() if part is not None and part.slow)


def once(make: Callable[[R, Shapes], M]) -> Callable[[R, Shapes], M]:
    """`make`, which is called once for an operator and its shapes in one layout."""
    made = {}

    def find(op: R, shapes: Shapes) -> M:
        key = op, shapes.x, shapes.y, shapes.formats.y, shapes.training, bool(shapes.wanted)
        if key not in made:
            made[key] = make(op, shapes)
        return made[key]

    return find


@dataclass(frozen=True)
class Halves:
    """The primitives of an operator without weights, or of a norm; `backward` in training only."""

    forward: Primitive
    backward: Primitive | None

    @property
    def buffers(self) -> Buffers:
        """Scratch, and the `workspace` that forward leaves to backward."""
        if self.backward is None:
            return Buffers(forward=self.forward.needs)
        workspace = self.forward.layout(WORKSPACE).bytes
        saved = {"workspace": ((workspace,), "uint8")} if workspace else {}
        return Buffers(saved=saved, forward=self.forward.needs, backward=self.backward.needs)

    @property
    def slow(self) -> tuple[str, ...]:
        return slow(self.forward, self.backward)


@dataclass(frozen=True)
class Trio:
    """The primitives of an operator with weights; its backward half has primitives only where they are needed."""

    forward: Primitive
    data: Primitive | None
    weights: Primitive | None

    @property
    def image(self) -> tuple[str, str]:
        """The layouts of x and y."""
        return self.forward.layout(SRC).tag, self.forward.layout(DST).tag

    @property
    def weight(self) -> str:
        return self.forward.layout(WEIGHTS).tag

    @property
    def back(self) -> str:
        return self.data.layout(WEIGHTS).tag if self.data else self.weight

    @property
    def gradient(self) -> str:
        return self.weights.layout(DIFF_WEIGHTS).tag if self.weights else self.weight

    @property
    def buffers(self) -> Buffers:
        parts = [part for part in (self.data, self.weights) if part]
        most = max(parts, key=lambda part: part.scratch, default=None)
        return Buffers(forward=self.forward.needs, backward=most.needs if most else {})

    def formats(self, x: str, y: str) -> Formats:
        return Formats((x,), y, {"weight": self.weight}, {"weight": self.back}, {"weight": self.gradient})


def either(fits: Callable[[R, Shapes], bool], one: Kernel, other: Kernel) -> Kernel:
    """The kernel that is `one` where it fits, else the `other`.

    Layouts are requested as if the output had that of the first input: `fits` finds it in `shapes.formats.y`.
    """

    def chosen(op: R, shapes: Shapes) -> Kernel:
        return one if fits(op, shapes) else other

    def backward(call: Call) -> Run:
        half = chosen(call.op, call.shapes).backward
        assert half is not None
        return half(call)

    def formats(op: R, shapes: Shapes, given: Tags) -> Formats:
        return chosen(op, replace(shapes, formats=Formats(given, given[0]))).formats(op, shapes, given)

    return Kernel(
        lambda call: chosen(call.op, call.shapes).forward(call),
        backward,
        lambda op, shapes: chosen(op, shapes).buffers(op, shapes),
        formats,
        lambda op, shapes: chosen(op, shapes).slow(op, shapes),
        inputs_alone=other.inputs_alone,
    )
