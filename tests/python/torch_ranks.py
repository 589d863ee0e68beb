# SPDX-License-Identifier: BSD-3-Clause
"""One rank of test_torch.py: torch_ranks.py CHECK, with RANK and WORLD_SIZE.
Each check compares with what a formula says, on every rank."""
import datetime
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
import weft_torch  # noqa: F401 (registers the backend)

from torch_checks import RANK, RANKS, SIZE, refuses, same, values

NUMBERS = [torch.float32, torch.float64, torch.float16, torch.bfloat16,
           torch.int8, torch.uint8, torch.int32, torch.int64]


def check_reductions():
    fold = {dist.ReduceOp.SUM: sum,
            dist.ReduceOp.PRODUCT: lambda rows: torch.stack(rows).prod(0),
            dist.ReduceOp.MIN: lambda rows: torch.stack(rows).min(0).values,
            dist.ReduceOp.MAX: lambda rows: torch.stack(rows).max(0).values}
    for dtype in NUMBERS:
        for count in (0, 1, 5, 100003):
            for op, of in fold.items():
                rows = [values(r, count, dtype) for r in RANKS]
                if count:
                    expected = of(rows).to(dtype)
                else:
                    expected = rows[0]
                tensor = values(RANK, count, dtype)
                dist.all_reduce(tensor, op)
                same(tensor, expected)
                tensor = values(RANK, count, dtype)
                dist.reduce(tensor, SIZE - 1, op)
                if RANK == SIZE - 1:
                    same(tensor, expected)
    tensor = values(RANK, 12)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    same(tensor, sum(values(r, 12) for r in RANKS) / SIZE)
    tensor = torch.tensor([RANK == 0, False, True])
    dist.all_reduce(tensor)
    same(tensor, torch.tensor([True, False, True]))
    for op, start in ((dist.ReduceOp.BAND, 7), (dist.ReduceOp.BOR, 1),
                      (dist.ReduceOp.BXOR, 3)):
        tensor = torch.tensor([start + RANK])
        dist.all_reduce(tensor, op)
        expected = start
        for r in range(1, SIZE):
            expected = {dist.ReduceOp.BAND: expected & (start + r),
                        dist.ReduceOp.BOR: expected | (start + r),
                        dist.ReduceOp.BXOR: expected ^ (start + r)}[op]
        same(tensor, torch.tensor([expected]))
    tensor = torch.complex(values(RANK, 9), values(RANK + 1, 9))
    dist.all_reduce(tensor)
    same(tensor, sum(torch.complex(values(r, 9), values(r + 1, 9))
                     for r in RANKS))
    tensor = values(RANK, 30000)
    dist.all_reduce_coalesced([tensor, tensor])  # is summed up once
    same(tensor, sum(values(r, 30000) for r in RANKS))
    tensor = values(RANK, 8)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0))
    same(tensor, sum(2 * values(r, 8) for r in RANKS))


