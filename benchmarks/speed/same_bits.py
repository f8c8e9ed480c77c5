"""Compares two commits, or two checkouts, bit by bit: python -m benchmarks.speed.same_bits OLD [NEW]

Every case trains the same run by both: centre, replicas, rule and metrics must be equal, and the ranks' collective
calls come in the same order. Clocks, memory and what only one commit writes are left out. A measured gain may differ by
GAIN, as the sums of squares behind it may be added up in other vector lanes. Exit code 1 where a case differs.
"""

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from benchmarks.checkouts import ROOT, environment_of, two_trees
from benchmarks.sides import Found, parser_of

CLOCKS = re.compile(r"time|elapsed|images_per_second|seconds|.*_wait|sync_.*|versions|path|.*memory")
MODEL = ["model.name=convnet", "data.train=data/digits/train", "data.test=data/digits/test", "log.every=5",
         "checkpoint.keep=9", "evaluate.every=0.5", "device=onednn"]  # fmt: skip
RULES = {
    "default": [],
    "gain 2": ["rule={outer: {gain: 2}}"],
    "alpha": ["rule={alpha: 0.1, period: 2}"],
    "published": ["rule={name: crossbow}"],
    "published, period 3": ["rule={name: crossbow, period: 3}"],
    "ea-sgd": ["rule={name: crossbow, momentum: 0}"],
    "restart": ["rule={name: crossbow, restart: [0.3, 0.6], reset_momentum: true}"],
    "drops": ["update.schedule={name: multistep, epochs: [0.4], factor: 0.1}"],
    "ssgd": ["rule={name: ssgd}"],
    "ssgd, scaled": ["rule={name: ssgd, outer: {gain: learners}}", "update.nesterov=true"],
    "local sgd": ["rule={name: local_sgd, period: 4}"],
    "diloco": ["rule={name: diloco, period: 4}"],
    "slowmo": ["rule={name: slowmo, replicas: pulled, period: 4}"],
    "switch": ["rule={name: crossbow, then: {epoch: 0.6}}"],
    "independent": ["rule={name: independent, period: 7}"],
}
PLACES = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)]  # ranks, learners of each
GAIN = 1e-6  # relative
OFTEN = "rule.resync=9"  # else nobody agrees within so few iterations
# One rank's and two ranks' learners on simulated GPUs, as the tests of the same commit have them.
SIMULATED = """
import sys
from pathlib import Path
try:
    from tests.comm.threads import on_threads
    from tests.cuda.simulated.test_whole_runs import lenet, on_gpu, work
except ImportError:  # of older commits
    from mpibow.comm.threads import on_threads
    from tests.simulated.test_whole_runs import lenet, on_gpu, work
import yaml
out, ranks, learners, rule = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), yaml.safe_load(sys.argv[4])
job = work(out, net=lenet, learners=learners, rule=rule, checkpoint={"keep": 9})
on_threads(ranks, lambda comm: on_gpu(job, comm))
"""


@dataclass(frozen=True)
class Case:
    """One run: the command's arguments behind Python, after `before` has run in the same folder."""

    name: str
    ranks: int
    arguments: tuple[str, ...]
    before: tuple[str, ...] = ()


def cases() -> list[Case]:
    """All rules in all places, some resumed, on the host; and on simulated GPUs."""
    found = []
    for rule, settings in RULES.items():
        for ranks, learners in PLACES:
            common = ["-m", "mpibow.train", *MODEL, f"learners={learners}", *settings, OFTEN, "out=runs", "name=run"]
            whole = [*common, "stop.epochs=1", "--timeline=trace.json", "--timeline-iterations=0:9999"]
            found.append(Case(f"{rule}, {ranks} x {learners}", ranks, tuple(whole)))
            if (ranks, learners) in ((1, 2), (2, 1)):
                first = (*common, "stop.epochs=0.55", "update.schedule.epochs=1") if rule != "drops" else None
                if first is not None:
                    again = (*common, "stop.epochs=1", "update.schedule.epochs=1", "--resume", "runs/run")
                    found.append(Case(f"{rule}, {ranks} x {learners}, resumed", ranks, again, first))
    for name in ("default", "gain 2", "published, period 3", "ssgd", "independent"):
        rule = next((text.removeprefix("rule=") for text in RULES[name] if text.startswith("rule=")), "{}")
        for ranks, learners in ((1, 2), (1, 4), (2, 2)):
            nested = rule.removesuffix("}") + ", " * (rule != "{}") + "resync: 9}"
            arguments = ("-c", SIMULATED, "runs", str(ranks), str(learners), nested)
            found.append(Case(f"{name}, {ranks} x {learners} simulated GPUs", 0, arguments))
    return found


