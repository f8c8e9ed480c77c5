"""Settings of rules as they were written before the family of rules, and their replacements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GONE = ("gain", "common", "delay", "scale_lr")
DEFAULTS = {"period": 1, "gain": "auto", "common": "auto", "delay": 0, "scale_lr": False}
MANY = 4  # from so many learners on the common step was orthogonal by default


def current(rule: Mapping[str, Any], k: int = 1) -> dict[str, Any]:
    """The rule of these settings, as it kept k learners together; delay 1, which is no more, is left out."""
    if not any(key in rule for key in GONE):
        return dict(rule)
    kept = {key: rule[key] for key in rule if key not in GONE and rule[key] != DEFAULTS.get(key)}
    old, outer = {**DEFAULTS, **rule}, dict[str, Any]()
    if old["gain"] == "none":
        return {**kept, "name": "crossbow"}
    if old["gain"] != "auto":
        outer["gain"] = old["gain"]
    many = k >= MANY and old["common"] == old["gain"] == "auto" and old["delay"] == 0 and "scale_lr" not in rule
    if old["common"] == "orthogonal" or many:
        outer["name"] = "orthogonal"
    if old["scale_lr"] is True:
        outer["gain"] = "learners"
    return {**kept, "outer": outer} if outer else kept


def comparable(rule: Mapping[str, Any], defaults: Mapping[str, Any], k: int) -> dict[str, Any]:
    """All settings of a checkpoint's rule, as today's are written: equal where averaging goes on."""
    found = current(rule, k)
    if "outer" in defaults:
        found["outer"] = {**defaults["outer"], **found.get("outer", {})}
    late = {"delay": 1} if rule.get("delay") == 1 and rule.get("gain") != "none" else {}
    return {**defaults, **found, **late}
