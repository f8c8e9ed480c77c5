"""An operator of one's own, forward and backward in NumPy, trained on scikit-learn's digits."""

import numpy as np
from sklearn.datasets import load_digits

import mpibow as mb


def backward(x, slope, y, dy):  # y is what forward gave, dy the gradient of the loss by it
    return np.where(x > 0, dy, slope * dy), np.sum(np.where(x > 0, 0, x * dy), axis=0)


prelu = mb.operator("prelu", lambda x, slope: np.where(x > 0, x, slope * x), backward)


def net(image):  # (n, 1, 8, 8) -> logits (n, 10)
    x = mb.dense(mb.flatten(image), 64)
    return mb.dense(prelu(x, mb.parameter(64, initial=mb.Constant(0.25), name="slope")), 10)


if __name__ == "__main__":
    digits = load_digits()
    images, labels = digits.images[:, None].astype("float32"), digits.target
    fitted = mb.fit(net, train=(images[360:], labels[360:]), test=(images[:360], labels[:360]), stop={"epochs": 5})
    if fitted.rank == 0:
        print(fitted.summary.accuracy)
