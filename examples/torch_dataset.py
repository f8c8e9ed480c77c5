"""A data set with __len__ and __getitem__, as PyTorch's, read by a process: python examples/torch_dataset.py"""

import numpy as np
from sklearn.datasets import load_digits

import mpibow as mb


class Digits:  # or torch.utils.data.Dataset: nothing else changes
    def __init__(self):
        self.digits = load_digits()

    def __len__(self):
        return len(self.digits.target)

    def __getitem__(self, number):
        return self.digits.images[number][None].astype(np.float32), int(self.digits.target[number])


def moved(sample, rng):  # a new place in every epoch, a function of (seed, epoch, sample)
    image, label = sample
    return np.roll(image, rng.integers(-1, 2), axis=2), label


def net(image):  # (n, 1, 8, 8) -> logits (n, 10)
    x = mb.relu(mb.conv2d(image, 16, 3, padding=1))
    return mb.dense(mb.flatten(mb.max_pool2d(x, 2)), 10)


if __name__ == "__main__":
    fitted = mb.fit(net, Digits(), validation=0.2, transform=moved, workers=1, batch_size=8, stop={"epochs": 3})
    if fitted.rank == 0:
        print(fitted.summary.validation_accuracy)
