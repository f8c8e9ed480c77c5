"""The library that is loaded: which ones are refused, and in what words."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from typing import Any

import pytest

from mpibow import ops
from mpibow.errors import DeviceError, ShapeError
from tests.kernels.cases import INITIAL, Case

pytest.importorskip("numba", reason="numba is not installed: pip install 'mpibow[cpu]'")
from mpibow.kernels.onednn import library as dnn
from mpibow.kernels.onednn import operators
from tests.kernels.test_onednn import check

FOUND = dnn.find_library()
pytestmark = pytest.mark.skipif(FOUND is None, reason="no libdnnl found: pip install 'mpibow[cpu]'")


def test_what_the_library_lacks_is_an_error_of_the_shapes() -> None:
    assert FOUND is not None
    library = dnn.load(FOUND)
    with pytest.raises(ShapeError, match=rf"^oneDNN {library.version} has no convolution_forward of these shapes: "):
        library.check(dnn.UNIMPLEMENTED, "convolution_forward")


def test_a_library_without_openmp_runs_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no number of threads to set."""
    assert FOUND is not None
    library = dnn.Library(FOUND)
    monkeypatch.setattr(library, "one_thread", [])
    monkeypatch.setattr(library, "_limit", None)
    with dnn.load(FOUND).single():
        check(operators(library), Case(ops.Dense(3, True, INITIAL), ((4, 5),)), (5, 3, 4), ("ab",))


def test_a_library_that_cannot_be_loaded(tmp_path: Any) -> None:
    path = tmp_path / "libdnnl.so"
    path.write_bytes(b"no library")
    with pytest.raises(DeviceError, match=rf"^onednn.library: {path} cannot be loaded: "):
        dnn.Library(str(path))


def test_a_library_that_is_another() -> None:
    other = ctypes.util.find_library("m") or "libm.so.6"
    with pytest.raises(DeviceError, match=r"lacks dnnl_version, .* \.\.\.; it must be oneDNN 3\.x"):
        dnn.Library(other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: setattr(v, "major", 2), "is oneDNN 2.{minor}.{patch}, mpibow needs 3.x"),
        (
            lambda v: setattr(v, "cpu", 4),
            r"computes by TBB, mpibow's learner threads need a library built for OpenMP or",
        ),
        (lambda v: setattr(v, "cpu", 512), r"computes by SYCL, mpibow's learner threads need"),
    ],
)
def test_a_library_of_another_version_or_build(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None], message: str
) -> None:
    assert FOUND is not None
    real = ctypes.CDLL(FOUND)
    real.dnnl_version.restype = ctypes.POINTER(dnn._Version)
    version = dnn._Version.from_buffer_copy(real.dnnl_version().contents)
    change(version)

    class Changed:
        def __init__(self, path: str) -> None:
            self.dnnl_version = lambda: ctypes.pointer(version)
            type(self).restype = None

        def __getattr__(self, symbol: str) -> Any:
            return getattr(real, symbol)

    monkeypatch.setattr(dnn.ctypes, "CDLL", Changed)
    with pytest.raises(DeviceError, match=message.format(minor=version.minor, patch=version.patch)):
        dnn.Library(FOUND)
