"""What bench_sma.py compares: arms, nets, and the grids of their rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

K, BATCH = 16, 8
TRAIN, VALIDATION = 10_240, 5_000  # images; an epoch of 16 learners is 80 iterations
EPOCHS, LONG = 8, 24  # half of them are 320 or 960 iterations, a multiple of 16 and 64
RATES = (0.000390625, 0.00078125, 0.0015625, 0.003125, 0.00625, 0.0125)  # the grid of the first nets' tuned arms
MIDDLE, LOWER = RATES[:5], RATES[:4]  # with an outer momentum
FEWER_RATES = RATES[1:5]  # of the rate times learners
UPPER = (0.003125, 0.00625, 0.0125, 0.025)  # of arms with a warm-up
LARGE = (0.0125, 0.025, 0.05, 0.1)  # of 16 learners in few iterations
MATRIX_RATES = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16)  # of Muon
GRID_SEED = 1001  # chooses rates; no table has it
SEEDS = tuple(range(1, 31))
ANEW = 5  # seeds whose statistics are recomputed

RESET = {"name": "local_sgd", "period": 1}
TRUNK = RESET | {"resync": 999}  # another rule by name, so that every arm restarts alike: momenta 0
REFERENCE = "reset"


def pulled(alpha: float) -> dict[str, object]:
    return {"name": "sma", "alpha": alpha, "outer": {"gain": 1.0}}


OWN: Mapping[str, Mapping[str, object]] = {  # arms whose own steps are as long as the common one would be
    REFERENCE: RESET,
    "pulled, alpha 1": pulled(1.0),
    "pulled, alpha 1/4": pulled(1 / 4),
    "pulled, alpha 1/16": pulled(1 / 16),
    "pulled, alpha 1/64": pulled(1 / 64),
    "pulled, alpha 0": pulled(0.0),
    "reset, period 16": {"name": "local_sgd", "period": 16},
    "reset, period 64": {"name": "local_sgd", "period": 64},
}
SHORT: Mapping[str, Mapping[str, object]] = {  # own steps 1/16 as long; the common step makes up for it
    "pulled, alpha 1/16, gain 16": {"name": "sma", "alpha": 1 / 16, "outer": {"gain": float(K)}},
    "pulled, alpha 0, gain 16": {"name": "sma", "alpha": 0.0, "outer": {"gain": float(K)}},
}
SHORT_RUN, LONG_RUN, DECAY_RUN = "branches", "long branches", "branches from the first decay"
SMALL_RUN, SMALL = "long branches at a small rate", 1 / 4  # of the best rate
FEWER = {arm: OWN[arm] for arm in (REFERENCE, "pulled, alpha 1/16", "reset, period 16", "pulled, alpha 0")}
FEW = {
    REFERENCE: RESET,
    "pulled, alpha 1": OWN["pulled, alpha 1"],
    **FEWER,
    "pulled, alpha 1/16, gain 16": SHORT["pulled, alpha 1/16, gain 16"],
}
BRANCHES: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    SHORT_RUN: {**OWN, **SHORT},
    LONG_RUN: FEWER,
    SMALL_RUN: FEWER,
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
ARMS: Mapping[str, Mapping[str, object]] = {
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
BASELINES = (WARM_ONE, WARM, GAINED, SSGD, SCALED, NESTEROV)  # of the small nets
MUON_ONLY: Mapping[str, Mapping[str, object]] = {
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
    arms: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: BRANCHES[SHORT_RUN])
    batch_norm: bool = True
    more: Mapping[str, object] = field(default_factory=dict)  # arguments of mb.fit
    update: Mapping[str, object] = field(default_factory=lambda: SGD)


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
            SCALED: FEWER_RATES,
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
            SSGD: (0.0015625, 0.003125, 0.00625, 0.0125, 0.025, 0.05),
            SCALED: FEWER_RATES,
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
    return NETS[net].epochs * (LONG // EPOCHS if table in (LONG_RUN, SMALL_RUN, LONG_WHOLE) else 1)


def rules(table: str, net: str) -> Mapping[str, Mapping[str, object]]:
    """The arms of branches."""
    return NETS[net].arms if table == SHORT_RUN else BRANCHES[table]


def schedule(table: str, net: str) -> dict[str, object]:
    """Where it is not a cosine, as of the runs of ResNets of He et al. and of Lin et al."""
    epochs = length(table, net)
    multistep = {"name": "multistep", "epochs": [epochs // 2, 3 * epochs // 4], "factor": 0.1}
    return {"update": {"schedule": multistep}} if table == DECAY_RUN else {}
