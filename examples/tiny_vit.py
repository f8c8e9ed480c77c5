"""A vision transformer of two blocks on scikit-learn's digits: patches of 2 x 2, 16 positions, 4 heads."""

from functools import partial

from sklearn.datasets import load_digits

import mpibow as mb

linear = partial(mb.dense, initial=mb.Gaussian(0.1))


def attention(x, heads):  # (n, t, f) -> the same
    n, t, f = x.shape
    q, k, v = (
        mb.transpose(mb.reshape(part, (n, t, heads, -1)), 1, 2)
        for part in mb.split(linear(x, 3 * f, name="qkv"), f, axis=2)
    )
    y = mb.scaled_dot_product_attention(q, k, v)  # (n, heads, t, f / heads)
    return linear(mb.reshape(mb.transpose(y, 1, 2), (n, t, f)), f, name="out")


def mlp(x, inner):
    return linear(mb.gelu(linear(x, inner, name="wide")), x.shape[-1], name="narrow")


def net(image, classes=10, patch=2, width=32, heads=4, blocks=2):  # (n, c, h, w) -> logits (n, classes)
    x = mb.conv2d(image, width, patch, stride=patch, name="patches")  # (n, width, h / patch, w / patch)
    x = mb.transpose(mb.reshape(x, (x.shape[0], width, -1)), 1, 2)
    x = x + mb.parameter(x.shape[1:], initial=mb.Gaussian(0.1), name="positions")
    for i in range(blocks):
        with mb.scope(f"block{i}"):
            x = x + attention(mb.layer_norm(x, name="norm1"), heads)
            x = x + mlp(mb.layer_norm(x, name="norm2"), 4 * width)
    return mb.dense(mb.mean(mb.layer_norm(x, name="norm"), 1), classes, name="head")


if __name__ == "__main__":
    digits = load_digits()
    images, labels = digits.images[:, None].astype("float32"), digits.target
    fitted = mb.fit(
        net, train=(images[360:], labels[360:]), test=(images[:360], labels[:360]), batch_size=8, learners=2,
        update={"name": "adamw", "lr": 2e-3}, stop={"epochs": 8},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.accuracy)