def check_moves():
    for dtype in NUMBERS + [torch.bool, torch.int16, torch.complex64]:
        own = values(RANK, 1001, dtype)
        tensor = own.clone()
        dist.broadcast(tensor, SIZE - 1)
        same(tensor, values(SIZE - 1, 1001, dtype))
        out = torch.empty(SIZE * 1001, dtype=dtype)
        dist.all_gather_into_tensor(out, own)
        everything = torch.cat([values(r, 1001, dtype) for r in RANKS])
        same(out, everything)
        parts = [torch.empty(1001, dtype=dtype) for _ in RANKS]
        dist.all_gather(parts, own)
        same(torch.cat(parts), everything)
        parts = [torch.empty(10 + r, dtype=dtype) for r in RANKS]
        dist.all_gather(parts, values(RANK, 10 + RANK, dtype))
        for r in RANKS:
            same(parts[r], values(r, 10 + r, dtype))
        parts = ([torch.empty(1001, dtype=dtype) for _ in RANKS]
                 if RANK == 0 else None)
        dist.gather(own, parts, dst=0)
        if RANK == 0:
            same(torch.cat(parts), everything)
        tensor = torch.empty(7, dtype=dtype)
        dist.scatter(tensor, [values(r, 7, dtype) for r in RANKS]
                     if RANK == SIZE - 1 else None, src=SIZE - 1)
        same(tensor, values(RANK, 7, dtype))
        out = torch.empty(SIZE * 3, 2, dtype=dtype)
        dist.all_to_all_single(out, torch.stack([values(RANK, 2, dtype)]
                                                * SIZE * 3))
        same(out, torch.cat([torch.stack([values(r, 2, dtype)] * 3)
                             for r in RANKS]))
        out = [torch.empty(r + 1, dtype=dtype) for r in RANKS]
        dist.all_to_all(out, [values(RANK + p, RANK + 1, dtype)
                              for p in RANKS])
        for r in RANKS:
            same(out[r], values(r + RANK, r + 1, dtype))
    out = torch.empty(sum(RANKS) + SIZE, 2)
    dist.all_to_all_single(out, values(RANK, 2 * SIZE * (RANK + 1)).view(-1, 2),
                           [r + 1 for r in RANKS], [RANK + 1] * SIZE)
    first = 0
    for r in RANKS:
        same(out[first:first + r + 1],
             values(r, 2 * SIZE * (r + 1)).view(-1, 2)
             [RANK * (r + 1):(RANK + 1) * (r + 1)])
        first += r + 1


def check_scattered_sums():
    for dtype in NUMBERS:
        total = sum(values(r, 5 * SIZE, dtype) for r in RANKS)
        expected = total[5 * RANK:5 * RANK + 5]
        out = torch.empty(5, dtype=dtype)
        dist.reduce_scatter_tensor(out, values(RANK, 5 * SIZE, dtype))
        same(out, expected)
        out = torch.empty(5, dtype=dtype)
        dist.reduce_scatter(out, list(values(RANK, 5 * SIZE,
                                             dtype).split(5)))
        same(out, expected)


def check_pieces():
    """What is not dense comes out as if it were."""
    tensor = values(RANK, 60).view(6, 10).t()
    assert not tensor.is_contiguous()
    dist.all_reduce(tensor)
    same(tensor, sum(values(r, 60) for r in RANKS).view(6, 10).t())
    wide = torch.zeros(4, 6)
    dist.broadcast(wide[:, :3] if RANK else wide[:, :3].copy_(torch.ones(4, 3)),
                   0)
    same(wide.sum(), torch.tensor(12.0))
    out = torch.zeros(SIZE, 8)
    parts = [out[r, ::2] for r in RANKS]
    dist.all_gather(parts, values(RANK, 8)[::2])
    for r in RANKS:
        same(out[r, ::2], values(r, 8)[::2])
    with torch.inference_mode():
        parts = [torch.empty(4) for _ in RANKS]
        work = dist.all_gather(parts, values(RANK, 4), async_op=True)
    work.get_future().wait()
    same(torch.cat(parts), torch.cat([values(r, 4) for r in RANKS]))


def check_messages():
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    got = torch.empty(50000)
    works = [dist.isend(values(RANK, 50000), right), dist.irecv(got, left)]
    for work in works:
        work.wait()
    same(got, values(left, 50000))
    got = [torch.empty(9), torch.empty(11)]
    for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.irecv, got[0], left),
             dist.P2POp(dist.isend, values(RANK, 9), right),
             dist.P2POp(dist.irecv, got[1], right),
             dist.P2POp(dist.isend, values(RANK + 1, 11), left)]):
        work.wait()
    same(got[0], values(left, 9))
    same(got[1], values(right + 1, 11))


