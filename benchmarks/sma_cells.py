"""What bench_sma.py runs: every cell of its tables, the most deciding first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Found = Mapping[str, Any]  # what came of the cells that have run, by their keys

K, BATCH = 16, 8
TRAIN, VALIDATION = 10_240, 5_000  # images; an epoch of 16 learners is 80 iterations
EPOCHS, LONG = 8, 24  # half of them are 320 or 960 iterations, a multiple of 16 and 64
RATES = (0.000390625, 0.00078125, 0.0015625, 0.003125, 0.00625, 0.0125)  # the grid of the first nets' tuned arms
MIDDLE = (0.000390625, 0.00078125, 0.0015625, 0.003125, 0.00625)  # with an outer momentum
UPPER = (0.003125, 0.00625, 0.0125, 0.025)  # of arms with a warm-up
LOWER = (0.000390625, 0.00078125, 0.0015625, 0.003125)  # of one learner with an outer momentum
LARGE = (0.0125, 0.025, 0.05)  # of 16 learners in few iterations
MATRIX_RATES = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16)  # of Muon
GRID_SEED = 1001  # chooses rates; no table has it
SEEDS = tuple(range(1, 31))
ANEW = 5  # seeds whose statistics are recomputed

RESET = {"name": "local_sgd", "period": 1}
TRUNK = RESET | {"resync": 999}  # another rule by name, so that every arm restarts alike: momenta 0
REFERENCE = "reset"


def pulled(alpha: float) -> dict[str, Any]:
    return {"name": "sma", "alpha": alpha, "outer": {"gain": 1.0}}


OWN: Mapping[str, Mapping[str, Any]] = {  # arms whose own steps are as long as the common one would be
    REFERENCE: RESET,
    "pulled, alpha 1": pulled(1.0),
    "pulled, alpha 1/4": pulled(1 / 4),
    "pulled, alpha 1/16": pulled(1 / 16),
    "pulled, alpha 1/64": pulled(1 / 64),
    "pulled, alpha 0": pulled(0.0),
    "reset, period 16": {"name": "local_sgd", "period": 16},
    "reset, period 64": {"name": "local_sgd", "period": 64},
}
SHORT: Mapping[str, Mapping[str, Any]] = {  # own steps 1/16 as long; the common step makes up for it
    "pulled, alpha 1/16, gain 16": {"name": "sma", "alpha": 1 / 16, "outer": {"gain": float(K)}},
    "pulled, alpha 0, gain 16": {"name": "sma", "alpha": 0.0, "outer": {"gain": float(K)}},
}
SHORT_RUN, LONG_RUN, DECAY_RUN = "branches", "long branches", "branches from the first decay"
FEWER = {arm: OWN[arm] for arm in (REFERENCE, "pulled, alpha 1/16", "reset, period 16", "pulled, alpha 0")}
FEW = {
    REFERENCE: RESET,
    "pulled, alpha 1": OWN["pulled, alpha 1"],
    **FEWER,
    "pulled, alpha 1/16, gain 16": SHORT["pulled, alpha 1/16, gain 16"],
}
BRANCHES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    SHORT_RUN: {**OWN, **SHORT},
    LONG_RUN: FEWER,
    DECAY_RUN: FEWER,
}
DECAYED = 12  # epochs; the rate falls to a tenth where the branches begin, and again after three quarters
WHOLE, LONG_WHOLE = "baselines", "long baselines"
SCHEDULES, LEARNERS, FIXED, UNTUNED, GROWTH = "schedules", "learners", "fixed gain", "untuned", "growth"
TABLES = ("rates", *BRANCHES, WHOLE, LONG_WHOLE, SCHEDULES, LEARNERS, FIXED, UNTUNED, GROWTH)

ONE, NESTEROV = "one learner", "one learner, outer nesterov, period 30"
SSGD, SMA, LOCAL = "S-SGD", "SMA", "local SGD, period 16"
PUBLISHED = "SMA as published"
OUTERS = {f"outer nesterov, period {period}": period for period in (4, 16, 64)}
WARM, WARM_ONE = "SMA, warm-up of an epoch", "one learner, warm-up of an epoch"
GAINED, SCALED = "S-SGD, measured gain, warm-up of an epoch", "S-SGD, rate x learners, warm-up of an epoch"
LOOSE = "SMA, alpha 1/learners, warm-up of an epoch"
OWN_STEPS, OUTER, ONE_OUTER = "pulled, alpha 1/16", "MuLoCo, period 32", "one learner, MuLoCo, period 32"
AVERAGE = {"ema": {"half_life": TRAIN / 2}}
WARM_UP = {"update": {"warmup": {"epochs": 1}}}
LONG_ARMS = (ONE, WARM_ONE, WARM, GAINED)
SCHEDULED = (WARM_ONE, WARM, LOOSE, GAINED)
SHARES = (4, 6, EPOCHS, 11)  # epochs of a whole cosine schedule: 0.5, 0.7, 1 and 1.4 of EPOCHS
COUNTS = (1, 4, K, 64, 256)  # learners: an epoch of 256 is 5 iterations
COUNTED = (WARM, LOOSE, GAINED)
UNTUNED_COUNTS = (1, K, 64)
FIXED_COUNT, FIXED_GAINS, FIXED_WARM_UP = 64, (6, 12), EPOCHS // 2
FIXED_RULES = {"SMA": {"name": "sma"}, "S-SGD": {"name": "sma", "replicas": "reset"}}
GROWTHS, GROWN = (20, 40, 80, 160, 320), (K, 64)  # iterations until the measured gain is taken whole; learners
ARMS: Mapping[str, Mapping[str, Any]] = {
    ONE: {"learners": 1},
    WARM_ONE: {"learners": 1, **WARM_UP},
    SMA: {"rule": {"name": "sma"}},
    WARM: {"rule": {"name": "sma"}, **WARM_UP},
    LOOSE: {"rule": {"name": "sma", "alpha": 1 / K}, **WARM_UP},
    GAINED: {"rule": {"name": "sma", "replicas": "reset"}, **WARM_UP},
    SSGD: {"rule": {"name": "ssgd"}},
    SCALED: {"rule": {"name": "ssgd", "outer": {"gain": "learners"}}, **WARM_UP},
    PUBLISHED: {"rule": {"name": "crossbow"}},
    LOCAL: {"rule": {"name": "local_sgd"}},
    **{arm: {"rule": {"name": "diloco", "period": period}} for arm, period in OUTERS.items()},
    NESTEROV: {"learners": 1, "rule": {"name": "diloco", "period": 30}},
}
BASELINES = (WARM_ONE, WARM, GAINED, SSGD, SCALED, NESTEROV)  # in the tables of every net with SGD
MUON_ONLY: Mapping[str, Mapping[str, Any]] = {
    OWN_STEPS: {"rule": OWN[OWN_STEPS]},
    OUTER: {"rule": {"name": "muloco", "period": 32}},
    ONE_OUTER: {"learners": 1, "rule": {"name": "muloco", "period": 32, "outer": {"momentum": 0.6}}},
}
ALL = {**ARMS, **MUON_ONLY}
MUON_ARMS = (ONE, SSGD, LOCAL, *MUON_ONLY)


SGD = {"name": "sgd", "momentum": 0.9, "weight_decay": 5e-4}


@dataclass(frozen=True)
class Net:
    """Its data, the epochs of a usual training, the arm that chooses one learner's rate, and the rates of tuned arms.

    `name` is how `--only` calls it; `rival` is the arm that all are compared with, at one learner's rate; `arms` are
    those of its branches, and `update` is its optimiser.
    """

    name: str
    data: str = "cifar10"
    epochs: int = EPOCHS
    one: str = ONE
    rival: str = WARM_ONE
    grids: Mapping[str, Sequence[float]] = field(default_factory=lambda: dict.fromkeys(ARMS, RATES))
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: BRANCHES[SHORT_RUN])
    batch_norm: bool = True
    more: Mapping[str, Any] = field(default_factory=dict)  # arguments of mb.fit
    update: Mapping[str, Any] = field(default_factory=lambda: SGD)


BN, GN, RESNET, LENET = "three-conv, batch norm", "three-conv, group norm", "ResNet-20", "LeNet on MNIST"
MUON, FULL = "three-conv, batch norm, Muon", "ResNet-20 on all of CIFAR-10"
NETS: Mapping[str, Net] = {
    BN: Net(
        "three-conv",
        grids={
            **dict.fromkeys(ARMS, RATES),
            **dict.fromkeys((WARM_ONE, WARM, LOOSE, GAINED), UPPER),
            **dict.fromkeys(OUTERS, MIDDLE),
        },
    ),
    GN: Net(
        "three-conv-group",
        one=WARM_ONE,
        grids={
            **dict.fromkeys((WARM_ONE, WARM, GAINED), UPPER),
            SSGD: RATES,
            SCALED: (0.00078125, 0.0015625, 0.003125, 0.00625),
            NESTEROV: LOWER,
        },
        batch_norm=False,
    ),
    RESNET: Net(
        "resnet20",
        epochs=4,
        one=WARM_ONE,
        grids={
            SSGD: (0.05, 0.1, 0.2),
            WARM_ONE: (0.00625, 0.0125, 0.025),
            **dict.fromkeys((WARM, GAINED), LARGE),
        },
        arms=FEW,
    ),
    LENET: Net(
        "mnist",
        data="mnist",
        one=WARM_ONE,
        grids={
            WARM_ONE: (0.0015625, 0.003125, 0.00625, 0.0125),
            **dict.fromkeys((WARM, LOOSE, GAINED), UPPER),
            SSGD: (0.0015625, 0.003125, 0.00625, 0.0125),
            SCALED: (0.00078125, 0.0015625, 0.003125, 0.00625),
            NESTEROV: LOWER,
        },
        batch_norm=False,
    ),
    MUON: Net("muon", rival=ONE, grids=dict.fromkeys(MUON_ARMS, MATRIX_RATES), update={"name": "muon"}),
    FULL: Net("full", data="whole cifar10", epochs=10, more={"augment": {"pad": 4, "flip": True}}),
}


def length(table: str, net: str) -> int:
    """Epochs."""
    if table == DECAY_RUN:
        return DECAYED
    return NETS[net].epochs * (LONG // EPOCHS if table in (LONG_RUN, LONG_WHOLE) else 1)


def rules(table: str, net: str) -> Mapping[str, Mapping[str, Any]]:
    """The arms of branches."""
    return NETS[net].arms if table == SHORT_RUN else BRANCHES[table]


def schedule(table: str, net: str) -> dict[str, Any]:
    """Where it is not a cosine, as of the runs of ResNets of He et al. and of Lin et al."""
    epochs = length(table, net)
    multistep = {"name": "multistep", "epochs": [epochs // 2, 3 * epochs // 4], "factor": 0.1}
    return {"update": {"schedule": multistep}} if table == DECAY_RUN else {}


@dataclass(frozen=True)
class Cell:
    """One run: of which table, net and arm, with which seed; `settings` are those of mb.fit.

    A branch goes on from its trunk, a run of `trunk`'s settings to half of the epochs. `also`: another table needs it.
    `growth`: the iterations over which its gain grows, where they are not mpibow's.
    """

    table: str
    net: str
    arm: str
    seed: int
    settings: Mapping[str, Any] = field(compare=False)
    trunk: Mapping[str, Any] | None = field(default=None, compare=False)
    also: str | None = field(default=None, compare=False)
    growth: int | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        return key(self.table, self.net, self.arm, self.seed)


def key(table: str, net: str, arm: str, seed: int) -> str:
    return f"{table} | {net} | {arm} | seed {seed}"


def settings(net: str, rate: float, seed: int, epochs: int = EPOCHS, **more: Any) -> dict[str, Any]:
    """What all runs of a net have in common, and `more`."""
    update = {**NETS[net].update, "lr": rate, "schedule": {"name": "cosine", "epochs": epochs}}
    own = {"seed": seed, "batch_size": BATCH, "learners": K, "stop": {"epochs": epochs}, "log": {"every": 5}}
    return {**own, **NETS[net].more, **more, "update": update | more.get("update", {})}


def chosen(found: Found, net: str, arm: str) -> float | None:
    """The rate of the grid with the highest validation accuracy; None while a rate has not run."""
    rates = NETS[net].grids.get(arm, ())
    cells = {rate: found.get(key("rates", net, at_rate(arm, rate), GRID_SEED)) for rate in rates}
    known = {rate: cell["validation"] for rate, cell in cells.items() if cell is not None}
    return max(known, key=known.__getitem__) if known and len(known) == len(rates) else None


def by_seed(found: Found, name: str, net: str, arm: str, figure: str) -> dict[int, float]:
    """A figure of the runs of an arm in the table `name`; a run that diverged counts as guessing."""
    cells = {seed: found.get(key(name, net, arm, seed)) for seed in SEEDS}
    guess = {"mean": 0.1, "average": 0.1}
    return {
        seed: cell[figure] if figure in cell else guess[figure]
        for seed, cell in cells.items()
        if cell is not None and (figure in cell or ("diverged" in cell and figure in guess))
    }


def grid(net: str, arm: str) -> Iterator[Cell]:
    for rate in NETS[net].grids[arm]:
        own = settings(net, rate, GRID_SEED, NETS[net].epochs, **ALL[arm])
        yield Cell("rates", net, at_rate(arm, rate), GRID_SEED, own)


def branches(
    found: Found, net: str, seeds: Sequence[int], table: str = SHORT_RUN, arms: Mapping[str, Any] | None = None
) -> Iterator[Cell]:
    """Those of a seed one after the other: they share a trunk. `arms`: those alone."""
    rate, epochs = chosen(found, net, SSGD), length(table, net)
    if rate is None:
        return
    for seed in seeds:
        both = schedule(table, net)
        trunk = settings(net, rate, seed, epochs, rule=TRUNK, stop={"epochs": epochs // 2}, **both)
        for arm, rule in (arms or rules(table, net)).items():
            own = settings(net, rate / K if arm in SHORT else rate, seed, epochs, rule=rule, **both)
            yield Cell(table, net, arm, seed, own, trunk)


def at_rate(arm: str, rate: float) -> str:
    return f"{arm}, rate {rate:g}"


def baselines(
    found: Found, net: str, seeds: Sequence[int], arms: Sequence[str] = tuple(ARMS), table: str = WHOLE
) -> Iterator[Cell]:
    """Every arm at its own rate of the grid and at one learner's, which may be the same."""
    for seed in seeds:
        for arm in arms:
            for rate in (chosen(found, net, arm), chosen(found, net, NETS[net].one)):
                if rate is not None:
                    own = settings(net, rate, seed, length(table, net), **ALL[arm], **AVERAGE)
                    yield Cell(table, net, at_rate(arm, rate), seed, own)


