"""Settings with another name in older versions, and their replacements."""

from collections.abc import Mapping

from mpibow.system.json_text import JsonObject

from .words import show

Names = Mapping[tuple[str, str], tuple[str, str]]
NAMES: Names = {}  # (part, key) of the older version -> of this one, as ("metrics", "every"): ("log", "every")


def renamed(settings: JsonObject, names: Names = NAMES) -> JsonObject:
    """The settings of an older version under the names of this one."""
    found = dict(settings)
    for (part, key), (new, name) in names.items():
        old = found.get(part)
        if isinstance(old, Mapping) and key in old:
            rest = {other: value for other, value in old.items() if other != key}
            if rest or new == part:
                found[part] = rest
            else:
                del found[part]
            found[new] = {**found.get(new, {}), name: old[key]}
    return found


def refused(settings: dict[str, object], names: Names = NAMES) -> list[str]:
    """Removes settings of older versions, and returns a line for each: its replacement."""
    problems = []
    for (part, key), (new, name) in names.items():
        old = settings.get(part)
        if isinstance(old, dict) and key in old:
            problems.append(f"{part}.{key}: is {new}.{name} now; write {new}: {{{name}: {show(old.pop(key))}}}")
            if not old:
                del settings[part]
    return problems
