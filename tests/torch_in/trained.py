"""A program for mpirun: RUNS FOUND.json are its arguments. Trains each module of modules.py, and gives it back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mpibow as mb
from tests.torch_in.modules import CASES, made

COUNT, BATCH = 24, 3


def off(got: Any, module: Any, given: Any) -> float:
    with torch.no_grad():
        wanted = module.eval()(given).numpy()
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def main(runs: str, output: str) -> None:
    found = dict[str, Any]()
    for name, case in CASES.items():
        module = made(name)
        (given,) = case.inputs(COUNT)
        given = given.double() if given.is_floating_point() else given
        net = mb.from_torch(module, (given[:2],))
        with torch.no_grad():
            shape = module.eval()(given).movedim(-1 if name == "gpt" else 1, -1).shape[:-1]
        target = torch.randint(case.classes, tuple(shape)).numpy().astype(np.int32)
        fitted = mb.fit(
            net, (given.numpy(), target), loss=lambda y, label, name=name: mb.cross_entropy(
                y, label, axis=2 if name == "gpt" else 1
            ),
            batch_size=BATCH, learners=2, update={"lr": 0.05}, stop={"epochs": 1}, device="numpy", precision="float64",
            out=runs, name=name,
        )  # fmt: skip
        if fitted.rank:
            continue
        guess, back = fitted.predict(given.numpy()), fitted.to_torch()
        fresh = case.make().double()
        fresh.load_state_dict(back.state_dict(), strict=True)
        loaded = mb.load(fitted.summary.run).to_torch(case.make().double(), strict=True)
        before = dict(module.named_parameters())
        moved = max(float((after - before[key]).detach().abs().max()) for key, after in fresh.named_parameters())
        found[name] = {"given_back": off(guess, fresh, given), "loaded": off(guess, loaded, given), "moved": moved}
    if found:
        Path(output).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
