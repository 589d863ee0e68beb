# SPDX-License-Identifier: BSD-3-Clause
"""One rank of test_torch.py: torch_group_ranks.py CHECKS, with RANK and
WORLD_SIZE: what a group is asked besides its operations. What a release of
torch does not have yet, it cannot be asked."""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
import weft_torch  # noqa: F401 (registers the backend)

from torch_checks import RANK, RANKS, SIZE, refuses, same, values

CPU = torch.device("cpu")


def seconds(count):
    return datetime.timedelta(seconds=count)


def backend_of(group=None):
    group = group or dist.distributed_c10d._get_default_group()
    return group._get_backend(CPU)


def has(name):
    """Whether this torch has it; says so where not."""
    found = hasattr(dist, name)
    if not found:
        print(f"torch {torch.__version__} has no {name}")
    return found


def sum_over(group, ranks):
    tensor = values(RANK, 1000)
    dist.all_reduce(tensor, group=group)
    same(tensor, sum(values(r, 1000) for r in ranks))


def check_gathers():
    if not has("gather_single"):
        return
    for root in RANKS:
        for shape in ((SIZE * 6,), (SIZE, 6)):
            out = torch.full(shape, -1.0) if RANK == root else None
            dist.gather_single(values(RANK, 6), out, dst=root)
            if RANK == root:
                same(out.view(-1), torch.cat([values(r, 6) for r in RANKS]))
    out = torch.empty(SIZE * 2, dtype=torch.int16)
    work = dist.gather_into_tensor(
        values(RANK, 2, torch.int16), out if RANK == 0 else None, dst=0,
        async_op=True)
    work.wait()
    if RANK == 0:
        same(out, torch.cat([values(r, 2, torch.int16) for r in RANKS]))
        refuses(ValueError, "the inputs of all ranks", dist.gather_single,
                torch.zeros(3), torch.zeros(3 * SIZE + 1), dst=0)


def check_limits():
    """A limit counts for what is called after it: of messages, of those that a
    longer one lets pass, and of collectives."""
    if not has("set_timeout"):
        return
    group = dist.new_group(timeout=seconds(10))
    assert backend_of(group).options._timeout == seconds(10)
    for bad in (0, -1):
        refuses(ValueError, "allowed is 1 or more",
                backend_of(group).set_timeout, seconds(bad))
    dist.set_timeout(seconds(60), group)
    assert backend_of(group).options._timeout == seconds(60)
    if RANK == 0:
        got = torch.empty(4)
        dist.recv(got, 1, group=group)
        same(got, values(1, 4))
    elif RANK == 1:
        time.sleep(12)
        dist.send(values(1, 4), 0, group=group)
    sum_over(group, RANKS)
    for call in (lambda to: dist.recv(torch.empty(2), 1, group=to),
                 lambda to: dist.recv(torch.empty(2), group=to),
                 lambda to: dist.all_reduce(torch.ones(9), group=to)):
        group = dist.new_group()
        dist.set_timeout(seconds(1), group)
        if RANK == 0:
            begun = time.monotonic()
            refuses(dist.DistBackendError, "", call, group)
            assert time.monotonic() - begun < 30, "1 s, beside other work"
        dist.barrier()


def check_splits():
    """Ranks stand as the list says; who is on none gets no group. What the
    parent has under way goes on."""
    if not getattr(backend_of(), "supports_splitting", False):
        print(f"torch {torch.__version__} splits groups of NCCL alone")
        return
    late = torch.empty(5)
    work = dist.irecv(late, (RANK - 1) % SIZE, tag=7)
    for _ in range(2):
        halves = [[2, 0], [1, 3]]
        group = dist.split_group(split_ranks=halves, timeout=seconds(50))
        mine = halves[RANK % 2]
        assert dist.get_process_group_ranks(group) == mine
        assert dist.get_rank(group) == mine.index(RANK)
        assert backend_of(group).options._timeout == seconds(50)
        sum_over(group, mine)
        inner = dist.split_group(group, [[0]])
        assert (inner is dist.GroupMember.NON_GROUP_MEMBER) == (RANK != mine[0])
    few = dist.split_group(split_ranks=[[1, 2]])
    if RANK in (1, 2):
        sum_over(few, (1, 2))
    else:
        assert few is dist.GroupMember.NON_GROUP_MEMBER
    dist.send(values(RANK, 5), (RANK + 1) % SIZE, tag=7)
    work.wait()
    same(late, values((RANK - 1) % SIZE, 5))
    sum_over(None, RANKS)


