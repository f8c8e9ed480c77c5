"""PyTorch's side of roads.py, one of its ranks: DistributedDataParallel by gloo; rank 0 prints samples/s of all."""

import os
import sys
import time

import torch
from torch import distributed, nn

from benchmarks.speed.torch_peer import NETS

AGREE = 10  # steps from one look at rank 0's clock to the next


def main(model: str, batch: int, seconds: float) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    build, classes, shape = NETS[model]
    net = nn.parallel.DistributedDataParallel(build().to(memory_format=torch.channels_last).train())
    update = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4, fused=True)
    images = torch.randn(batch, *shape).to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,))
    begin, steps, over = 0.0, -AGREE, torch.zeros(1)
    while not over:
        for _ in range(AGREE):
            update.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(net(images), labels).backward()
            update.step()
        steps += AGREE
        begin = time.perf_counter() if steps == 0 else begin
        over = torch.tensor([float(steps > 0 and time.perf_counter() - begin >= seconds)])
        distributed.broadcast(over, 0)
    if distributed.get_rank() == 0:
        print(steps * batch * distributed.get_world_size() / (time.perf_counter() - begin), flush=True)
    distributed.barrier()
    os._exit(0)  # gloo's threads may abort a process that ends as others do


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
