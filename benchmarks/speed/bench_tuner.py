"""What the auto-tuner is worth: its choice, rebalancing, the cost of averaging, and who takes which batch.

    python -m benchmarks.speed.bench_tuner [--only choice slowed sync assignment] [--places resnet32] [--output FOLDER]

choice      where `--starts` runs of the tuner end and how soon; images/s with that and with 1 to 4 learners, in turns
slowed      two ranks with a core each, a busy loop on one of the cores: tuned beside fixed learners
sync        images/s with averaging in every iteration beside the same learners that are never averaged
assignment  fixed against first_come, with all cores to itself and with a busy loop on one of two

Models train on made-up data, batch 4, every run a fresh process (tuner_side.py); what is compared is measured in turn,
`--rounds` times, numbers of learners by `--turns` short turns within one run. Figures are medians, ratios medians of
the paired ratios. Parts and places that are not run keep their results in FOLDER/tuner.json. Let nothing else run
meanwhile. All of it takes about an hour and a half on two cores.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.sides import Found, launched, machine, note, parser_of, table, verdict, write
from mpibow.tune import as_sum

THRESHOLD, SOON = 0.03, 30.0  # a choice is as good as two learners within this; seconds of training to make it
TWO = ("resnet20", "resnet32")  # of which two learners are to be found in 9 of 10 starts
NEAR = 0.95  # of the best fixed number's images/s, for every model
REBALANCED, AVERAGED = 1.25, 0.93  # targets: images/s beside those without


@dataclass(frozen=True)
class Place:
    """Where a choice is made. `bind`: cores of the ranks by number; '' leaves all of them to all ranks."""

    about: str
    model: str
    ranks: int = 1
    bind: str = ""
    most: int = 4  # learners of a rank that are tried fixed


PLACES = {model: Place("one rank", model) for model in ("lenet", "resnet20", "resnet32", "vgg16_cifar")} | {
    "one-core": Place("one rank bound to one core", "resnet20", bind="0"),
    "four-ranks": Place("four ranks", "resnet20", ranks=4),
}


def side(
    options: argparse.Namespace, place: Place, *arguments: str, learners: object = "auto", seconds: float | None = None
) -> Found:
    """The JSON of one fresh run, measured for `seconds`, else for those of the options."""
    bind = ["--bind", place.bind] if place.bind else []
    measured = options.seconds if seconds is None else seconds
    command = ["-m", "benchmarks.speed.tuner_side", place.model, *bind, "--seconds", str(measured)]
    command += ["--wait", str(options.wait)]
    command += [*arguments, f"learners={learners}"]
    return json.loads(launched(place.ranks, *command, *options.set).splitlines()[-1])


# What is made of the measurements


Counts = tuple[int, ...]  # learners by rank


@dataclass(frozen=True)
class Start:
    """A run of the tuner: where it ended, and the seconds until then."""

    learners: Counts
    waited: float
    settled: bool


@dataclass(frozen=True)
class Choice:
    """Of one place. `close`: starts that ended as fast as two learners a rank, to THRESHOLD, and in time."""

    best: Counts
    rate: float
    ratio: float
    close: int
    slowest: float


def choice(rates: Mapping[Counts, Sequence[float]], starts: Sequence[Start]) -> Choice:
    """`rates`: images/s by learners, by round. The best are those of the fixed numbers, alike on all ranks."""
    alike = {counts: found for counts, found in rates.items() if len(set(counts)) == 1}
    best = max(alike, key=lambda counts: median(alike[counts]))
    two = (2,) * len(best)
    close = sum(
        start.settled and start.waited <= SOON and paired(rates[start.learners], rates[two]) >= 1 - THRESHOLD
        for start in starts
    )
    rate = median(median(rates[start.learners]) for start in starts)
    ratio = median(paired(rates[start.learners], rates[best]) for start in starts)
    return Choice(best, rate, ratio, close, max(start.waited for start in starts))


def paired(mine: Sequence[float], other: Sequence[float]) -> float:
    return median(a / b for a, b in zip(mine, other, strict=True))


def counted(found: Sequence[Sequence[int]]) -> str:
    """Where runs ended: '2 (9), 3'."""
    ends = [as_sum(learners) for learners in found]
    texts = sorted(set(ends), key=lambda end: (-ends.count(end), end))
    return ", ".join(f"{end} ({ends.count(end)})" if ends.count(end) > 1 else end for end in texts)


# The parts: each measures, and then says what it found


def measure_choice(options: argparse.Namespace, kept: Sequence[Found]) -> list[Found]:
    found = {entry["place"]: entry for entry in kept}
    for name in options.places:
        place = PLACES[name]
        starts = []
        for _ in range(options.starts):
            phase = side(options, place, seconds=0.0)["phases"][0]
            starts.append([phase[key] for key in ("learners", "waited", "settled")])
            note(f"  {place.about}, {place.model}, auto: {starts[-1]}")
        each = [[k] * place.ranks for k in range(1, place.most + 1)]
        each += [list(end) for end in sorted({tuple(learners) for learners, *_ in starts}) if list(end) not in each]
        turns = ("--turns", json.dumps(each), "--rounds", str(options.turns))
        rates = side(options, place, *turns, learners=1, seconds=options.turn)["turns"]
        for counts, rate in zip(each, rates, strict=True):
            note(f"  {place.about}, {place.model}, learners {as_sum(counts)}: {median(rate):,.0f} images/s")
        about = {**machine(), "turns": f"{options.turns} x {options.turn:g} s"}
        found[name] = {"place": name, "about": about, "each": each, "rates": rates, "starts": starts}
    return [found[name] for name in PLACES if name in found]


def tell_choice(found: Sequence[Found]) -> str:
    heads = ["", "model", "1", "2", "3", "4 learners a rank, images/s", "the tuner ends at", "its images/s"]
    heads += ["of the best", f"target {NEAR}", f"as fast as two, in {SOON:g} s", "9 of 10", "slowest, s", "measured"]
    rows = []
    for entry in found:
        place, about = PLACES[entry["place"]], entry["about"]
        rates = {tuple(counts): rate for counts, rate in zip(entry["each"], entry["rates"], strict=True)}
        starts = [Start(tuple(learners), *rest) for learners, *rest in entry["starts"]]
        made = choice(rates, starts)
        enough = made.close / len(starts) if entry["place"] in TWO else None
        fixed = [rates.get((k,) * len(made.best)) for k in range(1, 5)]
        rows.append([
            place.about, place.model, *(f"{median(rate):,.0f}" if rate else "" for rate in fixed),
            counted([start.learners for start in starts]), f"{made.rate:,.0f}", f"{made.ratio:.2f}",
            verdict(made.ratio, NEAR), f"{made.close} of {len(starts)}", verdict(enough, 0.9), f"{made.slowest:.0f}",
            f"{about['date']}, {about['commit']}, turns {about['turns']}",
        ])  # fmt: skip
    return (
        "Every start is a fresh run; then all numbers of learners, those where the tuner ended among them, take turns "
        f"in one run. The ratio is the median of those of neighbouring turns.\n\n{table(heads, rows)}"
    )


def measure_slowed(options: argparse.Namespace, _: object) -> list[Found]:
    """Tuned, then with the learners that it had before the loop, then with two each."""
    place = Place("two ranks, a core each", options.slowed_model, ranks=2, bind="0,1")
    fit = ("--slowed", "--load", "1", "--least", str(options.adapt))
    found = []
    for _ in range(options.rounds):
        tuned = side(options, place, *fit)["phases"]
        arms = {"auto": tuned}
        for learners in (tuned[0]["learners"], [2, 2]):
            text = json.dumps(learners)
            if text not in arms:
                arms[text] = side(options, place, *fit[:3], learners=text)["phases"]
        for name, phases in arms.items():
            told = ", ".join(f"{p['name']} {p['images_per_second']:,.0f} with {p['learners']}" for p in phases)
            note(f"  {place.model}, {name}: {told}")
        found.append({"model": place.model, "before": json.dumps(tuned[0]["learners"]), "arms": arms})
    return found


def tell_slowed(found: Sequence[Found]) -> str:
    def rates(phase: int, arm: Callable[[Found], str]) -> list[float]:
        return [entry["arms"][arm(entry)][phase]["images_per_second"] for entry in found]

    rows = []
    for i, name in enumerate(("before", "slowed", "after")):
        ends = [entry["arms"]["auto"][i]["learners"] for entry in found]
        auto, given = rates(i, lambda _: "auto"), rates(i, lambda entry: str(entry["before"]))
        two = rates(i, lambda _: "[2, 2]")
        ratio, share = paired(auto, given), median(learners[1] / sum(learners) for learners in ends)
        rows.append([
            name, counted(ends), f"{share:.0%}", f"{median(auto):,.0f}", f"{median(given):,.0f}", f"{ratio:.2f}",
            verdict(ratio, REBALANCED) if name == "slowed" else "", f"{median(two):,.0f}", f"{paired(auto, two):.2f}",
        ])  # fmt: skip
    heads = ["", "learners that it has then", "the slowed rank's share", "tuned, images/s", "fixed as before the loop"]
    heads += ["ratio", f"target {REBALANCED}", "fixed 2 + 2", "ratio"]
    return (
        f"{found[0]['model']}, two ranks bound to a core each, a busy loop on the second one's for every other "
        f"millisecond.\n\n{table(heads, rows)}"
    )


SYNC = (  # ranks and learners of each
    ("one rank, two learners", 1, 2),
    ("two ranks, one learner each", 2, 1),
    ("one rank, 4 learners", 1, 4),
)


def in_turn(options: argparse.Namespace, place: Place, sides: Mapping[str, Sequence[str]], k: int) -> Found:
    """Images/s of each side, by the settings that make it, in every round; with k learners a rank."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, words in sides.items():
            rates[name].append(side(options, place, *words, learners=k)["phases"][0]["images_per_second"])
    note(f"  {place.about}, {place.model}, learners {k}: {rates}")
    return {"about": place.about, "model": place.model, "learners": k, "rates": rates}


