"""A net that was trained on small images, and a file of it to go on with."""

from functools import partial

import numpy as np

import mpibow as mb

images, labels = np.random.default_rng(0).random((40, 1, 6, 6), "float32"), np.arange(40, dtype="int32") % 3
mb.fit = partial(mb.fit, stop={"epochs": 1})
fitted = mb.fit(lambda image: mb.dense(mb.flatten(image), 3), (images, labels), normalise="none", batch_size=8)
fitted.to_onnx("pretrained.onnx")
