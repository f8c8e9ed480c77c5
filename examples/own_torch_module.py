"""A module of PyTorch in, trained, and out: python examples/own_torch_module.py, on scikit-learn's digits."""

import sys

from sklearn.datasets import load_digits

import mpibow as mb

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("this example needs PyTorch: pip install torch")

if __name__ == "__main__":
    digits = load_digits()
    images, labels = digits.images[:, None].astype("float32") / 16, digits.target
    torch.manual_seed(0)
    body = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    net = mb.from_torch(nn.Sequential(*body, nn.Linear(256, 10)), (torch.zeros(1, 1, 8, 8),))
    data = {"train": (images[360:], labels[360:]), "test": (images[:360], labels[:360]), "normalise": "none"}
    fitted = mb.fit(net, **data, batch_size=8, learners=2, update={"lr": 0.02}, stop={"epochs": 4})
    module = fitted.to_torch().eval()  # whose state_dict torch.save writes
    if fitted.rank == 0:
        print((module(torch.from_numpy(images[:360])).argmax(1).numpy() == labels[:360]).mean())
