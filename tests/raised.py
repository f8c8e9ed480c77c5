"""The message of an error that a call must raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def raised(error: type[Exception], call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    with pytest.raises(error) as caught:
        call(*arguments, **named)
    return str(caught.value)
