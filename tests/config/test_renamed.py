"""Settings of older versions under the names of this one."""

from __future__ import annotations

from typing import Any

import pytest

from mpibow.config import load_mapping
from mpibow.config.renamed import refused, renamed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"loss": {"smoothing": 0.1, "ignore": None}}, {"loss": {"label_smoothing": 0.1, "ignore_index": None}}),
        ({"metrics": {"every": 5}, "seed": 2}, {"log": {"every": 5}, "seed": 2}),
        ({"metrics": ["mae"], "loss": None}, {"metrics": ["mae"], "loss": None}),
        ({}, {}),
    ],
)
def test_an_older_version_s_settings_are_read(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = dict(old)
    assert renamed(old) == new
    assert old == before
    if "metrics" not in new:
        load_mapping(new, model_given=True, data_given=True)


def test_what_is_refused_is_taken_out() -> None:
    settings: dict[str, Any] = {"loss": {"smoothing": 0.1}, "metrics": {"every": 5, "other": 1}}
    assert len(refused(settings)) == 2
    assert settings == {"metrics": {"other": 1}}
