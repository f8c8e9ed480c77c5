"""help(mpibow) lists the operators, help(mpibow.fit) the settings; neither costs anything until it is asked for."""

import pydoc
import re
import sys

import mpibow
from mpibow import ops
from mpibow.config import Config
from mpibow.config.listing import rows
from tests.launching import run


def help_of(thing: object) -> str:
    return pydoc.plain(pydoc.render_doc(thing))


def test_help_of_the_package_begins_with_every_operator():
    shown = help_of(mpibow).partition("PACKAGE CONTENTS")[0]
    operators = {name for name in ops.NAMES if callable(value := getattr(mpibow, name)) and not hasattr(value, "infer")}
    beside = set(mpibow.__all__) - {*ops.NAMES}
    assert len(operators) > 80
    assert operators | beside <= set(re.findall(r"\w+", shown))
    assert max(map(len, shown.splitlines()[8:])) <= 106  # WIDTH, and pydoc's indentation
    assert re.search(
        r"^ +Dropout whose masks are a pure function of \(seed, epoch, sample, node\): dropout$", shown, re.M
    )


def test_help_of_fit_lists_every_setting_and_its_default():
    shown = help_of(mpibow.fit)
    known = {row[0]: row[1] for row in rows(Config) if row[0].partition(".")[0] not in ("model", "data")}
    assert len(known) > 80
    missing = [path for path in known if not re.search(rf"^ +{re.escape(path)}( = .*)?$", shown, re.M)]
    assert missing == []
    assert re.search(r"^ +batch_size = 16$", shown, re.M)
    assert "model.name" not in shown
    assert shown.index("Trains `net`") < shown.index("batch_size = ")


def test_importing_the_package_makes_no_docstring():
    done = run([sys.executable, "-c", "import sys, mpibow; print('numpy' in sys.modules, len(mpibow.__doc__) > 2000)"])
    assert done.stdout == "False True\n", done.stderr
