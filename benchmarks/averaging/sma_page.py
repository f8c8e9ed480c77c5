"""The page of bench_sma.py: tables of what has run, and a list of what has not."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from benchmarks.averaging import sma_arms as plan
from benchmarks.averaging.sma_cells import Cell, Found, at_rate, branch_rate, by_seed, chosen, key
from benchmarks.averaging.sma_numbers import Interval, bootstrap, deviation, difference, slope, told
from benchmarks.averaging.sma_scaling import fixed, growths, heading, learners, schedules, untuned
from benchmarks.sides import table

ABOUT = f"""# What replicas buy, measured

Made by `python -m benchmarks.averaging.bench_sma`, which runs what is missing, or one table by the
command under its heading; `docs/evidence.md` has the conclusions.

- Data: CIFAR-10, its first {plan.TRAIN:,} training images, without augmentation. Accuracies are of the 10,000 test
  images, which chose nothing.
- Nets: `convnet` with three layers and 16 channels, 64,666 weights; where a heading says so `resnet20`, 269,722
  weights, or `lenet` on as many images of MNIST.
- Training: batch {plan.BATCH} a learner, {plan.K} learners where not said otherwise, SGD with momentum 0.9, weight
  decay 5e-4, cosine to 0; where a heading says so Muon, with its defaults. Long trainings may differ.
- Rates: those of the highest accuracy on {plan.VALIDATION:,} other training images, on seed {plan.GRID_SEED}, which is
  in no other table.
- ± is the standard deviation over seeds. Differences are means over the seeds that both rows have; [low, high] is their
  95 % bootstrap interval over seeds. An interval of fewer than ten seeds is too narrow.
- A run that diverged counts as guessing: 10 %; among the rates as 0.
"""
BRANCHED = f"""Each seed trains to half of its epochs as `reset`, which is S-SGD. Every arm goes on from that
checkpoint, with momenta of 0, on the same samples. With `gain {plan.K}` the rate is 1/{plan.K}: the mean moves as far,
and a learner's own step is 1/{plan.K} as long. Spread: |w_i - W| / |W|, the mean over learners and over the branch,
every fifth iteration.
"""


def page(found: Found) -> str:
    return "".join(_page(found))


def _page(found: Found) -> Iterator[str]:
    yield ABOUT
    yield from _summary(found)
    for name in plan.BRANCHES:
        for net in plan.NETS:
            if any(cell.startswith(f"{name} | {net} |") for cell in found):
                yield from _branches(found, name, net)
    for name in (plan.WHOLE, plan.LONG_WHOLE):
        for net in plan.NETS:
            if any(cell.startswith(f"{name} | {net} |") for cell in found):
                yield from _baselines(found, name, net)
    yield from schedules(found, plan.BN)
    yield from learners(found, plan.BN)
    yield from fixed(found, plan.BN)
    yield from untuned(found)
    yield from growths(found, plan.BN)
    yield from _rates(found)


def _summary(found: Found) -> Iterator[str]:
    """Every arm's accuracy beside that of S-SGD, and what a tenfold spread adds, a column for each net."""
    rows, heads = list[list[str]](), ["points of accuracy minus S-SGD's"]
    columns = [(plan.SHORT_RUN, net) for net in plan.NETS]
    columns += [(plan.LONG_RUN, plan.BN), (plan.SMALL_RUN, plan.BN), (plan.DECAY_RUN, plan.RESNET)]
    bases = {column: by_seed(found, *column, plan.REFERENCE, "mean") for column in columns}
    columns = [column for column in columns if bases[column]]
    for name, net in columns:
        counts = {len(by_seed(found, name, net, arm, "mean")) for arm in plan.rules(name, net)}
        seeds = f"{min(counts)} seeds" if len(counts) == 1 else f"{min(counts)} to {max(counts)} seeds"
        regime = {plan.DECAY_RUN: " from the first decay of", plan.SMALL_RUN: " small rate,"}.get(name, "")
        heads.append(f"{net},{regime} {plan.length(name, net)} epochs, {seeds}")
    for arm in plan.BRANCHES[plan.SHORT_RUN]:
        if arm != plan.REFERENCE:
            found_of = [difference(by_seed(found, *column, arm, "mean"), bases[column]) for column in columns]
            rows.append([arm, *(told(each) for each in found_of)])
    pulled = [arm for arm in plan.OWN if arm.startswith("pulled")]
    slopes = [spread_slope(found, *column, pulled, "mean") for column in columns]
    rows.append(["a tenfold spread, pulled, alpha 1 to 0", *(told(each) for each in slopes)])
    if columns:
        yield heading("Branches from one half-trained net: summary", plan.SHORT_RUN) + table(heads, rows)


def spread_slope(found: Found, name: str, net: str, arms: Sequence[str], figure: str) -> Interval | None:
    """What a tenfold spread adds to `figure`, over the arms of each seed that has all of them."""
    groups = []
    for seed in plan.SEEDS:
        cells = [found.get(key(name, net, arm, seed)) for arm in arms]
        if all(cell is not None and figure in cell for cell in cells):
            groups.append([(math.log10(cell["distance"]), cell[figure]) for cell in cells if cell is not None])
    return bootstrap(groups, slope) if groups else None


