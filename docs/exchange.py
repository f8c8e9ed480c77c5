"""Draws exchange.svg: iterations whose exchange follows the backward pass, and some whose exchange is cut into buckets.

python docs/exchange.py WHOLE.json BUCKETS.json    # timelines of rank 0, of --timeline with buckets=1 and without
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpibow.figure import LOOK, save

ROWS = {"learner 0": "learner", "communication": "sums over ranks", "updates": "updates", "averaging": "applied"}
COLOURS = {"batch": "#0072B2", "update": "#E69F00", "all-reduce": "#D55E00", "averaging": "#009E73"}
ITERATIONS = 2


def spans(path: Path) -> Iterator[tuple[str, str, float, float]]:
    """Row, name, begin and length in ms of rank 0's spans, counted from the begin of an iteration."""
    events = json.loads(path.read_text())["traceEvents"]
    names: dict[Any, str] = {}
    for event in events:
        if event["name"] == "thread_name" and event["pid"] == events[-1]["pid"]:
            names[event["tid"]] = event["args"]["name"]
    own = [event for event in events if event["ph"] == "X" and event["pid"] == events[-1]["pid"]]
    begins = sorted(event["ts"] for event in own if names[event["tid"]] == "iterations")
    for event in own:
        begin = (event["ts"] - begins[2]) / 1e3
        row = names[event["tid"]]
        if row.startswith("communication") and event["name"] == "update":
            row = "updates"
        if row in ROWS and begin + event["dur"] / 1e3 > 0 and event["ts"] < begins[2 + ITERATIONS]:
            yield row, event["name"], begin, event["dur"] / 1e3


def main(whole: str, cut: str) -> None:
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", LOOK]):
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        panels = figure.subplots(2, 1, sharex=True)
        titles = ("One exchange, behind the backward pass", "In buckets, beside it and the next forward pass")
        for panel, path, title in zip(panels, (whole, cut), titles, strict=True):
            for row, name, begin, length in spans(Path(path)):
                kind = next((kind for kind in COLOURS if name.startswith(kind)), "averaging")
                panel.broken_barh([(begin, length)], ([*ROWS].index(row) - 0.4, 0.8), facecolors=COLOURS[kind], lw=0)
            panel.set(title=title, yticks=range(len(ROWS)), yticklabels=ROWS.values(), ylim=(len(ROWS) - 0.5, -0.5))
            panel.set_xlim(left=0)
        panels[1].set_xlabel("ms from the begin of an iteration")
    save(figure, Path(__file__).with_suffix(".svg"))


if __name__ == "__main__":
    main(*sys.argv[1:])
