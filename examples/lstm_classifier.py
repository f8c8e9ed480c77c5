"""Two LSTM layers name a text's language: python examples/lstm_classifier.py [FILE], each line LANGUAGE TEXT."""

import sys
from functools import partial
from pathlib import Path

import numpy as np

import mpibow as mb

LENGTH = 24  # characters that are read of a text
NUMBERS = {
    "english": "one two three four five six seven eight nine ten",
    "french": "un deux trois quatre cinq six sept huit neuf dix",
    "german": "eins zwei drei vier fuenf sechs sieben acht neun zehn",
    "italian": "uno due tre quattro cinque sei sette otto nove dieci",
}


def net(text, classes, units=48, layers=2):  # (n, t) bytes -> logits (n, classes)
    x = mb.embedding(mb.cast(text, "int32"), 256, units, name="characters")
    _, (last, _) = mb.lstm(x, units, layers=layers, name="lstm")  # (layers, n, units)
    return mb.dense(last[-1], classes, name="head")


def counting(count=1600):
    generator = np.random.default_rng(0)
    return [(name, " ".join(generator.permutation(NUMBERS[name].split()))) for name in sorted(NUMBERS) * (count // 4)]


if __name__ == "__main__":
    lines = (
        [line.split(maxsplit=1) for line in Path(sys.argv[1]).read_text().splitlines()] if sys.argv[1:] else counting()
    )
    languages, labels = np.unique([language for language, _ in lines], return_inverse=True)
    texts = np.array([list(text.encode()[:LENGTH].ljust(LENGTH)) for _, text in lines], "uint8")
    fitted = mb.fit(
        partial(net, classes=len(languages)), (texts, labels), validation=0.2, normalise="none", batch_size=8,
        learners=2, update={"name": "adamw", "lr": 3e-3}, stop={"epochs": 4},
    )  # fmt: skip
    if fitted.rank == 0:
        print(fitted.summary.validation_accuracy)
