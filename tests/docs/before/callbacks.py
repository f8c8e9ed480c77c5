"""A classifier and images at random."""

import numpy as np

import mpibow as mb

generator = np.random.default_rng(0)
train, test = ((generator.random((n, 1, 8, 8), "float32"), generator.integers(0, 10, n)) for n in (80, 40))


def classifier(image):
    return mb.dense(mb.flatten(image), 10)
