"""When a file's learning rate goes to an optimiser that it was not written for, and what is told of it."""

import pytest

from mpibow.config import load_mapping
from mpibow.config.overrides import rate_warning
from tests.refusals import refuses

FILE = {"model": {"name": "lenet"}, "data": {"train": "data/mnist/train"}}
SGD = {**FILE, "update": {"lr": 0.05, "momentum": 0.9}}
ADAMW = {**FILE, "update": {"name": "adamw", "lr": 0.001}}


def told(mapping: dict, *overrides: str) -> str:
    return rate_warning(mapping, overrides, load_mapping(mapping, overrides).update, "mnist.yaml")


@pytest.mark.parametrize(
    ("name", "usual"), [("adam", "0.001"), ("lion", "0.0001"), ("rmsprop", "0.01"), ("muon", "0.02")]
)
def test_another_optimisers_rate(name, usual):
    assert told(SGD, f"update.name={name}", "seed=2") == (
        f"warning: update.lr: 0.05 in mnist.yaml was chosen for sgd, and {name} uses it now; set a rate for {name}, "
        f"as update.lr={usual}, its default"
    )


def test_adamws_rate_is_not_sgds():
    begin = "warning: update.lr: 0.001 in mnist.yaml was chosen for adamw, and sgd uses it now; "
    assert told(ADAMW, "update.name=sgd").startswith(begin)


def test_a_later_override_does_not_undo_an_earlier_one():
    with refuses("override 'update={name: adamw}': undoes update.lr, which stands before it"):
        load_mapping(SGD, ["update.lr=0.3", "update.lr=0.2", "seed=2", "update={name: adamw}"])
    assert load_mapping(SGD, ["update={name: adamw}", "update.lr=0.3"]).update.lr == 0.3
    assert load_mapping(SGD, ["update.lr=0.3", "update={name: adamw, lr: 0.2}"]).update.lr == 0.2


@pytest.mark.parametrize(
    ("mapping", "overrides"),
    [
        (SGD, ()),
        (SGD, ("update.name=sgd",)),
        (SGD, ("update.weight_decay=0.1",)),
        (SGD, ("update.name=adamw", "update.lr=0.05")),
        (SGD, ("update={name: adamw}",)),
        (FILE, ("update.name=adamw",)),
        ({**FILE, "update": {"momentum": 0.9}}, ("update.name=adamw",)),
        (ADAMW, ("update.name=adamw",)),
    ],
)
def test_a_rate_of_its_own(mapping, overrides):
    assert told(mapping, *overrides) == ""