def check_tags():
    """A message goes to who waits for its tag, in whatever order; long ones
    also while their receiver waits for something else."""
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    tags = [5, 1, 5, 0, 2]
    counts = [7, 1000000, 3, 0, 12]
    sends = [dist.isend(values(RANK + i, counts[i]), right, tag=tags[i])
             for i in range(5)]
    for i in (4, 0, 3, 2, 1):  # of tag 5 in the order of sending
        got = torch.empty(counts[i])
        assert dist.recv(got, left, tag=tags[i]) == left
        same(got, values(left + i, counts[i]))
    for work in sends:
        work.wait()
    got = [torch.empty(500000) for _ in range(3)]
    receives = [dist.irecv(got[i], left, tag=i) for i in range(3)]
    for i in (2, 0, 1):
        dist.send(values(RANK + i, 500000), right, tag=i)
    dist.barrier()
    for i in (1, 2, 0):
        receives[i].wait()
        same(got[i], values(left + i, 500000))
    futures = [dist.irecv(torch.empty(4), left, tag=i).get_future()
               for i in range(2)]
    dist.send(values(RANK, 4), right, tag=1)
    futures[1].wait()  # though the first one's message has yet to be sent
    dist.barrier()
    assert not futures[0].done()
    dist.barrier()
    dist.send(values(RANK, 4), right, tag=0)
    futures[0].wait()
    pair = [torch.empty(4), torch.empty(4)]
    for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.irecv, pair[0], left, tag=1),
             dist.P2POp(dist.irecv, pair[1], left, tag=2),
             dist.P2POp(dist.isend, values(RANK + 2, 4), right, tag=2),
             dist.P2POp(dist.isend, values(RANK + 1, 4), right, tag=1)]):
        work.wait()
    same(pair[0], values(left + 1, 4))
    same(pair[1], values(left + 2, 4))


def check_any_source():
    """Whoever sends; beside named ones, and of the right tag."""
    if RANK == 0:
        seen = []
        for _ in range(2 * (SIZE - 1)):
            got = torch.empty(1000)
            source = dist.recv(got, tag=3)
            same(got, values(source, 1000))
            seen.append(source)
        assert sorted(seen) == sorted(2 * list(range(1, SIZE))), seen
        for source in range(1, SIZE):
            got = torch.empty(9)
            dist.recv(got, source, tag=4)
            same(got, values(source, 9))
    else:
        dist.isend(values(RANK, 9), 0, tag=4)  # dropped, and comes
        dist.send(values(RANK, 1000), 0, tag=3)
        dist.send(values(RANK, 1000), 0, tag=3)
    dist.barrier()


def check_leaving():
    """Who leaves without ever having sent anything holds up no receive from
    any rank, until all others have left."""
    group = dist.new_group()
    leave = group._get_backend(torch.device("cpu")).shutdown
    got = torch.empty(6)
    if RANK == 0:
        work = dist.irecv(got, group=group)
        other = dist.irecv(torch.empty(6), group=group, tag=1)
    dist.barrier()
    if RANK > 1:
        leave()
    dist.barrier()
    if RANK == 1:
        dist.send(values(1, 6), 0, group=group)
        leave()
    if RANK == 0:
        work.wait()
        same(got, values(1, 6))
        refuses(dist.DistBackendError, "all others have left", other.wait)
        refuses(dist.DistBackendError, "rank 2 has left", dist.recv, got, 2,
                group=group)
        leave()


