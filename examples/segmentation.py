"""A class for each pixel: python examples/segmentation.py [FOLDER], as mpibow convert folder --masks writes."""

import sys
from functools import partial

import numpy as np

import mpibow as mb


def net(image, classes=2, width=8):  # (n, c, h, w) -> logits (n, classes, h, w)
    fine = mb.relu(mb.conv2d(image, width, 3, padding=1, name="down"))
    coarse = mb.relu(mb.conv2d(mb.max_pool2d(fine, 2), width, 3, padding=1, name="bottom"))
    return mb.conv2d(mb.concat(fine, mb.upsample(coarse, 2)), classes, 1, name="head")


def discs(count=200, size=32):
    generator = np.random.default_rng(0)
    y, x, radius = generator.integers((8, 8, 4), (24, 24, 8), (count, 3)).T[:, :, None, None]
    mask = np.hypot(*(place - start for place, start in zip(np.mgrid[:size, :size], (y, x), strict=True))) <= radius
    return mask[:, None] + 0.5 * generator.standard_normal((count, 1, size, size)), mask.astype(int)


if __name__ == "__main__":
    data = f"{sys.argv[1]}/train" if sys.argv[1:] else discs()
    loss = partial(mb.cross_entropy, ignore_index=255)  # pixels of no class
    fitted = mb.fit(net, data, validation=0.2, loss=loss, batch_size=2, stop={"epochs": 5})
    if fitted.rank == 0:
        print(fitted.summary.validation_loss)
