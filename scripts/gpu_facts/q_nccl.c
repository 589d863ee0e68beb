// SPDX-License-Identifier: BSD-3-Clause
/*
 * NCCL with two ranks on one GPU, each a process: as it is, with a host
 * identity of its own for each over the loopback, and with the switch that
 * 2.30 has for it.
 */
#include "cu.h"

#include <stdlib.h>
#include <string.h>

#if __has_include(<nccl.h>)
#include <nccl.h>

enum { PLAIN, HOSTID, MULTI };
#define ELEMS ((size_t)4 << 20) /* floats: 16 MiB */

#define NCCL_FUNCTIONS(X)                                                      \
    X(ncclGetVersion)                                                          \
    X(ncclGetUniqueId)                                                         \
    X(ncclCommInitRank)                                                        \
    X(ncclAllReduce)                                                           \
    X(ncclGetErrorString)                                                      \
    X(ncclGetLastError)
#define MEMBER(name) __typeof__(name) *name;
#define LOAD(name)   nccl.name = library_function(library, #name);

static struct {
    NCCL_FUNCTIONS(MEMBER)
} nccl;

static void open_nccl(int variant, int rank)
{
    static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_IB_DISABLE", "1", 1);
    setenv("NCCL_DEBUG", "WARN", 1);
    if (variant == HOSTID)
        setenv("NCCL_HOSTID", rank ? "facts-b" : "facts-a", 1);
    if (variant == MULTI)
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    void *library = library_open(names);
    NCCL_FUNCTIONS(LOAD)
}

static void check(ncclResult_t result, const char *call)
{
    if (result != ncclSuccess)
        give_up("%s: %s: %s", call, nccl.ncclGetErrorString(result),
                nccl.ncclGetLastError(NULL));
}
#define NCCL(call) check(nccl.call, #call)

/* Joins, reduces, and times it. MS has REPEATS places. */
static float join_and_reduce(ncclUniqueId id, int rank, int repeats, double *ms)
{
    ncclComm_t comm;
    CUdeviceptr data = gpu_alloc(4 * ELEMS);
    CUstream stream = gpu_stream();
    float *host = malloc(4 * ELEMS), last;
    if (!host)
        give_up("out of memory");
    for (size_t i = 0; i < ELEMS; i++)
        host[i] = (float)(rank + 1);
    CU(cuMemcpyHtoD(data, host, 4 * ELEMS));
    CU(cuCtxSynchronize()); /* it returns early for such memory */
    NCCL(ncclCommInitRank(&comm, 2, id, rank));
    for (int i = -1; i < repeats; i++) {
        double start_us = now_us();
        NCCL(ncclAllReduce((void *)data, (void *)data, ELEMS, ncclFloat,
                           ncclSum, comm, (void *)stream));
        CU(cuStreamSynchronize(stream));
        if (i >= 0)
            ms[i] = (now_us() - start_us) / 1e3;
    }
    CU(cuMemcpyDtoH(&last, data + 4 * ELEMS - 4, 4));
    return last;
}

static void second(int fd, int variant)
{
    ncclUniqueId id;
    double ms[16];
    open_nccl(variant, 1);
    gpu_open();
    peer_recv(fd, &id, sizeof(id));
    join_and_reduce(id, 1, 10, ms);
    peer_meet(fd);
}

void q_nccl(int variant)
{
    enum { REPEATS = 10 };
    int version = 0;
    double ms[REPEATS];
    ncclUniqueId id;
    int fd = peer_start(second, variant);
    open_nccl(variant, 0);
    NCCL(ncclGetVersion(&version));
    fact_number("version", version, "1", "ncclGetVersion");
    if (variant == MULTI && version < 23003)
        give_up("NCCL %d has no NCCL_MULTI_RANK_GPU_ENABLE; 2.30.3 has",
                version);
    gpu_open();
    NCCL(ncclGetUniqueId(&id));
    peer_send(fd, &id, sizeof(id));
    float last = join_and_reduce(id, 0, REPEATS, ms);
    peer_meet(fd);
    /* 3, then doubled by each further all-reduce in place */
    float want = 3;
    for (int i = 0; i < REPEATS; i++)
        want *= 2;
    fact_text("two_ranks_one_gpu", "ncclCommInitRank, sum checked", "%s",
              last == want ? "works" : "wrong sum");
    fact_spread("all_reduce_16_mib", ms, REPEATS, "ms",
                "fp32 in place, two ranks, host clock");
}

#else
void q_nccl(int variant)
{
    (void)variant;
    give_up("built without nccl.h");
}
#endif
