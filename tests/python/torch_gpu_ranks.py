# SPDX-License-Identifier: BSD-3-Clause
"""One rank of test_torch_gpu.py: torch_gpu_ranks.py CHECK, with RANK and
WORLD_SIZE. Tensors are on the GPU RANK modulo the number of GPUs. The fake
runtime (tests/fake/fake_cudart.c) has no kernels: tensors are made on the host
and copied, and compared there."""
import datetime
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
import weft_torch  # noqa: F401 (registers the backend)

from torch_checks import RANK, RANKS, SIZE, refuses, values

GPU = torch.device("cuda", RANK % torch.cuda.device_count())


def own(count, dtype=torch.float32, more=0):
    return values(RANK + more, count, dtype).to(GPU)


def empty(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device=GPU)


def same(found, expected):
    assert found.device == GPU, found.device
    found = found.cpu()
    assert torch.equal(found, expected), (found, expected)


def check_collectives():
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for count in (0, 1, 5, 300007):
            rows = [values(r, count, dtype) for r in RANKS]
            tensor = own(count, dtype)
            dist.all_reduce(tensor)
            same(tensor, sum(rows))
            tensor = own(count, dtype)
            dist.reduce(tensor, 0, dist.ReduceOp.MAX)
            if RANK == 0 and count:
                same(tensor, torch.stack(rows).max(0).values)
            tensor = own(count, dtype)
            dist.broadcast(tensor, SIZE - 1)
            same(tensor, rows[-1])
            out = empty(SIZE * count, dtype=dtype)
            dist.all_gather_into_tensor(out, own(count, dtype))
            same(out, torch.cat(rows))
            out = empty(count, dtype=dtype)
            dist.reduce_scatter_tensor(out, own(SIZE * count, dtype))
            whole = sum(values(r, SIZE * count, dtype) for r in RANKS)
            same(out, whole[RANK * count:(RANK + 1) * count])
    parts = [empty(10 + r) for r in RANKS]
    dist.all_gather(parts, own(10 + RANK))
    for r in RANKS:
        same(parts[r], values(r, 10 + r))
    out = empty(5)
    dist.reduce_scatter(out, [own(5, more=p) for p in RANKS])
    same(out, sum(values(r + RANK, 5) for r in RANKS))
    parts = [empty(7) for _ in RANKS] if RANK == 0 else None
    dist.gather(own(7), parts)
    if RANK == 0:
        for r in RANKS:
            same(parts[r], values(r, 7))
    tensor = empty(7)
    dist.scatter(tensor, [own(7, more=p) for p in RANKS]
                 if RANK == 0 else None)
    same(tensor, values(RANK, 7))
    out = [empty(r + 1) for r in RANKS]
    dist.all_to_all(out, [own(RANK + 1, more=p) for p in RANKS])
    for r in RANKS:
        same(out[r], values(r + RANK, r + 1))
    out = empty(SIZE * 3)
    dist.all_to_all_single(out, own(SIZE * 3))
    same(out, torch.cat([values(r, SIZE * 3)[RANK * 3:RANK * 3 + 3]
                         for r in RANKS]))
    tensor = own(8)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0))
    same(tensor, sum(2 * values(r, 8) for r in RANKS))


def check_messages():
    """Each way at once, without a batch and with one; long ones do not fit into
    staging."""
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for count in (9, 1500001):
        got = empty(count)
        works = [dist.isend(own(count), right), dist.irecv(got, left)]
        for work in works:
            work.wait()
        same(got, values(left, count))
        pair = [empty(count), empty(count + 2)]
        for work in dist.batch_isend_irecv(
                [dist.P2POp(dist.irecv, pair[0], left),
                 dist.P2POp(dist.isend, own(count), right),
                 dist.P2POp(dist.irecv, pair[1], right),
                 dist.P2POp(dist.isend, own(count + 2, more=1), left)]):
            work.wait()
        same(pair[0], values(left, count))
        same(pair[1], values(right + 1, count + 2))
    for count in (3, 4):  # in the order of posting, beside host memory's
        if RANK == 0:
            dist.send(own(count), 1)
            dist.send(values(5, count), 1)
        elif RANK == 1:
            mine, host = empty(count), torch.empty(count)
            dist.recv(host, 0)
            dist.recv(mine, 0)
            same(mine, values(0, count))
            assert torch.equal(host, values(5, count))


