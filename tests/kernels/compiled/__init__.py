"""Tests of compiled kernels: without numba there are none."""

import pytest

pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
