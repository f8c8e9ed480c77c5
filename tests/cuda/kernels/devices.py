"""Plans for GPUs that are not here, by cuDNN's ahead-of-time way: python -m tests.cuda.kernels.devices [MODEL ...].

cuDNN makes plans for a device that is only described, and compiles their kernels. It wants a driver library to load
beside it, though it never asks that for a GPU: `driver_stub` compiles one that has no device and loads nothing. What
this shows: an engine for every spec on every architecture, and its workspace. What it does not: that a kernel runs.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from mpibow.cuda.device.driver import DeviceProperties
from mpibow.cuda.device.libraries import open_libraries
from mpibow.cuda.kernels.fused import ROWS, WIDENED
from mpibow.cuda.kernels.graphs import load_cudnn
from mpibow.cuda.kernels.kept import Folder
from mpibow.cuda.kernels.listing import convolution, dense, norm, rewrite
from mpibow.cuda.kernels.opened import TRIES, plan_folder
from mpibow.cuda.kernels.operands import PRECISIONS, Precision
from mpibow.cuda.kernels.plans import Planner, Target
from mpibow.cuda.kernels.specs import (
    Cast,
    ConvData,
    ConvForward,
    ConvGeometry,
    ConvWeights,
    NormBackward,
    NormForward,
    NormInference,
    Product,
    ReluBackward,
    Spec,
)
from mpibow.errors import DeviceError
from mpibow.graph import Graph, Shapes
from mpibow.graph.steps import inputs_wanted, trained_values
from mpibow.graph.wide import widen
from mpibow.job.synthetic import SHAPES
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from mpibow.ops import BatchNorm, Conv2d, Dense
from mpibow.ops.fused import ConvNormAddRelu, ConvRelu, NormAddRelu
from mpibow.ops.reshape import View
from mpibow.ops.wide import Beside, WideDense

# From the vendor's documents, not read from a device: what cuDNN asks of one. Sizes in bytes, rates in kHz.
COMMON = {
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "driverVer": 13000,
    "regsPerBlock": 65536, "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536, "pciDeviceId": 0, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1, "oversizedSharedMemoryPerBlock": 0,
    "cudaDeviceId": 0,
}  # fmt: skip
DEVICES = {
    "sm_80": {
        "deviceName": "NVIDIA A100-SXM4-80GB", "deviceVer": 800, "multiProcessorCount": 108,
        "smClockRateKHz": 1410000, "memClockRateKHz": 1593000, "memoryBusWidth": 5120, "l2CacheSize": 40 << 20,
        "maxSharedMemoryPerBlockOptin": 166912, "totalGlobalMem": 80 << 30,
    },
    "sm_90": {
        "deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900, "multiProcessorCount": 132,
        "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "memoryBusWidth": 5120, "l2CacheSize": 50 << 20,
        "maxSharedMemoryPerBlockOptin": 232448, "totalGlobalMem": 80 << 30,
    },
    "h200": {
        "deviceName": "NVIDIA H200", "deviceVer": 900, "multiProcessorCount": 132, "smClockRateKHz": 1980000,
        "memClockRateKHz": 3201000, "memoryBusWidth": 6144, "l2CacheSize": 60 << 20,
        "maxSharedMemoryPerBlockOptin": 232448, "totalGlobalMem": 141 << 30,
    },
    "sm_100": {
        "deviceName": "NVIDIA B200", "deviceVer": 1000, "multiProcessorCount": 148, "smClockRateKHz": 1965000,
        "memClockRateKHz": 3996000, "memoryBusWidth": 8192, "l2CacheSize": 126 << 20,
        "maxSharedMemoryPerBlockOptin": 232448, "totalGlobalMem": 180 << 30,
    },
}  # fmt: skip

# What cuDNN links to or looks up; CUDA's results are 0 (success) and 100 (no device).
SUCCEED = ("cuLibraryUnload", "cuModuleUnload", "cuKernelSetAttribute")
GIVE_A_HANDLE = (
    "cuLibraryLoadData", "cuModuleLoadData", "cuLibraryGetKernel", "cuModuleGetFunction", "cuKernelGetFunction",
)  # fmt: skip
GIVE_ONE = ("cuKernelGetAttribute", "cuOccupancyMaxPotentialClusterSize")
REFUSE = (
    "cuCtxGetCurrent", "cuCtxGetLimit", "cuCtxPopCurrent", "cuCtxPushCurrent", "cuDeviceGet", "cuDeviceGetCount",
    "cuLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchKernelEx", "cuLibraryLoadFromFile", "cuLinkAddData",
    "cuLinkComplete", "cuLinkCreate", "cuLinkDestroy", "cuStreamGetCtx", "cuTensorMapEncodeIm2col",
    "cuTensorMapEncodeTiled",
)  # fmt: skip


TF32, FP32, BF16 = PRECISIONS["tf32"], PRECISIONS["fp32"], PRECISIONS["bf16"]
WINDOW = ConvGeometry((2, 8, 6, 6), (8, 8, 3, 3), (2, 8, 6, 6), (1, 1), (1, 1), (1, 1))
FEW = [  # one of each kind, the cheapest to compile
    ConvForward(WINDOW, FP32, bias=True, relu=True),
    ConvForward(WINDOW, BF16, norm=1e-5, added=True, relu=True),
    ConvData(WINDOW, FP32),
    ConvWeights(WINDOW, TF32),
    NormForward((2, 8, 6, 6), BF16, 1e-5, 0.1, relu=True, added=True),
    NormBackward((2, 8, 6, 6), TF32, relu=True, added=True),
    NormInference((2, 8, 6, 6), TF32, 1e-5, relu=True),
    ReluBackward((2, 8, 6, 6), FP32, relu=True, sums=True),
    Product(1, 16, 32, 10, (32, 32, 1), (320, 1, 32), (10, 10, 1), "bfloat16", BF16, (10, 10, 1)),
    Cast(24, "bfloat16", "float32", BF16),
    NormForward((2, 4, 6, 6), FP32, 1e-5, 0.1),  # the fewest channels
]
UNFIT = [  # exact float32 as a product, channels that are no vector, a shape that is wrong
    Product(1, 16, 32, 10, (32, 32, 1), (320, 1, 32), (10, 10, 1), "float32", FP32),
    NormForward((2, 6, 6, 6), TF32, 1e-5, 0.1),
    NormBackward((2, 12, 6, 6), BF16, relu=True),
    ConvForward(replace(WINDOW, y=(2, 8, 5, 6)), TF32),
]


def try_few(folder: Path) -> None:
    """Plans for FEW, twice: made, and read from `folder`; then what is said of UNFIT."""
    made = report(FEW, "sm_90", folder)
    print(f"planned {made['planned']} of {len(FEW)} for sm_90", *made["refused"])
    if report(FEW, "sm_90", folder) == made:
        print("the same engines and workspaces when they are read again")
    for said in report(UNFIT, "sm_90")["refused"]:
        print(said.split(" that is deterministic: ")[0])  # the rest are cuDNN's words


def ahead(folder: Path, models: Sequence[str]) -> None:
    """Plans for an H200, filed as a run there looks for them: in FOLDER/first those of `models`, each
    MODEL:PRECISION:BATCH, and of FEW, in FOLDER/caches those of FEW as the tests on a GPU take them. None is timed."""
    device = DeviceProperties(0, DEVICES["h200"]["deviceName"], "", "", (9, 0), 0)
    wanted = dict.fromkeys(FEW)
    for model in models:
        name, precision, batch = model.split(":")
        wanted |= dict.fromkeys(specs_of_model(name, precision, int(batch)))
    kinds = [
        ("first", TRIES, list(wanted)), ("first", 1, FEW), ("caches", 1, FEW)
    ]  # fmt: skip
    for cache, tries, specs in kinds:
        planner = Planner(target("h200"), tries, plan_folder(folder / cache / "mpibow", device, tries))
        for spec in specs:
            try:
                planner.plan(spec)
            except DeviceError as error:
                print(error)


def stub_source() -> str:
    lines = ["static char loaded;"]
    lines += [f"int {name}(void) {{ return 0; }}" for name in SUCCEED]
    lines += [f"int {name}(void **handle) {{ *handle = &loaded; return 0; }}" for name in GIVE_A_HANDLE]
    lines += [f"int {name}(int *value) {{ *value = 1; return 0; }}" for name in GIVE_ONE]
    lines += [f"int {name}(void) {{ return 100; }}" for name in REFUSE]
    lines += ["int cuDriverGetVersion(int *version) { *version = 13000; return 0; }"]
    lines += [
        f'int {name}(int error, const char **text) {{ (void)error; *text = "no device"; return 0; }}'
        for name in ("cuGetErrorName", "cuGetErrorString")
    ]
    return "\n".join(lines) + "\n"


def driver_stub(folder: Path) -> Path:
    """Compiles it into `folder`, as libcuda.so.1."""
    source, library = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text(stub_source())
    command = [compiler(), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return library


def compiler() -> str:
    return shutil.which("cc") or shutil.which("gcc") or ""


def libraries() -> list[str]:
    """The folders of the NVIDIA wheels that cuDNN needs beside its own."""
    roots = [Path(entry) for entry in (*sys.path, sysconfig.get_path("purelib")) if entry]
    names = ("cudnn/lib", "cu13/lib", "cublas/lib", "cuda_nvrtc/lib")
    return [str(root / "nvidia" / name) for root in roots for name in names if (root / "nvidia" / name).is_dir()]


def missing() -> str:
    """Why plans cannot be made here, '' where they can."""
    found = [str(path.name) for folder in libraries() for path in Path(folder).glob("lib*.so.*")]
    for name, package in (
        ("libcudnn_graph.so.9", "nvidia-cudnn-cu13"),
        ("libcublasLt.so", "nvidia-cublas"),
        ("libnvrtc.so", "nvidia-cuda-nvrtc"),
    ):
        if not any(file.startswith(name) for file in found):
            return f"{package} is not installed"
    if not compiler():
        return "no C compiler, for a driver that has no device"
    return ""


def in_a_process(folder: Path, *arguments: str, timeout: float = 720) -> subprocess.CompletedProcess[str]:
    """Runs this module where cuDNN finds its libraries and the stub."""
    driver_stub(folder)
    paths = [str(folder), *libraries(), os.environ.get("LD_LIBRARY_PATH", "")]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths))}
    command = [sys.executable, "-m", "tests.cuda.kernels.devices", *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=timeout, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip


def target(device: str) -> Target:
    described = json.dumps({**COMMON, **DEVICES[device]})
    return Target(device, properties=load_cudnn().create_device_properties(described))


LISTS = {
    **dict.fromkeys((Conv2d, ConvRelu, ConvNormAddRelu), convolution),
    **dict.fromkeys((BatchNorm, NormAddRelu), norm),
    **dict.fromkeys((Dense, WideDense), dense),
}


def specs_of(graph: Graph, precision: Precision, training: bool) -> list[Spec]:
    """Every different spec of a plan of `graph`, in the order of its nodes."""
    graph = rewrite(graph, training)
    trained = trained_values(graph) if training else set()
    found = {}
    for node in graph.nodes:
        x = tuple(graph.tensors[name].shape for name in node.inputs)
        shapes = Shapes(x, graph.tensors[node.name].shape, training, inputs_wanted(node, trained))
        if type(node.op) in LISTS:
            found |= dict.fromkeys(LISTS[type(node.op)](node.op, shapes, precision).values())
    return list(found)


def specs_of_model(name: str, precision: str, batch: int, replicas: int = 1) -> list[Spec]:
    classes, shape = SHAPES[name]
    build = classifier(partial(MODELS[name], classes=classes), shape, "uint8")
    graph = build(batch, True)
    graph = graph if replicas == 1 else widen(graph, replicas, WIDENED, ROWS, View, Beside)
    found = dict.fromkeys(specs_of(graph, PRECISIONS[precision], True))
    if replicas == 1:  # the centre is evaluated, not a replica
        found |= dict.fromkeys(specs_of(build(batch), PRECISIONS[precision], False))
    return list(found)


def report(specs: Sequence[Spec], device: str, folder: Path | None = None) -> dict:
    """How many specs have a plan, the largest workspace, and who has none, in words."""
    planner = Planner(target(device), folder=Folder(folder, (device,)) if folder else None)
    workspaces, refused, engines = [], [], []
    for spec in specs:
        try:
            plan = planner.plan(spec)
        except DeviceError as error:
            refused.append(str(error))
            continue
        workspaces.append(plan.workspace)
        engines.append(plan.made.engine)
    return {"planned": len(workspaces), "workspace": max(workspaces, default=0), "refused": refused, "engines": engines}


def main() -> None:
    open_libraries()
    if "--ahead" in sys.argv:
        return ahead(Path(sys.argv[2]), sys.argv[3:])
    if "--few" in sys.argv:
        return try_few(Path(sys.argv[-1].removeprefix("folder=")))
    for device in DEVICES:
        for precision in PRECISIONS:
            begin = time.perf_counter()
            specs = [spec for model in sys.argv[1:] or MODELS for spec in specs_of_model(model, precision, 16)]
            found = report(list(dict.fromkeys(specs)), device)
            line = {"device": device, "precision": precision, **found, "engines": len(set(found["engines"]))}
            print(json.dumps({**line, "seconds": round(time.perf_counter() - begin, 1)}), flush=True)


if __name__ == "__main__":
    main()