def of_length(arm: str, rate: float, epochs: int) -> tuple[str, str]:
    """The table and the row of a schedule; those of the usual length are baselines."""
    return (WHOLE, at_rate(arm, rate)) if epochs == EPOCHS else (SCHEDULES, f"{at_rate(arm, rate)}, {epochs} epochs")


def schedules(found: Found, net: str, seeds: Sequence[int], arms: Sequence[str] = SCHEDULED) -> Iterator[Cell]:
    """Every length at one learner's rate: nothing else differs."""
    rate = chosen(found, net, ONE)
    if rate is None:
        return
    for seed in seeds:
        for epochs in SHARES:
            for arm in arms:
                (table, row), own = (
                    of_length(arm, rate, epochs),
                    settings(net, rate, seed, epochs, **ALL[arm], **AVERAGE),
                )
                yield Cell(table, net, row, seed, own, also=SCHEDULES)


def of_count(arm: str, rate: float, learners: int) -> tuple[str, str]:
    """The table and the row of a number of learners; those of one and of the usual number are baselines."""
    if learners in (1, K):
        return WHOLE, at_rate(WARM_ONE if learners == 1 else arm, rate)
    return LEARNERS, f"{at_rate(arm, rate)}, {learners} learners"


def learners(found: Found, net: str, seeds: Sequence[int], arms: Sequence[str] = COUNTED) -> Iterator[Cell]:
    """Every number of learners at one learner's rate: nothing else differs."""
    rate = chosen(found, net, ONE)
    if rate is None:
        return
    for seed in seeds:
        for count in COUNTS:
            for arm in arms if count > 1 else (WARM_ONE,):
                table, row = of_count(arm, rate, count)
                rule = {"rule": {"name": "sma", "alpha": 1 / count}} if arm == LOOSE else {}
                own = settings(net, rate, seed, **{"learners": count, **ALL[arm], **rule}, **AVERAGE)
                yield Cell(table, net, row, seed, own, also=LEARNERS)


