"""Fine-tuning: a net that has learnt the digits 0 to 7 learns 8 and 9, with a new head, its body frozen at first."""

from functools import partial

import numpy as np
from sklearn.datasets import load_digits

import mpibow as mb


def net(image, classes, width=16):  # (n, 1, 8, 8) -> logits (n, classes)
    x = mb.relu(mb.batch_norm(mb.conv2d(image, width, 3, padding=1, name="body.conv1"), name="body.norm1"))
    x = mb.relu(mb.batch_norm(mb.conv2d(x, 2 * width, 3, stride=2, name="body.conv2"), name="body.norm2"))
    return mb.dense(mb.flatten(x), classes, name="head")


if __name__ == "__main__":
    images, labels = load_digits().images[:, np.newaxis].astype(np.uint8), load_digits().target
    old, new = np.flatnonzero(labels < 8), np.flatnonzero(labels >= 8)
    settings = {"normalise": "half", "batch_size": 4, "learners": 2}  # one scaling of pixels for both
    body = mb.fit(partial(net, classes=8), (images[old], labels[old]), stop={"epochs": 3}, **settings)
    train, test = [(images[part], labels[part] - 8) for part in (new[:40], new[40:])]
    update = {"lr": 0.02, "groups": [{"match": "body.*", "freeze": {"epochs": 5}}]}
    start = {"file": body, "exclude": "head.*"}
    fitted = mb.fit(partial(net, classes=2), train, test, weights=start, update=update, stop={"epochs": 15}, **settings)
    if fitted.rank == 0:
        print(fitted.summary.accuracy)
