"""The next character of a text: python examples/language_model.py [FOLDER], as mpibow convert text writes."""

import sys
import tempfile
from functools import partial
from pathlib import Path

import mpibow as mb
from mpibow.data.text import read_tokens
from mpibow.datasets import text as converter


def net(text, vocabulary, width=64):  # (n, t) -> logits (n, t, vocabulary)
    return mb.dense(mb.lstm(mb.embedding(text, vocabulary, width), width)[0], vocabulary)


def peter(folder):
    (folder / "made.txt").write_text("peter piper picked a peck of pickled peppers. " * 100)
    converter.convert(folder / "made.txt", folder / "records", test_fraction=0.1)
    return folder / "records"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else peter(Path((scratch := tempfile.TemporaryDirectory()).name))
    fitted = mb.fit(
        partial(net, vocabulary=read_tokens(folder / "train").size), folder / "train", folder / "test",
        loss=partial(mb.cross_entropy, axis=2), text={"context": 32}, batch_size=4, learners=2,
        update={"name": "adamw", "lr": 5e-3}, stop={"epochs": 10},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.test_loss)
