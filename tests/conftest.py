"""What holds for every test."""

import gc
import os
import signal
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from tests.oracle import MISSING, asked_for, without_dali


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """The current folder, which is a new one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module", params=["numpy", "compiled"])
def flat(request) -> ModuleType:
    """The flat passes of both kernel sets, one after the other."""
    if request.param == "compiled":
        pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    return import_module(f"mpibow.kernels.{request.param}.flat")


# A slow or busy machine must not fail a test: nothing here asserts a time.
settings.register_profile("mpibow", deadline=None, max_examples=50, print_blob=True)
settings.load_profile("mpibow")
# No test cuts the power, so none waits for the disk: a file that is closed is refused as before.
os.fsync = os.fstat  # type: ignore[assignment]
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


@pytest.hookimpl(trylast=True)  # of what -m and -k have left
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if missing := without_dali():
        for item in items:
            if item.get_closest_marker("dali"):
                item.add_marker(pytest.mark.skip(reason=missing))
    # Every worker is sent an equal part of the list, in order: each begins with tests that take seconds, so that no
    # worker has a long one left when the others have nothing more to do.
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long, short = [], []
    for item in items:
        (long if item.get_closest_marker("slow") or item.get_closest_marker("mpi") else short).append(item)
    ends = [(len(long) * n // workers, len(items) * n // workers) for n in range(workers + 1)]
    items[:] = [item for (a, c), (b, d) in pairwise(ends) for item in long[a:b] + short[c - a : d - b]]
