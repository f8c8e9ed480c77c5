"""What bench_sma.py runs: every cell of its tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.averaging import sma_arms as plan
from benchmarks.sides import Found


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
    settings: Mapping[str, object] = field(compare=False)
    trunk: Mapping[str, dict[str, object]] | None = field(default=None, compare=False)
    also: str | None = field(default=None, compare=False)
    growth: int | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        return key(self.table, self.net, self.arm, self.seed)


def key(table: str, net: str, arm: str, seed: int) -> str:
    return f"{table} | {net} | {arm} | seed {seed}"


def settings(net: str, rate: float, seed: int, epochs: int = plan.EPOCHS, **more: object) -> dict[str, object]:
    """What all runs of a net have in common, and `more`."""
    update = {**plan.NETS[net].update, "lr": rate, "schedule": {"name": "cosine", "epochs": epochs}}
    own = {"seed": seed, "batch_size": plan.BATCH, "learners": plan.K, "stop": {"epochs": epochs}, "log": {"every": 5}}
    return {**own, **plan.NETS[net].more, **more, "update": update | more.get("update", {})}


def chosen(found: Found, net: str, arm: str) -> float | None:
    """The rate of the grid with the highest validation accuracy; None while a rate has not run."""
    rates = plan.NETS[net].grids.get(arm, ())
    cells = {rate: found.get(key("rates", net, at_rate(arm, rate), plan.GRID_SEED)) for rate in rates}
    known = {rate: cell["validation"] for rate, cell in cells.items() if cell is not None}
    return max(known, key=known.__getitem__) if known and len(known) == len(rates) else None


def by_seed(found: Found, name: str, net: str, arm: str, figure: str) -> dict[int, float]:
    """A figure of the runs of an arm in the table `name`; a run that diverged counts as guessing."""
    cells = {seed: found.get(key(name, net, arm, seed)) for seed in plan.SEEDS}
    guess = {"mean": 0.1, "average": 0.1}
    return {
        seed: cell[figure] if figure in cell else guess[figure]
        for seed, cell in cells.items()
        if cell is not None and (figure in cell or ("diverged" in cell and figure in guess))
    }


def grid(net: str, *arms: str) -> Iterator[Cell]:
    for arm in arms:
        for rate in plan.NETS[net].grids[arm]:
            own = settings(net, rate, plan.GRID_SEED, plan.NETS[net].epochs, **plan.ALL[arm])
            yield Cell("rates", net, at_rate(arm, rate), plan.GRID_SEED, own)


def branch_rate(found: Found, net: str, table: str) -> float | None:
    """S-SGD's best, or a share of it; None while a rate has not run."""
    rate = chosen(found, net, plan.SSGD)
    return rate if rate is None or table != plan.SMALL_RUN else rate * plan.SMALL