def check_streams():
    """Streams wait, the host does not: what is asked for begins when its inputs
    are there, and what reads the outputs waits."""
    producer, consumer = torch.cuda.Stream(GPU), torch.cuda.Stream(GPU)
    host = [values(RANK + i, 400000).pin_memory() for i in range(4)]
    back = [torch.empty(400000).pin_memory() for _ in range(4)]
    works, tensors = [], []
    with torch.cuda.stream(producer):
        for i in range(4):
            tensors.append(empty(400000))
            tensors[i].copy_(host[i], non_blocking=True)
            works.append(dist.all_reduce(tensors[i], async_op=True))
    with torch.cuda.stream(consumer):
        for i in range(4):
            works[i].wait()
            back[i].copy_(tensors[i], non_blocking=True)
    consumer.synchronize()
    for i in range(4):
        assert works[i].is_completed() and works[i].is_success()
        assert torch.equal(back[i], sum(values(r + i, 400000) for r in RANKS))
    # Nobody has come but this rank: the work has not ended, wait() returns.
    dist.barrier()
    if RANK == 0:
        tensor = own(1000)
        begun = time.monotonic()
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        assert not work.is_completed()
        assert time.monotonic() - begun < 2
        time.sleep(0.2)
        assert not work.is_completed()
        store().set("go", "1")
    else:
        store().wait(["go"])
        tensor = own(1000)
        dist.all_reduce(tensor)
    same(tensor, sum(values(r, 1000) for r in RANKS))


def store():
    return dist.distributed_c10d._get_default_store()


def check_works():
    """Futures, coalescing, both kinds of memory in one group, limits."""
    # weft_torch has seen to it, where nobody else has.
    assert int(os.environ["CUDA_DEVICE_MAX_CONNECTIONS"]) > 1
    tensor = own(100)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    same(future.wait()[0], sum(values(r, 100) for r in RANKS))
    with dist._coalescing_manager(device=GPU, async_ops=True) as manager:
        for tensor in (pair := [own(4), own(6, more=1)]):
            dist.all_reduce(tensor)
    manager.wait()
    same(pair[0], sum(values(r, 4) for r in RANKS))
    same(pair[1], sum(values(r + 1, 6) for r in RANKS))
    host = values(RANK, 5)
    dist.all_reduce(host)
    assert torch.equal(host, sum(values(r, 5) for r in RANKS))
    dist.barrier()
    halves = [dist.new_group([r for r in RANKS if r % 2 == half])
              for half in (0, 1)]
    tensor = own(10)
    dist.all_reduce(tensor, group=halves[RANK % 2])
    same(tensor, sum(values(r, 10) for r in RANKS if r % 2 == RANK % 2))


def check_dropped():
    """The tensors of works that nobody keeps live until these are done, and are
    given back after that."""
    dist.barrier()
    before = torch.cuda.memory_allocated(GPU)
    if RANK:
        for _ in range(20):  # rank 0 has not come
            dist.all_reduce(own(20000), async_op=True)
        # What had been given back would be taken for these.
        mine = [torch.zeros(20000).to(GPU) for _ in range(20)]
        expected = torch.zeros(20000)
        store().add("dropped", 1)
    else:
        while store().add("dropped", 0) < SIZE - 1:
            time.sleep(0.01)
        mine = [own(20000) for _ in range(20)]
        for tensor in mine:
            dist.all_reduce(tensor, async_op=True)
        expected = sum(values(r, 20000) for r in RANKS)
    dist.barrier()
    for tensor in mine:
        same(tensor, expected)
    del mine, tensor
    dist.barrier()
    assert torch.cuda.memory_allocated(GPU) == before


def leave(group):
    begun = time.monotonic()
    group._get_backend(GPU).shutdown()
    return time.monotonic() - begun


def check_leaving():
    """Who leaves waits for messages that may still come, not for the group's
    limit of time where none does, or where somebody waits; an abort ends it."""
    groups = [dist.new_group() for _ in range(4)]
    for group in groups:
        dist.all_reduce(own(3), group=group)
    dist.barrier()
    if RANK == 0:
        got = empty(9)
        dist.recv(got, 1, group=groups[0])
        assert leave(groups[0]) > 0.2
        same(got, values(1, 9))
        found = []

        def wait():
            refuses(dist.DistBackendError, "abort", dist.barrier, groups[1])
            found.append("abort")

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(2)  # it waits by now
        assert leave(groups[1]) < 30
        thread.join()
        assert found == ["abort"]
        store().wait(["left"])
    else:
        time.sleep(1)
        dist.send(own(9), 0, group=groups[0])
        torch.cuda.synchronize(GPU)
        work = dist.irecv(empty(4), 0, group=groups[2])
        assert 4 < leave(groups[2]) < 30
        assert work.is_completed() and not work.is_success()
        refuses(dist.DistBackendError, "abort", work.wait)
        assert work.get_future().done()  # its lane's stream is gone
        dist.isend(empty(3000000), 0, group=groups[3])
        threading.Timer(1, groups[3]._get_backend(GPU).abort).start()
        assert 0.5 < leave(groups[3]) < 30
        store().set("left", "1")
    os._exit(0)


