"""cuDNN's own opinion of our graphs: every model's are valid, and it makes plans for GPUs that are only described."""

import importlib.util
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from mpibow.cuda.kernels import graphs
from mpibow.cuda.kernels.graphs import TYPES, build_graph, load_cudnn
from mpibow.cuda.kernels.operands import PRECISIONS, numbered
from mpibow.cuda.kernels.specs import Cast, Spec
from mpibow.errors import DeviceError
from mpibow.models import MODELS
from tests.cuda.kernels import devices
from tests.refusals import refuses


def absent() -> str:
    """Why cuDNN's frontend cannot be used here, '' where it can."""
    if importlib.util.find_spec("cudnn") is None:
        return "nvidia-cudnn-frontend is not installed: pip install -e '.[cuda]'"
    try:
        load_cudnn()
    except DeviceError as error:
        return str(error)
    return ""


needs_cudnn = pytest.mark.skipif(bool(absent()), reason=absent())
no_plans = absent() or devices.missing()
TF32 = PRECISIONS["tf32"]


@needs_cudnn
@pytest.mark.parametrize("name", MODELS)
def test_the_frontend_takes_every_graph_of_every_model(name):
    """Operations, attributes and types, that is; shapes and engines are looked at where plans are made, below."""
    for spec in devices.specs_of_model(name, "bf16", batch=2):
        written = {tensor.name: tensor for tensor in build_graph(spec).get_outputs()}
        operands = {operand.name: operand for operand in spec.operands if operand.role == "out"}
        assert written.keys() == operands.keys()
        numbers = numbered(spec.operands)
        for key, tensor in written.items():
            assert tensor.uid == numbers[key]
            assert tensor.data_type.name == TYPES[operands[key].dtype]


@needs_cudnn
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["lenet", "resnet20"])
def test_in_every_precision_and_for_replicas(name, precision):
    for spec in devices.specs_of_model(name, precision, batch=16, replicas=4):
        build_graph(spec)


@needs_cudnn
def test_a_graph_that_the_frontend_refuses(monkeypatch):
    def refused(tensors: object, spec: Spec) -> None:
        raise RuntimeError("strides must be positive\nand more words")

    monkeypatch.setattr(graphs, "_build", refused)
    with refuses(
        "cuDNN refuses Cast(count=16, source='float32', target='float16', precision=Precision(name='tf32', "
        "io='float32', tensor_cores=True)): strides must be positive",
        DeviceError,
    ):
        build_graph(Cast(16, "float32", "float16", TF32))


def refuse(error: Exception) -> Callable[[], int]:
    def raises() -> int:
        raise error

    return raises


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (
            refuse(RuntimeError("Unable to find symbol cudnnGetVersion")),
            "device cuda: cuDNN cannot be loaded (Unable to find symbol cudnnGetVersion): "
            "pip install -e '.[cuda]', or load the site's module",
        ),
        (
            lambda: 91002,
            "device cuda: cuDNN is 9.10.2, mpibow needs 9.15.0 or newer: pip install -e '.[cuda]', "
            "or load a newer module of the site's",
        ),
    ],
)
def test_a_library_that_is_not_there_or_too_old(monkeypatch, version: Callable[[], int], said):
    monkeypatch.setitem(sys.modules, "cudnn", SimpleNamespace(backend_version=version))
    with refuses(said, DeviceError):
        load_cudnn()


def test_a_frontend_that_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "cudnn", None)  # as where there is none
    with refuses("device cuda: nvidia-cudnn-frontend is not installed: pip install -e '.[cuda]'", DeviceError):
        load_cudnn()


@pytest.mark.slow
@pytest.mark.skipif(bool(no_plans), reason=no_plans)
def test_plans_for_a_gpu_that_is_not_here(tmp_path):
    """An engine for each kind of graph, kept and read again; and words for what has none."""
    done = devices.in_a_process(tmp_path, "--few", f"folder={tmp_path / 'plans'}")
    assert done.returncode == 0, done.stderr[-2000:]
    version = load_cudnn().backend_version_string()
    assert done.stdout.splitlines() == [
        f"planned {len(devices.FEW)} of {len(devices.FEW)} for sm_90",
        "the same engines and workspaces when they are read again",
        *(f"cuDNN {version} has no engine on sm_90 for {spec}" for spec in devices.UNFIT),
    ]
    assert len(list((tmp_path / "plans").glob("*.plan"))) == len(devices.FEW)
