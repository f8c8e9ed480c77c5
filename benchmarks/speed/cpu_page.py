"""What bench_cpu.py makes of its figures: medians, ratios and the page. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mode

from benchmarks.sides import Found, heading, middle, operators, rate, table, times, verdict


@dataclass(frozen=True)
class Net:
    """Our batches with the ratio wanted to PyTorch at the same batch, and at its best of the batches in `search`.

    At the batches in `quoted`, which the README shows, PyTorch tries torch.compile as well.
    """

    same: Mapping[int, float | None]
    any: Mapping[int, float] = field(default_factory=dict)
    search: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    quoted: Sequence[int] = ()


RESNET = Net(
    {1: 5.0, 2: 4.0, 4: 3.2, 8: None, 16: 1.95, 32: None},
    {4: 1.25, 8: 1.35, 16: 1.35, 32: 1.35},
    quoted=(1, 4, 8, 16, 64),
)
PLAIN = Net({1: None, 4: None, 8: None, 16: None})
NETS = {
    "resnet32": RESNET,
    "resnet20": replace(RESNET, quoted=(1, 4, 8, 16, 128)),
    "lenet": Net({1: 2.0, 2: 2.0, 4: 2.0, 8: 2.0, 16: 2.0, 64: None}, {64: 1.2}, quoted=(1, 4, 8, 16, 256)),
    # smaller batches are slower, and may be skipped
    "vgg16_cifar": Net({4: 1.3, 8: 1.3}, search=(4, 8, 16, 32, 64, 128), quoted=(4, 8)),
    "resnet50": Net({4: 1.15}, search=(4, 8, 16, 32), quoted=(4,)),
    "convnet": PLAIN,
    "mlp": PLAIN,
    "logistic": PLAIN,
}
SHORT = (1, 4, 8, 16)  # the batches of the short table, which is the README's


@dataclass(frozen=True)
class Figure:
    """PyTorch's images/s with its best setting; `compiled`: torch.compile's over eager's, where it was tried."""

    rate: float
    setting: str
    compiled: float | None = None


@dataclass
class Round:
    """What was measured in turn: images/s by batch."""

    ours: dict[int, float] = field(default_factory=dict)
    peer: dict[int, Figure] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Found) -> Round:
        """From JSON, whose keys are texts."""
        ours = {int(batch): rate for batch, rate in found["ours"].items()}
        return cls(ours, {int(batch): Figure(**figure) for batch, figure in found["peer"].items()})


@dataclass(frozen=True)
class Row:
    """A batch of the table: medians over the rounds; None where something was not measured."""

    batch: int
    ours: float | None
    peer: float | None = None
    setting: str = ""
    compiled: float | None = None
    ratio: float | None = None
    target: float | None = None
    best: float | None = None
    best_batch: int | None = None
    best_ratio: float | None = None
    best_target: float | None = None


def rows(net: Net, rounds: Sequence[Round]) -> list[Row]:
    """The first round has every batch; the last one may not be over yet."""
    return [_row(net, rounds, batch) for batch in sorted({*rounds[0].ours, *rounds[0].peer})]


def _row(net: Net, rounds: Sequence[Round], batch: int) -> Row:
    mine = [r.ours[batch] for r in rounds if batch in r.ours]
    peer = [r.peer[batch] for r in rounds if batch in r.peer]
    ratios = [r.ours[batch] / r.peer[batch].rate for r in rounds if batch in r.ours and batch in r.peer]
    over = [r for r in rounds if r.peer and r.peer.keys() == rounds[0].peer.keys()]
    best = [max((figure.rate, size) for size, figure in r.peer.items()) for r in over]
    best_ratios = [r.ours[batch] / rate for r, (rate, _) in zip(over, best, strict=True) if batch in r.ours]
    return Row(
        batch,
        ours=middle(mine),
        peer=middle([figure.rate for figure in peer]),
        setting=mode(figure.setting for figure in peer) if peer else "",
        compiled=middle([figure.compiled for figure in peer if figure.compiled is not None]),
        ratio=middle(ratios),
        target=net.same.get(batch),
        best=middle([rate for rate, _ in best]),
        best_batch=mode(size for _, size in best) if best else None,
        best_ratio=middle(best_ratios),
        best_target=net.any.get(batch),
    )


HEADS = ("model", "batch", "mpibow, images/s", "PyTorch, images/s", "its setting", "compiled / eager")
HEADS += ("ratio", "target", "", "PyTorch's best at any batch", "ratio", "target", "")


def line(model: str, row: Row) -> list[str]:
    best = f"{rate(row.best)} at {row.best_batch}" if row.best_ratio is not None else ""
    return [
        *(model, str(row.batch), rate(row.ours), rate(row.peer), row.setting, times(row.compiled)),
        *(times(row.ratio), times(row.target), verdict(row.ratio, row.target)),
        *(best, times(row.best_ratio), times(row.best_target), verdict(row.best_ratio, row.best_target)),
    ]


SHORT_HEADS = ("model", *(f"batch {batch}" for batch in SHORT), "PyTorch's best, at batch")


def short_line(model: str, made: Sequence[Row]) -> list[str]:
    """Our images/s at the batches of SHORT, in brackets the ratio to PyTorch's."""
    cells = {row.batch: f"{rate(row.ours)} ({times(row.ratio) or '?'})" for row in made if row.ours is not None}
    best = made[0].best
    last = "" if best is None else f"{rate(best)}, at {made[0].best_batch}"
    return [model, *(cells.get(batch, "") for batch in SHORT), last]


