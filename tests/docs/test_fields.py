"""docs/runs.md has every field of metrics.jsonl."""

import re
from pathlib import Path

import numpy as np

import mpibow as mb

PAGE = (Path(__file__).parents[2] / "docs/runs.md").read_text()
SECTION = PAGE.partition("## The fields of the metrics file")[2].partition("\n## ")[0]


def net(image):
    return mb.dense(mb.flatten(image), 3)


def test_each_is_named_beside_its_event(here: Path):
    generator = np.random.default_rng(0)
    train, test = ((generator.random((n, 1, 4, 4), "float32"), np.arange(n) % 3) for n in (60, 30))
    fitted = mb.fit(
        net, train, test, validation=0.2, batch_size=2, learners=2, ema={"half_life": 20}, stop={"iterations": 60},
        metrics=["accuracy"], rule={"resync": 20},
        callbacks=[lambda event: {"found": 1.0} if isinstance(event, mb.Evaluated) else None],
    )  # fmt: skip
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*)$", SECTION, re.MULTILINE))
    common = set(re.findall(r"`(\w+)`", SECTION.partition("| `event`")[0]))
    seen = {event["event"] for event in fitted.history}
    assert seen >= {"start", "train", "evaluate", "average", "checkpoint", "agree", "callback", "end"}
    missing = {
        (event["event"], field)
        for event in fitted.history
        for field in event
        if field not in common and f"`{field}`" not in rows[event["event"]] and field != "found"
    }
    assert missing == set()
