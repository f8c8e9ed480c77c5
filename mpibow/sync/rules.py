"""All rules; the order of a rule's calls is in rule.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias, cast

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels
from mpibow.sync.family import Family
from mpibow.sync.independent import Independent, IndependentLearners
from mpibow.sync.lagging import Lagging
from mpibow.sync.outbox import Zeros
from mpibow.sync.pulled import Pulled
from mpibow.sync.rule import Kind, Rows, Rule
from mpibow.sync.settings import RuleSettings
from mpibow.sync.ssgd import SynchronousSgd
from mpibow.sync.switch import Switch

RULES: Mapping[str, tuple[type[RuleSettings], Kind]] = {
    "pulled": (Family, Pulled),
    "lagging": (Family, Lagging),
    "reset": (Family, Pulled),
    "gradients": (Family, SynchronousSgd),
    "independent": (Independent, IndependentLearners),
}

if TYPE_CHECKING:
    AnyRule: TypeAlias = RuleSettings
else:
    AnyRule = reduce(or_, dict.fromkeys(settings for settings, _ in RULES.values()))  # what a config's hint takes


def declared(settings: RuleSettings) -> Kind:
    """The rule's class, which declares its state in a checkpoint."""
    return settings.rule or RULES[settings.kind][1]


def is_one_copy(settings: RuleSettings) -> bool:
    """Whether the learners of a rank may share one copy of the weights, to the end of the run."""
    return settings.behind is None and declared(settings).alike is True


def make_rule(
    settings: RuleSettings, flat: FlatKernels, rows: Rows, initial: Array, zeros: Zeros | None = None
) -> Rule:
    """The rule of these settings; `Kind` has the arguments."""
    centre = initial
    if flat.meter is not None:  # the host's array is not where the passes are
        centre = flat.zeros(initial.size, initial.dtype)
        flat.put(centre, initial)
        zeros = None
    made = declared(settings)(settings, flat, rows, centre, zeros)
    if settings.behind is None:
        return made
    second = make_rule(settings.behind, flat, rows, initial.copy(), zeros)
    return cast(Rule, Switch(made, second, flat))  # all members of the one in force
