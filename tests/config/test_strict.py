"""The strict builder: what fits is converted, what does not is refused with the whole message as written here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from mpibow.bounds import Above, AtLeast, AtMost, Below, Matches, NotEmpty, Rising
from mpibow.config import build, plain
from mpibow.config.overrides import override
from mpibow.config.strict import Rest, check_options
from mpibow.config.yaml_text import parse, read, write
from mpibow.errors import ConfigError
from tests.refusals import refusal_of, refuses


@dataclass(frozen=True)
class Ball:
    name: Literal["ball"] = field(default="ball", kw_only=True)
    radius: Annotated[float, Above(0)]
    colour: str = "red"


@dataclass(frozen=True)
class Box:
    name: Literal["box"] = field(default="box", kw_only=True)
    sides: tuple[Annotated[float, Above(0)], ...] = (1.0,)
    colour: str = "red"
    lid: bool = False

    def __post_init__(self) -> None:
        if self.lid and self.colour == "black":
            raise ConfigError("lid: has no black one")
        if len(self.sides) > 3:
            raise ConfigError("has more than 3 sides")


@dataclass(frozen=True)
class Things:
    number: Annotated[float, AtLeast(0), Below(1)] = 0.5
    share: Annotated[float, Above(0), AtMost(1)] = 1.0
    count: Annotated[int, AtLeast(1)] = 1
    flag: bool = False
    text: str = "a"
    code: Annotated[str, Matches("[a-z]+", "of small letters")] = "a"
    level: Literal[0, 1] = 1
    maybe: int | None = None
    mixed: Literal["auto", "none"] | Annotated[float, AtLeast(1)] = "auto"
    names: list[str] = field(default_factory=list)
    pair: tuple[int, str] = (1, "a")
    epochs: Annotated[tuple[Annotated[float, Above(0)], ...], NotEmpty(), Rising()] = (1.0,)
    one_or_many: Annotated[int, AtLeast(1)] | tuple[Annotated[int, AtLeast(1)], ...] = 1
    shape: Ball | Box = field(default_factory=Box)
    rows: tuple[Box, ...] = ()
    ball: Ball | None = None


@dataclass(frozen=True)
class Open:
    kind: str
    rest: Annotated[Mapping[str, Any], Rest()] = field(default_factory=dict)


@dataclass(frozen=True)
class Shapes:
    shape: Ball | Box


def refused(*args, kind: type = Things, **mapping) -> str:
    return refusal_of(build, kind, args[0] if args else mapping, error=ConfigError)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("number: 1e-4", "number", 1e-4),
        ("number: 5E-1", "number", 0.5),
        ("maybe: 010", "maybe", 10),
        ("maybe: null", "maybe", None),
        ("flag: true", "flag", True),
        ("text: 2026-01-01", "text", "2026-01-01"),
        ("text: '7'", "text", "7"),
        ("text: ~/runs", "text", str(Path.home() / "runs")),
        ("text: $HOME/runs", "text", str(Path.home() / "runs")),
        ("text: ~runs", "text", "~runs"),
        ("level: 0", "level", 0),
        ("mixed: none", "mixed", "none"),
        ("names: [a, b]", "names", ["a", "b"]),
        ("pair: [2, b]", "pair", (2, "b")),
        ("epochs: [1, 2.5]", "epochs", (1.0, 2.5)),
        ("one_or_many: 3", "one_or_many", 3),
        ("one_or_many: [2, 1]", "one_or_many", (2, 1)),
        ("shape: {name: ball, radius: 2}", "shape", Ball(2.0)),
        ("shape: {lid: true}", "shape", Box(lid=True)),  # the default's name
        ("rows: [{}, {lid: true}]", "rows", (Box(), Box(lid=True))),
        ("ball: {radius: 1}", "ball", Ball(1.0)),
    ],
)
def test_what_fits(text, field, value):
    got = getattr(build(Things, parse(text, "test")), field)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("number: -0.1", "number: must be a number of at least 0 and below 1, got -0.1"),
        ("number: .nan", "number: must be a number of at least 0 and below 1, got nan; it must be finite"),
        ("number: true", "number: must be a number of at least 0 and below 1, got true"),
        ("share: 1.5", "share: must be a number above 0 and of at most 1, got 1.5"),
        ("count: 0", "count: must be an integer of at least 1, got 0"),
        ("count: true", "count: must be an integer of at least 1, got true"),
        ("count: [1]", "count: must be an integer of at least 1, got [1]"),
        ("flag: 1", "flag: must be true or false, got 1"),
        ("text: 7", "text: must be a string, got 7; put it in quotes"),
        ("code: A", "code: must be a string of small letters, got 'A'"),
        ("level: 2", "level: must be one of 0, 1, got 2"),
        ("maybe: x", "maybe: must be an integer or null, got 'x'"),
        ("mixed: 0.5", "mixed: must be auto, none or a number of at least 1, got 0.5"),
        ("names: a", "names: must be a list of strings, got 'a'"),
        ("names: [a, 1]", "names[1]: must be a string, got 1; put it in quotes"),
        ("pair: [1, 2]", "pair[1]: must be a string, got 2; put it in quotes"),
        ("epochs: []", "epochs: must be a list of numbers above 0 that is not empty and that rises, got []"),
        ("epochs: [2, 2]", "epochs: must be a list of numbers above 0 that is not empty and that rises, got [2, 2]"),
        ("epochs: [2, 0]", "epochs[1]: must be a number above 0, got 0"),
        (
            "one_or_many: 0",
            "one_or_many: must be an integer of at least 1 or a list of integers of at least 1, got 0",
        ),
        ("shape: {name: bal}", "shape.name: must be one of ball, box, got 'bal'"),
        ("shape: {name: ball}", "shape.radius: is required, a number above 0"),
        ("shape: {radius: 1}", "shape.radius: is not a setting of box; it has sides, colour, lid"),
        ("shape: {color: x}", "shape.color: is not a setting of box; did you mean 'colour'?"),
        ("shape: ball", "shape: must be a mapping of settings, got 'ball'; give {name: ...}, one of ball, box"),
        ("shape: {lid: true, colour: black}", "shape.lid: has no black one"),
        ("shape: {sides: [1, 1, 1, 1]}", "shape: has more than 3 sides"),
        ("ball: 3", "ball: must be a mapping of settings or null, got 3"),
        ("ball: {name: box, radius: 1}", "ball.name: must be ball, got 'box'"),
        ("numbr: 3", "numbr: is not a setting; did you mean 'number'?"),
        ("7: 3", "7: is not a setting"),
        ("radius: 3", "radius: is not a setting; did you mean 'shape.radius' or 'ball.radius'?"),
    ],
)
def test_what_does_not_fit(text, message):
    assert refused(parse(text, "test")) == message


def test_long_values_are_cut():
    message = refused(flag="x" * 100)
    assert message == "flag: must be true or false, got '" + "x" * 76 + "..."


def test_every_problem_is_reported():
    assert refused(parse("shape: {name: box, lids: 1, sides: [0]}\ncounts: 3\nflag: 0\nlevel: 5", "test")).split(
        "\n"
    ) == [
        "flag: must be true or false, got 0",
        "level: must be one of 0, 1, got 5",
        "shape.sides[0]: must be a number above 0, got 0",
        "shape.lids: is not a setting of box; did you mean 'lid'?",
        "counts: is not a setting; did you mean 'count'?",
    ]


def test_a_union_without_default_needs_a_name():
    assert refused({}, kind=Shapes) == "shape: is required, a mapping of settings"
    assert refused({"shape": {}}, kind=Shapes) == "shape.name: is required, one of ball, box"


def test_values_of_programs():
    things = build(
        Things,
        {
            "shape": Ball(2.0),
            "number": np.float32(0.25),
            "count": np.int64(2),
            "text": Path("a/b"),
            "epochs": (1, 2),
            "rows": [Box()],
        },
    )
    assert things == Things(
        shape=Ball(2.0), number=0.25, count=2, text=str(Path("a/b")), epochs=(1.0, 2.0), rows=(Box(),)
    )
    assert type(things.number) is float
    assert type(things.count) is int
    assert refused(number=10**400) == f"number: must be a number of at least 0 and below 1, got 1{'0' * 76}..."
    assert refused(shape=Ball(-1)) == "shape.radius: must be a number above 0, got -1"
    assert refused(flag=np.True_) == "flag: must be true or false, got True"


def test_rest_takes_the_other_keys():
    mapping = {"kind": "x", "depth": 3, "hidden": [1, 2], "rest": 4}
    opened = build(Open, mapping)
    assert opened == Open("x", {"depth": 3, "hidden": [1, 2], "rest": 4})
    assert plain(opened) == mapping


def test_plain_is_the_inverse_of_build():
    things = Things(shape=Ball(2.0), epochs=(1.0, 2.0), rows=(Box(),))
    assert build(Things, plain(things)) == things
    assert plain(things)["rows"] == [{"name": "box", "sides": [1.0], "colour": "red", "lid": False}]


def net(
    image: object, classes: int, hidden: tuple[int, ...] = (256,), *, drop: float = 0.5, act: Literal["a", "b"]
) -> None:
    """A model function: image and classes are not options."""


def test_options_of_a_function():
    assert check_options("model", net, {"act": "a"}) == {"act": "a"}
    assert check_options("model", net, {"act": "b", "hidden": [3, 2], "drop": 0}) == {
        "act": "b",
        "hidden": (3, 2),
        "drop": 0.0,
    }
    with pytest.raises(ConfigError) as caught:
        check_options("model", net, {"hiden": 3, "drop": "x", "classes": 3, "hidden": 4})
    assert str(caught.value).split("\n") == [
        "model.hidden: must be a list of integers, got 4",
        "model.drop: must be a number, got 'x'",
        "model.act: is required, one of a, b",
        "model.hiden: is not a setting of net; did you mean 'hidden'?",
        "model.classes: is not a setting of net; it has hidden, drop, act",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "x.yaml: line 3, column 1: 'a' is given twice"),
        ("a: {b: 1, b: 2}", "x.yaml: line 1, column 11: 'b' is given twice"),
        ("a: [1,\nb: 2", "x.yaml: line 2, column 5: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\n\tb: 2", "x.yaml: line 2, column 1: found character '\\t' that cannot start any token"),
        ("a: b: c", "x.yaml: line 1, column 5: mapping values are not allowed here"),
        ("? [a]\n: 1", "x.yaml: line 1, column 3: found unhashable key"),
        ("a: *b", "x.yaml: line 1, column 4: found undefined alias 'b'"),
        (
            "a: 1\n---\nb: 1",
            "x.yaml: line 2, column 1: expected a single document in the stream, but found another document",
        ),
        ("a: 1\nb: \x07", "x.yaml: line 2, column 4: character 0x7 is not allowed in YAML"),
        (
            "a: !!int x",
            "x.yaml: has a value that its !!tag does not allow: invalid literal for int() with base 10: 'x'",
        ),
        ("3", "x.yaml: must be a mapping of settings, got 3"),
        ("[a: 1]", "x.yaml: must be a mapping of settings, got [{a: 1}]"),
        ("# nothing", "x.yaml: must be a mapping of settings, got null"),
    ],
)
def test_files_that_are_refused(text, message, here):
    Path("x.yaml").write_text(text)
    with refuses(message):
        read(Path("x.yaml"))


def test_files_that_cannot_be_read(here):
    Path("latin.yaml").write_bytes(b"a: caf\xe9\n")
    for name, message in [
        ("none.yaml", "none.yaml: cannot be read: no such file or directory"),
        (".", ".: cannot be read: is a directory"),
        ("latin.yaml", "latin.yaml: must be UTF-8 text, got byte 0xe9 at 6"),
    ]:
        with refuses(message):
            read(Path(name))


@pytest.mark.parametrize(
    "text", ["1e-4", "1e5", "010", "on", "null", "2026-01-01", "1:30", "", "~", ".inf", "-", "a: b", "'"]
)
def test_texts_stay_texts(text):
    assert parse(write({"a": text}), "test") == {"a": text}


BOX = {"shape": {"name": "box", "sides": [1, 2], "colour": "blue", "lid": True}}


@pytest.mark.parametrize(
    ("overrides", "shape"),
    [
        (["shape.lid=false"], Box(sides=(1, 2), colour="blue")),
        (["shape={name: ball, radius: 1}"], Ball(1.0)),
        (["shape={}"], Box()),  # replaces what stood there
        (["shape.name=ball", "shape.radius=1"], Ball(1.0, "blue")),  # drops sides and lid, keeps the shared colour
        (["shape.radius=1", "shape.name=ball"], Ball(1.0, "blue")),
        (["shape.name=box"], Box(sides=(1, 2), colour="blue", lid=True)),
        (["shape.lid=false", "shape.lid=true"], Box(sides=(1, 2), colour="blue", lid=True)),
        (["shape=null", "shape.lid=true"], Box(lid=True)),
    ],
)
def test_overrides(overrides, shape):
    assert build(Things, override(Things, BOX, overrides)).shape == shape


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["shape.name=ball", "shape.radius=1", "shape.lid=true"],
            "shape.lid: is not a setting of ball; it has radius, colour",
        ),
        (["shape={name: ball, radius: 1, lid: true}"], "shape.lid: is not a setting of ball; it has radius, colour"),
        (["shape.name=ball"], "shape.radius: is required, a number above 0"),
        (["shape.name=bal"], "shape.name: must be one of ball, box, got 'bal'"),
        (["shape"], "override 'shape': must be key.path=value, as in update.lr=0.1"),
        (["shape..lid=1"], "override 'shape..lid=1': must be key.path=value, as in update.lr=0.1"),
        (["count="], "override 'count=': has an empty value; write null for none"),
        (["=1"], "override '=1': must be key.path=value, as in update.lr=0.1"),
        (["names=[a"], "override 'names=[a': line 1, column 3: expected ',' or ']', but got '<stream end>'"),
        (["count=1", "count.a=2"], "count: must be a mapping to set count.a in it, got 1"),
    ],
)
def test_overrides_that_are_refused(overrides, message):
    with refuses(message):
        build(Things, override(Things, BOX, overrides))


def test_overrides_leave_the_mapping_alone():
    before = plain(BOX)
    override(Things, BOX, ["shape.name=ball", "shape.radius=1"])
    assert before == BOX


def test_a_switch_keeps_the_file_s_typos():
    with pytest.raises(ConfigError, match=r"^shape.lids: is not a setting of ball; it has radius, colour$"):
        build(Things, override(Things, {"shape": {"lids": 1}}, ["shape.name=ball", "shape.radius=1"]))
