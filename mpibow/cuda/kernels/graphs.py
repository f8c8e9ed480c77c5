"""From a spec to cuDNN's graph: tensors with our strides, one operation, its epilogue. Built, not yet planned."""

from types import ModuleType
from typing import Any, TypeAlias

from mpibow.cuda.device.driver import dotted
from mpibow.errors import DeviceError, install

from .operands import check_sizes, numbered
from .specs import (
    NORM,
    Cast,
    ConvData,
    ConvForward,
    ConvWeights,
    NormBackward,
    NormForward,
    NormInference,
    Product,
    ReluBackward,
    Spec,
    scalars,
)

CudnnObject: TypeAlias = Any  # cuDNN's frontend has no types
OLDEST = 91500  # cuDNN 9.15
TYPES = {"float32": "FLOAT", "bfloat16": "BFLOAT16", "float16": "HALF", "bool": "BOOLEAN"}


def load_cudnn() -> ModuleType:
    """The module cudnn. Raises DeviceError where it, or the library behind it, is missing or too old."""
    try:
        import cudnn

        version = cudnn.backend_version()  # the frontend loads without a library behind it
    except ModuleNotFoundError:
        raise DeviceError(f"device cuda: nvidia-cudnn-frontend is not installed: {install('cuda')}") from None
    except (ImportError, RuntimeError, OSError) as error:
        why = str(error).split("\n")[0]
        raise DeviceError(
            f"device cuda: cuDNN cannot be loaded ({why}): {install('cuda')}, or load the site's module"
        ) from None
    if version < OLDEST:
        raise DeviceError(
            f"device cuda: cuDNN is {dotted(version)}, mpibow needs {dotted(OLDEST)} or newer: {install('cuda')}, "
            "or load a newer module of the site's"
        )
    loaded: ModuleType = cudnn
    return loaded


def refusals() -> tuple[type[Exception], ...]:
    """The errors that the frontend raises where cuDNN refuses something; its own is a subclass of Exception alone."""
    return load_cudnn().cudnnGraphNotSupportedError, RuntimeError, ValueError


class _Tensors:
    """A graph under construction: `t[name]` is an input by its spec's name, `write` makes a result an output."""

    def __init__(self, cudnn: ModuleType, graph: CudnnObject, spec: Spec):
        self.graph, self._types, self.add = graph, cudnn.data_type, cudnn.reduction_mode.ADD
        self._operands = {operand.name: operand for operand in spec.operands}
        self._numbers = numbered(spec.operands)
        self._made = {
            o.name: graph.tensor(
                dim=list(o.shape),
                stride=list(o.strides),
                data_type=self.type(o.dtype),
                name=o.name,
                uid=self._numbers[o.name],
            )
            for o in spec.operands
            if o.role == "in"
        }
        for scalar in scalars(spec):
            self._made[scalar.name] = graph.tensor_scalar(
                scalar.value, cudnn.scalar_type.RUNTIME_PARAM, name=scalar.name
            )

    def type(self, dtype: str) -> CudnnObject:
        return getattr(self._types, TYPES[dtype])

    def __getitem__(self, name: str) -> CudnnObject:
        return self._made[name]

    def write(self, name: str, value: CudnnObject) -> None:
        o = self._operands[name]
        value.set_output(True).set_uid(self._numbers[name]).set_name(name).set_data_type(self.type(o.dtype))
        value.set_dim(list(o.shape)).set_stride(list(o.strides))


def _window(spec: ConvForward | ConvData | ConvWeights) -> dict[str, list[int]]:
    return {name: list(getattr(spec.window, name)) for name in ("padding", "stride", "dilation")}


def _normed(t: _Tensors, y: CudnnObject) -> CudnnObject:
    """y scaled and shifted by the running statistics, one a channel."""
    mean, variance, scale, shift = (t[name] for name in NORM)
    inverse = t.graph.rsqrt(t.graph.add(a=variance, b=t["epsilon"]))
    y = t.graph.mul(a=t.graph.sub(a=y, b=mean), b=inverse)
    return t.graph.add(a=t.graph.mul(a=y, b=scale), b=shift)


