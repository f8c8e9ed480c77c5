"""Whole catalogues of other people's nets through `from_torch`: each is right, or refused by name.

    python -m benchmarks.nets.catalogue [--group timm ...] [--only NAME ...] [--seconds 300] [--output FILE] [--again]

A net is read, and compared with PyTorch: logits and the gradients of all weights in float64 by NumPy, logits in float32
by oneDNN, the weights after a step of SGD and after one of AdamW. It then comes back by a strict `load_state_dict`.
`--checks ranks` trains it by `mpirun -np 2` instead, with other random weights on each rank: both must use rank 0's.
`--checks onnx` writes it as an ONNX model, whose outputs by ONNX Runtime it compares with NumPy's, in evaluation;
weights next to 0 and statistics are changed first, so that these depend on all of them.
Differences are parts of the largest number of an array. Dropout is off. Every net has a process of its own, which ends
after `--seconds`; results are added to FILE, a line a net, and nets that it has are left out unless `--again`.
`pip install timm torchvision transformers` installs the nets; groups without their package are left out by name.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.sides import Failed, launched

GROUPS = ("timm", "torchvision", "transformers", "others")
NEEDS = {"others": "torchvision"}
KINDS = ("right", "refused", "wrong", "failed")
MODULE = "benchmarks.nets.catalogue"


def tried(group: str, name: str, seconds: float, checks: Sequence[str]) -> dict[str, Any]:
    """The result of a net, by a process of its own."""
    ranks = 2 if "ranks" in checks else 1
    begin = time.perf_counter()
    try:
        lines = launched(ranks, "-m", "benchmarks.nets.catalogue_checks", group, name, *checks, limit=seconds)
        result = json.loads(lines.splitlines()[-1])
    except Failed as error:
        result = {"kind": "failed", "text": " ".join(str(error).split()[-60:])}
    return {"group": group, "name": name, "seconds": round(time.perf_counter() - begin, 1), **result}


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Counts by group, and the nets that are not right, in Markdown."""
    lines = ["| nets | tried | right | refused by name | wrong | failed |", "| --- | --- | --- | --- | --- | --- |"]
    for group in GROUPS:
        counts = Counter(each["kind"] for each in results if each["group"] == group)
        if counts:
            lines.append(f"| {group} | {counts.total()} | {' | '.join(str(counts[kind]) for kind in KINDS)} |")
    others = [each for each in results if each["kind"] != "right"]
    lines += ["", "| net | result |", "| --- | --- |"] * bool(others)
    lines += [f"| {each['group']}: {each['name']} | {each['kind']}: {each['text'][:300]} |" for each in others]
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--group", nargs="+", choices=GROUPS, default=GROUPS)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--output", type=Path, default=Path("catalogue.jsonl"))
    parser.add_argument("--checks", nargs="+", default=["numbers", "steps", "back"], help="after reading")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true", help="print the table of FILE, and try nothing")
    options = parser.parse_args(argv)
    lines = options.output.read_text().splitlines() if options.output.exists() else []
    results = {(each["group"], each["name"]): each for each in map(json.loads, lines)}
    for group in () if options.table else options.group:
        package = NEEDS.get(group, group)
        if find_spec(package) is None:
            print(f"{group}: {package} is not installed: pip install {package}", flush=True)
            continue
        from benchmarks.nets.catalogue_nets import GROUPS as NETS  # late: it imports PyTorch

        for name in NETS[group]:
            if (options.only and name not in options.only) or ((group, name) in results and not options.again):
                continue
            result = results[group, name] = tried(group, name, options.seconds, options.checks)
            with options.output.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(f"{group}: {name}: {result['kind']} {result['text'][:400]} ({result['seconds']} s)", flush=True)
    print(table([*results.values()]))
    return int(any(each["kind"] in ("wrong", "failed") for each in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
