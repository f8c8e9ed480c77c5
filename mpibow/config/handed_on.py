"""Warns of a learning rate that a file gives for one optimiser, where an override selects another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpibow.config.overrides import keys_of
from mpibow.config.schema import Config
from mpibow.config.strict import plain
from mpibow.config.words import show
from mpibow.optim.sgd import Sgd
from mpibow.optim.table import UPDATES


def rate_handed_on(mapping: Mapping[str, Any], overrides: Sequence[str], config: Config, origin: str) -> str:
    """The warning, or '' where the rate is the optimiser's own. `mapping` is read from `origin`; `config` is the result
    of mapping and overrides."""
    given, after = plain(mapping).get("update"), config.update.name
    if not isinstance(given, dict) or "lr" not in given or after not in UPDATES:
        return ""
    before, typed = given.get("name", Sgd.name), set(keys_of(overrides))
    if before == after or typed & {("update",), ("update", "lr")}:
        return ""
    usual = UPDATES[after](name=after).lr
    return (
        f"warning: update.lr: {show(given['lr'])} in {origin} was chosen for {before}, and {after} uses it now; "
        f"set a rate for {after}, as update.lr={usual:g}, its default"
    )