def branches(
    found: Found, net: str, seeds: Sequence[int], table: str = plan.SHORT_RUN, arms: Mapping[str, object] | None = None
) -> Iterator[Cell]:
    """Those of a seed one after the other: they share a trunk. `arms`: those alone."""
    rate, epochs = branch_rate(found, net, table), plan.length(table, net)
    if rate is None:
        return
    for seed in seeds:
        both = plan.schedule(table, net)
        trunk = settings(net, rate, seed, epochs, rule=plan.TRUNK, stop={"epochs": epochs // 2}, **both)
        for arm, rule in (arms or plan.rules(table, net)).items():
            own = settings(net, rate / plan.K if arm in plan.SHORT else rate, seed, epochs, rule=rule, **both)
            yield Cell(table, net, arm, seed, own, trunk)


def at_rate(arm: str, rate: float) -> str:
    return f"{arm}, rate {rate:g}"


def baselines(
    found: Found, net: str, seeds: Sequence[int], arms: Sequence[str] = tuple(plan.ARMS), table: str = plan.WHOLE
) -> Iterator[Cell]:
    """Every arm at its own rate of the grid and at one learner's, which may be the same."""
    for seed in seeds:
        for arm in arms:
            for rate in (chosen(found, net, arm), chosen(found, net, plan.NETS[net].one)):
                if rate is not None:
                    own = settings(net, rate, seed, plan.length(table, net), **plan.ALL[arm], **plan.AVERAGE)
                    yield Cell(table, net, at_rate(arm, rate), seed, own)


def of_length(arm: str, rate: float, epochs: int) -> tuple[str, str]:
    """The table and the row of a schedule; those of the usual length are baselines."""
    if epochs == plan.EPOCHS:
        return plan.WHOLE, at_rate(arm, rate)
    return plan.SCHEDULES, f"{at_rate(arm, rate)}, {epochs} epochs"


def schedules(found: Found, net: str, seeds: Sequence[int], arms: Sequence[str] = plan.SCHEDULED) -> Iterator[Cell]:
    """Every length at one learner's rate: nothing else differs."""
    rate = chosen(found, net, plan.ONE)
    if rate is None:
        return
    for seed in seeds:
        for epochs in plan.SHARES:
            for arm in arms:
                table, row = of_length(arm, rate, epochs)
                own = settings(net, rate, seed, epochs, **plan.ALL[arm], **plan.AVERAGE)
                yield Cell(table, net, row, seed, own, also=plan.SCHEDULES)


def of_count(arm: str, rate: float, learners: int) -> tuple[str, str]:
    """The table and the row of a number of learners; those of one and of the usual number are baselines."""
    if learners in (1, plan.K):
        return plan.WHOLE, at_rate(plan.WARM_ONE if learners == 1 else arm, rate)
    return plan.LEARNERS, f"{at_rate(arm, rate)}, {learners} learners"


def learners(found: Found, net: str, seeds: Sequence[int], arms: Sequence[str] = plan.COUNTED) -> Iterator[Cell]:
    """Every number of learners at one learner's rate: nothing else differs."""
    rate = chosen(found, net, plan.ONE)
    if rate is None:
        return
    for seed in seeds:
        for count in plan.COUNTS:
            for arm in arms if count > 1 else (plan.WARM_ONE,):
                table, row = of_count(arm, rate, count)
                rule = {"rule": {"name": "sma", "alpha": 1 / count}} if arm == plan.LOOSE else {}
                own = settings(net, rate, seed, **{"learners": count, **plan.ALL[arm], **rule}, **plan.AVERAGE)
                yield Cell(table, net, row, seed, own, also=plan.LEARNERS)


def fixed(found: Found, net: str, seeds: Sequence[int]) -> Iterator[Cell]:
    """Gains that nothing measures: the two rules differ by the weights at which they take gradients, and no more."""
    rate = chosen(found, net, plan.ONE)
    for seed in seeds if rate is not None else ():
        for gain in plan.FIXED_GAINS:
            for arm, rule in plan.FIXED_RULES.items():
                rule, warm = {**rule, "outer": {"gain": gain}}, {"warmup": {"epochs": plan.FIXED_WARM_UP}}
                own = settings(net, rate, seed, learners=plan.FIXED_COUNT, rule=rule, update=warm)
                yield Cell(plan.FIXED, net, f"{arm}, gain {gain}", seed, own)


def growths(found: Found, net: str) -> Iterator[Cell]:
    """On the seed and the images that choose rates: it chose CERTAIN of mpibow.sync.gain."""
    rate = chosen(found, net, plan.WARM)
    for count in plan.GROWN if rate is not None else ():
        for growth in plan.GROWTHS:
            own = settings(net, rate, plan.GRID_SEED, **{"learners": count, **plan.ALL[plan.WARM]})
            yield Cell(plan.GROWTH, net, f"{count} learners, {growth} iterations", plan.GRID_SEED, own, growth=growth)


def untuned(found: Found, seeds: Sequence[int]) -> Iterator[Cell]:
    """The rate that is one learner's best in short trainings; nothing differs but the number of learners."""
    rate = chosen(found, plan.RESNET, plan.WARM_ONE)
    for seed in seeds if rate is not None else ():
        for count in plan.UNTUNED_COUNTS:
            arm = {"learners": count, **plan.ALL[plan.WARM]}
            own = settings(plan.FULL, rate, seed, plan.NETS[plan.FULL].epochs, **arm)
            yield Cell(plan.UNTUNED, plan.FULL, f"{count} learners", seed, own)


GRIDS: Mapping[str, Sequence[str]] = {  # the arms whose rates are chosen
    plan.BN: tuple(plan.ARMS),
    plan.GN: plan.BASELINES,
    plan.RESNET: (plan.SSGD, plan.WARM_ONE, plan.WARM, plan.GAINED),
    plan.LENET: (plan.LOOSE, *plan.BASELINES),
    plan.MUON: plan.MUON_ARMS,
}


def cells(found: Found) -> Iterator[Cell]:
    """All cells: the rates, which others need and which are known only when the grid has run, then by table."""
    for net, arms in GRIDS.items():
        yield from grid(net, *arms)
    few, some, seeds = plan.SEEDS[:3], plan.SEEDS[:5], plan.SEEDS[:9]
    for net in (plan.BN, plan.GN):
        yield from branches(found, net, some)
        yield from branches(found, net, plan.SEEDS, arms=plan.OWN)
    yield from branches(found, plan.RESNET, seeds)
    yield from branches(found, plan.BN, some, plan.LONG_RUN)
    yield from branches(found, plan.BN, some, plan.SMALL_RUN)
    yield from branches(found, plan.RESNET, few, plan.DECAY_RUN)
    main = (plan.WARM_ONE, plan.WARM, plan.GAINED)
    yield from baselines(found, plan.BN, seeds, main)
    yield from baselines(found, plan.BN, some)
    yield from schedules(found, plan.BN, seeds, main)
    yield from schedules(found, plan.BN, few)
    yield from learners(found, plan.BN, seeds, (plan.WARM, plan.GAINED))
    yield from learners(found, plan.BN, few)
    yield from baselines(found, plan.LENET, some, plan.BASELINES)
    yield from baselines(found, plan.LENET, few, (plan.LOOSE,))
    yield from baselines(found, plan.GN, some, plan.BASELINES)
    yield from baselines(found, plan.RESNET, some, (*plan.SCHEDULED, plan.SSGD))
    yield from baselines(found, plan.MUON, few, plan.MUON_ARMS)
    yield from baselines(found, plan.BN, few, plan.LONG_ARMS, plan.LONG_WHOLE)
    yield from growths(found, plan.BN)
    yield from untuned(found, few)
    yield from fixed(found, plan.BN, some)
