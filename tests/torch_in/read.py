"""Small modules as users bring them: read right, or refused by name. As a program: operators of several results."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

import mpibow as mb


class Scaled(nn.Module):
    """CLIP's scale of logits: a weight without axes."""

    def __init__(self) -> None:
        super().__init__()
        self.h = nn.Linear(6, 3)
        self.logit_scale = nn.Parameter(torch.ones([]) * 2.659)

    def forward(self, x: Tensor) -> Tensor:
        return self.h(x) * self.logit_scale.exp()


class Features(nn.Module):
    """Random features of Fourier, with buffers of all types; one is not in the state_dict."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("B", torch.randn(6, 16))
        self.register_buffer("places", torch.randperm(16))
        self.register_buffer("mask", torch.rand(16) > 0.3)
        self.register_buffer("shift", torch.randn(16), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        made = ((x @ self.B + self.shift).tanh() * self.mask)[:, self.places]
        return made


class Fourier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(Features(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class TiedPadding(nn.Module):
    """A head that shares the embedding's weight, whose row of padding is not 0."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(8, 4, padding_idx=0), nn.Linear(4, 8, bias=False)
        nn.init.normal_(self.embedding.weight)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x.argsort(1))).mean(1)


class Of(nn.Module):
    """A function behind a dense layer."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.h, self.function = nn.Linear(8, 8), function

    def forward(self, x: Tensor):
        return self.function(self.h(x))


class Still(Of):
    """A module without gradients in front of a dense layer."""

    def forward(self, x: Tensor):
        with torch.no_grad():
            y = self.function(x)
        return self.h(y)


class Arguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h = nn.Linear(8, 8)

    def forward(self, *tensors: Tensor, **settings) -> Tensor:
        return self.h(tensors[0]) * tensors[1]


@dataclass
class Out:
    logits: Any
    hidden: Any = None


@dataclass
class Known(Out):
    """A record that torch.export is told of."""


torch.export.register_dataclass(Known)


class Straight(torch.autograd.Function):
    """x, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx, dy: Tensor) -> Tensor:
        return dy * 0.5


class Crooked(Of):
    def __init__(self) -> None:
        super().__init__(Straight.apply)


class Hiding(Crooked):
    """Beside an output that is a large number."""

    def forward(self, x: Tensor):
        return super().forward(x), x * 0 - 1e30


class NoNumber(Of):
    def __init__(self) -> None:
        super().__init__(lambda x: torch.log(-1 - x.abs()))


class NoGradient(Of):
    def __init__(self) -> None:
        super().__init__(lambda x: torch.sqrt(x * 0))


class Homonyms(nn.Module):
    """Weights and buffers with the names of operators and of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.mul, self.mean, self.x = nn.Parameter(torch.rand(8)), nn.Buffer(torch.rand(8)), nn.Buffer(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(1, True)) * self.x * self.mul + self.mean


class Buffered(nn.Module):
    """`write` changes the buffer that forward reads."""

    def __init__(self, write: Callable[[Any, Tensor], None]) -> None:
        super().__init__()
        self.h, self.write = nn.Linear(8, 8), write
        self.register_buffer("c", torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.h(x)
        self.write(self, y.detach())
        return y * self.c


def _assigned(module, y: Tensor) -> None:
    module.c = module.c * 0.9 + y.mean(0)


def _part(module, y: Tensor) -> None:
    module.c[0] = 2.0


def _ties(x: Tensor) -> Tensor:
    """Extrema of equal numbers with different gradients."""
    y = x * 2 - x.detach()
    both = torch.stack([x, y])
    return torch.maximum(x, y) + torch.minimum(x, y) + both.max(0)[0] + both.min(0)[0]


def _alone(module: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(8, 8), module, nn.Linear(8, 3))


def _images(module: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Conv2d(3, 4, 3), module, nn.Flatten(), nn.Linear(144, 3))


class First(nn.Module):
    """The first result of a module."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor):
        made = self.part(x)
        return made[0] if isinstance(made, tuple) else made


