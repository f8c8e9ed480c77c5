"""A classifier and images at random, for the page's later programs."""

import numpy as np

import mpibow as mb

generator = np.random.default_rng(0)
train = generator.random((80, 1, 8, 8), "float32"), generator.integers(0, 10, 80)


def classifier(image):
    return mb.dense(mb.flatten(image), 10)