def _branches(found: Found, name: str, net: str) -> Iterator[str]:
    small = ", small rate" * (name == plan.SMALL_RUN)
    title = f"Branches from one half-trained net, {plan.length(name, net)} epochs{small}: {net}"
    yield heading(title, name) + BRANCHED
    if name == plan.DECAY_RUN:
        yield "The rate is constant, falls to a tenth where the branches begin, and again after three quarters.\n"
    if (rate := branch_rate(found, net, name)) is not None:
        share = f"{plan.SMALL:g} of " * (name == plan.SMALL_RUN)
        yield f"Rate {rate:g}, {share}the best of the grid for S-SGD.\n"
    yield "\n"
    rows = []
    for arm in plan.rules(name, net):
        accuracy, loss = (by_seed(found, name, net, arm, figure) for figure in ("mean", "mean_loss"))
        base, base_loss = (by_seed(found, name, net, plan.REFERENCE, figure) for figure in ("mean", "mean_loss"))
        if not accuracy:
            continue
        spreads = by_seed(found, name, net, arm, "distance").values()
        anew = difference(by_seed(found, name, net, arm, "anew"), accuracy)
        rows.append(
            [
                arm,
                str(len(accuracy)),
                f"{fmean(spreads):.4f}" if fmean(spreads) > 1e-6 else "0",
                deviation(accuracy),
                "" if arm == plan.REFERENCE else told(difference(accuracy, base)),
                "" if arm == plan.REFERENCE else told(difference(loss, base_loss), 4, 1),
                told(anew),
            ]
        )
    heads = ["arm", "seeds", "spread", "accuracy, %", "minus reset, points", "loss minus reset"]
    yield table([*heads, "statistics anew, points"], rows)
    pulled = [arm for arm in plan.rules(name, net) if arm.startswith("pulled") and arm not in plan.SHORT]
    for arms in (pulled, pulled[:-1]):
        of = "alpha " + " to ".join(arm.removeprefix("pulled, alpha ") for arm in (arms[0], arms[-1]))
        accuracy, loss = (spread_slope(found, name, net, arms, figure) for figure in ("mean", "mean_loss"))
        if accuracy is not None and len(arms) > 1:
            yield (
                f"\nA tenfold spread, pulled replicas of {of}, {accuracy.seeds} seeds: {told(accuracy)} "
                f"points of accuracy, {told(loss, 4, 1)} of loss.\n"
            )
    if any("anew" in cell for each, cell in found.items() if each.startswith(f"{name} | {net} |")):
        yield (
            "\nStatistics anew: batch norm's running statistics are recomputed for the mean replica on 2,560 training "
            f"images, in place of the mean of the replicas' own; of {plan.ANEW} seeds at most.\n"
        )


BASELINES = f"""Every arm at its best rate of the grid, if it has one, and at one learner's best. Long trainings have
the rates of the usual ones. One learner has {plan.K} times as many iterations.

- `SMA` is the default rule: alpha 1, measured gain. `S-SGD, measured gain` is the same with replicas that are reset.
- `SMA as published` is `rule: {{name: crossbow}}`. A gain multiplies the mean step; `rate x learners` is a gain of
  {plan.K}.
- `outer nesterov, period T` is `rule: {{name: diloco, period: T}}`; `MuLoCo` the same with Muon.
- `average`: an exponential moving average of the centre of the same run, half-life half an epoch.
"""


def _baselines(found: Found, name: str, net: str) -> Iterator[str]:
    yield heading(f"Baselines, {plan.length(name, net)} epochs: {net}", name) + BASELINES
    yield f"- Differences are to `{plan.NETS[net].rival}` at one learner's rate.\n\n"
    rows, rival = [], plan.NETS[net].rival
    alone = chosen(found, net, plan.NETS[net].one)
    best = {} if alone is None else by_seed(found, name, net, at_rate(rival, alone), "mean")
    for arm in plan.ALL:
        tuned = chosen(found, net, arm)
        for rate in dict.fromkeys((tuned, alone)):
            accuracy = {} if rate is None else by_seed(found, name, net, at_rate(arm, rate), "mean")
            if rate is None or not accuracy:
                continue
            average = by_seed(found, name, net, at_rate(arm, rate), "average")
            gains = by_seed(found, name, net, at_rate(arm, rate), "gain")
            rows.append(
                [
                    arm,
                    f"{rate:.3g}" + ", its best" * (rate == tuned) + ", one learner's" * (rate == alone != tuned),
                    f"{fmean(gains.values()):.1f}" if gains else "",
                    str(len(accuracy)),
                    deviation(accuracy),
                    "" if arm == rival and rate == alone else told(difference(accuracy, best)),
                    deviation(average) if average else "",
                ]
            )
    heads = ["arm", "rate", "gain at the end", "seeds", "accuracy, %", "minus one learner, points", "average, %"]
    yield table(heads, rows)


def _rates(found: Found) -> Iterator[str]:
    yield heading("Rates", "rates") + f"Validation accuracy in %, seed {plan.GRID_SEED}; bold: chosen.\n"
    for net in plan.NETS:
        rows, rates = [], sorted({rate for grid in plan.NETS[net].grids.values() for rate in grid})
        for arm in plan.ALL:
            cells = [found.get(key("rates", net, at_rate(arm, rate), plan.GRID_SEED)) for rate in rates]
            if any(cells):
                best = chosen(found, net, arm)
                texts = ["" if cell is None else f"{100 * cell['validation']:.2f}" for cell in cells]
                marked = [f"**{text}**" if rate == best else text for rate, text in zip(rates, texts, strict=True)]
                rows.append([arm, *marked])
        if rows:
            yield f"\n{net}:\n\n" + table(["arm", *(f"{rate:.3g}" for rate in rates)], rows)


def left_out(missing: Sequence[Cell]) -> str:
    """What has not run yet, by table and net."""
    counts: Mapping[tuple[str, str], int] = Counter((cell.table, cell.net) for cell in missing)
    lines = [f"- {name}, {net}: {count} cells\n" for (name, net), count in counts.items()]
    return f"\n## Missing\n\n{''.join(lines) or 'Nothing.'}\n"
