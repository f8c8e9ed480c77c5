"""What holds for every test."""

import signal
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tests.oracle import MISSING, asked_for

# A slow or busy machine must not fail a test: nothing here asserts a time.
settings.register_profile("mpibow", deadline=None, print_blob=True)
settings.load_profile("mpibow")
# What a shell runs in the background ignores Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Asked for by -m, the tests beside PyTorch are not passed over in silence."""
    if asked_for(config.option.markexpr) and find_spec("torch") is None:
        raise pytest.UsageError(MISSING)
