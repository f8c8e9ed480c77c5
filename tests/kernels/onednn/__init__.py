"""oneDNN's table of kernels, and the mark of tests that need it."""

import pytest

pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
from mpibow.kernels.onednn import operators
from mpibow.kernels.onednn.library import find_library, load

PATH = find_library()
LIBRARY = None if PATH is None else load(PATH)
TABLE = {} if LIBRARY is None else operators(LIBRARY)
needs_onednn = pytest.mark.skipif(LIBRARY is None, reason="no libdnnl found: pip install -e '.[cpu]'")
needs_wide = pytest.mark.skipif(
    LIBRARY is None or not LIBRARY.wide, reason="these kernels need AVX2, which this processor lacks"
)
