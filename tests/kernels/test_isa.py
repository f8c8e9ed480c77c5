"""One instruction set for oneDNN and for compiled kernels, whatever limits it; compiled code of each is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
from mpibow.kernels.isa import ISA, LEVELS
from mpibow.kernels.onednn import library as dnn

pytestmark = pytest.mark.skipif(
    dnn.find_library() is None or not ISA, reason="no libdnnl found: pip install -e '.[cpu]', or no x86 processor"
)
ROOT = Path(__file__).parents[2]
OLDEST_FIRST = [*LEVELS.values()][::-1]
CODE = """
import sys
sys.path.insert(0, sys.argv[1])
import numba
if sys.argv[2:]:
    numba.njit("f8(f8)")(lambda x: x)  # numba has read its settings
from mpibow.kernels.isa import ISA
from mpibow.kernels import onednn_set
from mpibow.kernels.compiled import orthogonal, panels
import doubled
code = doubled.double.versions[()].code
wide = not code.cache_hits and "zmm" in code._library.get_asm_str()
blocks = panels.TALL, panels.WIDE, orthogonal.SIDE
print(ISA, onednn_set().about.split(", ")[1], *blocks, wide, code.cache_hits, sep="; ")
"""
DOUBLED = """
from mpibow.kernels.compiled.native import floats, native, words

@native
def double(arguments: int, _: int, count: int, __: int) -> int:
    a = words(arguments, count)
    x = floats(a[0], a[1])
    for i in range(len(x)):
        x[i] = x[i] + x[i]
    return 0
"""


def found(folder: Path, *late: str, **environment: str) -> tuple[str, bool]:
    """The instruction set of a process with such settings, and whether it loaded a function that was compiled before.

    Tiles, oneDNN and compiled code must be of that set, too.
    """
    if not (folder / "doubled.py").exists():
        (folder / "doubled.py").write_text(DOUBLED)
    plain = {key: value for key, value in os.environ.items() if "_CPU_" not in key}
    command = [sys.executable, "-c", CODE, str(folder), *late]
    text = subprocess.check_output(command, cwd=ROOT, env={**plain, **environment}, text=True)
    level, theirs, *tiles, wide, hits = text.strip().split("; ")
    assert tiles == (["8", "3", "8"] if level == "AVX-512" else ["6", "1", "4"])
    assert theirs.replace("AMX", "AVX-512").removesuffix(" VNNI").startswith(level)
    assert wide == "False" or level == "AVX-512" or late
    return level, hits != "0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("processor")


@pytest.fixture(scope="module")
def processor(folder: Path) -> str:
    level, loaded = found(folder)
    assert not loaded
    return level


@pytest.mark.parametrize(
    ("environment", "limit"),
    [
        ({"ONEDNN_MAX_CPU_ISA": "SSE41"}, "SSE4.1"),
        ({"DNNL_MAX_CPU_ISA": "Avx2_VNNI"}, "AVX2"),
        ({"NUMBA_CPU_FEATURES": "-avx512f"}, "AVX2"),
        ({"NUMBA_CPU_NAME": "generic", "ONEDNN_MAX_CPU_ISA": "AVX2"}, "SSE4.1"),
        ({"ONEDNN_MAX_CPU_ISA": "AVX-2"}, "AVX-512"),  # which oneDNN does not know
    ],
    ids=str,
)
def test_the_lowest_limit_is_everybodys(tmp_path, processor, environment, limit):
    assert found(tmp_path, **environment) == (min(limit, processor, key=OLDEST_FIRST.index), False)


def test_a_function_that_a_script_compiled_before_changes_no_tiles(tmp_path, processor):
    level = min("AVX2", processor, key=OLDEST_FIRST.index)
    assert found(tmp_path, "late", ONEDNN_MAX_CPU_ISA="AVX2")[0] == level


def test_code_of_each_is_kept_beside_the_others(folder: Path, processor):
    level, loaded = found(folder, ONEDNN_MAX_CPU_ISA="AVX2")
    assert loaded == (level == processor)
    assert found(folder) == (processor, True)
    assert found(folder, ONEDNN_MAX_CPU_ISA="AVX2") == (level, True)
