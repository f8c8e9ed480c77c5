"""`evaluate --confusion`: the matrix as text, of a run on digits."""

import json
from pathlib import Path

import numpy as np
import pytest

from mpibow import evaluate, train
from mpibow.metrics.classes import confusion_table

TABLE = """\
label \\ predicted  cat  dog  owl
cat                  8    2    0
dog                  1    4    0
owl                  0    0    0

class  precision  recall      f1  samples
cat       88.89%  80.00%  84.21%       10
dog       66.67%  80.00%  72.73%        5
owl            -       -       -        0"""


def test_the_table_by_hand():
    assert confusion_table([[8, 2, 0], [1, 4, 0], [0, 0, 0]], ["cat", "dog", "owl"]) == TABLE


def test_many_classes_show_the_most_frequent_confusions():
    matrix = np.eye(60, dtype=int) * 5
    matrix[3, 7], matrix[40, 2] = 4, 9
    text = confusion_table(matrix.tolist(), [f"class {i}" for i in range(60)]).splitlines()
    assert text[:4] == [
        "label     predicted  samples",
        "class 40    class 2        9",
        "class 3     class 7        4",
        "",
    ]
    assert len(text) == 4 + 61


def test_of_a_run(here: Path, capsys):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'mpibow[digits]'")
    with pytest.raises(SystemExit):
        train.main(["stop.epochs=2", "name=run", "metrics=[f1]"])
    capsys.readouterr()
    for arguments in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            evaluate.main(["runs/run", "test", "--confusion", *arguments])
        assert ended.value.code == 0
    shown, _, printed = capsys.readouterr().out.partition("{")
    found = json.loads("{" + printed)
    matrix = np.array(found["confusion"])
    assert matrix.sum() == found["samples"]
    assert np.trace(matrix) / matrix.sum() == pytest.approx(found["accuracy"])
    assert list(found["metrics"]) == ["f1"]
    assert f", f1 {found['metrics']['f1']:.4f}, " in shown.splitlines()[0]
    names = list(map(str, range(10)))
    assert confusion_table(found["confusion"], names) in shown
