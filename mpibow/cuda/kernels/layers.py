"""Convolution, batch norm and dense layers by cuDNN, as a kernel table takes them; channels are innermost.

Weights, their gradients and all statistics are float32, images are of the precision; their runs take a stream.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mpibow.cuda.device.array import PlanArray, PlanArrays
from mpibow.cuda.kernels import listing
from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Buffers, Call, Formats, Kernel, Op, Shapes, Spec, Specs, Tags, canonical_formats
from mpibow.ops import BatchNorm, Conv2d, Dense
from mpibow.ops.batch_norm import check_values
from mpibow.ops.fused import ConvNormAddRelu, ConvRelu, NormAddRelu
from mpibow.ops.wide import WideDense

from .cudnn import Cudnn, Enqueue, together
from .layout import LAST, last_formats
from .operands import Precision
from .specs import Cast, NormInference, Product, Spec as CudnnSpec

Named = Mapping[str, CudnnSpec]
List = Callable[[Any, Shapes, Precision], Named]


@dataclass(frozen=True)
class _Layer:
    """The common part of all layers: the specs of a node, and their scratch."""

    cudnn: Cudnn
    precision: Precision
    list: List

    def specs(self, op: Op, shapes: Shapes) -> Named:
        return self.list(op, shapes, self.precision)

    def scratch(self, *specs: CudnnSpec | None) -> Specs:
        size = self.cudnn.workspace(*specs)
        return {"workspace": ((size,), "uint8")} if size else {}

    def bind(self, call: Call, spec: CudnnSpec, arrays: PlanArrays) -> Enqueue:
        return self.cudnn.bind(spec, arrays, call.scratch.get("workspace"))

    def kernel(self, back: bool = True) -> Kernel:
        """Its runs take the stream that they enqueue on."""
        layer: Any = self
        backward = layer.backward if back else None
        return Kernel(layer.forward, backward, layer.buffers, layer.formats, inputs_alone=isinstance(self, Weighted))


class Weighted(_Layer):
    """Convolutions and dense layers: forward, then dy through relu and over the bias, weights, data."""

    def formats(self, op: Op, shapes: Shapes, given: Tags) -> Formats:
        if isinstance(op, Dense):
            return canonical_formats(op, shapes, given)
        return replace(last_formats(op, shapes, given), w={"weight": LAST[4]})

    def buffers(self, op: Op, shapes: Shapes) -> Buffers:
        specs = self.specs(op, shapes)
        forward = self.scratch(specs["forward"])
        if "weights" not in specs:
            return Buffers(forward=forward)
        narrow = self._narrow(specs["weights"])
        backward = self.scratch(*(specs.get(name) for name in ("relu", "weights", "data")), narrow)
        if isinstance(op, ConvRelu):
            backward["dz"] = (shapes.y, FLOAT)
            if op.conv.bias:
                backward["sums"] = ((shapes.y[1],), "float32")  # where the bias is frozen
        if narrow is not None:
            backward["dw"] = ((2 * narrow.count,), "uint8")
        return Buffers(forward=forward, backward=backward)

    def _narrow(self, weights: CudnnSpec) -> Cast | None:
        """The run that turns a 16-bit gradient of weights into float32, where there is one."""
        made = weights.operands[-1]
        if made.dtype == "float32":
            return None
        return Cast(math.prod(made.shape), made.dtype, "float32", self.precision)

    def forward(self, call: Call) -> Enqueue:
        spec = self.specs(call.op, call.shapes)["forward"]
        arrays = _named(spec, "abc", ("x", "w", "y"), call.x0, call.w["weight"], call.y)
        if "bias" in call.w:
            arrays["bias"] = call.w["bias"]
        if isinstance(call.op, ConvNormAddRelu):
            arrays |= _running(call, "batch_norm.")
            arrays |= {"z": call.x[1]} if call.op.added else {}
        return self.bind(call, spec, arrays)

    def backward(self, call: Call) -> Enqueue:
        specs = self.specs(call.op, call.shapes)
        dy = call.dy
        runs = []
        if "relu" in specs and (call.dw or isinstance(call.op, ConvRelu)):
            arrays = {"dy": dy}
            if isinstance(call.op, ConvRelu):
                dy = call.scratch["dz"]
                arrays |= {"y": call.y, "dz": dy}
            arrays |= {"sums": call.dw["bias"] if call.dw else call.scratch["sums"]} if "bias" in call.w else {}
            runs.append(self.bind(call, specs["relu"], arrays))
        weights = specs["weights"]
        narrow = self._narrow(weights)
        if call.dw:
            dw = call.dw["weight"] if narrow is None else call.scratch["dw"]
            arrays = _named(weights, "bac", ("x", "dy", "dw"), call.x0, dy, dw)
            runs.append(self.bind(call, weights, arrays))
            if narrow is not None:
                runs.append(self.bind(call, narrow, {"x": dw, "y": call.dw["weight"]}))
        if call.dx[0] is not None and "data" in specs:
            arrays = _named(specs["data"], "abc", ("dy", "w", "dx"), dy, call.w["weight"], call.dx[0])
            runs.append(self.bind(call, specs["data"], arrays))
        return together(runs)


class Norm(_Layer):
    """BatchNorm and NormAddRelu; forward saves the elements that relu passes as a mask."""

    formats = staticmethod(last_formats)

    def buffers(self, op: Op, shapes: Shapes) -> Buffers:
        specs = self.specs(op, shapes)
        forward = self.scratch(specs["forward"])
        if "backward" not in specs:
            return Buffers(forward=forward)
        check_values(shapes.y)
        channel: Spec = ((shapes.y[1],), "float32")
        saved: Specs = {"mean": channel, "inverse": channel}
        backward = self.scratch(specs["backward"])
        if isinstance(op, NormAddRelu):
            saved["mask"] = ((math.prod(shapes.y),), "uint8")
            if op.added and 1 not in shapes.wanted:
                backward["dz"] = (shapes.y, FLOAT)
        if 0 not in shapes.wanted:
            backward["dx"] = (shapes.y, FLOAT)
        return Buffers(saved=saved, forward=forward, backward=backward)

    def forward(self, call: Call) -> Enqueue:
        spec = self.specs(call.op, call.shapes)["forward"]
        arrays = {"x": call.x0, "y": call.y}
        if isinstance(spec, NormInference):
            arrays |= _running(call, "")
        else:
            mean = call.statistics["mean"]
            variance = call.statistics["variance"]
            arrays |= {**call.w, **call.saved}
            arrays |= {"running_mean": mean, "running_variance": variance, "next_mean": mean, "next_variance": variance}
        arrays |= {"z": call.x[1]} if len(call.x) > 1 else {}
        return self.bind(call, spec, arrays)

    def backward(self, call: Call) -> Enqueue:
        specs = self.specs(call.op, call.shapes)
        if "backward" not in specs:
            raise ShapeError(f"{call.name}: {listing.FROZEN}")
        arrays = {"dy": call.dy, "x": call.x0, "weight": call.w["weight"], **call.saved}
        arrays |= {"dweight": call.dw["weight"], "dbias": call.dw["bias"]}
        arrays["dx"] = call.scratch["dx"] if call.dx[0] is None else call.dx[0]
        if len(call.x) > 1:
            arrays["dz"] = call.scratch["dz"] if call.dx[1] is None else call.dx[1]
        return self.bind(call, specs["backward"], arrays)


def _named(spec: CudnnSpec, product: str, convolution: Sequence[str], *arrays: PlanArray) -> dict[str, PlanArray]:
    """The arrays by their names: one letter each in a product."""
    return dict(zip(product if isinstance(spec, Product) else convolution, arrays, strict=True))


def _running(call: Call, before: str) -> dict[str, PlanArray]:
    """The operands of a norm by running statistics."""
    return {
        "mean": call.statistics[f"{before}mean"],
        "variance": call.statistics[f"{before}variance"],
        "scale": call.w[f"{before}weight"],
        "shift": call.w[f"{before}bias"],
    }


def layers(cudnn: Cudnn, precision: Precision) -> dict[type, Kernel]:
    """The part of the kernel table that cuDNN computes."""
    convolution = Weighted(cudnn, precision, listing.convolution)
    dense = Weighted(cudnn, precision, listing.dense)
    norm = Norm(cudnn, precision, listing.norm)
    return {
        BatchNorm: norm.kernel(),
        Conv2d: convolution.kernel(),
        ConvNormAddRelu: convolution.kernel(back=False),
        ConvRelu: convolution.kernel(),
        Dense: dense.kernel(),
        NormAddRelu: norm.kernel(),
        WideDense: dense.kernel(),
    }
