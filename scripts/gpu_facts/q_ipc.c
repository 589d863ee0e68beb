// SPDX-License-Identifier: BSD-3-Clause
/*
 * CUDA IPC between two processes on one device: memory (also at an offset, and
 * opened by its own exporter), events, and stream memory operations on the
 * imported address, with the value from either side.
 */
#include "cu.h"

#include <string.h>

#define BYTES    ((size_t)4 << 20)
#define OFFSET   ((size_t)1 << 20)
#define ROUNDS   30
#define LIMIT_US 2e6

struct offer {
    CUipcMemHandle memory;
    CUipcEventHandle event;
    int event_result;
};

/* The words of the shared block that flags live in. */
static CUdeviceptr flag_of(CUdeviceptr base, int which)
{
    return base + 256 * (size_t)which;
}

/* The exporter: fills, records, then waits and writes on its own address. */
static void exporter(int fd, int variant)
{
    (void)variant;
    struct offer offer;
    CUevent event;
    gpu_open();
    CUdeviceptr base = gpu_alloc(BYTES), again;
    CUstream stream = gpu_stream();
    memset(&offer, 0, sizeof(offer));
    CU(cuIpcGetMemHandle(&offer.memory, base));
    CU(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    offer.event_result = (int)cu.cuIpcGetEventHandle(&offer.event, event);
    CUresult own = cu.cuIpcOpenMemHandle(&again, offer.memory,
                                         CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    fact_text("opened_by_its_exporter", "cuIpcOpenMemHandle", "%s",
              own == CUDA_SUCCESS ? "accepted" : cu_name(own));
    gpu_fill(base + OFFSET, OFFSET, 5);
    unsigned long long hold_ns = 50000000;
    CUdeviceptr scratch = gpu_alloc(64);
    LAUNCH(stream, "hold", 1, 1, &scratch, &hold_ns);
    CU(cuStreamWriteValue32(stream, flag_of(base, 3), 1, 0));
    CU(cuEventRecord(event, stream));
    peer_send(fd, &offer, sizeof(offer));
    peer_meet(fd); /* the importer has asked its event and memory */
    for (unsigned i = 1; i <= ROUNDS; i++) {
        CU(cuStreamWaitValue32(stream, flag_of(base, 0), i, 0));
        CU(cuStreamWriteValue32(stream, flag_of(base, 1), i, 0));
    }
    if (!gpu_drained(stream, 4 * LIMIT_US))
        give_up("the exporter's waits were never released");
    peer_meet(fd);
}

static void ask_memory(CUdeviceptr base)
{
    unsigned there, here;
    CUdeviceptr mine = gpu_alloc(OFFSET);
    gpu_fill(mine, OFFSET, 5);
    CU(cuMemcpyDtoH(&there, base + 2 * OFFSET - 4, 4));
    CU(cuMemcpyDtoH(&here, mine + OFFSET - 4, 4));
    fact_text("memory", "filled there, read here at an offset", "%s",
              there == here ? "works" : "bytes differ");
}

static void ask_event(const struct offer *offer, CUdeviceptr base)
{
    CUevent event;
    unsigned seen = 0;
    CUstream stream = gpu_stream();
    unsigned *host = gpu_pinned(64, NULL);
    if (offer->event_result != CUDA_SUCCESS) {
        fact_none("event", "cuIpcGetEventHandle: %s",
                  cu_name((CUresult)offer->event_result));
        return;
    }
    CU(cuIpcOpenEventHandle(&event, offer->event));
    CU(cuStreamWaitEvent(stream, event, 0));
    CU(cuMemcpyDtoHAsync(host, flag_of(base, 3), 4, stream));
    if (gpu_drained(stream, LIMIT_US))
        seen = *host;
    fact_text("event", "recorded there behind 50 ms of work, awaited here",
              "%s", seen == 1 ? "works" : "the wait ended too early or never");
}

/* Writes 0 -> the exporter's wait -> its write -> our wait, both by stream. */
static void ask_memops(CUdeviceptr base)
{
    CUstream stream = gpu_stream();
    double us[ROUNDS];
    for (unsigned i = 1; i <= ROUNDS; i++) {
        double start_us = now_us();
        CU(cuStreamWriteValue32(stream, flag_of(base, 0), i, 0));
        CU(cuStreamWaitValue32(stream, flag_of(base, 1), i, 0));
        if (!gpu_drained(stream, LIMIT_US))
            give_up("cuStreamWaitValue32 on an imported address: round %u was "
                    "not released in %.0f s",
                    i, LIMIT_US / 1e6);
        us[i - 1] = now_us() - start_us;
    }
    fact_text("memory_operations_on_imported",
              "cuStreamWriteValue32 and cuStreamWaitValue32", "works");
    fact_spread("memory_operations_round_trip", us, ROUNDS, "us",
                "write here, wait and write there, wait here");
}

void q_ipc(int variant)
{
    int fd = peer_start(exporter, variant);
    struct offer offer;
    CUdeviceptr base;
    gpu_open();
    peer_recv(fd, &offer, sizeof(offer));
    CU(cuIpcOpenMemHandle(&base, offer.memory,
                          CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ask_event(&offer, base);
    ask_memory(base);
    peer_meet(fd);
    ask_memops(base);
    peer_meet(fd);
    CU(cuIpcCloseMemHandle(base));
}