def check_dropped():
    """A work that nobody keeps keeps its tensors, and is done before its rank
    leaves."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=60))
    if RANK == 0:
        dist.isend(values(0, 3000000), 1, group=group)
        time.sleep(0.5)  # it is waited for by now
        group._get_backend(torch.device("cpu")).shutdown()
    elif RANK == 1:
        time.sleep(2)  # the other one is leaving
        got = torch.empty(3000000)
        dist.recv(got, 0, group=group)
        same(got, values(0, 3000000))
    for _ in range(50):
        dist.all_reduce(torch.ones(20000), async_op=True)
        dist.broadcast(torch.ones(20000), 0, async_op=True)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    same(tensor, torch.full((3,), float(SIZE)))


def check_monitored():
    """Rank 0 names who has not come, and all go on."""
    for _ in range(3):
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=60))
    limit = datetime.timedelta(seconds=1)
    if RANK == 0:
        refuses(RuntimeError, "Ranks 1, 2 failed to pass monitoredBarrier",
                dist.monitored_barrier, timeout=limit, wait_all_ranks=True)
    dist.barrier()


def check_limits():
    """What nobody sends ends with an error that says so, after the group's
    limit, within which all must have met to make it."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=30))
    if RANK == 0:
        refuses(dist.DistBackendError, "the timeout is over", dist.recv,
                torch.empty(2), tag=7, group=group)
        work = dist.irecv(torch.empty(2), 1, tag=8)
        refuses(dist.DistBackendError, "the timeout is over", work.wait,
                datetime.timedelta(milliseconds=100))
    dist.barrier()
    if RANK == 1:
        dist.send(torch.ones(2), 0, tag=8)
    dist.barrier()


def check_work():
    """Works, futures, several at once, in any order."""
    tensors = [values(RANK, 30000) for _ in range(8)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in reversed(works):
        work.wait()
        assert work.is_completed() and work.is_success()
    for tensor in tensors:
        same(tensor, sum(values(r, 30000) for r in RANKS))
    tensor = values(RANK, 100)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    then = future.then(lambda f: f.value()[0] + 1)
    same(then.wait(), sum(values(r, 100) for r in RANKS) + 1)
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in (pair := [values(RANK, 4), values(RANK + 1, 6)]):
            dist.all_reduce(tensor)
    manager.wait()
    same(pair[1], sum(values(r + 1, 6) for r in RANKS))
    outs = [torch.empty(4 * SIZE), torch.empty(2 * SIZE)]
    with dist._coalescing_manager():
        for out, count in zip(outs, (4, 2)):
            dist.all_gather_into_tensor(out, values(RANK, count))
    same(outs[1], torch.cat([values(r, 2) for r in RANKS]))
    dist.barrier()
    things = [None] * SIZE
    dist.all_gather_object(things, {"rank": RANK})
    assert things == [{"rank": r} for r in RANKS]
    assert dist.get_backend() == "weft"


def check_groups():
    halves = [dist.new_group([r for r in RANKS if r % 2 == half])
              for half in (0, 1)]
    tensor = values(RANK, 10)
    dist.all_reduce(tensor, group=halves[RANK % 2])
    same(tensor, sum(values(r, 10) for r in RANKS if r % 2 == RANK % 2))


def check_mismatched_message():
    """The receive alone fails, of a list of which others are under way."""
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    sends = [dist.isend(values(RANK, 3), right, tag=tag) for tag in (1, 2)]
    three, five = torch.empty(3), torch.empty(5)
    dist.recv(three, left, tag=2)  # what came before it is kept aside
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, values(RANK, 5), right, tag=3),
         dist.P2POp(dist.irecv, torch.empty(4), left, tag=1)])
    dist.recv(five, left, tag=3)
    same(five, values(left, 5))
    refuses(ValueError, "of 4 elements, or of another type; sent were 3",
            lambda: [work.wait() for work in works])
    three.zero_()
    dist.recv(three, left, tag=1)
    same(three, values(left, 3))
    for work in sends:
        work.wait()


