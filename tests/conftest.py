"""What holds for every test."""

import gc
import signal
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tests.oracle import MISSING, asked_for, without_dali

# A slow or busy machine must not fail a test: nothing here asserts a time.
settings.register_profile("mpibow", deadline=None, print_blob=True)
settings.load_profile("mpibow")
# What a shell runs in the background ignores Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Asked for by -m, the tests beside PyTorch and with DALI are not passed over in silence."""
    wanted = config.option.markexpr
    if asked_for("torch", wanted) and find_spec("torch") is None:
        raise pytest.UsageError(MISSING)
    if asked_for("dali", wanted) and (missing := without_dali()):
        raise pytest.UsageError(missing)


def pytest_collection_finish() -> None:
    """The tests themselves stay to the end: the garbage collector need not look through them again and again."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if missing := without_dali():
        for item in items:
            if item.get_closest_marker("dali"):
                item.add_marker(pytest.mark.skip(reason=missing))
