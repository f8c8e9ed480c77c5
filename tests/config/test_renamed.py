"""Settings of older versions under the names of this one."""

import pytest

from mpibow.config.renamed import renamed

NAMES = {
    ("loss", "smoothing"): ("loss", "label_smoothing"), ("loss", "ignore"): ("loss", "ignore_index"),
    ("metrics", "every"): ("log", "every"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"loss": {"smoothing": 0.1, "ignore": None}}, {"loss": {"label_smoothing": 0.1, "ignore_index": None}}),
        ({"metrics": {"every": 5}, "seed": 2}, {"log": {"every": 5}, "seed": 2}),
        ({"metrics": ["mae"], "loss": None}, {"metrics": ["mae"], "loss": None}),
        ({}, {}),
    ],
)
def test_an_older_version_s_settings_are_read(old: dict, new: dict):
    before = dict(old)
    assert renamed(old, NAMES) == new
    assert old == before


def test_each_is_told_of():
    lines = list[str]()
    renamed({"loss": {"smoothing": 0.1}, "metrics": {"every": 5, "other": 1}}, NAMES, lines)
    assert lines == [
        "loss.smoothing: is loss.label_smoothing now; write loss: {label_smoothing: 0.1}",
        "metrics.every: is log.every now; write log: {every: 5}",
    ]
