"""Nested mappings to frozen dataclasses by their type hints, strictly: one error lists every problem.

A union is resolved by the value: a mapping goes to the dataclass of that `name`, a list to the list, and anything else
to the first scalar that takes it. A dataclass's own rules are its `__post_init__`, which raises ConfigError starting
with the field's name.
"""

import difflib
import inspect
import math
import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from mpibow.bounds import AnyFloat
from mpibow.errors import ConfigError
from mpibow.system import JsonObject

from .words import is_record, is_sequence, members, show, unwrap, words

T = TypeVar("T")
# What users of PyTorch type, where a setting has another name here.
WORDS: Mapping[str, str] = {
    "optimizer": "update",
    "scheduler": "update.schedule",
    "learning_rate": "update.lr",
    "max_epochs": "stop.epochs",
    "amp": "precision",
    "lr": "lr_scale",
}
MISFIT = object()
Function = Callable[..., object]


def once(function: Callable[[object], T]) -> Callable[[object], T]:
    """Caches a result that depends on a dataclass or function alone: most of the time that a config takes."""
    return cache(function)


@once
def hints_of(kind: object) -> Mapping[str, object]:
    """The hints of a dataclass's fields, or of a function's parameters."""
    return get_type_hints(kind, include_extras=True)


@dataclass(frozen=True)
class Rest:
    """Marks the field that takes all keys that are not fields: `options: Annotated[JsonObject, Rest()]`."""


class Setting(NamedTuple):
    """A key that a mapping may have. `default` is MISSING where the key is required."""

    name: str
    hint: object
    default: object


def build(kind: type[T], mapping: Mapping[str, object], *, path: str = "", problems: Sequence[str] = ()) -> T:
    """`mapping` as a dataclass of `kind`. Raises ConfigError with one line for each problem, those given first."""
    found = list(problems)
    given = plain(mapping)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{path}: must be a mapping of settings, got {show(given)}")
    record = _record(kind, given, path, found)
    if found or record is None:
        raise ConfigError("\n".join(found))
    return record


def check_options(path: str, function: Function, options: Mapping[str, object]) -> JsonObject:
    """`options` as keyword arguments of `function`, by its annotations; lists become tuples where it takes tuples.

    Options are its keyword-only parameters and those with a default. Raises ConfigError with one line for each problem.
    """
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY or p.default is not p.empty]
    return check_named(path, function, names, options, hints_of(function))


def check_named(
    path: str, function: Function, names: Sequence[str], options: Mapping[str, object], hints: Mapping[str, object]
) -> JsonObject:
    """The same of its parameters `names`, by these hints."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name in names]
    settings = [
        Setting(p.name, hints.get(p.name, Any), MISSING if p.default is p.empty else p.default) for p in parameters
    ]
    found = list[str]()
    values = _values(settings, plain(options), path, f" of {function.__name__}", found)
    if found:
        raise ConfigError("\n".join(found))
    return values


def plain(value: object) -> Any:
    """Dataclasses, mappings and sequences as dicts and lists, as in YAML. The inverse of `build`."""
    if is_dataclass(value) and not isinstance(value, type):
        rest = rest_of(type(value))
        own = {setting.name: plain(getattr(value, setting.name)) for setting in settings_of(type(value))}
        return {**own, **(plain(getattr(value, rest)) if rest else {})}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@once
def settings_of(kind: Any) -> tuple[Setting, ...]:
    """The fields of a dataclass, but for the one that takes the rest."""
    hints = hints_of(kind)
    defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(kind)}
    rest = rest_of(kind)
    names = sorted(defaults, key=lambda name: name != "name")  # the others stay in their order
    return tuple(Setting(name, hints[name], defaults[name]) for name in names if name != rest)


@once
def rest_of(kind: object) -> str | None:
    """The name of the field that takes the rest, if there is one."""
    hints = hints_of(kind).items()
    return next((name for name, hint in hints if get_origin(hint) is Annotated and Rest() in get_args(hint)), None)


@once
def tags_of(kind: object) -> tuple[str, ...]:
    """The allowed texts of a dataclass's `name`; () where any is allowed."""
    hint = unwrap(hints_of(kind).get("name"))[0]
    return tuple(map(str, get_args(hint))) if get_origin(hint) is Literal else ()


def all_tags(records: Iterable[type]) -> str:
    """The names of several dataclasses, as a message lists them."""
    return ", ".join(sorted(tag for record in records for tag in tags_of(record)))


def records_of(hint: object) -> list[type]:
    """The dataclasses among the members of a hint."""
    return [member for member in members(unwrap(hint)[0]) if is_record(member)]


def record_of(records: Sequence[type], mapping: Mapping[str, object], default: object) -> type | None:
    """The dataclass that the mapping's `name` names, or else the default's; None where there is none of that name."""
    if len(records) == 1:
        return records[0]
    name = mapping.get("name", getattr(default, "name", None))
    return next((record for record in records if name in tags_of(record)), None)


def join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _value(setting: Setting, value: object, path: str, found: list[str]) -> object:
    """The value as a type of the setting's hint; None where it does not fit, with its problems added to `found`."""
    core = unwrap(setting.hint)[0]
    records = records_of(core)
    if isinstance(value, Mapping) and records:
        if kind := record_of(records, value, setting.default):
            return _record(kind, value, path, found)
        names = all_tags(records)
        fault = (
            f"must be one of {names}, got {show(value['name'])}" if "name" in value else f"is required, one of {names}"
        )
        found.append(f"{path}.name: {fault}")
        return None
    sequence = next((member for member in members(core) if is_sequence(member)), None)
    if isinstance(value, list) and sequence is not None:
        return _list(sequence if len(members(core)) > 1 else setting.hint, value, path, found)
    if (fit := _fit(setting.hint, value)) is not MISFIT:
        return fit
    found.append(f"{path}: {_must(setting.hint, value)}")
    return None


