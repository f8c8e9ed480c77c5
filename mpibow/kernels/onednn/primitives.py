"""oneDNN's objects: memory descriptors, and primitives with the commands that run them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import byref, c_char_p, c_int, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Formats
from mpibow.kernels.compiled.command import Command
from mpibow.kernels.onednn.capi import DIFF_WEIGHTS, EXEC_ARG_MD, IMPLEMENTATION, SCRATCHPAD, WEIGHTS

if TYPE_CHECKING:
    from mpibow.kernels.onednn.library import Library


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
    """A primitive descriptor: an implementation and its layouts."""

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
        """Its run on the arrays by execution argument; each must have the layout that `layout` returns."""
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
        return Command([*library.one_thread.table, row], library.one_thread, kept, block)


def slow(forward: Primitive, data: Primitive | None = None, weights: Primitive | None = None) -> tuple[str, ...]:
    """The halves of an operator that are the library's reference code."""
    parts = {"output": forward, "gradient of its input": data, "gradient of its weights": weights}
    return tuple(name for name, part in parts.items() if part is not None and part.slow)


@dataclass(frozen=True)
class Trio:
    """The primitives of an operator with weights; its backward half has primitives only where they are needed."""

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
