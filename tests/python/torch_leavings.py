# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of torch.distributed on weft that leave in every way, while the others
are in a call: torch_leavings.py [--rounds N] [--seed N].

Goal: no job hangs. Who leaves ends as he wanted to, all others end by
themselves: with an error that weft raised, or done. Method: each round draws
who leaves, how, when, of which call, and whether he shuts down before; the
first rounds go through all ways with rank 0 and the last rank. Ranks are
forked, so that each ends as a Python of its own does."""
import argparse
import datetime
import gc
import itertools
import os
import random
import signal
import sys
import time

import torch
import torch.distributed as dist
import weft_torch  # noqa: F401 (registers the backend)

WAYS = ("exception", "sys.exit", "os._exit", "SIGKILL")
WHENS = ("before", "within", "after")
CALLS = ("all_reduce", "large", "recv", "barrier")
STATUS = {"exception": 1, "sys.exit": 7, "os._exit": 8, "SIGKILL": -9}
LIMIT_S = 40  # rank 0 may take the store along: torch waits for that, too


def begin(call, rank, size, leaver):
    """The call's work, of this rank's part."""
    if call == "barrier":
        return dist.barrier(async_op=True)
    if call != "recv":
        count = 3 if call == "all_reduce" else 1 << 20
        return dist.all_reduce(torch.ones(count), async_op=True)
    if rank == leaver:
        return dist.isend(torch.ones(5), (rank + 1) % size)
    return dist.irecv(torch.ones(5), leaver if rank == (leaver + 1) % size
                      else (rank + 1) % size)


def leave(way):
    if way == "exception":
        raise ValueError("this rank leaves")
    if way == "sys.exit":
        sys.exit(STATUS[way])
    if way == "os._exit":
        os._exit(STATUS[way])
    os.kill(os.getpid(), signal.SIGKILL)


def open_store(rank, size, pipe):
    """Torch's store in rank 0, on a port that the others read from a pipe."""
    limit = datetime.timedelta(seconds=30)
    port = 0 if rank == 0 else int(os.read(pipe[0], 6))
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0, limit, False)
    if rank == 0:
        os.write(pipe[1], f"{store.port:6}".encode() * (size - 1))
    return store


def run_rank(rank, size, pipe, plan):
    """Ends the process, as the plan says."""
    leaver, way, when, call, shuts = plan
    torch.set_num_threads(1)
    dist.init_process_group(
        "weft", store=open_store(rank, size, pipe), rank=rank,
        world_size=size, timeout=datetime.timedelta(seconds=30))
    if rank == leaver:
        dist.barrier()
        if when != "before":
            work = begin(call, rank, size, leaver)
        if when == "after" and call != "recv":
            work.wait()
        if shuts:
            dist.destroy_process_group()
        leave(way)
    try:
        dist.barrier()  # in which a leaver may be missed already
        time.sleep(0.05 if when == "within" else 0)
        begin(call, rank, size, leaver).wait()
        if when == "after":
            dist.all_reduce(torch.ones(4))  # the leaver does not
    except dist.DistBackendError as error:
        print(f"rank {rank}: {error}", flush=True)
    dist.destroy_process_group()
    sys.exit(3)  # not what a leaver ends with


def start(size, plan):
    """([pid of each rank], None), or in a rank (None, what it is to run)."""
    pipe, pids = os.pipe(), []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            return None, (rank, size, pipe, plan)
        pids.append(pid)
    for end in pipe:
        os.close(end)
    return pids, None


def join(pids):
    """{rank: status}, negative for a signal; without those that hung."""
    ended, until = {}, time.monotonic() + LIMIT_S
    while len(ended) < len(pids) and time.monotonic() < until:
        for rank, pid in enumerate(pids):
            if rank not in ended:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    ended[rank] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    for rank, pid in enumerate(pids):
        if rank not in ended:
            os.kill(pid, signal.SIGABRT)
            os.waitpid(pid, 0)
    return ended


def read_plans(options):
    """Of each round (ranks, plan): all ways with two leavers, then by chance."""
    chance = random.Random(options.seed)
    ways = list(itertools.product(("first", "last"), WAYS, WHENS, CALLS,
                                  (False, True)))
    chance.shuffle(ways)
    for number in range(options.rounds):
        who, *rest = ways[number] if number < len(ways) else (
            "any", chance.choice(WAYS), chance.choice(WHENS),
            chance.choice(CALLS), chance.random() < 0.5)
        size = chance.randint(2, 4)
        leaver = {"first": 0, "last": size - 1}.get(who)
        yield size, (chance.randrange(size) if leaver is None else leaver,
                     *rest)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=192,
                        help="192: all ways with the first and the last rank")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    gc.freeze()  # what is loaded by now need not be looked through by each rank
    lost = 0
    for size, plan in read_plans(options):
        pids, mine = start(size, plan)
        if mine:
            return mine
        begun = time.monotonic()
        ended = join(pids)
        leaver, way = plan[:2]
        wanted = {rank: STATUS[way] if rank == leaver else 3
                  for rank in range(size)}
        good = ended == wanted
        lost += not good
        if not good or time.monotonic() - begun > 15:
            print(f"{'slow' if good else 'FAILED'}: {size} ranks, plan {plan}: "
                  f"ended as {ended}, {time.monotonic() - begun:.1f} s",
                  flush=True)
    print(f"{options.rounds} rounds, {lost} failed")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    run_rank(*main())
