"""Lion beside the paper's algorithm 2, in float64."""

import numpy as np

from mpibow.optim import Lion
from tests.optim.stepping import SIZE, STEPS, gradient, rate_of, start, trained


def test_the_papers_algorithm():
    update = Lion(lr=0.03, betas=(0.8, 0.95), weight_decay=0.2)
    (beta1, beta2), w, m = update.betas, start(), np.zeros(SIZE)
    decay = np.where(np.arange(SIZE) < SIZE // 2, update.weight_decay, 0.0)
    for iteration in range(STEPS):
        g = gradient(w)
        c = beta1 * m + (1 - beta1) * g
        w = w - rate_of(update, iteration) * (np.sign(c) + decay * w)
        m = beta2 * m + (1 - beta2) * g
    np.testing.assert_allclose(trained(update), w, rtol=1e-12, atol=1e-12)
