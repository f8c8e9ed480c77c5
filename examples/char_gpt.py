"""A GPT by characters, each part after a layer norm: python examples/char_gpt.py [TEXT], a plain text in ASCII."""

import sys
from functools import partial
from pathlib import Path

import numpy as np

import mpibow as mb

CONTEXT = 32  # characters that a position sees, itself included
linear = partial(mb.dense, initial=mb.Gaussian(0.02))


def attention(x, heads):  # (n, t, f) -> the same; a position sees itself and those before it
    n, t, f = x.shape
    q, k, v = (
        mb.transpose(mb.reshape(part, (n, t, heads, -1)), 1, 2)
        for part in mb.split(linear(x, 3 * f, name="qkv"), f, axis=2)
    )
    y = mb.scaled_dot_product_attention(q, k, v, is_causal=True)  # (n, heads, t, f / heads)
    return linear(mb.reshape(mb.transpose(y, 1, 2), (n, t, f)), f, name="out")


def mlp(x, inner):
    return linear(mb.gelu(linear(x, inner, name="wide")), x.shape[-1], name="narrow")


def gpt(text, characters=128, width=64, heads=4, blocks=2):  # (n, t) -> logits (n, t, characters)
    x = mb.embedding(text, characters, width, initial=mb.Gaussian(0.02), name="characters")
    x = x + mb.parameter(x.shape[1:], initial=mb.Gaussian(0.02), name="positions")
    for i in range(blocks):
        with mb.scope(f"block{i}"):
            x = x + attention(mb.layer_norm(x, name="norm1"), heads)
            x = x + mlp(mb.layer_norm(x, name="norm2"), 4 * width)
    return linear(mb.layer_norm(x, name="norm"), characters, name="head")


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text() if sys.argv[1:] else "peter piper picked a peck of pickled peppers. " * 100
    codes = np.frombuffer(text.encode("ascii"), "uint8").astype("int32")
    windows = np.lib.stride_tricks.sliding_window_view(codes, CONTEXT + 1)[:: CONTEXT // 4]
    fitted = mb.fit(
        gpt, (windows[:, :-1], windows[:, 1:]), validation=0.1, loss=partial(mb.cross_entropy, axis=2), batch_size=4,
        learners=2, update={"name": "adamw", "lr": 2e-3}, stop={"epochs": 4},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.validation_loss)
