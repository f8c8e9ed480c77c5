"""Which rule the settings mean; the order of its calls is in rule.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mpibow.graph.graph import Array
from mpibow.graph.layout import Layout
from mpibow.kernels.passes import FlatKernels
from mpibow.sync.averaging import may_spread
from mpibow.sync.delayed import Delayed
from mpibow.sync.independent import IndependentLearners
from mpibow.sync.orthogonal import common_step
from mpibow.sync.outbox import Zeros
from mpibow.sync.published import Published
from mpibow.sync.pulled import Pulled
from mpibow.sync.rule import Declared, Rows, Rule
from mpibow.sync.settings import Settings, Sma
from mpibow.sync.ssgd import SynchronousSgd


class Kind(Declared, Protocol):
    """A rule's class: what it declares, and how it is made (make_rule has the arguments)."""

    def __call__(self, *args: Any, **more: Any) -> Rule: ...


RULES: Mapping[str, Kind] = {
    "sma, at once": Pulled,
    "sma, late": Delayed,
    "sma, published": Published,
    "ssgd": SynchronousSgd,
    "independent": IndependentLearners,
}


def kind_of(settings: Settings) -> str:
    """Its key in RULES."""
    if not isinstance(settings, Sma):
        return settings.name
    return "sma, published" if settings.gain == "none" else "sma, late" if settings.delay else "sma, at once"


def declared(settings: Settings) -> Declared:
    """What the rule of these settings declares of its state, before it is made."""
    return RULES[kind_of(settings)]


def make_rule(
    settings: Settings, flat: FlatKernels, rows: Rows, initial: Array, zeros: Zeros | None = None,
    layout: Layout | None = None,
) -> Rule:  # fmt: skip
    """The rule that keeps `rows` together, its centre at `initial` (size,), which it takes over.

    `zeros` makes what it sends; `layout` says which elements are a matrix's, where the common step is orthogonal.
    """
    centre = initial
    if flat.meter is not None:  # the host's array is not where the passes are
        centre = flat.zeros(initial.size, initial.dtype)
        flat.put(centre, initial)
    more: dict[str, Any] = {}
    if layout is not None and may_spread(settings):
        more["orthogonal"] = common_step(layout, flat, initial.dtype)
    return RULES[kind_of(settings)](settings, flat, rows, centre, zeros, **more)