def check_lost():
    """A GPU that answers with errors from some operation on: calls say so, and
    works go without ending the program."""
    works, tensor = [], own(10)
    try:
        for _ in range(1000):
            works.append(dist.all_reduce(tensor, async_op=True))
            torch.cuda.synchronize(GPU)
    except RuntimeError:
        pass
    else:
        raise AssertionError("the GPU has no error")
    assert works
    works.clear()
    os._exit(0)


def check_refusals():
    refuses(NotImplementedError, "allowed is 0", dist.send, own(3),
            (RANK + 1) % SIZE, tag=4)
    refuses(NotImplementedError, "from any rank", dist.recv, own(3))
    refuses(ValueError, "in one call", dist.all_gather_into_tensor,
            torch.empty(3 * SIZE), own(3))
    tensor = own(4)
    dist.all_reduce(tensor)
    same(tensor, sum(values(r, 4) for r in RANKS))
    other = torch.device("cuda", 1 - GPU.index)
    refuses(ValueError, f"this group's GPU is {GPU}", dist.all_reduce,
            torch.zeros(3).to(other))
    dist.all_reduce(tensor)
    group = dist.distributed_c10d._get_default_group()
    if RANK == 0:  # nothing has been queued, so the others know nothing of it
        refuses(NotImplementedError, "a reduction of Short",
                group.allreduce_coalesced,
                [own(4), empty(4, dtype=torch.int16)])
        refuses(ValueError, f"1 tensors for {SIZE} ranks", group.allgather,
                [[empty(4) for _ in RANKS], [empty(4)]], [own(4), own(4)])
        refuses(NotImplementedError, "allowed is 0", dist.batch_isend_irecv,
                [dist.P2POp(dist.isend, own(3, more=1), 1),
                 dist.P2POp(dist.irecv, empty(3), 1, tag=4)])
        refuses(NotImplementedError, "allowed is 0", dist.batch_isend_irecv,
                [dist.P2POp(dist.irecv, empty(3), 1, tag=4)])
    check_messages()
    first = own(5)
    refuses(ValueError, "are coalesced", broadcast_both, first,
            torch.zeros(3).to(other))
    dist.distributed_c10d._world.pg_coalesce_state.clear()  # torch's own
    tensor = own(4)
    dist.all_reduce(tensor)
    same(tensor, sum(values(r, 4) for r in RANKS))
    same(first, values(0, 5))


def broadcast_both(first, second):
    with dist._coalescing_manager(device=GPU, async_ops=True):
        dist.broadcast(first, 0)
        dist.broadcast(second, 0)


def until_it_fails(tensor):
    for _ in range(1000):
        dist.all_reduce(tensor)
        torch.cuda.synchronize(GPU)  # never for ever


def check_killed():
    """The others say who, soon; streams drain."""
    tensor = own(1000)
    dist.all_reduce(tensor)
    torch.cuda.synchronize(GPU)
    if RANK == SIZE - 1:
        os.kill(os.getpid(), 9)
    begun = time.monotonic()
    refuses(dist.DistBackendError, f"rank {SIZE - 1}",
            lambda: until_it_fails(tensor))
    assert time.monotonic() - begun < 30, "2 s, beside whatever else runs"
    os._exit(0)


def check_mismatch():
    for rank in RANKS:
        refuses(dist.DistBackendError,
                f"rank {rank} posted all_reduce of {10 + rank} f32, sum",
                lambda: until_it_fails(own(10 + RANK)))
    os._exit(0)


def check_abort():
    """One rank gives up; who waits in another hears it."""
    tensor = own(10)
    dist.all_reduce(tensor)
    if RANK:
        work = dist.all_reduce(tensor, async_op=True)
        torch.cuda.synchronize(GPU)
        refuses(dist.DistBackendError, "abort", work.wait)
        assert work.is_completed() and not work.is_success()
    else:
        time.sleep(0.5)
        dist.distributed_c10d._get_default_group()._get_backend(GPU).abort()
    os._exit(0)


def check_limit():
    """A limit of wait() is the caller's own; one of the group ends all."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=3))
    if RANK == 0:
        work = dist.all_reduce(own(3), group=group, async_op=True)
        refuses(dist.DistBackendError, "the timeout is over", work.wait,
                datetime.timedelta(milliseconds=100))
        torch.cuda.synchronize(GPU)  # ended by the group's
        refuses(dist.DistBackendError, "rank 1", work.wait)
    dist.barrier()
    os._exit(0)


def main():
    bound = {"device_id": GPU} if sys.argv[1] == "works" else {}
    dist.init_process_group("weft", timeout=datetime.timedelta(seconds=60),
                            **bound)
    globals()["check_" + sys.argv[1]]()
    dist.barrier()
    dist.destroy_process_group()


main()
