"""Sequences of unequal lengths: padding, the order of samples, and training at several lengths."""

from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.data.lengths import padded
from mpibow.data.order import samples_at
from mpibow.errors import ConfigError, RecordError

WORDS, LENGTHS, BATCH = 20, (4, 8, 16), 4
PADDING = {"tokens": 0, "mask": 0}


def columns(count: int = 64, longest: int = 16) -> dict:
    random = np.random.default_rng(0)
    tokens = [random.integers(1, WORDS, random.integers(1, longest + 1)).tolist() for _ in range(count)]
    return {"tokens": tokens, "mask": [[1.0] * len(row) for row in tokens], "label": random.integers(0, 2, count)}


def net(tokens, mask, label):
    """The mean of the embeddings of a sample's own tokens, and a classifier's loss."""
    vectors = mb.embedding(tokens, WORDS, 8) * mb.reshape(mask, (*mask.shape, 1))
    mean = mb.mean(vectors, axis=1) * float(mask.shape[1])
    return mb.softmax_cross_entropy(mb.dense(mb.tanh(mean), 2), label)


def trained(folder: Path, lengths: tuple[int, ...], *, function=net, data=None, epochs=2, **more) -> mb.Fitted:
    settings = {"batch_size": BATCH, "learners": 2, "device": "numpy", "precision": "float64", "out": str(folder)}
    return mb.fit(
        function, data or columns(), padding=PADDING, lengths=lengths, stop={"epochs": epochs}, **settings, **more
    )


def test_rows_are_filled_up():
    data = padded({"x": [[1, 2, 3], [4]], "y": [[1.5], [2.5]]}, {"x": -100}, (2, 4), "train")
    assert data.arrays["x"].tolist() == [[1, 2, 3, -100], [4, -100, -100, -100]]
    assert data.arrays["y"].shape == (2, 1)
    assert [data.length_of(np.array(rows)) for rows in ([0], [1], [0, 1])] == [4, 2, 4]
    assert data.part(np.array([1])).length_of(np.array([0])) == 2


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"x": [[1, 2, 3], [1] * 9]}, r"sample 1: x must have 1 to 8 values \(lengths\), got 9"),
        ({"x": [[1], []]}, r"sample 1: x must have 1 to 8 values \(lengths\), got 0"),
        ({"x": [1, 2]}, r"sample 0: x must have 1 to 8 values .* got a number"),
        ({"x": [[1], [2, 3]], "mask": [[1], [1]]}, "sample 1: x has 2 values, mask 1"),
        ({"x": [[1]], "mask": [[1], [1]]}, "x and mask must have one number of samples"),
        ({"x": [[[1, 2]], [[3]]]}, r"sample 1: x is \(1, 1\), sample 0 \(1, 2\)"),
        ({"x": []}, "must have one number of samples of at least 1"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows, text):
    with pytest.raises(RecordError, match=text):
        padded(rows, dict.fromkeys(rows, 0), (4, 8), "train")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"padding": PADDING}, "lengths: are needed"),
        ({"lengths": (4, 16)}, "lengths: need padding"),
        ({"padding": PADDING, "lengths": (16, 4)}, "lengths: must be rising"),
        ({"padding": {"tokens": "x"}, "lengths": (16,)}, "padding: must be numbers"),
        ({"padding": {"word": 0}, "lengths": (16,)}, "padding: word: is no column of train"),
        (
            {"padding": PADDING, "lengths": (16,), "transform": lambda sample, rng: sample},
            "padding: takes no transform",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, text):
    with pytest.raises((ConfigError, RecordError), match=text):
        mb.fit(net, columns(), batch_size=BATCH, device="numpy", **arguments)


def test_batches_have_samples_of_like_lengths():
    """Every sample comes once an epoch, in an order that depends on the epoch, wherever its batches begin."""
    data = padded(columns(258), PADDING, LENGTHS, "train")
    batches = [samples_at(n * BATCH, BATCH, data.count, 1, data)[1] for n in range(3 * data.count // BATCH)]
    stream = np.concatenate(batches)
    for epoch in range(2):
        assert sorted(stream[epoch * data.count : (epoch + 1) * data.count]) == list(range(data.count))
    assert stream[: data.count].tolist() != stream[data.count : 2 * data.count].tolist()
    spread = np.mean([np.ptp(data.counts[batch]) for batch in batches])
    plain = np.mean([np.ptp(data.counts[samples_at(n * BATCH, BATCH, data.count, 1)[1]]) for n in range(64)])
    assert spread < 1 < 5 < plain


def test_weights_are_those_of_full_length(tmp_path):
    """(15, 16) has the same order of samples, and computes nearly all batches at 15 or 16."""
    short, long = trained(tmp_path / "a", LENGTHS), trained(tmp_path / "b", (15, 16))
    for name, array in short.weights.items():
        np.testing.assert_allclose(array, long.weights[name], rtol=1e-9, atol=1e-12)


def test_batches_are_computed_at_their_lengths(tmp_path):
    """A mean over the padding too depends on the length."""

    def whole_mean(tokens, mask, label):
        return net(tokens, mask * 0 + 1, label)

    short, long = (trained(tmp_path / str(lengths[0]), lengths, function=whole_mean) for lengths in (LENGTHS, (15, 16)))
    assert abs(short.weights["dense1.weight"] - long.weights["dense1.weight"]).max() > 1e-3


def test_a_run_is_continued_to_the_same_bits(tmp_path):
    whole, half = trained(tmp_path / "a", LENGTHS, epochs=2), trained(tmp_path / "b", LENGTHS, epochs=1)
    rest = trained(tmp_path / "b", LENGTHS, epochs=2, resume=half.summary.run)
    for name, array in whole.weights.items():
        assert array.tobytes() == rest.weights[name].tobytes()


def test_items_by_name_and_validation_data_are_padded_alike(tmp_path):
    table = columns()
    items = [{key: values[n] for key, values in table.items()} for n in range(64)]
    one = trained(tmp_path / "a", LENGTHS, validation=0.25)
    other = trained(tmp_path / "b", LENGTHS, data=items, validation=0.25)
    for name, array in one.weights.items():
        assert array.tobytes() == other.weights[name].tobytes()


def test_learners_that_meet_within_a_layer_are_refused(tmp_path):
    def meets(tokens, mask, label):
        vectors = mb.batch_norm(mb.mean(mb.embedding(tokens, WORDS, 8), axis=1), sync="rank")
        return mb.softmax_cross_entropy(mb.dense(vectors, 2), label) + mb.mean(mask, axis=1)

    with pytest.raises(ConfigError, match=r"lengths: .* averages over a rank's learners"):
        mb.fit(meets, columns(), padding=PADDING, lengths=LENGTHS, batch_size=BATCH, device="numpy", out=str(tmp_path))
