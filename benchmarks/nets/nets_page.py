"""What bench_nets.py makes of its figures: medians, ratios, the floor, the page. Nothing is measured here."""

from collections.abc import Iterable, Sequence
from math import comb
from statistics import median
from textwrap import fill

from benchmarks.nets.net_cells import CELLS
from benchmarks.sides import Found, heading, rate, table, verdict
from benchmarks.turns import Rounds, interval, ratios

TARGETS = {"gpt": 1.35, "vit": 1.0, "lstm": 1.0, "unet": 1.0}
HEADS = ("net", "batch", "mpibow", "PyTorch", "times", "interval", "target", "", "of one thread")
SLOWEST = 6  # kinds of operators that are named
SHARES = ("net", "batch", "GFLOP", "products alone", "GFLOP/s", "mpibow, 1", "PyTorch, 1")


def best(rounds: Rounds, names: Iterable[str]) -> str:
    """The fastest of these sides by its median."""
    return max(names, key=lambda name: median(rounds[name]))


def both(rounds: Rounds, threads: str = "") -> tuple[str, str] | None:
    """Our best and PyTorch's, of all or those with so many `threads` or learners; None where PyTorch was not asked."""
    names = [name for name in rounds if name.endswith(threads and f", {threads}")]
    mine, theirs = ([name for name in names if name.startswith(side)] for side in ("mpibow", "PyTorch"))
    return (best(rounds, mine), best(rounds, theirs)) if mine and theirs else None


def holds(count: int) -> float:
    """How likely the interval of so many rounds holds the median."""
    low, _ = interval([float(i) for i in range(count)])
    return 1 - 2 * sum(comb(count, i) for i in range(int(low) + 1)) / 2**count


def row(name: str, batch: str, rounds: Rounds) -> list[str]:
    units, found, single = CELLS[name].units, both(rounds), both(rounds, "1")
    if found is None:
        mine = best(rounds, rounds)
        return [name, batch, side_text(mine, rounds, units), *[""] * 6]
    each = ratios(rounds, *found)
    low, high = interval(each)
    middle = median(each)
    one = f"{median(ratios(rounds, *single)):.2f}" if single else ""
    return [
        *(name, batch, side_text(found[0], rounds, units), side_text(found[1], rounds, units)),
        *(f"{middle:.2f}", f"{low:.2f} to {high:.2f}", f"{TARGETS[name]:.2f}", verdict(middle, TARGETS[name]), one),
    ]


def side_text(side: str, rounds: Rounds, units: int) -> str:
    """Its median and what it was: 12,345 (compiled, 2)."""
    setting = side.removeprefix("PyTorch ").removeprefix("mpibow, ")
    return f"{rate(median(rounds[side]) * units)} ({setting})"


def short_table(nets: Found) -> str:
    """A row for each net, a column for each batch."""
    sizes = sorted({int(batch) for batches in nets.values() for batch in batches})
    rows = [
        [name, CELLS[name].unit, *(short(batches.get(str(size)), CELLS[name].units) for size in sizes)]
        for name, batches in nets.items()
    ]
    return table(("net", "a second", *(f"batch {size}" for size in sizes)), rows)


def short(made: Found | None, units: int) -> str:
    """Our best, and its ratio to PyTorch's: 384 (1.50)."""
    if made is None:
        return ""
    rounds = made["rounds"]
    found, mine = both(rounds), best(rounds, [side for side in rounds if side.startswith("mpibow")])
    ratio = f" ({median(ratios(rounds, *found)):.2f})" if found else ""
    return f"{rate(median(rounds[mine]) * units)}{ratio}"


def shown(each: Sequence[float] | None, units: int) -> str:
    return "" if each is None else rate(median(each) * units)


def share(name: str, batch: str, made: Found) -> list[str]:
    """How much of one thread's time the products alone are."""
    rounds, least = made["rounds"], made["floor"]
    cells = [name, batch, f"{least['operations'] / 1e9:.2f}", f"{1e3 * least['seconds']:.2f} ms"]
    cells.append(f"{least['operations'] / least['seconds'] / 1e9:.0f}")
    for side in ("mpibow", "PyTorch"):
        single = [each for each in rounds if each.startswith(side) and each.endswith(", 1")]
        step = int(batch) / median(rounds[best(rounds, single)]) if single else 0.0
        cells.append(f"{least['seconds'] / step:.0%} of {1e3 * step:.1f} ms" if single else "")
    return cells


def page(found: Found) -> str:
    cells = [(name, batch, made) for name, batches in found["nets"].items() for batch, made in batches.items()]
    sides = list(dict.fromkeys(side for _, _, made in cells for side in made["rounds"]))
    count = max((len(each) for _, _, made in cells for each in made["rounds"].values()), default=0)
    every = [[name, batch, *(shown(made["rounds"].get(side), CELLS[name].units) for side in sides)]
             for name, batch, made in cells]  # fmt: skip
    about = "".join(f"- {name}: {CELLS[name].about}; {CELLS[name].unit}/s\n" for name in found["nets"])
    return f"""{heading("Other nets, beside PyTorch", found["about"])}
Whole training steps with AdamW in float32: forward, backward, update, on the same samples. Learners of mpibow and
threads of PyTorch stand in brackets; each learner has one thread and a batch of its own, and SMA averages them. All
sides had a turn of {found["seconds"]:g} s in each of {count} rounds. `times` is the median ratio of their best, round
by round; its interval is of order statistics, and holds the median with {holds(count):.0%}.

{about}
In short, mpibow's rate, and in brackets how many times PyTorch's best at the same batch:

{short_table(found["nets"])}
Every net and batch:

{table(HEADS, [row(name, batch, made["rounds"]) for name, batch, made in cells])}
`of one thread`: one learner beside PyTorch's best with one thread. Every side:

{table(("net", "batch", *sides), every)}
The floor: a step's products alone on one thread, each repeated by itself by PyTorch, NumPy and mpibow, whichever is
fastest, and its convolutions by mpibow; how much of one thread's step they are. Operations are those of the direct
algorithm: Winograd's takes fewer, so a rate may be above the processor's.

{table(SHARES, [share(name, batch, made) for name, batch, made in cells])}
One learner's forward and backward pass, and the kinds of operators that take the most of it:

{"".join(parts_text(name, batch, made["profile"]) for name, batch, made in cells)}"""


def parts_text(name: str, batch: str, found: Found) -> str:
    """The slowest kinds."""
    parts = sorted(found["parts"].items(), key=lambda part: -part[1]["seconds"])[:SLOWEST]
    listed = ", ".join(f"{kind} {part['seconds'] / found['plan']:.0%}" for kind, part in parts)
    return fill(f"- {name}, batch {batch}, {1e3 * found['plan']:.1f} ms: {listed}", 120, subsequent_indent="  ") + "\n"
