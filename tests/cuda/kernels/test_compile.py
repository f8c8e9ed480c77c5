"""Every CUDA kernel compiled for every architecture, without a device; what is kept on disk."""

import re
from itertools import cycle
from pathlib import Path

import pytest

from mpibow.cuda.device import libraries
from mpibow.cuda.kernels import compile as own, formulas as cuda_source
from mpibow.cuda.kernels.compile import ARCHITECTURES, Module, Usage, compiled, nvrtc
from mpibow.cuda.kernels.kernels import KERNELS
from mpibow.cuda.kernels.pointwise import header
from mpibow.errors import DeviceError, install
from mpibow.formulas import formula
from mpibow.ops import POINTWISE, Cast, Compare, Silu, Where
from mpibow.optim import AdamW, RmsProp, Sgd
from mpibow.sync import rule_formulas
from tests.kernels.cases import name
from tests.kernels.operators import CASES

FOUND = libraries.load("nvrtc")
KEPT = Path(__file__).parents[3] / "build" / "cuda-cubins"
needs_nvrtc = pytest.mark.skipif(FOUND is None, reason=f"no libnvrtc found: {install('cuda-check')}")


# Sources as they are, with another local step, and with another operator; the bytes that a thread may put aside, which
# are for the rare path of a division, a root or a logarithm.
STEPS = {"0 states": Sgd(), "2 states": AdamW(), "3 states": RmsProp(centered=True, momentum=0.5)}
PULL = formula(rule_formulas.pull)
MODULES = [(source, source, "", 0) for source in sorted(set(KERNELS.values()))]
MODULES += [(key, "steps.cu", cuda_source.source(each.formula), 64) for key, each in STEPS.items()]
MODULES += [(f"pull, {key}", "update.cu", cuda_source.sending(each.formula, PULL), 64) for key, each in STEPS.items()]
# Of these many, each for one architecture in turn: they differ in a line of arithmetic.
RULES = [*rule_formulas.APPLY.values(), rule_formulas.lag]
LINES = [(each.__name__, "apply.cu", cuda_source.applying(formula(each)), 0) for each in RULES]
LINES += [
    (name(case), "choices.cu" if isinstance(case.op, Cast | Compare | Where) else "pointwise.cu", header(case.op), 64)
    for case in CASES
    if type(case.op) in POINTWISE
]
ALL = [(each, *module) for each in ARCHITECTURES for module in MODULES]
ALL += [(each, *module) for each, module in zip(cycle(ARCHITECTURES), LINES, strict=False)]


@needs_nvrtc
@pytest.mark.parametrize(
    ("architecture", "source", "formula", "aside"),
    [  # sm_90's tell most by hand; CI runs all
        pytest.param(each, *module, marks=() if each == "sm_90" else pytest.mark.slow, id=f"{each}-{key}")
        for each, key, *module in ALL
    ],
)
def test_every_kernel_is_compiled_and_keeps_to_registers(architecture, source, formula, aside):
    """At 64 registers a thread four blocks of 256 are resident on every multiprocessor; 128 leave two."""
    module = compiled(source, architecture, KEPT, formula=formula)
    assert set(module.names) == {kernel for kernel, file in KERNELS.items() if file == source} == set(module.usage)
    assert module.code.startswith(b"\x7fELF")
    assert all(name.encode() in module.code for name in module.names.values())
    assert {key: usage for key, usage in module.usage.items() if usage.spilled > aside or usage.registers > 96} == {}


def test_the_formulas_beside_the_sources_are_sgds_and_silus():
    assert own.texts()[own.FORMULA] == cuda_source.source(Sgd(momentum=0.9).formula)
    assert own.texts()[own.ELEMENT] == header(Silu())


@needs_nvrtc
def test_what_is_kept_is_read_again_and_what_is_damaged_is_made_anew(tmp_path):
    first = compiled("layout.cu", "sm_90", tmp_path)
    (kept,) = tmp_path.iterdir()
    content = kept.read_bytes()
    assert own.read_module(kept) == first
    for damaged in (b"", content[:20], content[:-1], content[:40] + b"x" + content[41:]):
        kept.write_bytes(damaged)
        assert own.read_module(kept) is None
    assert compiled("layout.cu", "sm_90", tmp_path).usage == first.usage
    assert own.read_module(kept) is not None
    compiled("layout.cu", "sm_80", tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@needs_nvrtc
def test_a_kept_module_is_not_compiled(tmp_path, monkeypatch):
    made = compiled("layout.cu", "sm_90", tmp_path)
    monkeypatch.setattr(own.Nvrtc, "compile", None)
    assert compiled("layout.cu", "sm_90", tmp_path) == made


@needs_nvrtc
def test_a_source_that_is_wrong_is_said_in_the_compilers_words():
    compiler = nvrtc(FOUND)
    with pytest.raises(DeviceError) as caught:
        compiler.compile("__global__ void wrong() { nonsense; }", {}, ["wrong"], "sm_90")
    said = re.sub(r"\s+", " ", str(caught.value))
    assert said == (
        f"NVRTC {compiler.version} does not compile a kernel for sm_90: "
        'own.cu(1): error: identifier "nonsense" is undefined __global__ void wrong() { nonsense; } ^ '
        '1 error detected in the compilation of "own.cu".'
    )
    with pytest.raises(
        DeviceError,
        match=r"^NVRTC [0-9.]+ does not compile a kernel for sm_1: nvrtc: error: invalid value for --gpu-architecture",
    ):
        compiler.compile("__global__ void right() {}", {}, ["right"], "sm_1")


def test_without_nvrtc_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(libraries, "load", lambda name, major: None)
    with pytest.raises(DeviceError, match=r"^no libnvrtc found: pip install -e '\.\[cuda-check\]'$"):
        compiled("flat.cu", "sm_90")


def test_what_ptxas_says():
    log = (
        "ptxas info    : Compiling entry function '_Z1av' for 'sm_90'\n"
        "ptxas info    : Function properties for _Z1av\n"
        "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 2 bytes spill loads\n"
        "ptxas info    : Used 16 registers, used 1 barriers, 2048 bytes smem, 360 bytes cmem[0]\n"
        "ptxas info    : Compiling entry function '_Z1bv' for 'sm_90'\n"
        "ptxas info    : Used 8 registers\n"
    )
    assert own.usage_of(log) == {"_Z1av": Usage(16, 2048, 14), "_Z1bv": Usage(8, 0, 0)}
    assert Module(b"", {}, own.usage_of(log)).usage["_Z1bv"].registers == 8
