"""One's own net on a folder of images: python examples/own_cnn_folder.py [FOLDER], as mpibow convert folder writes."""

import sys

import mpibow as mb


def cnn(image, classes=10, width=16):  # (n, channels, height, width) -> logits (n, classes)
    x = image
    for i in range(2):
        x = mb.conv2d(x, width << i, 3, padding=1, bias=False, name=f"conv{i}")
        x = mb.max_pool2d(mb.relu(mb.batch_norm(x, name=f"norm{i}")), 2)
    return mb.dense(mb.flatten(x), classes, name="head")


if __name__ == "__main__":
    folder = sys.argv[1] if sys.argv[1:] else "data/digits"  # scikit-learn's, converted where they are not there
    fitted = mb.fit(
        cnn, f"{folder}/train", f"{folder}/test", augment={"pad": 1}, batch_size=8, learners=2,
        update={"lr": 0.02}, stop={"epochs": 4},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.accuracy)
