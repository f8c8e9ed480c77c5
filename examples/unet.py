"""A small U-Net marks discs and squares: python examples/unet.py [FILE.npz], with images and masks of three classes."""

import sys

import numpy as np

import mpibow as mb


def twice(x, channels):  # (n, c, h, w) -> (n, channels, h, w)
    for i in range(2):
        x = mb.conv2d(x, channels, 3, padding=1, bias=False, name=f"conv{i}")
        x = mb.relu(mb.batch_norm(x, name=f"norm{i}"))
    return x


def unet(image, classes=3, width=8, levels=2):  # (n, c, h, w) -> logits (n, classes, h, w)
    x, kept = image, []
    for i in range(levels):
        with mb.scope(f"down{i}"):
            kept.append(twice(x, width << i))
            x = mb.max_pool2d(kept[-1], 2)
    with mb.scope("bottom"):
        x = twice(x, width << levels)
    for i in reversed(range(levels)):
        with mb.scope(f"up{i}"):
            x = mb.conv_transpose2d(x, width << i, 2, stride=2, name="larger")
            x = twice(mb.concat(kept[i], x), width << i)
    return mb.conv2d(x, classes, 1, name="head")


def shapes(count=400, size=32):
    generator, square = np.random.default_rng(0), np.arange(count) % 2
    centre, radius = generator.integers(8, size - 8, (2, count, 1, 1)), generator.integers(4, 8, (count, 1, 1))
    down, across = (np.abs(place - start) for place, start in zip(np.mgrid[:size, :size], centre, strict=True))
    inside = np.where(square[:, None, None], np.maximum(down, across), np.hypot(down, across)) <= radius
    image = inside[:, None] + 0.5 * generator.standard_normal((count, 1, size, size))
    return image, inside * (1 + square[:, None, None])


if __name__ == "__main__":
    file = np.load(sys.argv[1]) if sys.argv[1:] else None
    data = (file["images"], file["masks"]) if file else shapes()
    fitted = mb.fit(
        unet, data, validation=0.2, loss=mb.cross_entropy, batch_size=4, learners=2, update={"lr": 0.05},
        stop={"epochs": 3},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.validation_loss)
