"""Arrays and a net of the names that the page's programs take."""

import numpy as np

import mpibow as mb

generator = np.random.default_rng(0)
x, y = generator.standard_normal((100, 5)), generator.standard_normal(100)


def net(features):
    return mb.reshape(mb.dense(features, 1), (-1,))
