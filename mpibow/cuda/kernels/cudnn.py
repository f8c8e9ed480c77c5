"""cuDNN on streams: a handle for each, and plans bound to arrays that only enqueue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mpibow.cuda.kernels.graphs import first_line, load_cudnn, refusals
from mpibow.cuda.kernels.plans import Planner
from mpibow.cuda.kernels.specs import Spec
from mpibow.errors import DeviceError


class OnStream(Protocol):
    """The part of a stream that a run needs: the CUDA stream's address."""

    @property
    def pointer(self) -> int: ...


Enqueue = Callable[[OnStream], None]  # enqueues on the stream; allocates nothing, waits for nothing
Address = Callable[[Any, str], int]  # an array's address on the device, as one of that dtype


class Handles:
    """One cuDNN handle a stream, made when the stream is first bound to: never while one is being captured."""

    def __init__(self) -> None:
        self._of: dict[int, Any] = {}
        self._lock = threading.Lock()

    def of(self, stream: OnStream) -> Any:
        with self._lock:
            if stream.pointer not in self._of:
                self._of[stream.pointer] = self._make(stream)
            return self._of[stream.pointer]

    def _make(self, stream: OnStream) -> Any:
        cudnn = load_cudnn()
        try:
            handle = cudnn.create_handle()
            cudnn.set_stream(handle, stream.pointer)
        except refusals() as error:
            raise DeviceError(
                f"device cuda: cuDNN {cudnn.backend_version_string()} cannot start: {first_line(error)}"
            ) from None
        return handle

    def close(self) -> None:
        cudnn = load_cudnn()
        for handle in self._of.values():
            cudnn.destroy_handle(handle)
        self._of.clear()


def pointer_of(array: Any, dtype: str) -> int:
    """A CuPy array's address. It must hold that dtype; for 16-bit floats that NumPy lacks, any type of their size."""
    held = array.dtype.name
    assert held == dtype or (array.dtype.itemsize == 2 and dtype in ("bfloat16", "float16")) or held == "uint8", (
        f"an array of {held} where {dtype} is wanted"
    )
    return int(array.data.ptr)


class Cudnn:
    """Binds specs to arrays. `address` returns an array's address: for a rank that computes in 16 bits,
    that of the copy of its float32 weights.
    """

    def __init__(self, planner: Planner, handles: Handles, address: Address = pointer_of) -> None:
        self.planner, self.handles, self._address = planner, handles, address

    def workspace(self, *specs: Spec | None) -> int:
        """Bytes of scratch that these need one after the other."""
        return max((self.planner.plan(spec).workspace for spec in specs if spec is not None), default=0)

    def bind(self, spec: Spec, arrays: Mapping[str, Any], workspace: Any = None) -> Enqueue:
        """The run of `spec` on arrays by operand; `workspace` (bytes,) has the size that `workspace` returned."""
        executable, handles = self.planner.plan(spec), self.handles
        missing = {operand.name for operand in spec.operands} ^ set(arrays)
        assert not missing, f"{spec.kind} is bound without, or with more than, its operands: {sorted(missing)}"
        addresses = {operand.name: self._address(arrays[operand.name], operand.dtype) for operand in spec.operands}
        assert executable.workspace == 0 or workspace.nbytes >= executable.workspace, (spec.kind, executable.workspace)
        scratch = 0 if executable.workspace == 0 else int(workspace.data.ptr)

        def run(stream: OnStream) -> None:
            executable.run(addresses, scratch, handles.of(stream))

        return run


def together(runs: list[Enqueue]) -> Enqueue:
    """Several runs as one."""
    if len(runs) == 1:
        return runs[0]

    def run(stream: OnStream) -> None:
        for one in runs:
            one(stream)

    return run
