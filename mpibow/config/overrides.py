"""Overrides from the command line, `key.path=value` with a YAML value, laid over a mapping of settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from mpibow.errors import ConfigError
from mpibow.optim import UPDATES, Sgd, Update
from mpibow.system import JsonObject

from .strict import plain, record_of, records_of, settings_of
from .words import show
from .yaml_text import parse

Path = tuple[str, ...]


def override(kind: type, mapping: Mapping[str, object], overrides: Sequence[str]) -> dict[str, Any]:
    """`mapping` with the overrides set in it, later ones last; `kind` is the dataclass of the result.

    An override replaces the value at its path. One that switches a `name` (`rule.name=ssgd`) drops the keys that only
    the old name has, unless they are overrides themselves. Raises ConfigError naming the override.
    """
    pairs = [_pair(text) for text in overrides]
    result: dict[str, Any] = plain(mapping)
    for n, (path, value) in enumerate(pairs):
        for earlier, _ in pairs[:n]:
            rest = earlier[len(path) :]
            if rest and path == earlier[: len(path)] and not (isinstance(value, dict) and rest[0] in value):
                raise ConfigError(f"override '{overrides[n]}': undoes {'.'.join(earlier)}, which stands before it")
        _set(result, path, value)
    _drop(kind, plain(mapping), result, (), {path for path, _ in pairs})
    return result


def rate_warning(mapping: Mapping[str, object], overrides: Sequence[str], update: Update, origin: str) -> str:
    """A warning of a learning rate that a file gives for one optimiser, where an override selects another; '' for none.

    `mapping` is read from `origin`; `update` is the result of mapping and overrides.
    """
    given = plain(mapping).get("update")
    after = update.name
    if not isinstance(given, dict) or "lr" not in given or after not in UPDATES:
        return ""
    before = given.get("name", Sgd.name)
    typed = {_pair(text)[0] for text in overrides}
    if before == after or typed & {("update",), ("update", "lr")}:
        return ""
    usual = UPDATES[after](name=after).lr
    return (
        f"warning: update.lr: {show(given['lr'])} in {origin} was chosen for {before}, and {after} uses it now; "
        f"set a rate for {after}, as update.lr={usual:g}, its default"
    )


def _pair(text: str) -> tuple[Path, object]:
    key, equals, value = text.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(f"override '{text}': must be key.path=value, as in update.lr=0.1")
    if not value.strip():
        raise ConfigError(f"override '{text}': has an empty value; write null for none")
    return path, parse(value, f"override '{text}'")


def _set(mapping: dict[str, Any], path: Path, value: object) -> None:
    node = mapping
    for depth, key in enumerate(path[:-1], start=1):
        if node.get(key) is None:
            node[key] = {}
        node = node[key]
        if not isinstance(node, dict):
            raise ConfigError(
                f"{'.'.join(path[:depth])}: must be a mapping to set {'.'.join(path)} in it, got {show(node)}"
            )
    node[path[-1]] = value


def _drop(kind: type, old: JsonObject, new: dict[str, Any], path: Path, given: set[Path]) -> None:
    """Deletes from `new`, wherever a name was switched, the keys that only the dataclass named in `old` has."""
    for setting in settings_of(kind):
        records = records_of(setting.hint)
        where = (*path, setting.name)
        after = new.get(setting.name)
        if not records or not isinstance(after, dict):
            continue
        before = old.get(setting.name)
        before = before if isinstance(before, dict) else {}
        was = record_of(records, before, setting.default)
        now = record_of(records, after, setting.default)
        if was and now:
            for name in {s.name for s in settings_of(was)} - {s.name for s in settings_of(now)}:
                if not any((*where, name)[:length] in given for length in range(1, len(where) + 2)):
                    after.pop(name, None)
            _drop(now, before, after, where, given)
