"""Numbers by a strict grammar, in every notation; and the names of numbers."""

import re
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.data.columns import PLAIN, Notation

FINITE = st.floats(allow_nan=False, allow_infinity=False)
LETTERS = st.text(st.sampled_from("0123456789+-.eE_,' %$x\u0663\u00a0infatyN"), max_size=12)


@given(st.text() | LETTERS)
def test_a_number_is_what_ascii_writes(text):
    """Beside an oracle: Python's float, without all that it takes beyond digits, sign, point and exponent."""
    try:
        value = float(text.strip()) if re.fullmatch("[0-9+.eE-]*", text.strip()) else None
    except ValueError:
        value = None
    assert PLAIN.number(text) == value


@pytest.mark.parametrize(
    "text", ["10_1", "\u0661\u0662", "inf", "-Infinity", "nan", "0x1F", "1e", "1,5", "5%", "1 000", "+-1", ".", "",
             "\uff11"],
)  # fmt: skip
def test_no_number(text):
    assert PLAIN.number(text) is None


@given(FINITE)
def test_numbers_that_python_writes(value):
    assert PLAIN.number(repr(value)) == PLAIN.number(f" {value!r}\u00a0") == value


@given(
    st.decimals(-(10**12), 10**12, places=2),
    st.sampled_from([(".", ","), (",", "."), (".", " "), (",", "\u202f"), (".", "'"), (",", "\u2019"), (".", "_")]),
    st.booleans(),
)
def test_every_notation_reads_what_it_writes(value: Decimal, style, percent):
    decimal, thousands = style
    text = f"{value:,}".translate({ord(","): thousands, ord("."): decimal}) + " %" * percent
    notation = Notation(decimal, {"\u202f": " ", "\u2019": "'"}.get(thousands, thousands))
    assert notation.number(text, percent) == float(value) / (100 if percent else 1)
    assert notation.number(text, not percent) is None


@pytest.mark.parametrize(
    "text", ["1,00", "1,0000", "0,123", ",123", "1,234,5", "12,34,567", "1,234.5,6", "1.5,000", "01,234"]
)
def test_thousands_are_groups_of_three(text):
    assert Notation(thousands=",").number(text) is None


def test_cells_that_are_numbers_already():
    comma = Notation(decimal=",", thousands=".")
    for cell in (1.5, Decimal("1.5"), np.float32(1.5)):
        assert comma.number(cell) == comma.number(cell, percent=True) == 1.5
    assert comma.number(True) is comma.number(None) is comma.number(b"1") is comma.number([1]) is None


@given(FINITE)
def test_a_number_has_one_name(value):
    name = PLAIN.canonical(repr(value))
    assert PLAIN.canonical(name) == PLAIN.canonical(f"+{value!r}".replace("+-", "-")) == PLAIN.canonical(value) == name
    assert float(name) == value


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        (["1", "1.0", "+1", "1e0", " 1 ", 1, 1.0], "1"),
        (["0", "-0.0", "0e9"], "0"),
        (["1.50", "1.5", Decimal("1.5")], "1.5"),
        (["9007199254740993", 9007199254740993], "9007199254740993"),
        (["007", "01.5", "1e999", "x", "", True, None], None),
    ],
)
def test_names_of_numbers(cells, name):
    assert {PLAIN.canonical(cell) for cell in cells} == {name}


@pytest.mark.parametrize(
    ("words", "missing", "values"),
    [
        (None, ["", " ", None, float("nan"), "NA", "n/a", "NaN", "null", "None", "?"], ["-", "0", "no", False]),
        ((), ["", None, float("nan")], ["NA", "None"]),
        (("-", "Unknown"), ["", "-", "unknown"], ["NA", "None", "--"]),
        (("-999",), ["-999", "-999.0", -999, -999.0], ["999", -9.99]),
    ],
)
def test_missing_values(words, missing, values):
    notation = Notation(missing=words)
    assert all(map(notation.is_missing, missing))
    assert not any(map(notation.is_missing, values))
