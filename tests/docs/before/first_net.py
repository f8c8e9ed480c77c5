"""Arrays of the names that the page's later programs take."""

import numpy as np

import mpibow as mb

generator = np.random.default_rng(0)
x, y = generator.standard_normal((100, 5)), generator.standard_normal(100)
a, b = generator.standard_normal((2, 100, 4))
p, k = generator.standard_normal(100), generator.integers(0, 3, 100)
train, test = ((generator.random((n, 1, 8, 8), "float32"), generator.integers(0, 10, n)) for n in (80, 40))


def classifier(image):
    return mb.dense(mb.flatten(image), 10)
