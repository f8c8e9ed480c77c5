"""JSON objects: read from text, and made fit for it."""

import json
import math
from collections.abc import Mapping
from typing import Any

JsonObject = Mapping[str, Any]  # by the names of entries; its reader checks what they hold


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The object in a text. Raises ValueError where it is no JSON, or JSON of another kind."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping, got {type(value).__name__}")
    return value


def nulled(value: object) -> Any:
    """The value with null for each number that is not finite, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: nulled(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [nulled(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def finite(entries: JsonObject) -> dict[str, Any]:
    """The entries without numbers of objects that are not finite, which JSON lacks; readers use their defaults."""
    return {key: _finite(each) for key, each in entries.items() if not isinstance(each, float) or math.isfinite(each)}


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return finite(value)
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
