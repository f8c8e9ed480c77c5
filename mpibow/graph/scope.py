"""Names of parts of a net: `with scope("block3"):` stands in front of all that is named inside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mpibow.errors import ShapeError

_PREFIX: ContextVar[str] = ContextVar("prefix", default="")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Nodes and weights made inside are called `name.conv1`, `name.conv1.weight` ...; scopes may be nested.

    Numbers of nodes without a name of their own count within a scope, so a net's other parts do not change them.
    """
    if not _NAME.fullmatch(name):
        raise ShapeError(f"scope {name!r}: a name begins with a letter, then letters, digits, _, - and . follow")
    before = _PREFIX.get()
    token = _PREFIX.set(f"{before}{name}.")
    try:
        yield
    finally:
        _PREFIX.reset(token)


def prefix() -> str:
    """What stands in front of a name here."""
    return _PREFIX.get()
