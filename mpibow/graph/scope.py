"""Names of parts of a net: `with scope("block3"):` is the prefix of all names given inside."""

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

    Unnamed nodes are numbered within their scope, so a net's other parts do not change the numbers.
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
    """The prefix of names in the current scope."""
    return _PREFIX.get()
