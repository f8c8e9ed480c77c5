"""Load and predict: python examples/load_and_predict.py [RUN | FILE]; without one it trains and saves a net first."""

import subprocess
import sys

import numpy as np
from sklearn.datasets import load_digits

import mpibow as mb


def net(image):  # (n, 1, 8, 8) -> logits (n, 10)
    return mb.dense(mb.relu(mb.dense(mb.flatten(image), 32)), 10)


if __name__ == "__main__":
    images, labels = load_digits().images[:, np.newaxis].astype(np.uint8), load_digits().target
    if sys.argv[1:]:  # another process: neither the net above nor its data are needed
        print(np.mean(mb.load(sys.argv[1]).predict(images[1500:]).argmax(axis=1) == labels[1500:]))
    else:
        fitted = mb.fit(net, (images[:1500], labels[:1500]), batch_size=4, learners=2, stop={"epochs": 3})
        if fitted.rank == 0:
            fitted.save("digits.safetensors")
            subprocess.run([sys.executable, sys.argv[0], "digits.safetensors"], check=True)