def fixed(found: Found, net: str, seeds: Sequence[int]) -> Iterator[Cell]:
    """Gains that nothing measures: the two rules differ by the weights at which they take gradients, and no more."""
    rate = chosen(found, net, ONE)
    for seed in seeds if rate is not None else ():
        for gain in FIXED_GAINS:
            for arm, rule in FIXED_RULES.items():
                rule, warm = {**rule, "outer": {"gain": gain}}, {"warmup": {"epochs": FIXED_WARM_UP}}
                own = settings(net, rate, seed, learners=FIXED_COUNT, rule=rule, update=warm)
                yield Cell(FIXED, net, f"{arm}, gain {gain}", seed, own)


def growths(found: Found, net: str) -> Iterator[Cell]:
    """On the seed and the images that choose rates: it chose CERTAIN of mpibow.sync.gain."""
    rate = chosen(found, net, WARM)
    for count in GROWN if rate is not None else ():
        for growth in GROWTHS:
            own = settings(net, rate, GRID_SEED, **{"learners": count, **ALL[WARM]})
            yield Cell(GROWTH, net, f"{count} learners, {growth} iterations", GRID_SEED, own, growth=growth)


def untuned(found: Found, seeds: Sequence[int]) -> Iterator[Cell]:
    """The rate that is one learner's best in short trainings; nothing differs but the number of learners."""
    rate = chosen(found, RESNET, WARM_ONE)
    for seed in seeds if rate is not None else ():
        for count in UNTUNED_COUNTS:
            own = settings(FULL, rate, seed, NETS[FULL].epochs, **{"learners": count, **ALL[WARM]})
            yield Cell(UNTUNED, FULL, f"{count} learners", seed, own)


