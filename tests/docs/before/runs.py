"""A run at runs/NAME, of a few iterations."""

from pathlib import Path

import numpy as np

import mpibow as mb


def classifier(image):
    return mb.dense(mb.flatten(image), 10)


generator = np.random.default_rng(0)
images, labels = generator.random((40, 1, 8, 8), "float32"), np.arange(40) % 10
made = mb.fit(classifier, (images, labels), stop={"iterations": 10})
Path(made.summary.run).rename("runs/NAME")
