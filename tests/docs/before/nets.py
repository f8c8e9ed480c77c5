"""The nets of examples/ that the page trains, on a few samples, for a few iterations."""

from functools import partial

import numpy as np

import mpibow as mb
from examples.char_gpt import gpt  # noqa: F401
from examples.table_mlp import friedman, mlp  # noqa: F401
from examples.unet import shapes, unet  # noqa: F401

mb.fit = partial(mb.fit, stop={"iterations": 10})
features, target = np.split(friedman(100), [10], axis=1)
target = target[:, 0]
images, masks = shapes(20)
others = images
text = np.tile(np.arange(33, dtype="int32"), (20, 1))
text, following = text[:, :-1], text[:, 1:]
