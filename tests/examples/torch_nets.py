"""The nets of examples/ as PyTorch's users write them, with names as ours: for comparing, also in speed."""

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


class Attention(nn.Module):
    """nanoGPT's: one product for query, key and value, and PyTorch's fused attention."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, f = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(f, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).contiguous().view(n, t, f))


class Block(nn.Module):
    """A pre-norm transformer's: attention, then two layers with GELU between."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class Gpt(nn.Module):
    """(n, t) -> logits (n, t, characters); the head has weights of its own."""

    def __init__(self, context: int, characters: int, width: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(Block(width, heads, True) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.characters(text) + self.positions)))


class Vit(nn.Module):
    """(n, c, side, side) -> logits (n, classes), from the mean over all patches."""

    def __init__(self, channels: int, side: int, classes: int, patch: int, width: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.positions = nn.Parameter(0.1 * torch.randn((side // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads, False) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(x)).mean(1))


class LstmClassifier(nn.Module):
    """(n, t) -> logits (n, classes), from the last output of the last layer."""

    def __init__(self, characters: int, units: int, layers: int, classes: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, units)
        self.lstm = nn.LSTM(units, units, layers, batch_first=True)
        self.head = nn.Linear(units, classes)

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.lstm(self.characters(text))[0][:, -1])


class LstmLanguage(LstmClassifier):
    """(n, t) -> logits (n, t, characters)."""

    def __init__(self, characters: int, units: int, layers: int) -> None:
        super().__init__(characters, units, layers, characters)

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.lstm(self.characters(text))[0])


class Twice(nn.Sequential):
    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        for i in range(2):
            self.add_module(f"conv{i}", nn.Conv2d(channels if i else inputs, channels, 3, padding=1, bias=False))
            self.add_module(f"norm{i}", nn.BatchNorm2d(channels))
            self.add_module(f"relu{i}", nn.ReLU(inplace=True))


class Unet(nn.Module):
    """(n, channels, h, w) -> logits (n, classes, h, w)."""

    def __init__(self, channels: int, classes: int, width: int, levels: int) -> None:
        super().__init__()
        widths = [width << i for i in range(levels)]
        self.down = nn.ModuleList(Twice(i, o) for i, o in zip([channels, *widths], widths, strict=False))
        self.bottom = Twice(widths[-1], 2 * widths[-1])
        self.larger = nn.ModuleList(nn.ConvTranspose2d(2 * o, o, 2, 2) for o in widths)
        self.up = nn.ModuleList(Twice(2 * o, o) for o in widths)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for down in self.down:
            kept.append(down(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.bottom(x)
        for i in reversed(range(len(kept))):
            x = self.up[i](torch.cat([kept[i], self.larger[i](x)], 1))
        return self.head(x)


class Convolved(nn.Module):
    """A convolution and its batch norm."""

    def __init__(self, inputs: int, channels: int, size: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, channels, size, stride, size // 2, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class SqueezeExciteBlock(nn.Module):
    def __init__(self, inputs: int, channels: int, stride: int, ratio: int = 4) -> None:
        super().__init__()
        self.conv1, self.conv2 = Convolved(inputs, channels, stride=stride), Convolved(channels, channels)
        self.squeeze, self.excite = nn.Linear(channels, channels // ratio), nn.Linear(channels // ratio, channels)
        self.shortcut = Convolved(inputs, channels, 1, stride) if (inputs, 1) != (channels, stride) else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(F.relu(self.conv1(x)))
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3))))))
        return F.relu(y * gate[:, :, None, None] + self.shortcut(x))


class SqueezeExcite(nn.Module):
    """(n, channels, h, w) -> logits (n, classes)."""

    def __init__(self, channels: int, classes: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.conv = Convolved(channels, widths[0])
        inputs = (widths[0], *widths)
        self.blocks = nn.Sequential(
            *(SqueezeExciteBlock(inputs[i], width, 2 if i else 1) for i, width in enumerate(widths))
        )
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(F.relu(self.conv(x))).mean((2, 3)))


class Mlp(nn.Sequential):
    """(n, features) -> (n,)."""

    def __init__(self, features: int, width: int, layers: int) -> None:
        super().__init__()
        for i in range(layers):
            self.add_module(f"layer{i}", nn.Linear(width if i else features, width))
            self.add_module(f"relu{i}", nn.ReLU(inplace=True))
        self.add_module("head", nn.Linear(width, 1))
        self.add_module("flat", nn.Flatten(0))
