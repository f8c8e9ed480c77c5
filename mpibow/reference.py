"""The parts of help(mpibow) and help(mpibow.fit) that are made from the package: its operators and its settings."""

import re
import sys
import textwrap
from collections.abc import Iterator

from mpibow import ops

from .config import Config
from .config.listing import rows

USE = "fitted = mpibow.fit(net, train=(images, labels), test=(images, labels), batch_size=8, learners=2)"
WIDTH = 100


def package() -> str:
    """mpibow's docstring: its names beside operators, and every operator under the title of its module."""
    module = sys.modules["mpibow"]
    beside = [name for name in module.__all__ if name not in ops.NAMES]
    return "\n".join(
        [
            str(vars(module)["__doc__"]),
            f"\n    {USE}\n",
            *wrapped("Training and trained nets", beside),
            "\nOperators, losses and initialisers, which a net calls. help(mpibow.conv2d) describes one.\n",
            *operators(),
        ]
    )


def operators() -> Iterator[str]:
    """Lines of each module's title and the functions in it."""
    for module in ops.FOUND:
        title = re.split(r" \((?=[A-Z])|[.:]", module.__doc__ or "", maxsplit=1)[0]
        values = vars(module)
        names = [name for name in module.__all__ if callable(values[name]) and not hasattr(values[name], "infer")]
        yield from wrapped(title, names)


def wrapped(title: str, names: list[str]) -> list[str]:
    text = f"{title}: {', '.join(sorted(names, key=str.lower))}"
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="      ", break_long_words=False)


def settings() -> str:
    """Every setting that mpibow.fit takes, its default and its meaning. Net and data are arguments of their own."""
    listed = (row for row in rows(Config) if row[0].partition(".")[0] not in ("model", "data"))
    lines = [line for row in listed for line in entry(*row)]
    return textwrap.indent("\n".join(lines), "        ")


def entry(path: str, default: str, text: str) -> list[str]:
    first = f"{path} = {default}" if default else path
    return [first, *textwrap.wrap(text, WIDTH - 12, initial_indent="    ", subsequent_indent="    ")]


def with_settings(text: str | None) -> str:
    """`text`, the docstring of mpibow.fit, and the settings below it."""
    return (
        f"{(text or '').rstrip()}\n\n"
        '    The settings and their defaults; update.lr is given as update={"lr": 0.1}::\n\n'
        f"{settings()}\n    "
    )
