"""A module of PyTorch with an operator that mpibow lacks, and that operator in NumPy, on scikit-learn's digits."""

import sys

import numpy as np
from sklearn.datasets import load_digits

import mpibow as mb

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("this example needs PyTorch: pip install torch")


class Bent(nn.Module):
    def forward(self, x):
        return torch.atan(x)  # without `operators` from_torch refuses it by this name: atan


atan = mb.operator("atan", np.arctan, lambda x, y, dy: dy / (1 + x * x))

if __name__ == "__main__":
    digits = load_digits()
    images, labels = digits.images.reshape(-1, 64).astype("float32") / 16, digits.target
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 32), Bent(), nn.Linear(32, 10))
    net = mb.from_torch(module, (torch.zeros(1, 64),), operators={"atan": atan})
    data = {"train": (images[360:], labels[360:]), "test": (images[:360], labels[:360]), "normalise": "none"}
    fitted = mb.fit(net, **data, batch_size=8, learners=2, update={"lr": 0.1}, stop={"epochs": 4})
    if fitted.rank == 0:
        print(fitted.summary.accuracy)
