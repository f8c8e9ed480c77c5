"""What bench_gpu.py makes of its entries: rows, verdicts, Markdown. Nothing is measured here."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from benchmarks.gpu.gpu_items import COMPILED, EXECUTIONS, KS, PLAIN, RULES, SEARCH, Net, chosen, numbers
from benchmarks.sides import Found, middle, operators, rate as rate_text, table, times, verdict

HIDDEN, PYTHON, NEAR = 0.95, 0.2, 0.95  # targets: with averaging over without, Python's share, the tuner over the best
RATE = "images_per_second"


def whole(found: Found, start: str) -> list[Found]:
    """The entries of these keys, by key, that have not failed."""
    return [entry for key, entry in found.items() if key.startswith(start) and "error" not in entry]


def beside(found: Found, net: Net, setting: str) -> tuple[float | None, float | None]:
    """PyTorch's images/s with a setting at our batch, and ours over it, in pairs: medians."""
    pairs = [
        (entry["ours"][RATE], numbers(entry)[setting])
        for entry in whole(found, f"pair {net.name} ")
        if setting in numbers(entry)
    ]
    return middle([theirs for _, theirs in pairs]), middle([mine / theirs for mine, theirs in pairs])


def best(found: Found, net: Net) -> tuple[float, int, str] | None:
    """PyTorch's images/s at its best batch and setting of those that were measured."""
    tried: list[tuple[float, int, str]] = []
    for setting in (*PLAIN, *COMPILED):
        rate, _ = beside(found, net, setting)
        tried += [(rate, net.batch, setting)] if rate else []
    start = f"search {net.model} {net.precision}"
    searched = [(batch, found.get(f"{start} {batch}", {})) for batch in SEARCH[net.model]]
    compiled = found.get(f"{start} compiled", {})
    for batch, entry in [*searched, (compiled.get("batch", 0), compiled)]:
        tried += [(rate, batch, setting) for setting, rate in numbers(entry).items()]
    return max(tried, default=None)


def speed(found: Found, nets: Sequence[Net]) -> str:
    heads = [
        "model",
        "batch",
        "precision",
        "learners",
        "mpibow, images/s",
        "PyTorch",
        "images/s",
        "ratio",
        "target",
        "",
    ]
    rows = []
    for net in nets:
        entries = whole(found, f"pair {net.name} ")
        if not entries:
            top = best(found, net)
            theirs = [f"its best: {top[2]} at {top[1]}", rate_text(top[0])] if top else ["", ""]
            rows.append([net.model, str(net.batch), net.precision, "", "not measured", *theirs, *[""] * 3])
            continue
        mine = median(entry["ours"][RATE] for entry in entries)
        learners = f"{sum(entries[-1]['ours']['learners'])} {entries[-1]['ours'].get('execution', '')}".strip()
        first = [net.model, str(net.batch), net.precision, learners, rate_text(mine)]
        for setting in (*PLAIN, *COMPILED):
            rate, ratio = beside(found, net, setting)
            wanted = net.targets.get(setting)
            if rate is not None or wanted is not None:
                rows.append([
                    *first, setting, rate_text(rate), times(ratio), times(wanted), verdict(ratio, wanted),
                ])  # fmt: skip
                first = [""] * 5
        if top := best(found, net):
            rate, batch, setting = top
            ratio, wanted = mine / rate, net.targets.get("best")
            rows.append([
                *first, f"its best: {setting} at {batch}", rate_text(rate), times(ratio), times(wanted),
                verdict(ratio, wanted),
            ])  # fmt: skip
    errors = [
        f"- {key}, {setting}: {entry[setting]['error']}\n"
        for key, entry in found.items()
        for setting in (*PLAIN, *COMPILED)
        if isinstance(entry.get(setting), dict)
    ]
    said = "\nWhat PyTorch could not do:\n\n" + "".join(errors) if errors else ""
    return (
        "Ours with the learners that the tuner ended at, SMA; ratios are medians of pairs, measured one after the "
        f"other; PyTorch's best at any batch is the best of all that were tried.\n\n{table(heads, rows)}{said}"
    )


def learners(found: Found, net: Net) -> str:
    """The tuner's choice is marked, and compared with the best cell."""
    cells: dict[tuple[int, str], float] = {}
    for k in KS:
        for execution in EXECUTIONS:
            entry = found.get(f"learners {net.name} {execution} {k}", {"error": ""})
            if "error" not in entry:
                cells[k, execution] = entry[RATE]
    if not cells:
        return f"{net.model}, batch {net.batch}: not measured.\n"
    asked = bool(whole(found, f"choice {net.name}"))
    k, execution = chosen(found, net)
    executions = EXECUTIONS if execution == "auto" else (execution,)
    marked = max((cells[k, e], (k, e)) for e in executions if (k, e) in cells)[1] if asked and any(
        (k, e) in cells for e in executions
    ) else None  # fmt: skip
    rows = [
        [str(k), *(rate_text(cells.get((k, e))) + " *" * ((k, e) == marked) for e in EXECUTIONS)]
        for k in KS
        if any((k, e) in cells for e in EXECUTIONS)
    ]
    text = table(["learners", *EXECUTIONS], rows)
    if not asked:
        return f"{net.model}, batch {net.batch}, images/s.\n\n{text}"
    tuned = cells[marked] if marked else found[f"choice {net.name}"][RATE]
    top = max(cells.values())
    ratio = tuned / max(top, tuned)
    return (
        f"{net.model}, batch {net.batch}, images/s; the tuner ended at {k} learners, execution {execution} (*): "
        f"{rate_text(tuned)}, {ratio:.2f} of the best (at least {NEAR}: {verdict(ratio, NEAR)}).\n\n{text}"
    )


