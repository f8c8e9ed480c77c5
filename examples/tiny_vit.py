"""A vision transformer of two blocks on scikit-learn's digits: patches of 2 x 2, 16 positions, 4 heads."""

from sklearn.datasets import load_digits

import mpibow as mb

WIDTH, HEADS, POSITIONS = 32, 4, 16


def linear(x, units):  # (n, t, f) -> (n, t, units)
    n, t, f = x.shape
    return mb.reshape(mb.dense(mb.reshape(x, (-1, f)), units, initial=mb.Gaussian(0.1)), (n, t, units))


def attention(x):
    n, t, f = x.shape
    q, k, v = (
        mb.transpose(mb.reshape(part, (n, t, HEADS, -1)), 1, 2) for part in mb.split(linear(x, 3 * f), f, axis=2)
    )
    y = mb.scaled_dot_product_attention(q, k, v)  # (n, heads, t, f / heads)
    return linear(mb.reshape(mb.transpose(y, 1, 2), (n, t, f)), f)


def net(image):  # (n, 1, 8, 8) -> logits (n, 10)
    x = mb.conv2d(image, WIDTH, 2, stride=2)  # (n, width, 4, 4)
    x = mb.transpose(mb.reshape(x, (-1, WIDTH, POSITIONS)), 1, 2)
    x = x + mb.parameter((POSITIONS, WIDTH), initial=mb.Gaussian(0.1), name="positions")
    for i in range(2):
        with mb.scope(f"block{i}"):
            x = x + attention(mb.layer_norm(x))
            x = x + linear(mb.gelu(linear(mb.layer_norm(x), 4 * WIDTH)), WIDTH)
    return mb.dense(mb.mean(mb.layer_norm(x), 1), 10)


if __name__ == "__main__":
    digits = load_digits()
    images, labels = digits.images[:, None].astype("float32"), digits.target
    fitted = mb.fit(
        net, train=(images[360:], labels[360:]), test=(images[:360], labels[:360]), batch_size=8, learners=2,
        update={"name": "adamw", "lr": 2e-3}, stop={"epochs": 8},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.accuracy)
