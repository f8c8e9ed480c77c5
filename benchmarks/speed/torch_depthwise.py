"""PyTorch's side of bench_depthwise.py: the gradients of a depthwise convolution's weights and bias, on one thread.

python -m benchmarks.speed.torch_depthwise CHANNELS SIDE BATCH KERNEL DILATION     milliseconds by layout, as JSON
"""

from __future__ import annotations

import json
import sys
import time

import torch


def measured(channels: int, side: int, batch: int, kernel: int, dilation: int, layout: torch.memory_format) -> float:
    padding = dilation * (kernel - 1) // 2
    x = torch.randn(batch, channels, side, side).to(memory_format=layout)
    weight = torch.randn(channels, 1, kernel, kernel)
    window = [1, 1], [padding] * 2, [dilation] * 2, False, [0, 0], channels
    dy = torch.nn.functional.conv2d(x, weight, None, 1, padding, dilation, channels)

    def run() -> None:
        torch.ops.aten.convolution_backward(dy, x, weight, [channels], *window, [False, True, True])

    run()
    times = []
    until = time.perf_counter() + 0.5
    while time.perf_counter() < until:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


if __name__ == "__main__":
    torch.set_num_threads(1)
    layouts = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}
    shape = [int(argument) for argument in sys.argv[1:]]
    print(json.dumps({name: measured(*shape, layout) for name, layout in layouts.items()}))