def _with_curves(found: Found, nets: Sequence[Net]) -> list[Net]:
    """The first net, and others that were measured with several numbers of learners."""
    return [net for net in nets if net == nets[0] or any(key.startswith(f"learners {net.name} ") for key in found)]


def sync(found: Found, net: Net) -> str:
    entries = whole(found, f"sync {net.name} ")
    if not entries:
        return f"{net.model}, batch {net.batch}: not measured.\n"
    sma, apart = ([entry[rule][RATE] for entry in entries] for rule in RULES)
    ratio = median(a / b for a, b in zip(sma, apart, strict=True))
    heads = ["model", "batch", "SMA, images/s", "never averaged", "ratio", f"target {HIDDEN}"]
    row = [
        net.model,
        str(net.batch),
        rate_text(median(sma)),
        rate_text(median(apart)),
        f"{ratio:.3f}",
        verdict(ratio, HIDDEN),
    ]
    shares = [entry["sma"]["python_share"] for entry in entries if entry["sma"].get("python_share") is not None]
    said = "Python's share of an iteration is not reported.\n"
    if shares:
        share = median(shares)
        said = (
            f"Python's share of an iteration: {share:.1%} (below {PYTHON:.0%}: {verdict(share, PYTHON, most=True)}).\n"
        )
    return f"{table(heads, [row])}\n{said}"


def floor(found: Found, nets: Sequence[Net]) -> str:
    said = []
    for precision in dict.fromkeys(net.precision for net in nets):
        rate = found.get(f"rates {precision}", {"error": ""})
        if "error" not in rate:
            said.append(
                f"{precision}: a large product runs at {rate['flops'] / 1e12:,.1f} TFLOP/s, a large copy moves "
                f"{rate['bytes'] / 1e9:,.0f} GB/s.\n"
            )
    return "".join([*said, *(profile(found, net) for net in nets)])


def profile(found: Found, net: Net) -> str:
    """Where one learner's iteration goes, by kind of operator."""
    entry = found.get(f"profile {net.name}", {"error": ""})
    if "error" in entry:
        return f"\n{net.model}: its profile failed: {entry['error']}\n" if entry["error"] else ""
    return (
        f"\n{net.model}, batch {net.batch}, one learner, every operator timed by itself: {1e6 * entry['plan']:,.0f} us "
        f"of an iteration's {1e6 * entry['iteration']:,.0f} us.\n\n"
        f"{table(['operator', 'steps', 'us'], operators(entry, ',.0f', 1e6))}"
    )


def accuracy(found: Found, task: str) -> str:
    """Seconds of training to the target by seed, PyTorch's over ours."""
    heads = ["", "batch", "seconds (epochs) to the target, by seed", "median", "PyTorch's over ours"]
    rows, ours = [], None
    for side in dict.fromkeys(key.split(" ")[2] for key in found if key.startswith(f"accuracy {task} ")):
        entries = whole(found, f"accuracy {task} {side} ")
        if not entries:
            continue
        each = [f"{e['seconds']:.1f} ({e['epochs']:.2f})" if e["seconds"] else "not reached" for e in entries]
        middle_ = median(e["seconds"] or float("inf") for e in entries)
        ours = middle_ if side == "mpibow" else ours
        ratio = "" if side == "mpibow" or ours is None or ours == float("inf") else f"{middle_ / ours:.2f}"
        last = "not reached" if middle_ == float("inf") else f"{middle_:.1f}"
        rows.append([side, str(entries[0]["batch_size"]), ", ".join(each), last, ratio])
    return table(heads, rows) if rows else "not measured.\n"


def page(title: str, found: Found, nets: Sequence[Net], tasks: Mapping[str, str], untold: Sequence[str]) -> str:
    """All sections; those without an entry are left out."""
    sections: Mapping[str, tuple[str, Callable[[], str]]] = {
        "pair ": ("Images/s beside PyTorch", lambda: speed(found, nets)),
        "learners ": ("Learners", lambda: "\n".join(learners(found, net) for net in _with_curves(found, nets))),
        "sync ": ("What averaging costs, and Python", lambda: sync(found, nets[0])),
        "rates ": ("The floor", lambda: floor(found, nets)),
        **{f"accuracy {task} ": (about, lambda task=task: accuracy(found, task)) for task, about in tasks.items()},
    }  # type: ignore[dict-item]
    texts = [title]
    for start, (about, tell) in sections.items():
        if any(key.startswith((start, "search ") if start == "pair " else start) for key in found):
            texts.append(f"## {about}\n\n{tell()}")
    failed = [f"- {key}: {entry['error']}\n" for key, entry in found.items() if "error" in entry]
    if failed:
        texts.append("## What failed\n\n" + "".join(failed))
    if untold:
        texts.append("## What was left out for want of time\n\n" + "".join(f"- {key}\n" for key in untold))
    return "\n".join(texts)
