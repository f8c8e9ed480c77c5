"""How a test says that something is refused, and in which words."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from mpibow.errors import ConfigError, RecordError


@contextmanager
def refuses(message: str, error: type[Exception] = ConfigError) -> Iterator[None]:
    """Fails unless the block raises `error` with this message."""
    with pytest.raises(error) as caught:
        yield
    assert str(caught.value) == message


def refusal_of(
    call: Callable[..., object], *arguments: object, error: type[Exception] = RecordError, **settings: object
) -> str:
    """The message that `call` refuses these arguments with."""
    with pytest.raises(error) as caught:
        call(*arguments, **settings)
    return str(caught.value)


@contextmanager
def exits(code: int) -> Iterator[None]:
    """Fails unless the block, a command's `main`, ends with this code."""
    with pytest.raises(SystemExit) as end:
        yield
    assert end.value.code == code
