"""Images/s and memory of learners with replicas, with one copy of the weights, and of one learner; about 12 minutes.

    python -m benchmarks.averaging.bench_copies [--nets lenet:8 resnet20:4:16] [--pairs 15] [--output FOLDER]

One rank trains on made-up images by SGD with momentum, in four ways, at a batch of b and with k learners, 2 where
`--nets` says nothing. `replicas` and `one copy` have a learner of batch b on each of k threads: with weights of their
own, which are averaged (SMA), or with one copy of the weights and one step of their mean gradient (S-SGD). `one plan`
is one learner with a batch of k b; `one learner` has a batch of b. A plan runs on one thread. ResNet-18 has a stem of 3
x 3. Every round has a turn of each side, and every other round has them in reverse; ratios are of one round. Let
nothing else run meanwhile.

FOLDER/copies.json and copies.md are written after every net; --resume measures the nets that copies.json lacks.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import NamedTuple

from threadpoolctl import threadpool_limits

from benchmarks.sides import ROOT, Found, after, machine, note, parser_of_rounds, table, write
from benchmarks.turns import Ours, in_turn, interval, ratios
from mpibow.comm import Single
from mpibow.job.memory import copy_bytes, learner_bytes
from mpibow.job.synthetic import made_up_job
from mpibow.learn.local import arrays_of
from mpibow.run.results import versions
from mpibow.run.session import Session

NETS = (
    "lenet:8", "lenet:8:4", "lenet:8:16", "lenet:2", "resnet20:4", "resnet20:4:4", "resnet20:4:16", "resnet32:4",
    "resnet18:4", "vgg16_cifar:4",
)  # fmt: skip
SMALL = {"resnet18": ROOT / "tests/torch_in/by_hand.py"}  # nets for 10 classes of images of 32 x 32, not ImageNet's
SPELLED = "MODEL:BATCH[:LEARNERS]"
MIB = 1 << 20
ABOUT = """
Training steps of one rank:

- `replicas`: k learners on k threads, with weights of their own, which are averaged every iteration (SMA);
- `one copy`: the same learners on one copy of the weights, with one step of their mean gradient (S-SGD);
- `one plan`: one learner, whose batch has the samples of all k;
- `one learner`: one of the k.

**A plan runs on one thread: `one plan` and `one learner` use one core.** Images/s are medians of all rounds. `times` is
the median ratio to `replicas` in the same round, beside its 95 % interval (which takes six rounds). MiB are the memory
of the learners as `train --check` counts it: arenas, weights, gradients, momenta and slots, without averaging and data.

