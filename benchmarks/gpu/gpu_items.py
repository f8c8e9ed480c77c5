"""What bench_gpu.py measures, most important first: every item is one entry of gpu.json, measured by itself."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.asked import Asked, Refused
from benchmarks.sides import Failed, Found, launched, ours

PLAIN, COMPILED = ("eager", "graphs"), ("compile", "compile and graphs")
RULES = ("sma", "independent")
EXECUTIONS = ("streams", "fused")
KS = (1, 2, 4, 8, 16)
UNKNOWN = {"learners": [8]}  # where the tuner has not been asked, or did not answer
START = 12.0  # seconds that a process of ours takes beside measuring: imports, plans, capture


@dataclass(frozen=True)
class Net:
    """A model at a batch of ours, with the ratios wanted to PyTorch's at that batch, and to its best at any."""

    model: str
    batch: int
    precision: str
    targets: Mapping[str, float]
    heavy: float = 1.0  # how much longer than a small net's everything but the measuring takes

    @property
    def name(self) -> str:
        return f"{self.model} {self.batch} {self.precision}"


NETS = (
    Net("resnet32", 16, "tf32", {"eager": 10.0, "graphs": 3.0, "best": 0.8}),
    Net("lenet", 8, "tf32", {"eager": 20.0}),
    Net("resnet50", 32, "bf16", {"eager": 1.5, "best": 0.9}, heavy=4.0),
    Net("resnet50", 16, "bf16", {"eager": 1.5, "best": 0.9}, heavy=4.0),
)
SEARCH = {  # PyTorch's batches
    "resnet32": (16, 64, 128, 256, 512, 1024, 2048),
    "lenet": (8, 64, 512, 2048, 8192),
    "resnet50": (16, 32, 64, 128, 256),
}


@dataclass(frozen=True)
class Bench:
    """How both sides are run. `peer` is None where there is no PyTorch; `left` are the seconds that remain."""

    peer: Asked | None
    left: Callable[[], float]
    device: str = "cuda"
    seconds: float = 2.0
    wait: float = 45.0
    more: Sequence[str] = ()  # settings of ours
    settings: Sequence[str] = (*PLAIN, *COMPILED)  # of PyTorch's

    def on(self, precision: str, execution: str = "auto") -> list[str]:
        chosen = [f"precision={precision}", f"execution={execution}"] if self.device == "cuda" else []
        return [f"device={self.device}", *chosen, *self.more]

    def train(self, net: Net, learners: int, execution: str = "auto", *settings: str) -> Found:
        arguments = ["train", net.model, "--batch-size", str(net.batch), "--learners", str(learners), "--json"]
        arguments += ["--seconds", str(self.seconds), "update.weight_decay=1e-4", *settings]
        return _last(ours("bench", *arguments, *self.on(net.precision, execution), limit=self.left()))

    def profile(self, net: Net) -> Found:
        """One learner's iteration, and the steps of its plan by the device's clock."""
        arguments = [net.model, "--batch-size", str(net.batch)]
        if self.device != "cuda":
            command = ["profile", *arguments, "--seconds", str(self.seconds), "--json", *self.on(net.precision)]
            return _last(ours("bench", *command, limit=self.left()))
        iteration = self.train(net, 1, "streams")["seconds_per_iteration"]["median"]
        command = ["-m", "benchmarks.gpu.gpu_profile", *arguments, *self.on(net.precision)]
        return {**_last(launched(1, *command, limit=self.left())), "iteration": iteration}

    def tuned(self, net: Net) -> Found:
        """Where the tuner ends: learners, execution, and how fast it is then."""
        command = ["-m", "benchmarks.speed.tuner_side", net.model, "--batch-size", str(net.batch), "learners=auto"]
        command += ["--seconds", str(self.seconds), "--wait", str(self.wait)]
        found = _last(launched(1, *command, *self.on(net.precision), limit=self.left()))
        phase: Found = found["phases"][0]
        return phase

    def theirs(self, model: str, batch: int, precision: str, settings: Sequence[str], keep: bool) -> Found:
        """PyTorch's images/s by setting; a setting that cannot be is an error in its place."""
        found: Found = {}
        for setting in settings:
            if self.peer is None or setting not in self.settings:
                continue
            question = {"model": model, "batch": batch, "precision": precision, "setting": setting}
            try:
                answer = self.peer(self.left(), ask="speed", seconds=self.seconds / 2, keep=keep, **question)
            except Refused as error:
                answer = {"error": str(error)}
            found[setting] = answer.get("images_per_second", answer)
        return found


def _last(said: str) -> Found:
    found: Found = json.loads(said.splitlines()[-1])
    return found


@dataclass(frozen=True)
class Item:
    """`seconds` is what it may well take: it is left out where less is left."""

    key: str
    seconds: float
    measure: Callable[[Bench, Found], Found]


def chosen(found: Found, net: Net) -> tuple[int, str]:
    """The tuner's learners and execution for a net."""
    choice = found.get(f"choice {net.name}", {})
    choice = UNKNOWN if "error" in choice or not choice else choice
    return int(choice["learners"][0]), str(choice.get("execution") or "auto")


def choice(net: Net) -> Item:
    return Item(f"choice {net.name}", net.heavy * (START + 15), lambda bench, _: bench.tuned(net))


