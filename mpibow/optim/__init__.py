"""All optimisers by name: the local steps that `update` names, one file each."""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

from mpibow.optim import groups

from .adagrad import Adagrad
from .adam import Adam, AdamW
from .lion import Lion
from .muon import Muon
from .rmsprop import RmsProp
from .sgd import Sgd
from .update import Update

UPDATES: Mapping[str, type[Update]] = {
    "sgd": Sgd,
    "adam": Adam,
    "adamw": AdamW,
    "rmsprop": RmsProp,
    "adagrad": Adagrad,
    "lion": Lion,
    "muon": Muon,
}

if TYPE_CHECKING:
    AnyUpdate: TypeAlias = Update
else:
    AnyUpdate = reduce(or_, UPDATES.values())  # the types of a config's hint
    groups.OwnUpdate = reduce(or_, (kind for kind in UPDATES.values() if kind is not Muon))
