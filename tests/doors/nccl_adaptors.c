/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/doors/nccl_adaptors.c LIBNCCL PLUGIN OFFSET INIT [FINALIZE] - lets
 * NCCL's own code meet the profiler, without a GPU: functions that NCCL does
 * not show, at offsets which test_nccl_plugin.py has read from its symbols.
 *
 *   with FINALIZE   NCCL loads the plug-in as for a new communicator (INIT),
 * and closes it without         INIT is what makes of a version's table one of
 * version 5; an operation of each kind goes through that
 *
 * OFFSET is ncclGetVersion's, by which the others are found in memory.
 */
#include "doors/nccl/profiler_abi.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than a communicator of NCCL's has. */
enum { COMM_BYTES = 1 << 24, NRANKS = 8, RANK = 5 };

/* Events of version 5, in full: NCCL copies them. */
typedef struct full_event {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct {
            uint64_t sequence;
            const char *function;
            const void *send;
            void *recv;
            size_t count;
            int root;
            const char *dtype;
            uint8_t channels, warps;
            const char *algorithm, *protocol;
            void *group;
        } coll;
        struct {
            const char *function;
            void *buffer;
            const char *dtype;
            size_t count;
            int peer;
            uint8_t channels;
            void *group;
        } p2p;
        struct {
            uint8_t channel;
            uint64_t timer_ns;
        } kernel_channel;
    };
} full_event;

static void quiet(void)
{
}

/* A function of NCCL's that lies so far into its file. */
static void *function_at(void *nccl, const char *known, const char *offset)
{
    char *seen = dlsym(nccl, "ncclGetVersion");
    return seen - strtoul(known, NULL, 16) + strtoul(offset, NULL, 16);
}

static int load_and_close(void *init, void *finalize)
{
    int (*open_it)(void *);
    int (*close_it)(void *);
    void *comm = calloc(1, COMM_BYTES);
    memcpy(&open_it, &init, sizeof(init));
    memcpy(&close_it, &finalize, sizeof(finalize));
    const int result = comm ? open_it(comm) + close_it(comm) : 1;
    free(comm);
    return result;
}

static void *start(const wefti_profiler_v5 *table, void *context,
                   const full_event *event)
{
    void *handle = NULL;
    table->start(context, &handle, (const void *)event);
    return handle;
}

static int drive(const wefti_profiler_v5 *table)
{
    void *context = NULL, *logger = NULL;
    void (*log)(void) = quiet;
    int mask = 0;
    memcpy(&logger, &log, sizeof(log));
    if (table->init(&context, 0x77, &mask, "real", 1, NRANKS, RANK, logger)) {
        return 1;
    }
    printf("mask %x\n", (unsigned)mask);
    void *coll = start(table, context,
                       &(full_event){.type = WEFTI_PROFILER_COLL,
                                     .rank = RANK,
                                     .coll = {.function = "AllReduce",
                                              .count = 1000,
                                              .dtype = "ncclFloat64",
                                              .channels = 2,
                                              .algorithm = "Ring",
                                              .protocol = "Simple"}});
    table->stop(coll);
    void *channel = start(
        table, context,
        &(full_event){.type = WEFTI_PROFILER_KERNEL_CHANNEL,
                      .parent = coll,
                      .rank = RANK,
                      .kernel_channel = {.channel = 1, .timer_ns = 1000}});
    if (channel) {
        const wefti_profiler_state_v4 ended = {.kernel_channel = {4001000}};
        table->record(channel, WEFTI_PROFILER_KERNEL_CHANNEL_STOP, &ended);
        table->stop(channel);
    }
    void *send = start(table, context,
                       &(full_event){.type = WEFTI_PROFILER_P2P,
                                     .rank = RANK,
                                     .p2p = {.function = "Send",
                                             .dtype = "ncclBfloat16",
                                             .count = 3,
                                             .channels = 1}});
    table->stop(send);
    return table->finalize(context);
}

int main(int argc, char *argv[])
{
    void *nccl = dlopen(argv[1], RTLD_NOW);
    void *plugin = nccl ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void *first = function_at(nccl, argv[3], argv[4]);
    if (argc > 5) {
        return load_and_close(first, function_at(nccl, argv[3], argv[5]));
    }
    const wefti_profiler_v5 *(*adapt)(void *);
    memcpy(&adapt, &first, sizeof(first));
    const wefti_profiler_v5 *table = adapt(plugin);
    return table ? drive(table) : 1;
}