def beside(entry: Found, mine: str, other: str) -> tuple[list[str], float]:
    """The medians of both sides, the first one's first, and the ratio of `mine` to the `other`, as text and number."""
    rates = entry["rates"]
    ratio = paired(rates[mine], rates[other])
    return [*(f"{median(each):,.0f}" for each in rates.values()), f"{ratio:.3f}"], ratio


def measure_sync(options: argparse.Namespace, _: object) -> list[Found]:
    rules = {rule: [f"rule={{name: {rule}}}"] for rule in ("sma", "independent")}
    return [in_turn(options, Place(about, options.sync_model, ranks), rules, k) for about, ranks, k in SYNC]


def tell_sync(found: Sequence[Found]) -> str:
    heads = ["", "model", "SMA, period 1, images/s", "never averaged", "ratio", f"target {AVERAGED}"]
    rows = []
    for entry in found:
        figures, ratio = beside(entry, "sma", "independent")
        wanted = None if entry["about"] == SYNC[-1][0] else ratio  # there the step has been made the best, not cheap
        rows.append([entry["about"], entry["model"], *figures, verdict(wanted, AVERAGED)])
    return table(heads, rows)


def measure_assignment(options: argparse.Namespace, _: object) -> list[Found]:
    found = []
    for about, load in (("all cores its own", ()), ("a busy loop on one core", ("--load", "1"))):
        ways = {name: [*load, f"assignment={name}"] for name in ("fixed", "first_come")}
        found += [in_turn(options, Place(about, options.sync_model), ways, k) for k in (2, 3)]
    return found


