"""Arrays of the names that the page's programs take; each program ends after a few iterations."""

from functools import partial

import numpy as np

import mpibow as mb

mb.fit = partial(mb.fit, stop={"iterations": 20})
generator = np.random.default_rng(0)
x, y = generator.standard_normal((100, 5)), generator.standard_normal(100)
a, b = generator.standard_normal((2, 100, 4))
p, k = generator.standard_normal(100), generator.integers(0, 3, 100)
