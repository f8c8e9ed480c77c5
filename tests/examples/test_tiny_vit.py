"""The example of a transformer trains on two ranks, and its gradient is right."""

from examples.tiny_vit import net
from mpibow.testing import check_operator


def test_its_gradient():
    check_operator(net, (2, 1, 8, 8), float32=1e-3)
