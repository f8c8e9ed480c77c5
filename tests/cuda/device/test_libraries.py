"""Where CUDA's libraries are found and in which order they are loaded, with an empty LD_LIBRARY_PATH."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpibow.cuda.device import libraries
from mpibow.cuda.device.libraries import CUDART, before_cuda, find, load, open_libraries

FILES = (
    "cuda_nvrtc/lib/libnvrtc.so.12", "cuda_nvrtc/lib/libnvrtc-builtins.so.12.9", "cuda_runtime/lib/libcudart.so.12",
    "cu13/lib/libnvrtc.so.13", "cu13/lib/libnvrtc.alt.so.13", "cu13/lib/libnvrtc-builtins.so.13.0",
    "cu13/lib/libcudart.so.13",
)  # fmt: skip


@pytest.fixture
def packages(tmp_path, monkeypatch) -> Iterator[Path]:
    """NVIDIA's packages of CUDA 12 and 13 in one environment, as both leave their files."""
    root = tmp_path / "nvidia"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    spec = type("Spec", (), {"submodule_search_locations": [str(root)]})()
    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda name: spec)
    load.cache_clear()
    yield root
    load.cache_clear()


@pytest.fixture
def loaded(monkeypatch, packages: Path) -> list[str]:
    """The files that were loaded, in order."""
    log = []
    monkeypatch.setattr(libraries.ctypes, "CDLL", lambda path: log.append(str(Path(path).relative_to(packages))))
    return log


@pytest.mark.parametrize(
    ("major", "files"),
    [
        (12, ["cuda_nvrtc/lib/libnvrtc-builtins.so.12.9", "cuda_nvrtc/lib/libnvrtc.so.12"]),
        (13, ["cu13/lib/libnvrtc-builtins.so.13.0", "cu13/lib/libnvrtc.so.13"]),
        (None, ["cu13/lib/libnvrtc-builtins.so.13.0", "cu13/lib/libnvrtc.so.13"]),
    ],
)
def test_the_compilers_builtins_come_first(loaded, packages: Path, major, files):
    assert load("nvrtc", major) == load("nvrtc", major) == str(packages / files[-1])
    assert loaded == files  # once


def test_what_cudnn_opens_by_name(loaded, packages: Path):
    environment = {}
    open_libraries(12, environment)
    assert environment == {CUDART: str(packages / "cuda_runtime/lib/libcudart.so.12")}
    assert loaded[-2:] == ["cuda_nvrtc/lib/libnvrtc.so.12", "cuda_runtime/lib/libcudart.so.12"]
    open_libraries(13, environment)  # the user's own stays
    assert environment == {CUDART: str(packages / "cuda_runtime/lib/libcudart.so.12")}


def test_streams_have_queues_of_their_own_unless_the_user_says_otherwise():
    environment = {}
    before_cuda(environment)
    assert environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    before_cuda(environment)
    assert environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def test_what_the_packages_lack_is_the_systems(packages: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.setattr(libraries.ctypes.util, "find_library", lambda name: f"the system's {name}")
    assert load("nvrtc", 14) == "the system's nvrtc"
    monkeypatch.setattr(libraries.ctypes.util, "find_library", lambda name: None)
    environment = {}
    open_libraries(15, environment)
    assert environment == {}


def test_cupys_own_finder_is_asked_for_what_the_packages_lack(packages: Path, monkeypatch):
    class Missing(RuntimeError):
        pass

    def found(name: str):
        if name != "nvrtc":
            raise Missing
        return type("Loaded", (), {"abs_path": "/conda/libnvrtc.so.14"})()

    finder = type(sys)("cuda.pathfinder")
    finder.__dict__.update(load_nvidia_dynamic_lib=found, DynamicLibNotFoundError=Missing)
    monkeypatch.setitem(sys.modules, "cuda", type(sys)("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", finder)
    assert load("nvrtc", 14) == "/conda/libnvrtc.so.14"
    assert load("cudart", 14) is None


# Whatever is installed here, in a process of its own without LD_LIBRARY_PATH


def alone(code: str, **environment: str) -> list[str]:
    without = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", CUDART)}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**without, **environment}, capture_output=True, text=True, timeout=750,
        check=False, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def real(path: str | None) -> str:
    """As the loader shows it: without links."""
    return os.path.realpath(path or "")


def missing(*modules: str) -> str:
    """What of them is not installed."""
    return ", ".join(name for name in modules if importlib.util.find_spec(name) is None)


SHOW = """
import re
print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if re.search("lib(nvrtc|cudart)[-.]", line)}))
"""


@pytest.mark.skipif(find("nvrtc") is None, reason="nvidia-cuda-nvrtc is not installed")
def test_our_sources_compile_with_the_packages_compiler():
    """Which needs the builtins: without them NVRTC refuses the first source."""
    *_, name, said, shown = alone(
        "from mpibow.cuda.kernels.compile import compiled\n"
        "from mpibow.cuda.device.libraries import load\n"
        'print(load("nvrtc")); print(len(compiled("layout.cu", "sm_90").code))' + SHOW
    )
    assert name == find("nvrtc")
    assert int(said) > 10_000
    assert real(name) in shown.split()
    folder = str(Path(real(name)).parent)
    assert [path for path in shown.split() if "nvrtc-builtins" in path and path.startswith(folder)]


@pytest.mark.skipif(bool(missing("cupy")), reason="CuPy is not installed")
@pytest.mark.skipif(find("cudart") is None, reason="nvidia-cuda-runtime is not installed")
def test_cupy_comes_with_the_libraries_of_its_cuda():
    major, path, connections, shown = alone(
        "import os\n"
        "from mpibow.cuda.device.cupy_driver import load_cupy\n"
        "print(load_cupy().cuda.runtime.runtimeGetVersion() // 1000)\n"
        f'print(os.environ["{CUDART}"])\n'
        'print(os.environ["CUDA_DEVICE_MAX_CONNECTIONS"])' + SHOW,
        CUDA_DEVICE_MAX_CONNECTIONS="7",
    )
    assert path == find("cudart", int(major))
    assert connections == "7"
    assert {real(find(name, int(major))) for name in ("cudart", "nvrtc")} <= set(shown.split())
    assert all(f".so.{major}" in found for found in shown.split())