def _epilogue(t: _Tensors, y: CudnnObject, spec: ConvForward | NormForward | NormInference) -> CudnnObject:
    if spec.added:
        y = t.graph.add(a=y, b=t["z"])
    return t.graph.relu(y) if spec.relu else y


# cuDNN's kernels for these two are cooperative where channels lie last: their blocks meet at a barrier, so all must be
# on the device at once, and a learner's kernel waits until those of others leave enough room. Not measured yet.
def _norm_forward(t: _Tensors, spec: NormForward) -> None:
    y, *moments = t.graph.batchnorm(
        input=t["x"],
        scale=t["weight"],
        bias=t["bias"],
        in_running_mean=t["running_mean"],
        in_running_var=t["running_variance"],
        epsilon=t["epsilon"],
        momentum=t["momentum"],
    )
    y = _epilogue(t, y, spec)
    t.write("y", y)
    if spec.relu:
        t.write("mask", t.graph.cmp_gt(input=y, comparison=t["zero"]))
    for name, value in zip(("mean", "inverse", "next_mean", "next_variance"), moments, strict=True):
        t.write(name, value)


def _norm_backward(t: _Tensors, spec: NormBackward) -> None:
    dz = t["dy"]
    if spec.relu:
        # It never reaches memory, but is rounded as if it did: cuDNN's patterns require it.
        dz = t.graph.mul(a=dz, b=t["mask"]).set_data_type(t.type(spec.precision.io))
    if spec.added:
        t.write("dz", dz)
    gradients = t.graph.batchnorm_backward(
        grad=dz, input=t["x"], scale=t["weight"], mean=t["mean"], inv_variance=t["inverse"]
    )
    for name, gradient in zip(("dx", "dweight", "dbias"), gradients, strict=True):
        t.write(name, gradient)


def _build(t: _Tensors, spec: Spec) -> None:
    """The operations of `spec`, and their outputs."""
    match spec:
        case Cast():
            t.write("y", t.graph.identity(t["x"]))
        case ConvData():
            t.write("dx", t.graph.conv_dgrad(loss=t["dy"], filter=t["w"], **_window(spec)))
        case ConvForward():
            y = t.graph.conv_fprop(image=t["x"], weight=t["w"], **_window(spec))
            y = t.graph.bias(input=y, bias=t["bias"]) if spec.bias else y
            y = y if spec.norm is None else _normed(t, y)
            t.write("y", _epilogue(t, y, spec))
        case ConvWeights():
            t.write("dw", t.graph.conv_wgrad(image=t["x"], loss=t["dy"], **_window(spec)))
        case NormBackward():
            _norm_backward(t, spec)
        case NormForward():
            _norm_forward(t, spec)
        case NormInference():
            t.write("y", _epilogue(t, _normed(t, t["x"]), spec))
        case Product():
            c = t.graph.matmul(A=t["a"], B=t["b"])
            t.write("c", c if spec.bias is None else t.graph.add(a=c, b=t["bias"]))
        case ReluBackward():
            dz = t["dy"]
            if spec.relu:
                dz = t.graph.relu_backward(loss=dz, input=t["y"])
                t.write("dz", dz)
            if spec.sums:
                t.write("sums", t.graph.reduction(input=dz, mode=t.add))


def build_graph(spec: Spec, *, handle: int | None = None, properties: CudnnObject = None) -> CudnnObject:
    """The validated graph of `spec`, for the device of `handle`, or for one described by `properties`.

    Neither is needed to build and validate it; plans need one of the two. Raises DeviceError where cuDNN refuses it.
    """
    cudnn = load_cudnn()
    check_sizes(spec.operands)
    float32 = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        name=spec.kind,
        io_data_type=getattr(cudnn.data_type, TYPES[spec.precision.io]),
        intermediate_data_type=float32,
        compute_data_type=float32,
        handle=handle,
        device_property=properties,
    )
    try:
        _build(_Tensors(cudnn, graph, spec), spec)
        graph.validate()
    except refusals() as error:
        raise DeviceError(f"cuDNN refuses {spec}: {first_line(error)}") from None
    return graph


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]
