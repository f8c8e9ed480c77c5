"""The local update as a pure function: what a learner would do alone. The flat-array passes are tested against it."""

from __future__ import annotations

from mpibow.graph.graph import Array
from mpibow.kernels.passes import Local


def sgd(w: Array, v: Array, g: Array, local: Local) -> tuple[Array, Array]:
    """(v', u): momentum and step from weights, momentum and gradient, each (..., size).

    g' = g + d w on the first `decayed` elements      v' = m v + g'
    u  = -rate v', or with Nesterov's momentum -rate (g' + m v')    (Sutskever et al., ICML 2013, as PyTorch writes it)
    """
    g = g.copy()
    g[..., : local.decayed] += local.decay * w[..., : local.decayed]
    if not local.momentum:
        return v, -local.rate * g
    v = local.momentum * v + g
    return v, -local.rate * (g + local.momentum * v if local.nesterov else v)
