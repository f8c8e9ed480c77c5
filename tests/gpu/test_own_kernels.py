"""Every test that mpibow's own kernels pass on the host, on the device: against NumPy, some to the bit, twice the same.

The tests are those of tests/cuda/kernels, which run what a device gets; here it is a device that gets it.
"""

from collections.abc import Iterator

import pytest

from tests.cuda.kernels import test_direct, test_flat, test_gather, test_operators
from tests.gpu import opened

pytestmark = opened.needs_gpu()
MODULES = (test_direct, test_flat, test_gather, test_operators)

for module in MODULES:
    found = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    assert not set(found) & set(globals()), "two tests of one name"
    globals().update(found)


@pytest.fixture(scope="module", autouse=True)
def on_device() -> Iterator[None]:
    """Launches go to the device, not to the host's compilation."""
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "run_all", opened.run_all)
        yield
