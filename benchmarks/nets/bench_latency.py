"""The latency of one warm sample by fitted.predict beside ONNX Runtime, one thread each; about a minute a net.

    python -m benchmarks.nets.bench_latency [--nets lenet resnet20] [--pairs 9] [--seconds 2] [--output FOLDER]

Both compute logits of one image of bytes, the scaling included, from the same weights: ours as fitted.predict has them,
after a first call; ONNX Runtime (`pip install onnx onnxruntime`) from the file of fitted.to_onnx. A turn is the median
time of a call within SECONDS. Every round has a turn of each side, and every other round has them in reverse; ratios
are of one round. Let nothing else run meanwhile.

FOLDER/latency.json and latency.md are written after every net.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import chdir
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import mpibow as mb
from benchmarks import turns
from benchmarks.sides import after, heading, machine, note, parser_of_rounds, table, write
from mpibow.data import Array
from mpibow.models import MODELS
from mpibow.run.results import versions

SHAPES = {"mlp": (1, 28, 28), "lenet": (1, 28, 28), "resnet20": (3, 32, 32), "resnet18": (3, 224, 224)}
OURS, THEIRS = "mpibow", "ONNX Runtime"
CLASSES = 10


def fitted_of(name: str) -> mb.Fitted:
    """The net after one step on random images: the weights do not matter."""
    images = np.random.default_rng(0).integers(0, 256, (2, *SHAPES[name]), np.uint8)
    labels = np.array([0, CLASSES - 1])
    settings: dict[str, Any] = {"batch_size": 2, "learners": 1, "stop": {"iterations": 1, "epochs": None}}
    return mb.fit(partial(MODELS[name], classes=CLASSES), (images, labels), name=name, **settings)


def of_onnx(file: Path) -> Callable[[Array], Array]:
    """The net in a file, computed by ONNX Runtime on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda image: np.asarray(session.run(None, {name: image})[0])


def latency(call: Callable[[], object], seconds: float) -> float:
    """The median seconds of a call, and of at least three."""
    times, end = list[float](), time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return median(times)


def measure(name: str, pairs: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of a call by each side in every round."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        fitted = fitted_of(name)
        fitted.to_onnx("net.onnx")
        run = of_onnx(Path("net.onnx"))
        image = np.random.default_rng(1).integers(0, 256, (1, *SHAPES[name]), np.uint8)
        np.testing.assert_allclose(run(image), fitted.predict(image), rtol=1e-4, atol=1e-4)
        calls = {OURS: partial(fitted.predict, image), THEIRS: partial(run, image)}
        return turns.in_turn({side: partial(latency, call) for side, call in calls.items()}, pairs, seconds)


def page(found: Mapping[str, Any]) -> str:
    text = heading("One warm sample", found["about"])
    text += f"{THEIRS}: {found['onnxruntime']}.\n\nMicroseconds of a call, medians of rounds; one thread.\n\n"
    rows = []
    for name, rounds in found["nets"].items():
        each = turns.ratios(rounds, OURS, THEIRS)
        low, high = turns.interval(each)
        times = [f"{1e6 * median(rounds[side]):,.0f}" for side in (OURS, THEIRS)]
        rows.append([name, str(SHAPES[name]), *times, f"{median(each):.2f}", f"{low:.2f} to {high:.2f}"])
    return text + table(("net", "image", OURS, THEIRS, "times", "interval"), rows)


def main() -> None:
    parser = parser_of_rounds(__doc__, "latency", seconds=2.0)
    parser.add_argument("--nets", nargs="+", choices=[*SHAPES], default=[*SHAPES], help="the nets (all)")
    options = parser.parse_args()
    threadpool_limits(1)
    about = {**machine(FOLDER=options.output), "mpibow": versions()}
    found: dict[str, Any] = {"about": about, "onnxruntime": version("onnxruntime"), "nets": {}}
    for name in options.nets:
        note(name)
        found["nets"][name] = measure(name, options.pairs, options.seconds)
        found["about"] = after(about)
        if options.output:
            write(options.output, "latency", page(found), found)
    print(page(found), end="")


if __name__ == "__main__":
    main()