def pair(net: Net, settings: Sequence[str], number: int) -> Item:
    """Ours, and at once PyTorch's at the same batch."""

    def measure(bench: Bench, found: Found) -> Found:
        learners, execution = chosen(found, net)
        mine = bench.train(net, learners, execution)
        return {"ours": mine, **bench.theirs(net.model, net.batch, net.precision, settings, keep=True)}

    first = (40.0 if settings == COMPILED else 8.0) if number == 0 else 3.0
    name = "compiled" if settings == COMPILED else "plain"
    return Item(f"pair {net.name} {name} {number}", net.heavy * (START + first), measure)


def search(net: Net, batch: int) -> Item:
    return Item(
        f"search {net.model} {net.precision} {batch}", net.heavy * 6,
        lambda bench, _: bench.theirs(net.model, batch, net.precision, PLAIN, keep=False),
    )  # fmt: skip


def search_compiled(net: Net) -> Item:
    """At the batch that is PyTorch's best without the compiler."""

    def measure(bench: Bench, found: Found) -> Found:
        batch = best_batch(found, net)
        return {"batch": batch, **bench.theirs(net.model, batch, net.precision, COMPILED, keep=False)}

    return Item(f"search {net.model} {net.precision} compiled", net.heavy * 40, measure)


def best_batch(found: Found, net: Net) -> int:
    searched = {
        batch: max(numbers(found.get(f"search {net.model} {net.precision} {batch}", {})).values(), default=0.0)
        for batch in SEARCH[net.model]
    }
    return max(searched, key=lambda batch: searched[batch])


def numbers(entry: Found) -> dict[str, float]:
    """PyTorch's images/s by setting, without what failed."""
    settings = (*PLAIN, *COMPILED)
    return {key: value for key, value in entry.items() if key in settings and isinstance(value, int | float)}


def curve(net: Net, execution: str, k: int) -> Item:
    return Item(f"learners {net.name} {execution} {k}", START + 3, lambda bench, _: bench.train(net, k, execution))


def sync(net: Net, number: int) -> Item:
    def measure(bench: Bench, found: Found) -> Found:
        learners, execution = chosen(found, net)
        return {rule: bench.train(net, learners, execution, f"rule={{name: {rule}}}") for rule in RULES}

    return Item(f"sync {net.name} {number}", 2 * (START + 3), measure)


def rates(precision: str) -> Item:
    def measure(bench: Bench, _: Found) -> Found:
        if bench.peer is None:
            return {"error": "PyTorch is not there to measure them with"}
        sizes = {} if bench.device == "cuda" else {"size": 512, "bytes": 1 << 22}
        return bench.peer(bench.left(), ask="rates", precision=precision, **sizes)

    return Item(f"rates {precision}", 6.0, measure)


def profile(net: Net) -> Item:
    return Item(f"profile {net.name}", net.heavy * 2 * START, lambda bench, _: bench.profile(net))


def items(nets: Sequence[Net], parts: Sequence[str], rounds: int) -> Iterator[Item]:
    """Those of the parts that are asked for, the most important first; more rounds of the same come last."""
    small, models = nets[0], {net.model: net for net in reversed(nets)}  # the first net of each model
    for net in nets:
        if {"speed", "learners", "sync", "floor"} & set(parts):
            yield choice(net)
        if "speed" in parts:
            yield pair(net, PLAIN, 0)
    if "speed" in parts:
        yield from (search(small, batch) for batch in SEARCH[small.model])
    if "learners" in parts:
        yield from (curve(small, execution, k) for k in KS for execution in EXECUTIONS)
    if "sync" in parts:
        yield sync(small, 0)
    if "floor" in parts:
        yield from map(rates, dict.fromkeys(net.precision for net in nets))
        yield from map(profile, reversed(models.values()))
    if "speed" in parts:
        yield pair(small, COMPILED, 0)
        yield from (search(net, batch) for net in models.values() for batch in SEARCH[net.model] if net != small)
        yield from (pair(net, COMPILED, 0) for net in nets if net != small)
    for number in range(1, rounds):
        for net in nets:
            if "speed" in parts:
                yield pair(net, PLAIN, number)
            if "sync" in parts and net == small:
                yield sync(net, number)
    if "speed" in parts:
        yield from map(search_compiled, models.values())


def named(keys: Sequence[str], nets: Sequence[Net], parts: Sequence[str]) -> list[Item]:
    """The items of these keys, in this order; curves of every net are among them. Raises SystemExit for another."""
    curves = [curve(net, execution, k) for net in nets for k in KS for execution in EXECUTIONS]
    every = {item.key: item for item in [*items(nets, parts, 1), *curves]}
    if unknown := [key for key in keys if key not in every]:
        raise SystemExit(f"--item: no entry is called '{unknown[0]}', but {', '.join(every)}")
    return [every[key] for key in keys]


def measure_all(
    wanted: Sequence[Item], bench: Bench, found: Found, keep: Callable[[Item, bool], None]
) -> tuple[list[str], list[str]]:
    """Measures what `found` lacks; `keep` is called after each. The keys left out for want of time, and that failed."""
    left_out, failed = list[str](), list[str]()
    for item in wanted:
        if item.key in found and "error" not in found[item.key]:
            continue
        if bench.left() < item.seconds:
            left_out.append(item.key)
            continue
        try:
            found[item.key] = item.measure(bench, found)
        except (Failed, Refused) as error:
            lines = str(error).strip().splitlines()
            found[item.key] = {"error": lines[-1] if lines else "no word"}
            failed.append(item.key)
        keep(item, item.key in failed)
    return left_out, failed