def check_refusals():
    refuses(NotImplementedError, "a reduction of Short", dist.all_reduce,
            torch.zeros(3, dtype=torch.int16))
    refuses(ValueError, "a mean of truth values", dist.all_reduce,
            torch.zeros(3, dtype=torch.bool), dist.ReduceOp.AVG)
    refuses((ValueError, RuntimeError), "", dist.all_gather_into_tensor,
            torch.zeros(SIZE * 3 + 1), torch.zeros(3))
    for rank in (-1, SIZE, 99):
        text = f"rank {rank} of {SIZE}"
        refuses(ValueError, text, dist.isend, torch.zeros(3), rank)
        refuses(ValueError, text, dist.irecv, torch.zeros(3), rank)
    check_mismatched_message()
    group = dist.distributed_c10d._get_default_group()
    if RANK == 0:  # nothing is queued, so the others know nothing of it
        refuses(NotImplementedError, "a reduction of Short",
                group.allreduce_coalesced,
                [torch.ones(2), torch.zeros(2, dtype=torch.int16)])
        refuses(ValueError, f"1 tensors for {SIZE} ranks", group.allgather,
                [[torch.empty(4) for _ in RANKS], [torch.empty(4)]],
                [torch.ones(4), torch.ones(4)])
        refuses(ValueError, f"rank 99 of {SIZE}", dist.batch_isend_irecv,
                [dist.P2POp(dist.isend, torch.zeros(3), 1),
                 dist.P2POp(dist.irecv, torch.empty(3), 1),
                 dist.P2POp(dist.irecv, torch.empty(3), 99)])
        # One that torch itself refuses ends no batch: the next one says so.
        refuses(NotImplementedError, "SparseCPU", dist.batch_isend_irecv,
                [dist.P2POp(dist.isend, torch.zeros(3), 1),
                 dist.P2POp(dist.irecv, torch.eye(3).to_sparse(), 1)])
        refuses(ValueError, "batch before has not ended",
                dist.batch_isend_irecv,
                [dist.P2POp(dist.isend, torch.zeros(3), 1)])
    got = torch.empty(3)  # a batch that was refused leaves nothing behind
    for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, values(RANK, 3), (RANK + 1) % SIZE),
             dist.P2POp(dist.irecv, got, (RANK - 1) % SIZE)]):
        work.wait()
    same(got, values((RANK - 1) % SIZE, 3))
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # nothing was queued, all goes on
    same(tensor, torch.full((2,), float(SIZE)))


def train(wrap):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(),
                                torch.nn.LayerNorm(64), torch.nn.Linear(64, 1))
    model = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(8):
        torch.manual_seed(100 * step + RANK)
        x = torch.randn(32, 16)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses


def check_training():
    """DDP and FSDP2 learn what a model with averaged gradients learns."""
    class Averaged(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model
            for parameter in model.parameters():
                parameter.register_hook(self.average)

        def average(self, gradient):
            gradient = gradient.clone()
            dist.all_reduce(gradient, dist.ReduceOp.AVG)
            return gradient

        def forward(self, x):
            return self.model(x)

    expected = train(Averaged)
    assert expected[-1] < expected[0]
    for wrap in (torch.nn.parallel.DistributedDataParallel, shard):
        found = train(wrap)
        for a, b in zip(found, expected):
            assert abs(a - b) < 1e-5 * abs(b), (wrap, found, expected)


def shard(model):
    from torch.distributed.device_mesh import init_device_mesh
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    return fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))


def piece():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())


def check_pipelines():
    """Stages on ranks give the loss and the gradients of the whole model, by
    each schedule."""
    from torch.distributed import pipelining as pipes
    batch, parts = 12, 6
    torch.manual_seed(2)
    x, y = torch.randn(batch, 8), torch.randn(batch, 8)
    loss_of = torch.nn.functional.mse_loss
    for schedule, each in ((pipes.ScheduleGPipe, 1), (pipes.Schedule1F1B, 1),
                           (pipes.ScheduleInterleaved1F1B, 2)):
        pieces = [piece() for _ in range(each * SIZE)]
        whole = torch.nn.Sequential(*(torch.nn.Sequential(*p) for p in pieces))
        expected = loss_of(whole(x), y)
        expected.backward()
        gradients = [[p.grad.clone() for p in one.parameters()]
                     for one in pieces]
        whole.zero_grad()
        stages = [pipes.PipelineStage(pieces[at], at, each * SIZE,
                                      torch.device("cpu"))
                  for at in range(RANK, each * SIZE, SIZE)]
        plan = schedule(stages if each > 1 else stages[0], parts,
                        loss_fn=loss_of)
        losses = []
        plan.step(*([x] if RANK == 0 else []), target=y, losses=losses)
        if RANK == SIZE - 1:
            assert torch.allclose(torch.stack(losses).mean(), expected,
                                  atol=1e-6), (schedule, losses, expected)
        for at in range(RANK, each * SIZE, SIZE):
            for mine, want in zip(pieces[at].parameters(), gradients[at]):
                assert torch.allclose(mine.grad, want, atol=1e-6), schedule


