"""A training in parts: python examples/resume.py [EPOCHS]; each start continues where the last one ended."""

import sys

import mpibow as mb


def net(image):  # (n, 1, 8, 8) -> logits (n, 10)
    return mb.dense(mb.relu(mb.dense(mb.flatten(image), 32)), 10)


if __name__ == "__main__":
    epochs = float(sys.argv[1]) if sys.argv[1:] else 2
    fitted = mb.fit(
        net, "data/digits/train", "data/digits/test", batch_size=4, learners=2, stop={"epochs": epochs},
        out="parts", resume="auto", checkpoint={"every": "0.5 epochs"},  # the newest run in parts, else a new one
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.accuracy)