def speed_text(found: Found) -> str:
    """Every model and batch beside PyTorch: the README's table, and all figures."""
    made = {model: rows(NETS[model], list(map(Round.of, rounds))) for model, rounds in found["models"].items()}
    every = [row for each in made.values() for row in each]
    count = max(len(rounds) for rounds in found["models"].values())
    compiled = any(row.compiled is not None for row in every)
    tried = "; in some cells torch.compile is tried too, with the best of these settings" if compiled else ", eager"
    brief = [short_line(model, each) for model, each in made.items()]
    return (
        f"{found['learners']} learners of mpibow, SMA, the whole training step, on made-up images; medians of "
        f"{count} round{'s' * (count > 1)} of {found['seconds']:g} s a figure. PyTorch trains with fused SGD and its "
        f"best of one thread or all cores and of channels first or last{tried}. In short, images/s of mpibow, and in "
        f"brackets how many times PyTorch's at the same batch:\n\n{table(SHORT_HEADS, brief)}\nEvery cell:\n\n"
        f"{table(HEADS, [line(model, row) for model, each in made.items() for row in each])}"
    )


def scaling_text(found: Found) -> str:
    """How much a second learner brings."""
    heads = ["model", "batch", "1 learner, images/s", "2 learners", "ratio", "target", "", "2 processes of 1", "ratio"]
    met = verdict(found["ratio"], found["target"])
    cells = [found["model"], str(found["batch"]), rate(found["one"]), rate(found["two"]), times(found["ratio"])]
    return table(heads, [[*cells, times(found["target"]), met, rate(found["separate"]), times(found["limit"])]])


def floor_text(found: Found) -> str:
    """Every profile, and what memory allows."""
    profiles = [profile_text(each) for each in found["profiles"]]
    return "\n".join([*profiles, *(memory_text(each) for each in found["memory"])])


def profile_text(made: Found) -> str:
    """What `mpibow.bench profile` found, against `target`: the most times that its convolutions alone may take.

    `direct` is how long these take with oneDNN's own convolutions only, where that was measured.
    """
    iteration, plan, in_turn, alone = (
        made[key] for key in ("iteration", "plan", "convolutions_in_turn", "convolutions_alone")
    )
    ratio, limit = iteration / alone, made["operations"] / made["fastest"]
    target, direct = made.get("target"), made.get("direct")
    rest = ["update, averaging, data, loop", "", f"{1e3 * (iteration - plan):.2f}"]
    wanted = f" (at most {target:.2f}: {verdict(ratio, target, most=True)})" if target else ""
    beyond = (
        f"{1e3 * (in_turn - alone):.2f} ms convolutions in turn, whose data are not all in the caches, "
        f"{1e3 * (plan - in_turn):.2f} ms all other operators, "
        f"{1e3 * (iteration - plan):.2f} ms update, averaging, data, loop"
    )
    own = (
        f"oneDNN's own convolutions alone (onednn.winograd=false) take {1e3 * direct:.2f} ms: "
        f"the iteration takes {iteration / direct:.2f} times these. "
        if direct
        else ""
    )
    return (
        f"{made['model']}, batch {made['batch_size']}, one learner: {1e3 * iteration:.2f} ms an iteration, "
        f"{ratio:.2f} times its convolutions measured alone, each step repeated by itself, "
        f"{1e3 * alone:.2f} ms{wanted}; {iteration / in_turn:.2f} times the same steps in turn, "
        f"{1e3 * in_turn:.2f} ms. Beyond them alone: {beyond}. {own}"
        f"Its {made['operations'] / 1e9:.2f} GFLOP at the rate of the fastest convolution, "
        f"{made['fastest'] / 1e9:.0f} GFLOP/s a core, would take {1e3 * limit:.2f} ms: "
        f"{made['batch_size'] / limit:,.0f} images/s a learner are the limit. In turn:\n\n"
        f"{table(['operator', 'steps', 'ms'], [*operators(made, '.2f', 1e3), rest])}"
    )


def memory_text(made: Found) -> str:
    """What an iteration moves at least, and the images/s that memory allows so."""
    return (
        f"{made['model']}, batch {made['batch_size']}, {made['learners']} learners: weights and momenta, "
        f"{made['weights'] / 1e6:.1f} MB each, are read or written {made['weight_moves']} times an iteration, the part "
        f"of a gradient that is not kept as factors, {made['gradients'] / 1e6:.2f} MB, {made['gradient_moves']} times. "
        f"All cores read and write large arrays at {made['bandwidth'] / 1e9:.0f} GB/s. At that rate it takes "
        f"{1e3 * made['bytes'] / made['bandwidth']:.2f} ms: {made['limit']:,.0f} images/s are the limit without any "
        "arithmetic, as far as nothing stays in a cache.\n"
    )


TEXTS: Mapping[str, tuple[str, Callable[[Found], str]]] = {  # of every part: its heading, its text
    "speed": ("Images/s beside PyTorch", speed_text),
    "scaling": ("A second learner", scaling_text),
    "floor": ("Where an iteration's time goes", floor_text),
}


def page(found: Mapping[str, Found]) -> str:
    """cpu.md from cpu.json: a part each with the command, machine and commit that measured it."""
    parts = [f"{heading(title, found[part]['about'], 2)}\n{text(found[part])}"
             for part, (title, text) in TEXTS.items() if part in found]  # fmt: skip
    return "\n".join(["# Training on a CPU, beside PyTorch\n", *parts])
