"""Type hints taken apart, and put in words: `Positive` is "a number above 0"."""

import json
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from mpibow.bounds import AnyFloat, Bound

NOUNS: Mapping[object, tuple[str, str]] = {
    float: ("a number", "numbers"),
    AnyFloat: ("a number", "numbers"),
    int: ("an integer", "integers"),
    str: ("a string", "strings"),
}


def unwrap(hint: object) -> tuple[object, tuple[Bound, ...], str]:
    """The hint without its annotations, its bounds, and its help text."""
    if get_origin(hint) is not Annotated:
        return hint, (), ""
    core, *extras = get_args(hint)
    bounds = tuple(extra for extra in extras if isinstance(extra, Bound))
    return core, bounds, next((extra for extra in extras if isinstance(extra, str)), "")


def members(hint: object) -> tuple[object, ...]:
    """The members of a union; any other hint is its own only member."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def is_record(hint: object) -> TypeGuard[type]:
    return isinstance(hint, type) and is_dataclass(hint)


def is_sequence(hint: object) -> bool:
    return (get_origin(unwrap(hint)[0]) or unwrap(hint)[0]) in (list, tuple)


def words(hint: object) -> str:
    """The rule of a value, as the end of "must be ..."."""
    core, bounds, _ = unwrap(hint)
    if get_origin(core) is Literal and len(get_args(core)) > 1:
        return f"one of {', '.join(map(_plain, get_args(core)))}"
    parts = list(dict.fromkeys(_parts(core, bounds)))  # several dataclasses are one mapping of settings
    return " or ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def _parts(hint: object, bounds: tuple[Bound, ...] = ()) -> list[str]:
    """The alternatives that a hint allows, each in words."""
    core, own, _ = unwrap(hint)
    ending = f" {' and '.join(map(str, bounds + own))}" if bounds + own else ""
    if len(members(core)) > 1:
        return [part for member in members(core) for part in _parts(member)]
    if get_origin(core) is Literal:
        return [_plain(choice) for choice in get_args(core)]
    if is_record(core):
        return ["a mapping of settings" + ending]
    if is_sequence(core):
        return [f"a list{_elements(core)}{ending}"]
    if core in NOUNS:
        return [NOUNS[core][0] + ending]
    return [{bool: "true or false", types.NoneType: "null", Any: "anything"}.get(core, "a mapping")]


def _elements(hint: object) -> str:
    """ " of numbers above 0" for a list of one kind of scalar; nothing where the elements differ."""
    kinds = [kind for kind in get_args(hint) if kind is not ...]
    core, bounds, _ = unwrap(kinds[0] if kinds else None)
    if len(set(kinds)) != 1 or core not in NOUNS:
        return ""
    count = f"{len(kinds)} " if get_origin(hint) is tuple and ... not in get_args(hint) else ""
    return f" of {count}{NOUNS[core][1]}" + (f" {' and '.join(map(str, bounds))}" if bounds else "")


def show(value: object, limit: int = 80) -> str:
    """A value as a message shows it: strings in quotes, null, true and false as in YAML; cut at `limit` characters."""
    text = _shown(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return repr(value) if isinstance(value, str) else _plain(value)


def _plain(value: object) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
