"""Forty pictures and a small net."""

import numpy as np

import mpibow as mb

photos = [(np.random.default_rng(n).random((3, 8, 8), "float32"), n % 4) for n in range(40)]


def net(image):
    return mb.dense(mb.flatten(image), 4)
