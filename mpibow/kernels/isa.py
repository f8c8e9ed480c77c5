"""The instruction set of all kernels: the processor's, unless an environment variable limits it.

ONEDNN_MAX_CPU_ISA limits numba, too; numba's NUMBA_CPU_NAME and NUMBA_CPU_FEATURES limit oneDNN, too.
"""

import os

from llvmlite import binding
from numba.core import codegen, config
from numba.core.registry import cpu_target

# Values of ONEDNN_MAX_CPU_ISA below AVX-512, and LLVM's options for them. oneDNN takes no notice of unknown ones.
LIMITS = {"sse41": "-avx", "avx": "-avx2,-fma", **dict.fromkeys(("avx2", "avx2_vnni", "avx2_vnni_2"), "-avx512f")}
OPTIONS = LIMITS.get((os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA", "")).lower(), "")
LEVELS = {"zmm": "AVX-512", "vfmadd": "AVX2", "ymm": "AVX", "xmm": "SSE4.1"}  # by the first that code contains
CODE = """
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
define <16 x float> @f(<16 x float> %x) {
  %y = call <16 x float> @llvm.fma.v16f32(<16 x float> %x, <16 x float> %x, <16 x float> %x)
  ret <16 x float> %y
}
"""

if OPTIONS:  # numba reads its settings when it decorates the first function
    _features = codegen.get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    if f"{OPTIONS}," not in _features:
        config.CPU_FEATURES = f"{_features},{OPTIONS}"


def _isa() -> str:
    """A value of LEVELS; '' for processors that are not x86."""
    _, name, features = cpu_target.target_context.codegen().magic_tuple()
    machine = binding.Target.from_default_triple().create_target_machine(cpu=name, features=features)
    code = machine.emit_assembly(binding.parse_assembly(CODE))  # a name implies features, so these alone do not say it
    level = next((level for mark, level in LEVELS.items() if mark in code), "")
    return "AVX2" if OPTIONS and level == "AVX-512" else level  # a script had decorated a function before


ISA = _isa()
