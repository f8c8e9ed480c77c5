"""A fusion matches `case Relu()`, which a subclass would match too: no operator may be one of a record named there."""

import ast
from pathlib import Path

import mpibow
from mpibow import ops
from mpibow.graph import Op

PACKAGE = Path(mpibow.__file__).parent
SOURCES = [*(PACKAGE / "kernels/onednn").rglob("*.py"), PACKAGE / "ops/fused.py"]
MATCHED = {
    node.cls.id
    for path in SOURCES
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name)
}


def test_no_operator_is_a_subclass_of_a_record_that_fusions_match():
    assert {"Add", "BatchNorm", "Conv2d", "Expand", "Multiply", "Relu"} <= MATCHED
    records = tuple(getattr(ops, name) for name in sorted(MATCHED))
    public = [each for each in vars(ops).values() if isinstance(each, type) and issubclass(each, Op)]
    assert [
        each.__name__ for each in public if issubclass(each, records) and each not in records and each.fusible
    ] == []
