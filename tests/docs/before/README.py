"""Ratings, a few of which stand for the data set that the page speaks of."""

import numpy as np

generator = np.random.default_rng(0)
users, items, stars = (generator.integers(0, most, 64) for most in (943, 1682, 5))
stars = stars.astype("float32")
