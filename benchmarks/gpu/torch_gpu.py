"""PyTorch's side of bench_gpu.py: the same nets as plain PyTorch trains them on a GPU, channels last.

    python -m benchmarks.gpu.torch_gpu [--device cpu]      a line of JSON for each line of JSON that it reads

{"ask": "about", "models": [MODEL, ...]}                                   versions, the device, every net's weights
{"ask": "speed", "model": .., "batch": .., "setting": .., "precision": .., "seconds": .., "keep": true}      images/s
{"ask": "rates", "precision": .., "size": N, "bytes": N}              FLOP/s of a large product, bytes/s of a large copy

One process answers all, so that what is compiled or captured once is there in the next round (`keep`). An answer
{"error": ...} is of that question alone.
"""

import gc
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout

import torch
from torch import nn

from benchmarks.sides import Found, parser_of
from benchmarks.speed.torch_peer import NETS, versions

Run = Callable[[], object]
SETTINGS: Mapping[str, tuple[bool, bool]] = {  # torch.compile, a CUDA graph of the whole step
    "eager": (False, False),
    "graphs": (False, True),
    "compile": (True, False),
    "compile and graphs": (True, True),
}
HALVES = {"bf16": torch.bfloat16}
PRECISIONS = ("float32", "tf32", *HALVES)
WARM_UP = 11  # steps before a capture: PyTorch's own advice where ranks are wrapped, and enough for any
MOST_AT_ONCE = 10  # times as many steps as in the turn before


class Side:
    def __init__(self, device: str) -> None:
        self.device, self.kept = torch.device(device), dict[tuple[object, ...], Run]()
        torch.backends.cudnn.benchmark = True

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def answer(self, ask: str, **about: object) -> object:
        questions = {"about": self.about, "speed": self.speed, "rates": self.rates}
        return questions[ask](**about)

    def about(self, models: list[str]) -> Found:
        found = {**versions(), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        weights = {model: sum(weight.numel() for weight in NETS[model][0]().parameters()) for model in models}
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU"
        del found["instructions"]
        return {"versions": found, "device": name, "weights": weights}

    def speed(
        self, model: str, batch: int, setting: str, precision: str, seconds: float, keep: bool = False
    ) -> dict[str, float]:
        compiled, graphs = SETTINGS[setting]
        exact(precision)
        key = (model, batch, setting, precision)
        if (step := self.kept.get(key)) is None:
            plain = "compile" if compiled else "eager"  # may be there: it is captured as it is
            step = self.kept.get((model, batch, plain, precision)) or self.trainer(model, batch, precision, compiled)
            step = self.captured(step) if graphs else step
            if keep:
                self.kept[key] = step
        return {"images_per_second": batch * rate(step, seconds, self.wait)}

    def trainer(self, model: str, batch: int, precision: str, compiled: bool) -> Run:
        """One step of training a new net on one made-up batch: forward, backward, fused SGD with momentum and decay."""
        build, classes, shape = NETS[model]
        net = build().to(self.device, memory_format=torch.channels_last).train()
        run: Callable[..., torch.Tensor] = torch.compile(net, dynamic=False) if compiled else net
        update = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4, fused=True)
        images = torch.randn(batch, *shape, device=self.device).to(memory_format=torch.channels_last)
        labels = torch.randint(classes, (batch,), device=self.device)

        def step() -> None:
            update.zero_grad(set_to_none=True)
            with narrowed(self.device.type, precision):
                loss = nn.functional.cross_entropy(run(images), labels)
            loss.backward()
            update.step()

        return step

    def captured(self, step: Run) -> Run:
        """The whole step as one CUDA graph, as PyTorch's notes on CUDA have it."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def rates(self, precision: str, size: int = 8192, bytes: int = 1 << 30) -> dict[str, float]:
        """Of random numbers: zeros are multiplied faster. A copy counts what is read and what is written."""
        exact(precision)
        dtype = HALVES.get(precision, torch.float32)
        a, b = (torch.randn(size, size, device=self.device, dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        products = rate(lambda: torch.mm(a, b, out=out), 0.5, self.wait)
        source = torch.randn(bytes // 4, device=self.device)
        target = torch.empty_like(source)
        copies = rate(lambda: target.copy_(source), 0.5, self.wait)
        return {"flops": 2.0 * size**3 * products, "bytes": 2.0 * source.nbytes * copies}


def exact(precision: str) -> None:
    """float32 as it is, or rounded to TF32 where tensor cores multiply it."""
    assert precision in PRECISIONS, precision
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "float32"


def narrowed(kind: str, precision: str) -> torch.autocast:
    """Float32 weights, their copies in 16 bits made anew in every step: what a captured step needs."""
    dtype = HALVES.get(precision)
    return torch.autocast(kind, dtype=dtype or torch.bfloat16, enabled=dtype is not None, cache_enabled=False)


def rate(step: Run, seconds: float, wait: Run, clock: Callable[[], float] = time.perf_counter) -> float:
    """Steps a second, of as many as take `seconds` at least, from one moment when nothing is under way to another."""
    for _ in range(3):
        step()
    wait()
    count = 1
    while True:
        begin = clock()
        for _ in range(count):
            step()
        wait()
        elapsed = clock() - begin
        if elapsed >= seconds:
            return count / elapsed
        count = max(2 * count, math.ceil(count * min(1.2 * seconds / max(elapsed, 1e-9), MOST_AT_ONCE)))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--device", default="cuda")
    side = Side(parser.parse_args().device)
    for line in sys.stdin:
        try:
            with redirect_stdout(sys.stderr):  # compilers are talkative
                found = side.answer(**json.loads(line))
        except Exception as error:  # out of memory, no compiler: the next question may be answered
            found = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
        print(json.dumps(found), flush=True)
        gc.collect()
        if side.device.type == "cuda":
            torch.cuda.empty_cache()  # the other side measures on this GPU


if __name__ == "__main__":
    main()