def check_shrinks():
    """Those that stay go on, from a group at work and from one that waits for
    what never comes."""
    if not has("shrink_group"):
        return
    # Both first: torch numbers groups, of which those that stay make another.
    for flags, group in enumerate([dist.new_group(), dist.new_group()]):
        rest = [0, 2]
        sum_over(group, RANKS)
        if RANK in rest:
            work = dist.irecv(torch.empty(3), rest[RANK == 0], group=group)
            if flags == 0:
                dist.send(values(RANK, 3), rest[RANK == 0], group=group)
                work.wait()
                assert dist.irecv(torch.empty(3), group=group, tag=3)
            small = dist.shrink_group([1], group=group, shrink_flags=flags)
            if flags == 1:
                refuses(dist.DistBackendError, "", work.wait)
            assert dist.get_process_group_ranks(small) == rest
            assert dist.get_rank(small) == rest.index(RANK)
            sum_over(small, rest)
            got = torch.empty(4)
            peer = rest[RANK == 0]
            works = [dist.isend(values(RANK, 4), peer, group=small),
                     dist.irecv(got, peer, group=small)]
            for one in works:
                one.wait()
            same(got, values(peer, 4))
            dist.monitored_barrier(small, seconds(50))
        dist.barrier()


def check_shrinks_after_death():
    """The world without a rank that was killed; another list than that of the
    lost is refused, and can be mended."""
    dist.barrier()
    if RANK == SIZE - 1:
        os.kill(os.getpid(), 9)
    if not has("shrink_group"):
        os._exit(0)
    refuses(dist.DistBackendError, f"rank {SIZE - 1}",
            lambda: [dist.all_reduce(torch.ones(3)) for _ in range(1000)])
    if RANK == 1:
        os._exit(0)
    time.sleep(1)
    refuses(dist.DistBackendError, "leave out those that are lost, too",
            dist.shrink_group, [SIZE - 1])
    dist.shrink_group([1, SIZE - 1])
    rest = [0, 2]
    assert dist.get_world_size() == 2
    sum_over(None, rest)
    dist.barrier()
    os._exit(0)


def check_pending():
    """All that was called is over: works that nobody keeps, too."""
    tensors = [values(RANK, 200000) for _ in range(4)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    got = torch.empty(100000)
    work = dist.irecv(got, (RANK - 1) % SIZE)
    dist.isend(values(RANK, 100000), (RANK + 1) % SIZE)
    dist.distributed_c10d._get_default_group()._wait_for_pending_works()
    assert work.is_completed()
    for tensor in tensors:
        same(tensor, sum(values(r, 200000) for r in RANKS))
    same(got, values((RANK - 1) % SIZE, 100000))


def check_untold():
    """What weft does not have says so in words."""
    group = dist.distributed_c10d._get_default_group()
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    refuses(NotImplementedError, "works are not timed",
            group._enable_collectives_timing)
    refuses(NotImplementedError, "works are not timed", work._get_duration)
    refuses(NotImplementedError, "get_future().then()",
            group._register_on_completion_hook, print)


def main():
    dist.init_process_group("weft", timeout=seconds(60))
    for name in sys.argv[1].split(","):
        globals()["check_" + name]()
        dist.barrier()
    dist.destroy_process_group()


main()
