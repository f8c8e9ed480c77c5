"""A residual net whose channels are weighed: python examples/squeeze_excite.py [FOLDER] of records train and test."""

import sys

import mpibow as mb


def conv(x, channels, size=3, stride=1, name="conv"):
    x = mb.conv2d(x, channels, size, stride=stride, padding=size // 2, bias=False, name=name)
    return mb.batch_norm(x, name=f"{name}_norm")


def squeeze_excite(
    x, ratio=4
):  # (n, c, h, w) -> each channel times a number in (0, 1) that depends on the means of all
    n, c, _, _ = x.shape
    squeezed = mb.relu(mb.dense(mb.global_avg_pool2d(x), c // ratio, name="squeeze"))
    return x * mb.reshape(mb.sigmoid(mb.dense(squeezed, c, name="excite")), (n, c, 1, 1))


def block(x, channels, stride):
    y = mb.relu(conv(x, channels, stride=stride, name="conv1"))
    y = squeeze_excite(conv(y, channels, name="conv2"))
    return mb.relu(y + (x if x.shape == y.shape else conv(x, channels, 1, stride, "shortcut")))


def net(image, classes=10, widths=(16, 32)):  # (n, c, h, w) -> logits (n, classes)
    x = mb.relu(conv(image, widths[0]))
    for i, width in enumerate(widths):
        with mb.scope(f"block{i}"):
            x = block(x, width, stride=1 if i == 0 else 2)
    return mb.dense(mb.global_avg_pool2d(x), classes, name="head")


if __name__ == "__main__":
    folder = sys.argv[1] if sys.argv[1:] else "data/digits"
    fitted = mb.fit(
        net, f"{folder}/train", f"{folder}/test", validation=0.1, batch_size=8, learners=2, update={"lr": 0.05},
        stop={"epochs": 3},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.accuracy)