def tell_assignment(found: Sequence[Found]) -> str:
    heads = ["", "model", "learners", "fixed, images/s", "first_come", "ratio"]
    rows = [
        [entry["about"], entry["model"], str(entry["learners"]), *beside(entry, "first_come", "fixed")[0]]
        for entry in found
    ]
    return table(heads, rows)


PARTS = {
    "choice": ("Where the tuner ends", measure_choice, tell_choice),
    "slowed": ("A rank that is slowed by half", measure_slowed, tell_slowed),
    "sync": ("What averaging costs", measure_sync, tell_sync),
    "assignment": ("Who takes which batch", measure_assignment, tell_assignment),
}


def page(parts: Mapping[str, Found]) -> str:
    """All parts that were ever measured, each with its machine and its command."""
    texts = ["# The auto-tuner, measured\n"]
    for name, (title, _, tell) in PARTS.items():
        if name in parts:
            about = parts[name]["about"]
            length = "" if name == "choice" else f", medians of {about['rounds']} round(s) of {about['seconds']:g} s"
            texts.append(
                f"## {title}\n\n    {about['command']}\n\n"
                f"{about['date']}, {about['processor']}, {about['cores']} cores, load average {about['load'][0]:.2f} "
                f"before; commit {about['commit'] or 'unknown'}; batch 4{length}.\n\n{tell(parts[name]['found'])}"
            )
    return "\n".join(texts)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some of the parts")
    parser.add_argument("--places", nargs="+", choices=PLACES, default=list(PLACES), help="of the choice (all)")
    parser.add_argument("--slowed-model", default="resnet32")
    parser.add_argument("--sync-model", default="resnet32", help="of sync and assignment")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=10, help="of the tuner (10)")
    parser.add_argument("--turns", type=int, default=30, help="of each number of learners in the choice (30)")
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of such a turn (1)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a measurement (8)")
    parser.add_argument("--wait", type=float, default=90.0, help="for the tuner to settle, at most (90)")
    parser.add_argument("--adapt", type=float, default=45.0, help="for it to see that a core is slowed, at least (45)")
    parser.add_argument("--set", action="append", default=[], metavar="key.path=value", help="any setting")
    parser.add_argument("--output", type=Path, help="folder of tuner.md and tuner.json")
    options = parser.parse_args()
    kept = options.output / "tuner.json" if options.output else None
    parts = json.loads(kept.read_text()) if kept and kept.exists() else {}
    for name in options.only:
        note(PARTS[name][0])
        about = {**machine(), "rounds": options.rounds, "seconds": options.seconds}
        found = PARTS[name][1](options, parts.get(name, {}).get("found", []))
        parts[name] = {"about": about, "found": json.loads(json.dumps(found))}
        if options.output:
            write(options.output, "tuner", page(parts), parts)
    print(page(parts), end="")


if __name__ == "__main__":
    main()
