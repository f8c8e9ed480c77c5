"""Every formula as CUDA C++: compiled for every architecture."""

import pytest

from mpibow.cuda.device import libraries
from mpibow.cuda.kernels.compile import ARCHITECTURES, nvrtc
from tests.cuda.kernels.test_compile import needs_nvrtc
from tests.formulas import cuda


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_formula_is_compiled_and_keeps_to_registers(architecture):
    found = libraries.load("nvrtc")
    assert found is not None
    module = nvrtc(found).compile(cuda.text(), {}, cuda.kernels(), architecture)
    assert set(module.usage) == set(cuda.kernels())
    assert {name: usage for name, usage in module.usage.items() if usage.spilled or usage.registers > 64} == {}
