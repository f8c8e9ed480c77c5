"""Modules as torchvision, timm and nanoGPT write them, small, each with an example of its inputs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """torchvision's, of ResNet-18."""

    def __init__(self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    """torchvision's, with a stem of 3 x 3 for small images instead of 7 x 7 and pooling."""

    def __init__(self, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        self.inplanes = width
        self.conv1 = nn.Conv2d(3, width, kernel_size=3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = self._make_layer(width)
        self.layer2 = self._make_layer(2 * width, stride=2)
        self.layer3 = self._make_layer(4 * width, stride=2)
        self.layer4 = self._make_layer(8 * width, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, classes)

    def _make_layer(self, planes: int, stride: int = 1) -> nn.Sequential:
        downsample = None
        if stride != 1 or self.inplanes != planes:
            conv = nn.Conv2d(self.inplanes, planes, kernel_size=1, stride=stride, bias=False)
            downsample = nn.Sequential(conv, nn.BatchNorm2d(planes))
        first = BasicBlock(self.inplanes, planes, stride, downsample)
        self.inplanes = planes
        return nn.Sequential(first, BasicBlock(planes, planes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = torch.flatten(self.avgpool(x), 1)
        return self.fc(x)


class ConvBNReLU(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    """torchvision's, of MobileNetV2."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        self.use_res_connect = stride == 1 and inputs == outputs
        layers = [] if expand == 1 else [ConvBNReLU(inputs, hidden, kernel=1)]
        layers += [ConvBNReLU(hidden, hidden, stride=stride, groups=hidden)]
        layers += [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self, classes: int = 10, dropout: float = 0.2) -> None:
        super().__init__()
        settings = [(1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 2, 1)]  # expand, channels, blocks, stride
        features = [ConvBNReLU(3, 16, stride=2)]
        inputs = 16
        for expand, channels, count, stride in settings:
            for i in range(count):
                features.append(InvertedResidual(inputs, channels, stride if i == 0 else 1, expand))
                inputs = channels
        features.append(ConvBNReLU(inputs, 48, kernel=1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(48, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        return self.classifier(torch.flatten(x, 1))


class Attention(nn.Module):
    """timm's."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        x = attn.softmax(dim=-1) @ v
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class LayerScaled(nn.Module):
    """A block of timm's vision transformer, with layer scale."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, num_heads)
        self.ls1 = nn.Parameter(0.5 * torch.ones(dim))
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Dropout(0.0), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.ls1 * self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, size: int = 16, patch: int = 4, dim: int = 24, depth: int = 2, classes: int = 10) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, dim) * 0.02)
        self.blocks = nn.Sequential(*(LayerScaled(dim, 3) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class DoubleConv(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.double_conv(x)


class Up(nn.Module):
    """Transposed convolution or bilinear upsampling, padded to the skip connection, as milesial's U-Net."""

    def __init__(self, inputs: int, outputs: int, bilinear: bool) -> None:
        super().__init__()
        if bilinear:
            larger = nn.Upsample(scale_factor=2, mode="bilinear")
            self.up = nn.Sequential(larger, nn.Conv2d(inputs, inputs // 2, 1))
        else:
            self.up = nn.ConvTranspose2d(inputs, inputs // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(inputs, outputs)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        x1 = self.up(x1)
        dy, dx = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, channels: int = 1, classes: int = 3, width: int = 8) -> None:
        super().__init__()
        self.inc = DoubleConv(channels, width)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(width, 2 * width))
        self.down2 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(2 * width, 4 * width))
        self.up1 = Up(4 * width, 2 * width, bilinear=True)
        self.up2 = Up(2 * width, width, bilinear=False)
        self.outc = nn.Conv2d(width, classes, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        return self.outc(self.up2(self.up1(x3, x2), x1))


class CausalSelfAttention(nn.Module):
    """nanoGPT's, with its mask as a buffer, or PyTorch's attention."""

    def __init__(self, n_embd: int, n_head: int, block_size: int, flash: bool, dropout: float) -> None:
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.n_head, self.n_embd, self.flash = n_head, n_embd, flash
        self.resid_dropout = nn.Dropout(dropout)
        mask = torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size)
        self.register_buffer("bias", mask)
        self.bias: Tensor

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        q = q.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        v = v.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
            y = F.softmax(att, dim=-1) @ v
        y = y.transpose(1, 2).contiguous().view(b, t, c)
        return self.resid_dropout(self.c_proj(y))


class GptBlock(nn.Module):
    def __init__(self, n_embd: int, n_head: int, block_size: int, flash: bool, dropout: float) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, n_head, block_size, flash, dropout)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU("tanh"), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """nanoGPT: positions by arange, the head's weight tied to the embedding's."""

    def __init__(self, vocab: int = 17, block_size: int = 12, n_embd: int = 24, dropout: float = 0.0) -> None:
        super().__init__()
        blocks = [GptBlock(n_embd, 3, block_size, flash, dropout) for flash in (True, False)]
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab, n_embd),
                "wpe": nn.Embedding(block_size, n_embd),
                "drop": nn.Dropout(dropout),
                "h": nn.ModuleList(blocks),
                "ln_f": nn.LayerNorm(n_embd),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, idx: Tensor) -> Tensor:
        _, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer["drop"](self.transformer["wte"](idx) + self.transformer["wpe"](pos))
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


class TextLSTM(nn.Module):
    """Two layers in both directions, classified by the last states."""

    def __init__(self, vocab: int = 30, dim: int = 10, hidden: int = 8, classes: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim, padding_idx=0)
        self.lstm = nn.LSTM(dim, hidden, 2, batch_first=True, bidirectional=True, dropout=dropout)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, text: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(self.embedding(text))
        return self.fc(torch.cat((hidden[-2], hidden[-1]), dim=1))


class Spectral(nn.Module):
    """Mixes by a Fourier transform, which mpibow lacks."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x).real


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), Spectral())
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x))


@dataclass(frozen=True)
class Case:
    """A module, and inputs (n, ...) for it."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], Sequence[Tensor]]
    classes: int


def images(channels: int, size: int) -> Callable[[int], Sequence[Tensor]]:
    return lambda n: (torch.randn(n, channels, size, size),)


def numbers(below: int, length: int) -> Callable[[int], Sequence[Tensor]]:
    return lambda n: (torch.randint(below, (n, length)),)


CASES = {
    "resnet18": Case(partial(ResNet18, width=8), images(3, 16), 10),
    "mobilenet_v2": Case(MobileNetV2, images(3, 32), 10),
    "vit": Case(VisionTransformer, images(3, 16), 10),
    "unet": Case(UNet, images(1, 18), 3),
    "gpt": Case(GPT, numbers(17, 12), 17),
    "lstm": Case(TextLSTM, numbers(30, 7), 4),
}


def made(name: str, seed: int = 0):
    """The module with all its weights at random, running statistics too, in float64."""
    torch.manual_seed(seed)
    module = CASES[name].make().double()
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.weight.uniform_(0.5, 1.5)
                part.bias.normal_(0, 0.1)
                part.running_mean.normal_(0, 0.1)
                part.running_var.uniform_(0.5, 1.5)
    return module
