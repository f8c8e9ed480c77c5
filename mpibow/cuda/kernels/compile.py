"""mpibow's own CUDA kernels as machine code: by NVRTC, without a device, kept on disk."""

import ctypes
import re
from collections.abc import Collection, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mpibow.cuda.device import libraries
from mpibow.errors import DeviceError, install

from .kept import digest, read_code, write_code
from .kernels import KERNELS

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")  # the GPUs that CI compiles for: A100, H100 and H200, B200
# Without fused multiply-adds every operation rounds as NumPy's does: the same bits, and memory bounds them all.
OPTIONS = ("--std=c++17", "--fmad=false", "--ptxas-options=-v")
SOURCES = Path(__file__).parent / "source"
FORMULA = "formula.cuh"  # the local step; the file of that name is SGD's with momentum
ELEMENT = "element.cuh"  # an operator of one element; the file of that name is silu
# By source, where not FORMULA. The files of these names have SGD's step and the default rule.
HEADERS = {"pointwise.cu": ELEMENT, "choices.cu": ELEMENT, "update.cu": "sending.cuh", "apply.cu": "applying.cuh"}


@dataclass(frozen=True)
class Usage:
    """ptxas's figures of a kernel: registers of a thread, bytes of shared memory, bytes that did not fit registers."""

    registers: int
    shared: int
    spilled: int


@dataclass(frozen=True)
class Module:
    """A compiled source: its machine code, and by kernel the name in it and the resources it takes."""

    code: bytes
    names: Mapping[str, str]
    usage: Mapping[str, Usage]


@cache
def texts() -> Mapping[str, str]:
    """All CUDA sources and headers by file name."""
    return {path.name: path.read_text("utf-8") for path in sorted(SOURCES.iterdir()) if path.suffix in (".cu", ".cuh")}


def _strings(texts: Collection[str]) -> ctypes.Array[c_char_p]:
    return (c_char_p * len(texts))(*(text.encode() for text in texts))


class Nvrtc:
    """NVIDIA's run-time compiler through its C API."""

    def __init__(self, path: str):
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = c_char_p
        major, minor = c_int(), c_int()
        self._call("nvrtcVersion", byref(major), byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def compile(self, source: str, headers: Mapping[str, str], kernels: Sequence[str], architecture: str) -> Module:
        """`kernels` are name expressions, templates included. Raises DeviceError with the compiler's words."""
        program = c_void_p()
        includes = len(headers), _strings(headers.values()), _strings(headers)
        self._call("nvrtcCreateProgram", byref(program), source.encode(), b"own.cu", *includes)
        try:
            for kernel in kernels:
                self._call("nvrtcAddNameExpression", program, kernel.encode())
            options = (f"--gpu-architecture={architecture}", *OPTIONS)
            code = self._library.nvrtcCompileProgram(program, len(options), _strings(options))
            log = self._get("ProgramLog", program).rstrip(b"\0").decode()
            if code:
                raise DeviceError(f"NVRTC {self.version} does not compile a kernel for {architecture}: {log.strip()}")
            lowered = {kernel: self._lowered(program, kernel) for kernel in kernels}
            usage = usage_of(log)
            return Module(
                self._get("CUBIN", program),
                lowered,
                {kernel: usage[name] for kernel, name in lowered.items() if name in usage},
            )
        finally:
            self._call("nvrtcDestroyProgram", byref(program))

    def _lowered(self, program: c_void_p, kernel: str) -> str:
        name = c_char_p()
        self._call("nvrtcGetLoweredName", program, kernel.encode(), byref(name))
        assert name.value is not None
        return name.value.decode()

    def _get(self, what: str, program: c_void_p) -> bytes:
        size = c_size_t()
        self._call(f"nvrtcGet{what}Size", program, byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def _call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise DeviceError(f"{name}: {self._library.nvrtcGetErrorString(code).decode()}")


# Where ptxas prints the figures of Usage, in its order. For a kernel without shared memory it prints none of that.
FIGURES = (r"Used (\d+) registers", r"(\d+) bytes smem", r"(\d+) bytes (?:stack frame|spill stores|spill loads)")


def usage_of(log: str) -> dict[str, Usage]:
    """ptxas's output, by lowered name."""
    found = {}
    for part in log.split("Compiling entry function '")[1:]:
        usage = Usage(*(sum(map(int, re.findall(figure, part))) for figure in FIGURES))
        found[part[: part.index("'")]] = usage
    return found


@cache
def nvrtc(path: str) -> Nvrtc:
    return Nvrtc(path)


def compiled(
    source: str, architecture: str, folder: Path | None = None, major: int | None = None, formula: str = ""
) -> Module:
    """All kernels of the file `source` for `architecture`, out of `folder` if they are there, else put there.

    By the NVRTC of CUDA `major`, or by the newest. `formula` is the header of HEADERS, else FORMULA, where it is
    not the file of that name. Raises DeviceError where there is no NVRTC.
    """
    found = libraries.load("nvrtc", major)
    if found is None:
        raise DeviceError(f"no libnvrtc found: {install('cuda-check')}")
    compiler, files = nvrtc(found), texts()
    headers = {name: text for name, text in files.items() if name.endswith(".cuh")}
    headers |= {HEADERS.get(source, FORMULA): formula} if formula else {}
    kernels = [kernel for kernel, file in KERNELS.items() if file == source]
    name = digest(files[source], headers, kernels, architecture, OPTIONS, compiler.version)
    kept = None if folder is None else folder / f"{name}.cubin"
    module = None if kept is None else read_module(kept)
    if module is None:
        module = compiler.compile(files[source], headers, kernels, architecture)
        if kept is not None:
            usage = {name: vars(usage) for name, usage in module.usage.items()}
            write_code(kept, {"names": dict(module.names), "usage": usage}, module.code)
    return module


def read_module(path: Path) -> Module | None:
    """None where it is not there or not whole: then it is compiled again."""
    head, code = read_code(path)
    if not head:
        return None
    return Module(code, head["names"], {name: Usage(**usage) for name, usage in head["usage"].items()})
