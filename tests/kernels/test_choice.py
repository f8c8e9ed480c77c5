"""Which kernels compute: by name, or the fastest that are there."""

from collections.abc import Iterator

import pytest

from mpibow import kernels
from mpibow.errors import DeviceError
from mpibow.kernels import NUMPY, find_kernels


@pytest.fixture
def without_library(monkeypatch) -> Iterator[None]:
    library = pytest.importorskip("mpibow.kernels.onednn.library")
    monkeypatch.setattr(library, "find_library", lambda: None)
    kernels.onednn_set.cache_clear()
    yield
    kernels.onednn_set.cache_clear()


@pytest.fixture
def without_numba(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    kernels.onednn_set.cache_clear()
    yield
    kernels.onednn_set.cache_clear()


def test_numpy_by_name():
    assert find_kernels("numpy", "float32", None) == (NUMPY, "")
    assert find_kernels("numpy", "float64", None) == (NUMPY, "")


def test_auto_is_onednn_where_it_is_there():
    pytest.importorskip("numba")
    if pytest.importorskip("mpibow.kernels.onednn.library").find_library() is None:
        pytest.skip("no libdnnl found: pip install -e '.[cpu]'")
    chosen, hint = find_kernels("auto", "float32", None)
    assert (chosen.name, hint) == ("onednn", "")
    assert chosen.about.startswith("oneDNN 3.")
    assert find_kernels("onednn", "float32", None)[0] is chosen


def test_auto_in_float64_is_numpy():
    assert find_kernels("auto", "float64", None) == (NUMPY, "")


@pytest.mark.usefixtures("without_library")
def test_auto_without_the_library_says_what_to_install():
    chosen, hint = find_kernels("auto", "float32", None)
    assert chosen is NUMPY
    assert hint == (
        "computing with NumPy, which is slow: no libdnnl found: pip install -e '.[cpu]', or give its path: "
        "onednn.library=PATH"
    )


@pytest.mark.usefixtures("without_numba")
def test_auto_without_numba_says_what_to_install():
    hint = "computing with NumPy, which is slow: numba is not installed: pip install -e '.[cpu]'"
    assert find_kernels("auto", "float32", None) == (NUMPY, hint)


@pytest.mark.usefixtures("without_library")
def test_onednn_by_name_without_the_library():
    with pytest.raises(DeviceError, match=r"^device onednn: no libdnnl found: pip install -e '\.\[cpu\]'"):
        find_kernels("onednn", "float32", None)


def test_onednn_in_float64():
    pytest.importorskip("numba")
    if pytest.importorskip("mpibow.kernels.onednn.library").find_library() is None:
        pytest.skip("no libdnnl found: pip install -e '.[cpu]'")
    with pytest.raises(DeviceError, match=r"^device: onednn computes in float32, precision is float64$"):
        find_kernels("onednn", "float64", None)


def test_numpy_in_what_is_a_gpus():
    with pytest.raises(DeviceError, match=r"^device: numpy computes in float32, float64, precision is tf32$"):
        find_kernels("numpy", "tf32", None)


def test_auto_is_float32_on_the_host():
    assert find_kernels("numpy", "auto", None) == (NUMPY, "")
    assert [NUMPY.computes_in(precision) for precision in ("auto", "float64")] == ["float32", "float64"]
    assert NUMPY.dtype("auto") == "float32"


def test_a_library_that_was_asked_for_must_be_one():
    pytest.importorskip("numba")
    with pytest.raises(DeviceError, match=r"^onednn.library: /nowhere/libdnnl.so cannot be loaded: "):
        find_kernels("auto", "float32", "/nowhere/libdnnl.so")
