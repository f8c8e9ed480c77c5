"""A run at runs/NAME of a small net, and nets and images that the page's programs take."""

from functools import partial
from pathlib import Path

import numpy as np

import mpibow as mb


def with_classes(image, classes):
    x = mb.relu(mb.batch_norm(mb.conv2d(image, 4, 3, name="body.conv1"), name="body.norm1"))
    return mb.dense(mb.flatten(x), classes, name="head")


net, other_net = partial(with_classes, classes=3), partial(with_classes, classes=2)
generator = np.random.default_rng(0)
images, labels = generator.integers(0, 256, (24, 1, 8, 8), dtype="uint8"), generator.integers(0, 3, 24)
other_labels = labels % 2
mb.fit = partial(mb.fit, batch_size=4, learners=1, stop={"epochs": None, "iterations": 6})
Path(mb.fit(net, (images, labels)).summary.run).rename("runs/NAME")
