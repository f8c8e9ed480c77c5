"""Types of integer options of commands, for argparse: digits alone, and within bounds."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

PLAIN = re.compile(r"-?[0-9]+")  # int() also takes ' +3 ', '1_0' and digits of other scripts


def integer(least: int, most: int) -> Callable[[str], int]:
    """The type of an integer from `least` to `most`."""

    def integer(text: str) -> int:
        if not PLAIN.fullmatch(text):
            raise argparse.ArgumentTypeError(f"must be an integer, got {text!r}")
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        if value > most:
            raise argparse.ArgumentTypeError(f"must be at most {most:,}, got {value}")
        return value

    return integer


positive, natural = integer(1, 2**63 - 1), integer(0, 2**64 - 1)  # the latter for seeds too