"""


class Side(NamedTuple):
    learners: int
    batch: int
    rule: str


def sides_of(learners: int, batch: int) -> dict[str, Side]:
    return {
        "replicas": Side(learners, batch, "sma"),
        "one copy": Side(learners, batch, "ssgd"),
        "one plan": Side(1, learners * batch, "sma"),
        "one learner": Side(1, batch, "sma"),
    }


@contextmanager
def opened(net: str, side: Side, device: str) -> Iterator[Session]:
    own = SMALL.get(net)
    made = argparse.Namespace(
        model=net, batch_size=side.batch, learners=side.learners, device=device, shape=own and "3,32,32",
        classes=own and 10, overrides=[f"rule.name={side.rule}", *([f"model.name={own}:{net}"] if own else [])],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Session(made_up_job(made, folder), Single()) as session:
        yield session
        session.settle()


def bytes_of(session: Session) -> int:
    """The memory that its learners take."""
    plan, one = session.plan, session.replicas.one
    states, slots = arrays_of(session.replicas.parts, plan.layout), session.loading.held.learner
    apart = session.replicas.count * learner_bytes(plan, slots=slots, states=states, one=one)
    return apart + (copy_bytes(plan, states) if one else 0)


def parts_of(net: str) -> tuple[str, int, int]:
    """The model, the batch and the learners of MODEL:BATCH[:LEARNERS]."""
    model, batch, learners = (*net.split(":"), "2")[:3]
    return model, int(batch), int(learners)


def named(net: str) -> str:
    """For argparse: the words themselves, if they name a net, a batch and learners."""
    try:
        _, batch, learners = parts_of(net)
    except ValueError:
        batch, learners = 0, 0
    if batch < 1 or learners < 2 or net.count(":") > 2:
        raise argparse.ArgumentTypeError(f"must be {SPELLED} with 2 learners or more, got {net}")
    return net


def measure(net: str, options: argparse.Namespace) -> Found:
    """Images/s of all sides in every round, and the bytes of their learners."""
    model, batch, learners = parts_of(net)
    with ExitStack() as stack:
        sessions = {
            name: stack.enter_context(opened(model, side, options.device))
            for name, side in sides_of(learners, batch).items()
        }
        held = {name: bytes_of(session) for name, session in sessions.items()}
        sides = {name: Ours(session) for name, session in sessions.items()}
        rounds = in_turn(sides, options.pairs, options.seconds)
    return {"seconds": options.seconds, "bytes": held, "rounds": rounds}


def rows(net: str, made: Found) -> Iterator[list[str]]:
    model, batch, learners = parts_of(net)
    for name, side in sides_of(learners, batch).items():
        each = made["rounds"][name]
        times = ratios(made["rounds"], name, "replicas")
        low, high = interval(times)
        beside = ["", ""] if name == "replicas" else [f"{median(times):.3f}", f"{low:.3f} to {high:.3f}"]
        yield [
            model, name, f"{side.learners} x {side.batch}", f"{median(each):,.1f}",
            f"{median(each) / side.learners:,.1f}", *beside, f"{made['bytes'][name] / MIB:.1f}",
        ]  # fmt: skip


def page(found: Found) -> str:
    about, nets = found["about"], found["nets"]
    ours = ", ".join(f"{name} {version}" for name, version in about["mpibow"].items())
    text = f"# What replicas cost\n\n    {about['command']}\n\n{about['processor']}, {about['cores']} cores; {ours}.\n"
    text += ABOUT
    heads = ("net", "side", "learners x batch", "images/s", "a thread", "times", "interval", "MiB")
    text += table(heads, [row for net, made in nets.items() for row in rows(net, made)]) + "\n"
    for net, made in nets.items():
        before, after = made["load"]
        rounds = f"{len(made['rounds']['replicas'])} rounds, {made['seconds']:g} s a side"
        load = f"load average {before:.2f} before and {after:.2f} after (its own)"
        text += f"- {net}: {made['date']}, commit {made['commit']}; {rounds}; {load}\n"
    return text


def main() -> None:
    parser = parser_of_rounds(__doc__, "copies", pairs=15)
    parser.add_argument("--nets", nargs="+", default=NETS, metavar=SPELLED, type=named, help=f"({' '.join(NETS)})")
    parser.add_argument("--device", choices=["onednn", "numpy"], default="onednn", help="(onednn)")
    parser.add_argument("--resume", action="store_true", help="measure the nets that FOLDER/copies.json does not have")
    options = parser.parse_args()
    if options.resume and not options.output:
        parser.error("--resume: needs --output FOLDER, whose copies.json it continues")
    threadpool_limits(1)
    about = {**machine(FOLDER=options.output), "mpibow": versions()}
    sitting = {key: about.pop(key) for key in ("date", "commit", "load")}
    found: Found = {"about": about, "nets": {}}
    if options.resume and (path := options.output / "copies.json").exists():
        found["nets"] = json.loads(path.read_text())["nets"]
    for net in options.nets:
        if net in found["nets"]:
            continue
        note(net)
        found["nets"][net] = after(sitting | measure(net, options))
        if options.output:
            write(options.output, "copies", page(found), found)
    print(page(found), end="")


if __name__ == "__main__":
    main()