def check_tensor_parallel():
    """Columns, then rows, of a layer on each rank give what all of it gives."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import parallel
    torch.manual_seed(3)
    whole = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(),
                                torch.nn.Linear(12, 6))
    split = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(),
                                torch.nn.Linear(12, 6))
    split.load_state_dict(whole.state_dict())
    parallel.parallelize_module(split, init_device_mesh("cpu", (SIZE,)),
                                {"0": parallel.ColwiseParallel(),
                                 "2": parallel.RowwiseParallel()})
    assert split[0].weight.to_local().shape == (12 // SIZE, 6)
    x = torch.randn(4, 6)
    out, expected = split(x), whole(x)
    assert torch.allclose(out, expected, atol=1e-6), (out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    for mine, want in zip(split.parameters(), whole.parameters()):
        assert torch.allclose(mine.grad.full_tensor(), want.grad, atol=1e-5)


def check_killed():
    """The others say who, soon."""
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    if RANK == SIZE - 1:
        os.kill(os.getpid(), 9)
    begun = time.monotonic()
    refuses(dist.DistBackendError, f"rank {SIZE - 1}",
            lambda: [dist.all_reduce(tensor) for _ in range(1000)])
    assert time.monotonic() - begun < 30, "2 s, beside whatever else runs"
    os._exit(0)


def check_mismatch():
    refuses(dist.DistBackendError, "all_reduce",
            lambda: [dist.all_reduce(torch.ones(10 + RANK)),
                     dist.barrier()])
    os._exit(0)


def check_abort():
    """One rank gives up; who waits in another hears it."""
    if RANK:
        refuses(dist.DistBackendError, "abort", dist.barrier)
    else:
        time.sleep(0.5)
        dist.distributed_c10d._get_default_group()._get_backend(
            torch.device("cpu")).abort()
    os._exit(0)


def check_shutdown():
    """What is pending ends with an error; futures too."""
    work = dist.irecv(torch.empty(4), (RANK + 1) % SIZE)
    future = work.get_future()
    dist.barrier()
    dist.distributed_c10d._get_default_group()._get_backend(
        torch.device("cpu")).shutdown()
    refuses(dist.DistBackendError, "", work.wait)
    refuses(RuntimeError, "", future.wait)
    refuses(ValueError, "shut down", dist.barrier)
    os._exit(0)


def check_abort_of_shutdown():
    """An abort ends a shutdown that waits for what nobody keeps."""
    backend = dist.distributed_c10d._get_default_group()._get_backend(
        torch.device("cpu"))
    store = dist.distributed_c10d._get_default_store()
    if RANK:
        store.get("over")  # it takes no part until then
        store.set("heard", "")
        refuses(dist.DistBackendError, "abort", dist.barrier)
    else:
        dist.all_reduce(torch.ones(20000), async_op=True)
        leaver = threading.Thread(target=backend.shutdown)
        leaver.start()
        time.sleep(0.5)
        assert leaver.is_alive()
        backend.abort()
        leaver.join(20)
        alive = leaver.is_alive()
        store.set("over", "")
        store.get("heard")
        assert not alive
    os._exit(0)


def main():
    dist.init_process_group("weft",
                            timeout=datetime.timedelta(seconds=60))
    globals()["check_" + sys.argv[1]]()
    dist.barrier()
    dist.destroy_process_group()


main()
