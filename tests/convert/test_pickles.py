"""Pickles of every protocol, read as data; whatever asks for more is refused and nothing of it happens."""

import os
import pickle
import subprocess
from collections import OrderedDict
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.convert.pickles import read_pickle
from mpibow.errors import RecordError
from tests.convert import python2
from tests.refusals import refusal_of

PIXELS = np.random.default_rng(3).integers(0, 256, (100, 12), dtype=np.uint8)
FIELDS = {"data": PIXELS, "labels": [0, 9, 300, 70_000, -1], "name": "batch 1 of 5", "more": ["a", {"b": []}]}
PYTHON2 = python2.pickled(FIELDS)
DAMAGED = "is not a pickle, or is damaged"


refusal = partial(refusal_of, read_pickle)


def test_the_tests_pickles_are_pickles():
    fields = pickle.loads(PYTHON2, encoding="bytes")  # this one may execute: it is ours
    assert np.array_equal(fields.pop(b"data"), PIXELS)
    assert fields == {b"labels": FIELDS["labels"], b"name": b"batch 1 of 5", b"more": [b"a", {b"b": []}]}


@pytest.mark.parametrize(
    "data",
    [PYTHON2, *(pickle.dumps(FIELDS, protocol) for protocol in (2, 3, 4, 5))],
    ids=["Python 2", "2", "3", "4", "5"],
)
def test_every_protocol(data):
    fields = read_pickle(data)
    assert np.array_equal(fields.pop("data"), PIXELS)
    assert fields == {name: value for name, value in FIELDS.items() if name != "data"}


def test_keys_of_bytes_are_text():
    assert read_pickle(pickle.dumps({b"labels": [b"\xe9"], "a": (1, 2.5, None, True, False, ())})) == {
        "labels": [b"\xe9"],
        "a": (1, 2.5, None, True, False, ()),
    }


class Evil:
    def __init__(self, function: object, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> object:
        return self.call


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    "function",
    [os.system, subprocess.check_call, eval, getattr, OrderedDict, np.save],
    ids=lambda function: function.__name__,
)
def test_nothing_is_executed(tmp_path, function, protocol):
    data = pickle.dumps({"labels": Evil(function, f"touch {tmp_path}/made")}, protocol)
    asked = refusal(data)
    assert asked.startswith("asks for ")
    assert asked.endswith(f".{function.__name__}, which data have no need of; it may be malicious")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"cos\nsystem\n(S'ls'\ntR.", "asks for os.system, which data have no need of; it may be malicious"),
        (b"(S'ls'\nios\nsystem\n.", "asks for os.system, which data have no need of; it may be malicious"),
        (b"(cos\nsystem\nU\x02lso.", "asks for os.system, which data have no need of; it may be malicious"),
        (b"\x82\x01.", f"{DAMAGED}: unregistered extension code 1"),
        (b"r\xff\xff\xff\x7f.", f"{DAMAGED}: list index out of range"),  # C's reader makes a table of 2**31 entries
        (b"", f"{DAMAGED}: EOFError"),
        (b"<html>", f"{DAMAGED}: 60"),
        (b"cnumpy\nndarray\nNb.", f"{DAMAGED}: descriptor '__setstate__' for 'numpy.ndarray'"),
        (b"T\xff\xff\xff\x7fx.", f"{DAMAGED}: EOFError"),
        (b"cnumpy\nndarray\n(I9999999999999999\ntR.", f"{DAMAGED}: Unable to allocate"),
    ],
)
def test_faults(data, message):
    assert refusal(data).startswith(message), refusal(data)


def test_truncated_at_every_byte():
    small = python2.pickled(FIELDS | {"data": PIXELS[:1]})
    for size in range(len(small)):
        assert refusal(small[:size]).startswith((DAMAGED, "asks for "))


@given(st.binary(max_size=100), st.integers(0, len(PYTHON2)))
def test_any_bytes(rubbish, at):
    for data in (rubbish, PYTHON2[:at] + rubbish + PYTHON2[at + len(rubbish) :]):
        with suppress(RecordError):
            read_pickle(data)
