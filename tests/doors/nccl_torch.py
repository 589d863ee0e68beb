#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""nccl_torch.py - a rank of PyTorch's NCCL backend, with weft's library in NCCL's
place, on GPU 0 that all ranks share:

    LD_PRELOAD=LIB/weft/nccl/libnccl.so.2 \\
        python3 -m torch.distributed.run --nproc-per-node 2 nccl_torch.py

Goal: torch.distributed's operations have the right values, and a small transformer
trains by DistributedDataParallel to the losses of one rank with the whole batch.
Method: scripts/gpu-check runs it on a machine with a GPU; rank 0 prints a line for
each operation. Exit 1: a value is wrong.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, NEAR = 30, 16, 1e-4


def expect(name, right):
    if not right:
        sys.exit(f"rank {dist.get_rank()}: {name} is wrong")
    if dist.get_rank() == 0:
        print(name, "is right", flush=True)


def full(count, value, dtype=torch.float32):
    return torch.full((count,), value, dtype=dtype, device="cuda")


def check_operations(rank, nranks):
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for count in (1, 1000, 1 << 20):
            x = full(count, rank + 1, dtype)
            dist.all_reduce(x)
            expect(f"all_reduce of {count} {dtype}",
                   bool((x == nranks * (nranks + 1) // 2).all()))
    parts = [full(1000, -1) for _ in range(nranks)]
    dist.all_gather(parts, full(1000, rank))
    expect("all_gather", all(bool((part == i).all())
                             for i, part in enumerate(parts)))
    line = torch.arange(500. * nranks, device="cuda")
    own = full(500, -1)
    dist.reduce_scatter_tensor(own, line)
    expect("reduce_scatter", bool(
        (own == nranks * line[500 * rank:500 * rank + 500]).all()))
    got = full(64 * nranks, -1)
    dist.all_to_all_single(got, full(64 * nranks, rank))
    expect("all_to_all", bool((got.view(nranks, 64).T ==
                               torch.arange(nranks, device="cuda")).all()))
    x = full(77, rank)
    dist.broadcast(x, 1)
    expect("broadcast", bool((x == 1).all()))
    got = full(99, -1)
    for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, full(99, rank), (rank + 1) % nranks),
             dist.P2POp(dist.irecv, got, (rank - 1) % nranks)]):
        work.wait()
    expect("send and receive", bool((got == (rank - 1) % nranks).all()))
    x = full(5, 1)
    dist.all_reduce(x, group=dist.new_group([0, 1]))
    expect("all_reduce of a second group", rank > 1 or bool((x == 2).all()))


def make_model():
    torch.manual_seed(7)
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0,
                                       batch_first=True, norm_first=True)
    return nn.Sequential(
        nn.Embedding(256, 128),
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Linear(128, 256)).cuda()


def train(model, first, count):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for step in range(STEPS):
        draw = torch.Generator().manual_seed(step % 4)
        batch = torch.randint(0, 256, (BATCH, 64), generator=draw)
        batch = batch[first:first + count].cuda()
        loss = F.cross_entropy(model(batch)[:, :-1].flatten(0, 1),
                               batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def main():
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    rank, nranks = dist.get_rank(), dist.get_world_size()
    check_operations(rank, nranks)
    wanted = train(make_model(), 0, BATCH)
    own = BATCH // nranks
    shared = nn.parallel.DistributedDataParallel(make_model(), device_ids=[0])
    losses = train(shared, rank * own, own)
    dist.all_reduce(losses)
    apart = float(((losses / nranks - wanted) / wanted).abs().max())
    expect(f"DistributedDataParallel (losses apart by {apart:.2g} at most)",
           apart < NEAR)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("NCCL_DEBUG", "WARN")
    main()
