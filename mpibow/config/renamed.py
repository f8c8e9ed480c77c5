"""Settings with another name in older versions, and their replacements."""

from collections.abc import Mapping
from typing import Any

from mpibow.system import JsonObject

from .words import show

Names = Mapping[tuple[str, str], tuple[str, str]]
NAMES: Names = {}  # (part, key) of the older version -> of this one, as ("metrics", "every"): ("log", "every")


def renamed(settings: JsonObject, names: Names = NAMES, lines: list[str] | None = None) -> dict[str, Any]:
    """The settings of an older version under the names of this one; `lines` receives one about each."""
    found = dict(settings)
    told = [] if lines is None else lines
    for (part, key), (new, name) in names.items():
        old = found.get(part)
        if isinstance(old, Mapping) and key in old:
            told.append(f"{part}.{key}: is {new}.{name} now; write {new}: {{{name}: {show(old[key])}}}")
            rest = {other: value for other, value in old.items() if other != key}
            if rest or new == part:
                found[part] = rest
            else:
                del found[part]
            found[new] = {**found.get(new, {}), name: old[key]}
    return found
