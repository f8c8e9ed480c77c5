"""A share of PyTorch's own samples: none is wrong, none a trace. `python -m tests.torch_in.op_db` has all."""

from importlib import import_module
from typing import Any

import pytest

from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
pytest.importorskip("expecttest", reason="PyTorch's samples need it: pip install expecttest")
op_db = import_module("tests.torch_in.op_db")

EQUAL = (
    "add", "amax", "argsort", "cat", "clamp", "cumsum", "div", "expand", "flip", "gather", "index_select", "matmul",
    "max", "nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.elu", "nn.functional.gelu",
    "nn.functional.group_norm", "nn.functional.layer_norm", "nn.functional.max_pool2d", "nn.functional.softplus",
    "nn.functional.threshold", "linalg.norm", "prod", "scatter_add", "softmax", "sort", "std", "sub",
    "sum", "tril", "where",
)  # fmt: skip
REFUSED = ("cummax", "histc", "median", "mode", "nn.functional.embedding_bag")
WRONG = ("wrong in silence", "wrong, and refused for it", "trace", "slow")


def infos(*names: str) -> list[Any]:
    return [pytest.param(each, id=each.formatted_name) for each in op_db.op_db if each.name in names]


@pytest.mark.parametrize("opinfo", infos(*EQUAL))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_equal_or_refused(opinfo, dtype):
    found = op_db.run(opinfo, getattr(torch, dtype), 3, enough=3)
    assert found.counts["equal"] or opinfo.variant_test_name, found
    assert not {*found.counts} & {*WRONG}, found


@pytest.mark.parametrize("opinfo", infos(*REFUSED))
def test_refused(opinfo):
    assert {*op_db.run(opinfo, torch.float64, 1, enough=1).counts} <= {"refused: lacks", "refused: by rule"}


@pytest.mark.parametrize("name", op_db.DIRECT)
def test_functions_of_mpibow(name):
    for opinfo in op_db.op_db:
        if name == op_db.name_of(opinfo):
            for dtype in (torch.float64, torch.float32):
                found = op_db.run_direct(opinfo, op_db.DIRECT[name], dtype, 12)
                assert found.counts["equal"], found
                assert not {*found.counts} & {*WRONG}, found
