"""tf.Examples: protobuf's bytes by hand, every encoding that it allows, and that no damage passes."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.convert.tf_example import Feature, encode, parse
from mpibow.errors import RecordError
from tests.convert import examples
from tests.convert.examples import field, varint
from tests.refusals import refusal_of

# features { feature { key: "a" value { int64_list { value: [1, 300] } } } }
GOLDEN = bytes.fromhex("0a 0e  0a 0c  0a 01 61  12 07  1a 05  0a 03  01 ac 02".replace(" ", ""))


def values(feature: Feature) -> list[object]:
    return feature.values.tolist() if isinstance(feature.values, np.ndarray) else [bytes(v) for v in feature.values]


refusal = partial(refusal_of, parse)


def test_golden_bytes():
    (feature,) = parse(GOLDEN).items()
    assert (feature[0], feature[1].kind, values(feature[1])) == ("a", "int64", [1, 300])
    assert encode({"a": np.array([1, 300])}) == GOLDEN


@pytest.mark.parametrize("packed", [True, False])
def test_every_kind(packed):
    data = examples.example(packed, b=[b"x", b"", b"yz"], f=[0.5, -2.0], i=[0, -1, 2**63 - 1, -(2**63), 300])
    found = parse(data)
    assert {name: (feature.kind, values(feature)) for name, feature in found.items()} == {
        "b": ("bytes", [b"x", b"", b"yz"]),
        "f": ("float", [0.5, -2.0]),
        "i": ("int64", [0, -1, 2**63 - 1, -(2**63), 300]),
    }
    assert [found[name].values.dtype for name in "fi"] == [np.float32, np.int64]
    assert [str(found[name]) for name in "bfi"] == ["3 bytes of 1, 0, 2 bytes", "2 float", "5 int64"]


def test_only_what_is_asked_for():
    assert [*parse(examples.example(a=[7], b=[8]), {"a", "c"})] == ["a"]


def test_what_protobuf_allows():
    """Unknown fields, value before key, packed and unpacked runs of one list, parts that come twice, empty ones."""
    unknown = varint(15 * 8) + varint(2**64 - 1) + varint(14 * 8 + 1) + bytes(8) + varint(13 * 8 + 5) + bytes(4)
    unknown += field(2047, b"\xff\xff")
    mixed = field(3, field(1, b"\1\2") + b"\x08\x03" + unknown + field(1, b"") + field(1, b"\4"))
    first = field(1, field(2, mixed + field(3, b"\x08\x05")) + field(1, b"a"))
    twice = field(1, field(1, b"b") + field(2, examples.feature([b"old"])))
    later = field(1, field(1, b"b") + field(2, examples.feature([b"old"]) + examples.feature([1.5])))
    bare = field(1, field(1, b"none")) + field(1, field(1, b"empty") + field(2, field(1, b"")))
    data = unknown + field(1, first + twice + unknown) + field(1, later + bare)
    found = {name: (feature.kind, values(feature)) for name, feature in parse(data).items()}
    assert found == {"a": ("int64", [1, 2, 3, 4, 5]), "b": ("float", [1.5]), "none": ("", []), "empty": ("bytes", [])}
    assert str(parse(data)["none"]) == "empty"
    assert parse(b"") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05abc",
        b"\x0a",
        b"\x0b",
        b"\x02\0",
        b"\x08" + b"\xff" * 10 + b"\0",
        field(1, field(1, field(1, b"\xff"))),
        field(1, field(1, field(2, field(2, field(1, b"\0" * 5))))),
        field(1, field(1, field(2, field(3, field(1, b"\1\x80"))))),
    ],
)
def test_damage_is_refused(data):
    assert refusal(data) == "is not a tf.Example: damaged, or another kind of record"


TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4)


@given(st.dictionaries(TEXTS, INTEGERS | st.binary(max_size=5), max_size=4))
def test_what_is_encoded_is_parsed(features):
    arrays = {name: value if isinstance(value, bytes) else np.array(value) for name, value in features.items()}
    found = {name: values(feature) for name, feature in parse(encode(arrays)).items()}
    assert found == {name: [value] if isinstance(value, bytes) else value for name, value in features.items()}


@given(st.binary(max_size=60), st.integers(0, 40), st.integers(0, 20))
def test_any_bytes(rubbish, at, more):
    data = examples.example(a=[b"x"], b=[1.0, 2.0], c=[1, -1])
    try:
        parse(data[:at] + rubbish + data[at + more :])
    except RecordError as error:
        assert str(error).startswith("is not a tf.Example: ")  # noqa: PT017
