"""The library that is loaded: which ones are refused, and in what words."""

import ctypes
import ctypes.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mpibow import ops
from mpibow.errors import DeviceError, ShapeError
from mpibow.kernels.compiled.command import Command
from mpibow.kernels.onednn import library as dnn
from tests.kernels.against import compare
from tests.kernels.cases import INITIAL, Case
from tests.kernels.onednn import LIBRARY, PATH, needs_onednn, operators
from tests.refusals import refuses

pytestmark = needs_onednn

BUILD = (
    "(oneDNN {}) computes by RUNTIME, mpibow's learner threads need a library built for OpenMP or sequential: "
    "pip install onednn-cpu-gomp"
)


def test_what_the_library_lacks_is_an_error_of_the_shapes():
    library = LIBRARY
    with refuses(f"oneDNN {library.version} has no convolution_forward of these shapes: use device=numpy", ShapeError):
        library.check(dnn.UNIMPLEMENTED, "convolution_forward")
    with refuses(f"oneDNN {library.version}: engine: invalid arguments", DeviceError):
        library.check(2, "engine")


def test_a_library_without_openmp_runs_as_well(monkeypatch):
    """It has no number of threads to set."""
    library = dnn.Library(PATH)
    monkeypatch.setattr(library, "one_thread", Command([]))
    monkeypatch.setattr(library, "_limit", None)
    with LIBRARY.single():
        compare(operators(library)[ops.Dense], Case(ops.Dense(3, True, INITIAL), ((4, 5),)))


def test_a_library_that_cannot_be_loaded(tmp_path):
    path = tmp_path / "libdnnl.so"
    path.write_bytes(b"no library")
    with pytest.raises(OSError, match=str(path)) as reason:
        ctypes.CDLL(str(path))
    with refuses(f"onednn.library: {path} cannot be loaded: {reason.value}", DeviceError):
        dnn.Library(str(path))


@pytest.mark.parametrize(
    ("lacks", "remedy"),
    [
        ("libgomp.so.1", "apt-get install libgomp1, or dnf install libgomp"),
        ("libstdc++.so.6", "apt-get install libstdc++6, or dnf install libstdc++"),
    ],
)
def test_a_library_whose_own_libraries_the_system_lacks(monkeypatch, lacks, remedy):
    reason = f"{lacks}: cannot open shared object file: No such file or directory"

    def refuse(path: str) -> None:
        raise OSError(reason)

    monkeypatch.setattr(dnn.ctypes, "CDLL", refuse)
    with refuses(f"onednn.library: /opt/libdnnl.so.3 cannot be loaded: {reason}; as root: {remedy}", DeviceError):
        dnn.Library("/opt/libdnnl.so.3")


def test_a_library_that_is_another():
    other = ctypes.util.find_library("m") or "libm.so.6"
    with refuses(
        f"onednn.library: {other} lacks dnnl_version, dnnl_get_effective_cpu_isa, dnnl_engine_create ...; "
        "it must be oneDNN 3.x: pip install onednn-cpu-gomp",
        DeviceError,
    ):
        dnn.Library(other)


class Altered:
    """A library some of whose functions are others; None: not there."""

    def __init__(self, real: ctypes.CDLL, **others) -> None:
        self._real, self._others = real, others

    def __getattr__(self, symbol: str):
        found = self._others[symbol] if symbol in self._others else getattr(self._real, symbol)
        if found is None:
            raise AttributeError(symbol)
        return found


@pytest.mark.parametrize("symbol", dnn.NEEDED)
def test_a_library_that_lacks_a_function(monkeypatch, symbol):
    real = ctypes.CDLL(PATH)
    monkeypatch.setattr(dnn.ctypes, "CDLL", lambda path: Altered(real, **{symbol: None}))
    with refuses(
        f"onednn.library: {PATH} lacks {symbol}; it must be oneDNN 3.x: pip install onednn-cpu-gomp", DeviceError
    ):
        dnn.Library(PATH)


def test_what_is_needed_is_what_is_called():
    """By the sources: functions of `c`, the objects that are made, and the kinds of primitives that are asked for."""
    folder = Path(dnn.__file__).parent
    text = "".join(file.read_text() for file in folder.glob("*.py"))
    called = set(re.findall(r"\bc\.(dnnl_\w+)", text))
    halves = {"halves": ("forward", "backward"), "trio": ("forward", "backward_data", "backward_weights")}
    layers = re.findall(r'\b(halves|trio)\(\s*shapes,\s*"(\w+)"', text)
    made = {"reorder", *(f"{layer}_{half}" for way, layer in layers for half in halves[way])}
    objects, ways = set(re.findall(r'\bmake\(\w+, "(\w+)"', text)), set(re.findall(r'\bby="(\w+)"', text))
    called |= {f"dnnl_{name}" for name in ways} | {f"dnnl_{what}_destroy" for what in objects}
    called |= {f"dnnl_{what}_create" for what in objects - {"memory_desc", "primitive_desc"}}
    assert len(made) > 10
    assert len(objects) > 5
    assert set(dnn.NEEDED) == called | {f"dnnl_{kind}_primitive_desc_create" for kind in made}
    assert len(dnn.NEEDED) == len(set(dnn.NEEDED))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: setattr(v, "major", 2), "is oneDNN {}, mpibow needs 3.x"),
        (lambda v: setattr(v, "cpu", 4), BUILD.replace("RUNTIME", "TBB")),
        (lambda v: setattr(v, "cpu", 512), BUILD.replace("RUNTIME", "SYCL")),
        (lambda v: setattr(v, "cpu", 1024), BUILD.replace("RUNTIME", "runtime 1024")),
    ],
)
def test_a_library_of_another_version_or_build(monkeypatch, change: Callable[..., None], message):
    real = ctypes.CDLL(PATH)
    real.dnnl_version.restype = ctypes.POINTER(dnn._Version)
    version = dnn._Version.from_buffer_copy(real.dnnl_version().contents)
    change(version)
    monkeypatch.setattr(dnn.ctypes, "CDLL", lambda path: Altered(real, dnnl_version=lambda: ctypes.pointer(version)))
    number = f"{version.major}.{version.minor}.{version.patch}"
    with refuses(f"onednn.library: {PATH} " + message.format(number), DeviceError):
        dnn.Library(PATH)