def _record(kind: type[T], mapping: Mapping[str, object], path: str, found: list[str]) -> T | None:
    before = len(found)
    rest = rest_of(kind)
    tags = tags_of(kind)
    tag = mapping.get("name", tags[0] if len(tags) == 1 else "") if tags else ""
    settings = settings_of(kind)
    names = {setting.name for setting in settings}
    own = {key: item for key, item in mapping.items() if key in names or not rest}
    values = _values(settings, own, path, f" of {tag}" if tag else "", found)
    if len(found) > before:
        return None
    if rest:
        values[rest] = {key: item for key, item in mapping.items() if key not in own}
    try:
        return kind(**values)
    except ConfigError as error:
        about_field = str(error).partition(":")[0].partition(".")[0] in names
        found.append(join(path, error) if about_field or not path else f"{path}: {error}")
        return None


def _values(
    settings: Sequence[Setting], mapping: Mapping[str, object], path: str, owner: str, found: list[str]
) -> dict[str, object]:
    values = {}
    for setting in settings:
        where = join(path, setting.name)
        if setting.name in mapping:
            values[setting.name] = _value(setting, mapping[setting.name], where, found)
        elif setting.default is MISSING:
            found.append(f"{where}: is required, {words(setting.hint)}")
    names = [setting.name for setting in settings]
    found.extend(_unknown(settings, key, path, owner) for key in mapping if key not in names)
    return values


def _unknown(settings: Sequence[Setting], key: object, path: str, owner: str) -> str:
    """Suggests our word for PyTorch's, the key of that name one level down (`lr` is update.lr), or the nearest here.

    Else it lists the settings of a record that has a name.
    """
    names = [setting.name for setting in settings]
    ours = WORDS.get(str(key), "")
    if ours in names or (not path and ours.partition(".")[0] in names):
        return f"{join(path, key)}: is not a setting{owner}; write {ours}"
    below = [(s.name, inner.name) for s in settings for record in records_of(s.hint) for inner in settings_of(record)]
    close = [join(path, f"{outer}.{inner}") for outer, inner in dict.fromkeys(below) if inner == key]
    close = close or difflib.get_close_matches(str(key), names, n=1)
    others = ", ".join(name for name in names if name != "name")
    listed = f"; it has {others}" if owner and others else ""
    remedy = f"; did you mean {' or '.join(map(repr, close))}?" if close else listed
    return f"{join(path, key)}: is not a setting{owner}{remedy}"


def _list(hint: object, value: list[object], path: str, found: list[str]) -> object:
    core, bounds, _ = unwrap(hint)
    kind = list if (get_origin(core) or core) is list else tuple
    before = len(found)
    kinds = get_args(core)
    if kind is list or ... in kinds or not kinds:
        kinds = (kinds[0] if kinds else Any,) * len(value)
    if len(kinds) == len(value):
        settings = [Setting("", element, None) for element in kinds]
        items: Any = [_value(s, v, f"{path}[{n}]", found) for n, (s, v) in enumerate(zip(settings, value, strict=True))]
        if len(found) > before or all(bound.holds(items) for bound in bounds):
            return kind(items)
    found.append(f"{path}: {_must(hint, value)}")
    return None


def _fit(hint: object, value: object) -> object:
    """The value as the first member of the hint that takes it as a scalar, or MISFIT."""
    core, bounds, _ = unwrap(hint)
    for member in members(core):
        kind, own, _ = unwrap(member)
        fit: Any = _scalar(kind, value)
        if fit is not MISFIT and all(bound.holds(fit) for bound in (*bounds, *own)):
            return fit
    return MISFIT


def _scalar(kind: object, value: object) -> object:
    """The value as a scalar of this kind, or MISFIT. An integer is a number too; true and false are neither."""
    if kind is Any:
        return value
    if get_origin(kind) is Literal:
        return value if any(type(value) is type(choice) and value == choice for choice in get_args(kind)) else MISFIT
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        if kind is int and isinstance(value, numbers.Integral):
            return int(value)
        return float(value) if kind is AnyFloat or (kind is float and _finite(value)) else MISFIT
    if kind is str and isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        # A shell leaves ~ in key=~/path, and knows nothing of a file.
        return os.path.expanduser(os.path.expandvars(text)) if text.startswith(("~/", "$")) else text
    if kind is bool and isinstance(value, bool):
        return value
    if (get_origin(kind) or kind) in (dict, Mapping) and isinstance(value, Mapping):
        return value
    return None if kind is type(None) and value is None else MISFIT


def _finite(value: float | numbers.Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _must(hint: object, value: object) -> str:
    cores = [unwrap(member)[0] for member in members(unwrap(hint)[0])]
    remedy = ""
    if float in cores and isinstance(value, float) and not _finite(value):
        remedy = "; it must be finite"
    elif isinstance(value, int | float) and float not in cores and _fit(hint, str(value)) is not MISFIT:
        remedy = "; put it in quotes"
    elif len(named := [core for core in cores if is_record(core)]) > 1:
        remedy = f"; give {{name: ...}}, one of {all_tags(named)}"
    return f"must be {words(hint)}, got {show(value)}{remedy}"
