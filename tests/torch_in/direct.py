"""Samples of PyTorch's own tests for mpibow's functions of the same meaning."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import torch
from torch.utils import _pytree as pytree

import mpibow as mb
from mpibow.errors import ConfigError, ShapeError
from mpibow.graph import Graph
from mpibow.ops.initialisers import Given
from tests.torch_in.same import Found, computed, off, tensors_of

DIRECT = {
    "abs": mb.abs, "add": mb.add, "amax": lambda x, dim=(), keepdim=False: mb.amax(x, _axes(x, dim), keepdim=keepdim),
    "bmm": mb.matmul, "cat": lambda xs, dim=0: mb.concat(*xs, axis=dim), "div.no_rounding_mode": mb.divide, "eq": mb.eq,
    "exp": mb.exp, "expand": mb.expand, "flip": lambda x, dims: mb.flip(x, *dims), "gather": mb.gather, "ge": mb.ge,
    "gt": mb.gt, "le": mb.le, "log": mb.log, "log_softmax": mb.log_softmax, "lt": mb.lt, "matmul": mb.matmul,
    "max.binary": mb.maximum, "maximum": mb.maximum,
    "mean": lambda x, dim=(), keepdim=False: mb.mean(x, _axes(x, dim), keepdim=keepdim), "mm": mb.matmul,
    "mul": mb.multiply, "ne": mb.ne, "neg": mb.neg,
    "nn.functional.avg_pool2d": lambda x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True:
        mb.avg_pool2d(x, kernel_size, stride=stride, padding=padding, ceil=ceil_mode, count_padding=count_include_pad),
    "nn.functional.gelu": lambda x, approximate="none": mb.gelu(x, tanh=approximate == "tanh"),
    "nn.functional.leaky_relu": lambda x, negative_slope=0.01: mb.leaky_relu(x, negative_slope),
    "nn.functional.local_response_norm": mb.local_response_norm,
    "nn.functional.max_pool2d": lambda x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, **rest:
        mb.max_pool2d(x, kernel_size, stride=stride, padding=padding, ceil=ceil_mode, **_without(dilation, rest)),
    "nn.functional.relu": mb.relu, "nn.functional.relu6": mb.clipped_relu, "nn.functional.silu": mb.silu,
    "nn.functional.scaled_dot_product_attention": lambda q, k, v, attn_mask=None, dropout_p=0.0, **rest:
        mb.scaled_dot_product_attention(q, k, v, attn_mask, **_without(1 + dropout_p, rest)),
    "permute": mb.permute, "reshape": mb.reshape, "sigmoid": mb.sigmoid,
    "softmax": mb.softmax, "split": lambda x, size, dim=0: mb.split(x, size, dim), "sqrt": mb.sqrt,
    "stack": lambda xs, dim=0: mb.stack(*xs, axis=dim), "sub": lambda x, y: x - y,
    "sum": lambda x, dim=(), keepdim=False: mb.sum(x, _axes(x, dim), keepdim=keepdim), "tanh": mb.tanh,
    "transpose": mb.transpose, "true_divide": mb.divide, "where": lambda x, condition, y: mb.where(condition, x, y),
}  # fmt: skip


def _axes(x, dim):
    """All where none are given, as in PyTorch; mpibow leaves out the batch."""
    return dim if dim or isinstance(dim, int) else range(len(x.shape))


def _without(one, rest: Mapping[str, Any]) -> Mapping[str, Any]:
    """`rest`, where a setting that mpibow's function lacks is not used."""
    if set(pytree.tree_leaves(one)) != {1}:
        raise TypeError("a setting that the function lacks")
    return {key: each for key, each in rest.items() if key not in ("return_indices", "enable_gqa") or each}


class Direct:
    """An operator's sample for a function of mpibow's; float tensors are weights."""

    def __init__(self, opinfo, function: Callable[..., Any], arguments) -> None:
        self.op, self.function = opinfo.op, function
        self.leaves, self.spec = pytree.tree_flatten(arguments)
        self.weights = {
            f"p{n}.weight": each.detach().requires_grad_()
            for n, each in enumerate(self.leaves)
            if isinstance(each, torch.Tensor) and each.is_floating_point()
        }

    def build(self, graph: Graph):
        leaves = []
        for n, each in enumerate(self.leaves):
            weight = self.weights.get(f"p{n}.weight")
            if weight is not None:
                initial = Given(weight.detach().numpy())
                each = mb.parameter(tuple(weight.shape), initial=initial, name=f"p{n}")
            leaves.append(mb.constant(each.numpy()) if isinstance(each, torch.Tensor) else each)
        input, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(input, *args, **kwargs)

    def theirs(self) -> list[Any]:
        leaves = [self.weights.get(f"p{n}.weight", each) for n, each in enumerate(self.leaves)]
        input, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return tensors_of(self.op(input, *args, **kwargs))


def direct(sample: Direct, dtype) -> tuple[str, str]:
    """The kind of result of a function of mpibow's, and its message."""
    try:
        ours, gradients, _ = computed(sample.build, {}, dtype)
    except (ConfigError, ShapeError, TypeError) as error:  # arguments that it lacks
        return "refused: by rule", str(error)
    except Exception as error:
        return "trace", f"{type(error).__name__}: {error}"
    difference = off(ours, gradients, sample.theirs(), sample.weights, dtype)
    return ("wrong in silence", difference) if difference else ("equal", "")


def run_direct(opinfo, function: Callable[..., Any], dtype, samples: int | None) -> Found:
    """All samples of an operator, by a function of mpibow's."""
    found = Found()
    for number, sample in enumerate(islice(opinfo.sample_inputs("cpu", dtype, requires_grad=False), samples)):
        arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))
        tensors = [each for each in pytree.tree_leaves(arguments) if isinstance(each, torch.Tensor)]
        if tensors and all(each.numel() and not each.is_complex() for each in tensors):
            kind, text = direct(Direct(opinfo, function, arguments), dtype)
            found.counts[kind] += 1
            found.examples.setdefault(f"{kind} (mpibow's)", f"sample {number}: {text[:300]}")
    return found
