"""PyTorch's side of bench_from_torch.py: `read FILE` writes the module's program, `serve BATCH DATA.npz` trains it."""

import pickle
import sys
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F

from benchmarks.nets.torch_nets_peer import Trained, batches, serve
from tests.torch_in.modules import ResNet18


def read(file: str) -> None:
    import mpibow as mb

    net = mb.from_torch(ResNet18(), (torch.zeros(2, 3, 32, 32),))
    Path(file).write_bytes(pickle.dumps(net.program))


def side(batch: int, path: str, compiled: bool) -> Trained:
    net = ResNet18().train()

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(net(x), target)

    update = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    return Trained(loss, update, batches("images", batch, path), batch, compiled)


if __name__ == "__main__":
    if sys.argv[1] == "read":
        read(sys.argv[2])
    else:
        serve({}, partial(side, int(sys.argv[2]), sys.argv[3]))