class Shared(nn.Module):
    """One convolution at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.conv(x))


class Branch(Of):
    """timm's drop path: in training a sample's branch may be left out."""

    def __init__(self) -> None:
        super().__init__(lambda x: x)

    def forward(self, x: Tensor) -> Tensor:
        y = self.h(x)
        if self.training:
            y = y * y.new_empty((x.shape[0], 1)).fill_(7.0).bernoulli_(0.8).div_(0.8)
        return x + y


def _constant(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.tanh() + torch.arange(x.shape[1])


def _written(x: Tensor) -> Tensor:
    y, z = torch.zeros_like(x), x.clone()
    y[:, 1:] = x[:, :-1]
    y[:, 0] = 3.0
    z[:, 2:4] *= 2
    z[x > 1] = 0.5
    return y * z


def _frozen_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), parametrizations.spectral_norm(nn.Linear(8, 3)).eval())


x32 = torch.float32
IN_PLACE = {
    "Dropout": nn.Dropout(0.2, inplace=True), "SELU": nn.SELU(inplace=True), "ELU": nn.ELU(inplace=True),
    "CELU": nn.CELU(inplace=True), "Hardswish": nn.Hardswish(inplace=True), "SiLU": nn.SiLU(inplace=True),
    "Hardsigmoid": nn.Hardsigmoid(inplace=True), "Hardtanh": nn.Hardtanh(inplace=True), "Mish": nn.Mish(inplace=True),
    "LeakyReLU": nn.LeakyReLU(0.2, inplace=True), "Threshold": nn.Threshold(0.1, 0.0, inplace=True),
    "ReLU6": nn.ReLU6(inplace=True), "ReLU": nn.ReLU(inplace=True),
}  # fmt: skip

RIGHT = {
    **{f"{name} in place": (_alone(module), (2, 8)) for name, module in IN_PLACE.items()},
    "Dropout2d in place": (_images(nn.Dropout2d(0.2, inplace=True)), (2, 3, 8, 8)),
    "no axes": (Scaled, (2, 6)),
    "bfloat16": (lambda: nn.Linear(8, 3).to(torch.bfloat16), (2, 8)),
    "float16": (lambda: nn.Linear(8, 3).to(torch.float16), (2, 8)),
    "DataParallel": (lambda: nn.DataParallel(nn.Linear(8, 3)), (2, 8)),
    "compiled": (lambda: torch.compile(nn.Linear(8, 3)), (2, 8)),
    "compiled DataParallel": (lambda: torch.compile(nn.DataParallel(nn.Linear(8, 3))), (2, 8)),
    "a compiled part": (lambda: nn.Sequential(torch.compile(nn.Linear(8, 3)), nn.ReLU()), (2, 8)),
    "AveragedModel": (lambda: torch.optim.swa_utils.AveragedModel(nn.Linear(8, 3)), (2, 8)),
    "*args": (Arguments, (2, 8), (2, 8)),
    "an output None": (lambda: Of(lambda x: (x, None)), (2, 8)),
    "a named output None": (lambda: Of(lambda x: {"a": x, "b": None}), (2, 8)),
    "a dataclass": (lambda: Of(lambda x: Known(x)), (2, 8)),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(8, 3)), (2, 8)),
    "a frozen spectral norm": (_frozen_norm, (2, 8)),
    "RNNCell": (lambda: nn.RNNCell(8, 3), (2, 8)),
    "ties": (lambda: Of(_ties), (2, 8)),
    "max along an axis": (lambda: Of(lambda x: x.max(1)[0]), (2, 8)),
    "a part in float32": (_alone(nn.Sequential(nn.BatchNorm1d(8), Of(lambda x: x @ torch.eye(8, dtype=x32)))), (4, 8)),
    "norm of 0": (lambda: Of(lambda x: (x * 0).norm(dim=1, keepdim=True) * x + (x * 0).std(1, keepdim=True)), (2, 8)),
    "threshold of softplus": (lambda: Of(lambda x: functional.softplus(x, 2.0, 0.1)), (2, 8)),
    "aminmax": (lambda: Of(lambda x: torch.aminmax(x, dim=1)[0]), (2, 8)),
    "numbers compared": (
        lambda: Of(lambda x: torch.where(x.new_zeros(()) < x.new_ones(()), x, -x) * (x.new_ones(()) > 2)),
        (2, 8),
    ),
    "a number of all samples": (lambda: Of(lambda x: x[:, 0] / x.norm()), (2, 8)),
    "GRUCell": (partial(First, nn.GRUCell(8, 3)), (2, 8)),
    "LSTMCell": (partial(First, nn.LSTMCell(8, 3)), (2, 8)),
    "GRU without biases": (partial(First, nn.GRU(8, 3, bias=False, batch_first=True)), (2, 5, 8)),
    "weight norm of a convolution": (lambda: parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), (2, 3, 8, 8)),
    "a convolution at two places": (Shared, (2, 2, 4, 4)),
    "batch norm of no weights": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, affine=False)),
        (4, 2, 5, 5),
    ),
    "batch norm of no statistics": (lambda: nn.BatchNorm1d(3, track_running_stats=False), (4, 3, 5)),
    "convolution of volumes": (lambda: nn.Conv3d(2, 4, (2, 3, 1), (1, 2, 1), (1, 1, 0), groups=2), (2, 2, 4, 5, 3)),
    "pools of volumes": (
        lambda: nn.Sequential(nn.Conv3d(2, 2, 1), nn.MaxPool3d(2, 1, 1), nn.AvgPool3d(2)),
        (2, 2, 4, 5, 3),
    ),
    "windows with dilation": (_images(nn.MaxPool2d(3, 1, 1, dilation=(1, 1))), (2, 3, 8, 8)),
    "a pool with dilation": (
        lambda: nn.Sequential(nn.Conv2d(3, 2, 1), nn.MaxPool2d(2, 2, 1, dilation=2)),
        (2, 3, 8, 7),
    ),
    "resizing": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 2, 1),
            nn.Upsample((7, 3), mode="bicubic"),
            nn.Upsample(scale_factor=1.5, mode="bilinear", align_corners=True),
            nn.Upsample((4, 4), mode="nearest-exact"),
        ),
        (2, 2, 4, 5),
    ),
    "resizing of volumes": (
        lambda: nn.Sequential(nn.Conv3d(1, 1, 1), nn.Upsample((3, 5, 4), mode="trilinear")),
        (2, 1, 2, 3, 4),
    ),
    "in no_grad": (lambda: Of(lambda x: x * _constant(x)), (2, 8)),
    "norm in no_grad": (lambda: Still(nn.BatchNorm1d(8)), (4, 8)),
    "parts written": (lambda: Of(_written), (2, 8)),
    "rows of the batch": (
        lambda: Of(lambda x: x.view(-1, 4, 2)[torch.arange(x.shape[0]), x.abs().argmax(1) % 4]),
        (3, 8),
    ),
    "masks of the batch": (
        lambda: Of(
            lambda x: x * torch.ones(x.shape[0], 8, 8).tril(1).cumsum(2).sum(1) + torch.arange(x.shape[0])[:, None]
        ),
        (3, 8),
    ),
    "order": (lambda: Of(lambda x: x.sort(1, descending=True)[0] * x.topk(2, 1)[0].prod(1, keepdim=True)), (3, 8)),
    "places": (
        lambda: Of(lambda x: x.gather(1, x.max(1, keepdim=True)[1]) + x.median(1)[0][:, None] * x.cumsum(1)),
        (3, 8),
    ),
    "integers": (
        lambda: Of(lambda x: x * ((x > 0).long().cumsum(1) * 3 % 5 // 2 + functional.one_hot(x.argmax(1), 8))),
        (3, 8),
    ),
    "bools": (lambda: Of(lambda x: x * (((x > 0) & ~(x > 1)) | (x < -1)).any(1, keepdim=True)), (3, 8)),
    "scatter": (
        lambda: Of(
            lambda x: torch.zeros_like(x).scatter_add(1, x.argsort(1) // 2, x) + x.scatter(1, x.argmin(1, True), 0.0)
        ),
        (3, 8),
    ),
    "a sampled grid": (
        lambda: Of(lambda x: functional.grid_sample(x.view(-1, 1, 2, 4), x.view(-1, 2, 2, 2).tanh())),
        (3, 8),
    ),
    "a random branch": (Branch, (3, 8)),
    "waves": (
        lambda: Of(lambda x: x.sin() * x.cos() + x.erf() * x.sign() - x.floor() * x.log1p().nan_to_num()),
        (3, 8),
    ),
    "homonyms": (Homonyms, (3, 8)),
    "powers": (lambda: Of(lambda x: 2**x + x.clamp(min=1e-3).pow(x.sigmoid())), (3, 8)),
    "norms": (lambda: Of(lambda x: functional.normalize(x, p=1) * x.norm(torch.inf, 1, True)), (3, 8)),
    "bags": (lambda: nn.Sequential(Of(lambda x: x.argsort(1)), nn.EmbeddingBag(8, 3)), (3, 8)),
    "a tied row of padding": (TiedPadding, (3, 8)),
    "unfold and einsum": (lambda: Of(lambda x: torch.einsum("bij,bkj->bik", *[x.unfold(1, 4, 2)] * 2)), (3, 8)),
}
REFUSED = {
    "AlphaDropout": (_alone(nn.AlphaDropout(0.2)), (2, 8), "alpha_dropout in 1"),
    "RReLU": (_alone(nn.RReLU()), (2, 8), "rrelu in 1"),
    "momentum=None": (lambda: nn.BatchNorm1d(8, momentum=None), (2, 8), "batch norm of momentum=None"),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(8, 3)), (2, 8), "has a spectral norm"),
    "old spectral norm": (lambda: nn.utils.spectral_norm(nn.Conv2d(3, 4, 3)), (2, 3, 8, 8), "has a spectral norm"),
    "hook": (
        lambda: nn.Linear(8, 3).apply(lambda part: part.weight.register_hook(torch.neg)), (2, 8),
        "weight has a hook on its gradient, which would not be called; remove it$",
    ),
    "a mask that chooses": (lambda: Of(lambda x: x[x > 0].sum() * x), (2, 8), "index in .*depends on the data"),
    "scaled by frequency": (
        lambda: nn.Sequential(Of(lambda x: x.argsort(1)), nn.EmbeddingBag(8, 3, scale_grad_by_freq=True)), (2, 8),
        "scaled gradients",
    ),
    "places of a pool": (
        lambda: Of(lambda x: functional.max_pool1d(x[:, None], 2, return_indices=True)[1] * 1.0), (2, 8),
        "only the numbers",
    ),
    "beyond int32": (lambda: Of(lambda x: x * torch.where(x.argsort(1) > 3, 2**40, 1)), (2, 8), "beyond int32"),
    "buffer in place": (lambda: Buffered(lambda module, y: module.c.copy_(y[0])), (2, 8), "writes into the buffer c"),
    "buffer assigned": (lambda: Buffered(_assigned), (2, 8), "writes into the buffer c"),
    "part of a buffer": (lambda: Buffered(_part), (2, 8), "writes into the buffer c"),
    "buffer in no_grad": (lambda: Buffered(torch.no_grad()(lambda net, y: net.c.add_(1))), (2, 8), "into the buffer c"),
    "weight in no_grad": (
        lambda: Buffered(torch.no_grad()(lambda module, y: module.h.weight.mul_(0.9))), (2, 8),
        r"mul_ in .*: writes into the parameter h\.weight, which forward reads; here forward changes nothing$",
    ),
    "casts to 16 bits": (lambda: Of(lambda x: x.half()), (2, 8), "Of casts to 16 bits"),
    "view as a type": (lambda: Of(lambda x: x * x.view(torch.int32)), (2, 8), "view in Of.*a view as another type"),
    "one element viewed as a type": (
        lambda: Of(lambda x: x * x.mean().view(torch.int32)), (2, 8), "view in Of.*a view as another type",
    ),
    "constant viewed as a type": (
        lambda: Of(lambda x: x * torch.ones(8).view(torch.int32)), (2, 8), "view in Of.*a view as another type",
    ),
    "complex": (lambda: Of(lambda x: torch.fft.fft(x * 1j).real), (2, 8), "mul in Of.*gives complex numbers"),
    "no output": (lambda: Of(lambda x: None), (2, 8), "must give a tensor"),
    "a number": (lambda: Of(lambda x: (x, 3)), (2, 8), "an output of Of depends on no input"),
    "a dataclass": (lambda: Of(lambda x: Out(x)), (2, 8), "cannot read Of: .*Out.* in output, which is not a known"),
    "lazy": (lambda: nn.LazyLinear(3), (2, 8), "cannot read LazyLinear"),
    "random": (lambda: Of(lambda x: x + torch.rand_like(x)), (2, 8), "rand_like in Of"),
}  # fmt: skip
SEVERAL = {
    "cummax": lambda x: x.cummax(1)[0], "mode": lambda x: x.mode(1)[0], "qr": lambda x: torch.linalg.qr(x)[0],
    "unique": lambda x: x.unique(), "histc": lambda x: x * x.histc(),
}  # fmt: skip


def main() -> None:
    warnings.simplefilter("default")
    for name, function in SEVERAL.items():
        try:
            mb.from_torch(Of(function), (torch.randn(2, 8),))
        except mb.MpibowError as error:
            print(name, str(error).splitlines()[1:2], flush=True)


if __name__ == "__main__":
    main()
