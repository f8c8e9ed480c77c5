"""The states of a local step that a run takes over from the checkpoint that it continues."""

from __future__ import annotations

from mpibow.config import document
from mpibow.config.schema import Config
from mpibow.config.strict import build
from mpibow.errors import ConfigError
from mpibow.optim.update import Update


def kept_states(text: str, config: Config) -> tuple[str, ...]:
    """The states of `config`'s update that the run whose config is `text` (YAML) kept; others begin at 0.

    Another optimiser's are not taken over, whatever their names are.
    """
    stored = dict(document.parse(text, "config").get("update") or {})
    try:
        before = build(type(config.update), stored)
    except ConfigError:  # another optimiser's settings, or a newer version's
        return ()
    if _parts(before) != _parts(config.update) and any(each.counts for each in config.update.optimisers):
        return ()  # updates are counted by parts, and these have changed
    kept = {name for each in before.optimisers for name in each.states}
    return tuple(name for name in _states(config.update) if name in kept)


def _parts(update: Update) -> tuple[list[str], set[float]]:
    return [each.name for each in update.optimisers], {0.0, *(group.length for group in update.groups)}


def _states(update: Update) -> list[str]:
    return list(dict.fromkeys(name for each in update.optimisers for name in each.states))


def fresh_states(text: str, config: Config) -> str:
    """The log's line on states that the checkpoint lacks, '' where it has all."""
    kept = kept_states(text, config)
    fresh = [name for name in _states(config.update) if name not in kept]
    return f"update: the checkpoint has no {', '.join(fresh)} of {config.update.name}: they begin at 0" if fresh else ""
