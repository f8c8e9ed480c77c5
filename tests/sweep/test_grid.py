"""From what is typed to cells: every combination once, in order, with a name that is its own."""

import re

import pytest

from mpibow.config.schema import RunName
from mpibow.config.words import unwrap
from mpibow.sweep.grid import AxisValue, Cell, axis, cells
from tests.refusals import refuses


def values(word: str) -> list[object]:
    return [choice.value for choice in axis(word)[1]]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("update.lr=0.01,1e-2x,.5", [0.01, "1e-2x", 0.5]),
        ("seed=1:4", [1, 2, 3, 4]),  # both included
        ("seed=-1:1,7", [-1, 0, 1, 7]),
        ("seed=3:3", [3]),
        ("learners=[1,2],[2, 2],auto", [[1, 2], [2, 2], "auto"]),
        ("rule={name: sma, period: 2},{name: ssgd}", [{"name": "sma", "period": 2}, {"name": "ssgd"}]),
        ("a='x,y',\"1:3\"", ["x,y", "1:3"]),
        ("a=null,true", [None, True]),
        ("a=1,1.0,true", [1, 1.0, True]),  # which Python takes for equal
    ],
)
def test_values(word, expected):
    assert values(word) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lr"], "'lr': must be key.path=values, as in update.lr=0.01,0.02 or seed=1:9"),
        (["a..b=1"], "'a..b=1': must be key.path=values, as in update.lr=0.01,0.02 or seed=1:9"),
        (["a=1,,2"], "'a=1,,2': has an empty value; write null for none"),
        (["a="], "'a=': has an empty value; write null for none"),
        (["a=[1,2"], "'a=[1,2': has a bracket or a quote that is not closed"),
        (["a='x"], "'a='x': has a bracket or a quote that is not closed"),
        (["a=9:1"], "'a=9:1': must be a:b with a <= b, got 9:1; both are included"),
        (["a=0.1,0.10"], "a: 0.1 is given twice, in 'a=0.1,0.10'"),
        (["seed=1:3,2"], "seed: 2 is given twice, in 'seed=1:3,2'"),
        (["a=1", "a=2"], "a: is given twice; write all its values behind one a="),
        (["name=x"], "name: is set by the sweep for each run; leave it out, and choose a folder with --output DIR"),
        (["a=}{"], "'a=}{': line 1, column 1: expected the node content, but found '}'"),
    ],
)
def test_errors(words, message):
    with refuses(message):
        cells(words)


def test_every_combination_the_last_key_fastest_but_the_seed_slowest():
    found = cells(["update.lr=0.1,0.2", "seed=1:2", "batch_size=2,4"])
    assert [tuple(cell.settings.values()) for cell in found] == [
        (0.1, 1, 2), (0.1, 1, 4), (0.2, 1, 2), (0.2, 1, 4), (0.1, 2, 2), (0.1, 2, 4), (0.2, 2, 2), (0.2, 2, 4),
    ]  # fmt: skip
    assert str(found[1]) == "update.lr=0.1 seed=1 batch_size=4"
    assert found[1].overrides == ["update.lr=0.1", "seed=1", "batch_size=4"]
    assert cells([]) == [Cell(())]


def test_names_are_of_their_own_and_allowed_whatever_the_values():
    words = ["a=0.1,1e-25,1e+25,x,'x ','x/',[1,2],[12],{b: c},-3,null,'" + "y" * 200 + "','" + "y" * 201 + "'"]
    names = [cell.name for cell in cells([*words, "seed=1:2"])]
    assert len(set(names)) == len(names) == 26
    (bound,) = unwrap(RunName)[1]
    assert all(bound.holds(name) and len(name) < 150 for name in names)
    assert names[0] == "a_0.1__seed_1"
    assert all(re.fullmatch(r"a_.*seed_1.*", name) for name in names[:9])


def test_a_name_does_not_depend_on_how_a_cell_is_typed():
    assert {cell.name for cell in cells(["update.lr=1e-2", "seed=1"])} == {"seed_1__update.lr_0.01"}
    assert {cell.name for cell in cells(["seed=1:1", "update.lr=0.01"])} == {"seed_1__update.lr_0.01"}
    assert str(AxisValue("{a: 1,b: x}", {"a": 1, "b": "x"})) == "{a: 1, b: 'x'}"