def cells(found: Found) -> Iterator[Cell]:
    """All cells, the most deciding first; the rates that others need are known only when the grid has run."""
    yield from grid(BN, SSGD)
    yield from branches(found, BN, SEEDS[:5])
    yield from grid(GN, SSGD)
    yield from branches(found, GN, SEEDS[:2])
    main = (ONE, SMA, SSGD, SCALED, PUBLISHED)
    for arm in main:
        yield from grid(BN, arm)
    yield from baselines(found, BN, SEEDS[:3], main)
    warm = (WARM, LOOSE, GAINED, WARM_ONE)
    for arm in warm:
        yield from grid(BN, arm)
    yield from baselines(found, BN, SEEDS[:3], warm)
    yield from branches(found, BN, SEEDS[:2], LONG_RUN)
    yield from schedules(found, BN, SEEDS[:3])
    yield from learners(found, BN, SEEDS[:3])
    yield from grid(RESNET, SSGD)
    yield from branches(found, RESNET, SEEDS[:3])
    for arm in (LOOSE, *BASELINES):
        yield from grid(LENET, arm)
    yield from baselines(found, LENET, SEEDS[:3], (LOOSE, *BASELINES))
    for arm in BASELINES:
        yield from grid(GN, arm)
    yield from baselines(found, GN, SEEDS[:5], BASELINES)
    for arm in (WARM_ONE, WARM, GAINED):
        yield from grid(RESNET, arm)
    yield from baselines(found, RESNET, SEEDS[:5], (*SCHEDULED, SSGD))
    for arm in (LOCAL, NESTEROV, *OUTERS):
        yield from grid(BN, arm)
    yield from baselines(found, BN, SEEDS[:3])
    yield from growths(found, BN)
    yield from untuned(found, SEEDS[:1])
    yield from branches(found, GN, SEEDS[:5])
    yield from fixed(found, BN, SEEDS[:5])
    yield from branches(found, RESNET, SEEDS[:9])
    yield from baselines(found, BN, SEEDS[:9], (WARM_ONE, WARM, GAINED))
    yield from branches(found, BN, SEEDS, arms=OWN)
    for arm in MUON_ARMS:
        yield from grid(MUON, arm)
    yield from branches(found, GN, SEEDS, arms=OWN)
    yield from baselines(found, MUON, SEEDS[:3], MUON_ARMS)
    yield from baselines(found, LENET, SEEDS[:5], BASELINES)
    yield from schedules(found, BN, SEEDS[:9], (WARM_ONE, WARM, GAINED))
    yield from learners(found, BN, SEEDS[:9], (WARM, GAINED))
    yield from branches(found, RESNET, SEEDS[:3], DECAY_RUN)
    yield from baselines(found, BN, SEEDS[:5])
    yield from branches(found, BN, SEEDS[:5], LONG_RUN)
    yield from baselines(found, BN, SEEDS[:3], LONG_ARMS, LONG_WHOLE)
    yield from untuned(found, SEEDS[:3])
