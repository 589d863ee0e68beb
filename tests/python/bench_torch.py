# SPDX-License-Identifier: BSD-3-Clause
"""All-reduce of torch tensors by weft and by gloo, in turns in one job:

    torchrun --nproc-per-node 2 tests/python/bench_torch.py

prints for each size the medians in us and gloo's over weft's."""
import os
import statistics
import time

import torch
import torch.distributed as dist
import weft_torch  # noqa: F401 (registers the backend)

ROUNDS = 9


def measure(group, tensor, times):
    dist.all_reduce(tensor.fill_(1), group=group)
    assert tensor[0] == dist.get_world_size() == tensor[-1]
    begun = time.perf_counter()
    for _ in range(times):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - begun) / times * 1e6


def main():
    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=name) for name in ("gloo", "weft")}
    product, sizes = 1.0, [1 << shift for shift in range(10, 27, 2)]
    for size in sizes:
        tensor = torch.ones(size // 4)
        times = max(3, min(500, (4 << 20) // size))
        found = {name: [] for name in groups}
        for _ in range(ROUNDS):
            for name, group in groups.items():
                found[name].append(measure(group, tensor, times))
        medians = {name: statistics.median(of) for name, of in found.items()}
        ratio = medians["gloo"] / medians["weft"]
        product *= ratio
        if os.environ["RANK"] == "0":
            print(f"{size:9} bytes  weft {medians['weft']:10.1f} us  "
                  f"gloo {medians['gloo']:10.1f} us  ratio {ratio:.2f}",
                  flush=True)
    if os.environ["RANK"] == "0":
        print(f"geometric mean {product ** (1 / len(sizes)):.2f}")
    dist.destroy_process_group()


main()