def run(case: Case, tree: Path, folder: Path) -> str:
    """Runs the case of the checkout `tree` in `folder`; what went wrong, or ''."""
    folder.mkdir(parents=True)
    (folder / "data").symlink_to(folder.parents[1] / "data")
    for arguments in filter(None, (case.before, case.arguments)):
        command = [sys.executable, *arguments]
        if case.ranks > 1:
            command = ["mpirun", "-np", str(case.ranks), *command]
        done = subprocess.run(
            command, cwd=folder, env=environment_of(tree), capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            return f"exit code {done.returncode}: {done.stderr.strip()[-2000:]}"
    return ""


def differences(old: Path, new: Path) -> list[str]:
    """What differs between the runs in two folders."""
    found = []
    names = [sorted(str(path.relative_to(side)) for path in side.glob("runs/**/*.safetensors")) for side in (old, new)]
    if names[0] != names[1] or not names[0]:
        found.append(f"files {set(names[0]) ^ set(names[1]) or 'none'}")
    for name in set(names[0]) & set(names[1]):
        ours, theirs = load_file(new / name), load_file(old / name)
        alone = [key for key in ours.keys() ^ theirs.keys() if (ours.get(key, theirs.get(key)) != 0).any()]
        if alone:  # an array of zeros, as momenta where the momentum is 0, need not be written
            found.append(f"{name}: only one has {sorted(alone)}")
        for key in ours.keys() & theirs.keys():
            if not np.array_equal(ours[key], theirs[key], equal_nan=True):
                far = np.abs(ours[key] - theirs[key]).max() / max(np.abs(theirs[key]).max(), 1e-30)
                found.append(f"{name}: {key} differs by {far:.1e} of its largest")
    for path in old.glob("runs/**/metrics.jsonl"):
        lines = [_events(side / path.relative_to(old)) for side in (old, new)]
        if len(lines[0]) != len(lines[1]):
            found.append(f"metrics.jsonl: {len(lines[0])} and {len(lines[1])} events")
        for one, other in zip(*lines, strict=False):
            off = [key for key in one.keys() & other.keys() if one[key] != other[key] and not _near(key, one, other)]
            if off:
                found.append(f"metrics.jsonl: {one['event']} at {one['iteration']}: {', '.join(sorted(off))}")
                break
    if (old / "trace.json").exists() and _calls(old) != _calls(new):
        found.append("the order of collective calls")
    return found


def _near(key: str, one: Found, other: Found) -> bool:
    return key == "gain" and abs(one[key] - other[key]) <= GAIN * abs(other[key])


def _events(path: Path) -> list[Found]:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in event.items() if not CLOCKS.fullmatch(key)} for event in events]


def _calls(folder: Path) -> dict[int, list[str]]:
    """Every rank's collective calls by name, in order."""
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    spans = sorted((e for e in events if e.get("cat") == "communication"), key=lambda event: event["ts"])
    return {rank: [e["name"] for e in spans if e["pid"] == rank] for rank in {e["pid"] for e in spans}}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("old", help="a commit, or the folder of a checkout")
    parser.add_argument("new", nargs="?", help="another one; default: the working tree")
    parser.add_argument("--only", default="", help="cases whose names hold this")
    arguments = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        with two_trees(arguments.old, arguments.new, base) as trees:
            digits = [sys.executable, str(ROOT / "datasets/digits.py"), "--output", str(base / "data/digits")]
            subprocess.run(digits, check=True, capture_output=True)
            for number, case in enumerate(cases()):
                if arguments.only not in case.name:
                    continue
                folders = [base / side / str(number) for side in ("old-run", "new-run")]
                sides = zip(trees, folders, strict=True)
                failures = [run(case, tree, folder) for tree, folder in sides]
                found = [each for each in failures if each] or differences(*folders)
                wrong += bool(found)
                print(f"{case.name}: {'; '.join(found[:4]) or 'the same bits'}", flush=True)
    print(f"{wrong} case(s) differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
