"""Every formula as CUDA C++: compiled for every architecture."""

from __future__ import annotations

import pytest

from mpibow.cuda.device import libraries
from mpibow.cuda.kernels import formulas as cuda_source
from mpibow.cuda.kernels.compile import nvrtc
from mpibow.formulas.language import formula
from tests.cuda.kernels.test_compile import ALL as ARCHITECTURES
from tests.cuda.kernels.test_compile import needs_nvrtc
from tests.formulas import cuda, samples


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_formula_is_compiled_and_keeps_to_registers(architecture: str) -> None:
    found = libraries.load("nvrtc")
    assert found is not None
    module = nvrtc(found).compile(cuda.text(), {}, cuda.kernels(), architecture)
    assert set(module.usage) == set(cuda.kernels())
    assert {name: usage for name, usage in module.usage.items() if usage.spilled or usage.registers > 64} == {}


def test_the_text() -> None:
    assert cuda_source.source(formula(samples.heavy_ball)) == (
        "#pragma once\n"
        "\n"
        "constexpr int STATES = 1, SCALARS = 3;\n"
        "\n"
        "// heavy_ball\n"
        "__device__ inline float stepped(float w_, float g_, float* states, const float* scalars) {\n"
        "    float momenta_ = states[0];\n"
        "    float rate_ = scalars[0];\n"
        "    float momentum_ = scalars[1];\n"
        "    float decay_ = scalars[2];\n"
        "    g_ = ((decay_ != float(0.0)) ? (g_ + (decay_ * w_)) : g_);\n"
        "    momenta_ = ((momentum_ * momenta_) + g_);\n"
        "    momenta_ = ((fabsf(momenta_) < float(1e-30)) ? float(0.0) : momenta_);\n"
        "    const float result0 = ((-rate_) * momenta_);\n"
        "    const float result1 = momenta_;\n"
        "    states[0] = result1;\n"
        "    return result0;\n"
        "}\n"
    )
