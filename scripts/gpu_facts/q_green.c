// SPDX-License-Identifier: BSD-3-Clause
/*
 * Green contexts: how finely the device splits, how many groups come of it,
 * which multiprocessors a group's kernels really run on, and whether kernels
 * of two groups run at once.
 */
#include "cu.h"

#include <stdlib.h>

#define MOST 64

static unsigned split(CUdevResource *groups, unsigned wanted, unsigned sms,
                      unsigned flags, CUdevResource *rest)
{
    CUdevResource all;
    unsigned made = wanted;
    CU(cuDeviceGetDevResource(gpu_device(), &all, CU_DEV_RESOURCE_TYPE_SM));
    CUresult result =
        cu.cuDevSmResourceSplitByCount(groups, &made, &all, rest, flags, sms);
    return result == CUDA_SUCCESS ? made : 0;
}

static void ask_split(const char *name, unsigned sms, unsigned flags)
{
    CUdevResource groups[MOST], rest;
    char how[96];
    unsigned made = split(groups, MOST, sms, flags, &rest);
    snprintf(how, sizeof(how),
             "cuDevSmResourceSplitByCount: groups of %u, flags %u", sms, flags);
    if (made == 0)
        fact_none(name, "the split was refused");
    else
        fact_text(name, how, "%u groups of %u, %u left", made,
                  groups[0].sm.smCount, rest.sm.smCount);
}

static CUstream green_stream(CUdevResource *groups, unsigned count,
                             CUgreenCtx *green)
{
    CUdevResourceDesc desc;
    CUstream stream;
    CU(cuDevResourceGenerateDesc(&desc, groups, count));
    CU(cuGreenCtxCreate(green, desc, gpu_device(),
                        CU_GREEN_CTX_DEFAULT_STREAM));
    CU(cuGreenCtxStreamCreate(&stream, *green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

/* The multiprocessors on which many blocks run, as a set of bits. */
static int occupied(const unsigned long long *out, int blocks,
                    unsigned long long set[4])
{
    int count = 0;
    for (int i = 0; i < blocks; i++)
        set[out[3 * i] / 64 % 4] |= 1ull << (out[3 * i] % 64);
    for (int i = 0; i < 4; i++)
        count += __builtin_popcountll(set[i]);
    return count;
}

static void ask_two(unsigned sms)
{
    CUdevResource groups[MOST], rest;
    CUgreenCtx greens[2];
    CUstream streams[2];
    CUdeviceptr views[2];
    unsigned long long *outs[2], sets[2][4] = {{0}}, hold_ns = 2000000;
    int blocks = 4 * gpu_sms(), counts[2];
    unsigned made = split(groups, MOST, sms, 0, &rest);
    if (made < 2)
        give_up("groups of %u: %u made, two are needed", sms, made);
    for (int i = 0; i < 2; i++) {
        /* The second joins all other groups. */
        streams[i] = green_stream(groups + i, i ? made - 1 : 1, &greens[i]);
        outs[i] = gpu_pinned(24 * (size_t)blocks, &views[i]);
    }
    /* Once alone, so that the kernel is loaded in both contexts. */
    for (int i = 0; i < 2; i++) {
        unsigned long long short_ns = 1000;
        LAUNCH(streams[i], "hold", 1, 1, &views[i], &short_ns);
        CU(cuStreamSynchronize(streams[i]));
    }
    for (int i = 0; i < 2; i++)
        LAUNCH(streams[i], "hold", blocks, 1024, &views[i], &hold_ns);
    for (int i = 0; i < 2; i++) {
        CU(cuStreamSynchronize(streams[i]));
        counts[i] = occupied(outs[i], blocks, sets[i]);
    }
    int shared = 0;
    for (int i = 0; i < 4; i++)
        shared += __builtin_popcountll(sets[0][i] & sets[1][i]);
    fact_text("multiprocessors_used", "%smid of many blocks",
              "group of %u: %d; all other groups joined: %d; in both: %d", sms,
              counts[0], counts[1], shared);
    bool at_once = outs[0][1] < outs[1][2] && outs[1][1] < outs[0][2];
    fact_text("two_groups_at_once", "stamps of one block of each", "%s",
              at_once ? "yes" : "no");
    for (int i = 0; i < 2; i++) {
        CU(cuStreamDestroy(streams[i]));
        CU(cuGreenCtxDestroy(greens[i]));
    }
}

/* Every group waits for a flag that the kernel of the last one sets. */
static void ask_progress(unsigned sms)
{
    CUdevResource groups[MOST], rest;
    CUgreenCtx green;
    CUdeviceptr flag = gpu_alloc(64), loaded = gpu_alloc(64), started, out;
    CUstream streams[MOST];
    unsigned made = split(groups, MOST, sms, 0, &rest), want = 1;
    unsigned long long limit_ns = 300000000;
    gpu_pinned(64 * MOST, &started);
    unsigned long long *seen = gpu_pinned(64 * MOST, &out);
    int released = 0;
    for (unsigned i = 0; i < made; i++) {
        /* Both kernels once, so that they are loaded in its context. */
        streams[i] = green_stream(groups + i, 1, &green);
        LAUNCH(streams[i], "mark", 1, 1, &loaded, &want, &out);
        LAUNCH(streams[i], "spin", 1, 1, &loaded, &want, &started, &limit_ns,
               &out);
        CU(cuStreamSynchronize(streams[i]));
    }
    for (unsigned i = 0; i < made; i++) {
        CUdeviceptr mine = out + 64 * i, began = started + 64 * i;
        seen[8 * i + 2] = 0;
        if (i + 1 < made)
            LAUNCH(streams[i], "spin", 1, 1, &flag, &want, &began, &limit_ns,
                   &mine);
        else
            LAUNCH(streams[i], "mark", 1, 1, &flag, &want, &mine);
    }
    for (unsigned i = 0; i < made; i++)
        CU(cuStreamSynchronize(streams[i]));
    for (unsigned i = 0; i + 1 < made; i++)
        released += seen[8 * i + 2] != 0;
    fact_text("groups_that_wait_for_one",
              "spinning kernels, 300 ms limit, released by the last group",
              "%d of %d released", released, (int)made - 1);
}

static void tell(const char *name, const char *how, CUresult result)
{
    fact_text(name, how, "%s",
              result == CUDA_SUCCESS ? "accepted" : cu_name(result));
}

/* Which events a green context's stream takes, and what becomes of its own. */
static void ask_events(unsigned sms)
{
    CUdevResource group, rest;
    CUgreenCtx green;
    CUcontext context, primary;
    float ms;
    if (split(&group, 1, sms, 0, &rest) == 0) {
        fact_none("events", "the split was refused");
        return;
    }
    CUstream stream = green_stream(&group, 1, &green), plain = gpu_stream();
    CUevent begin = gpu_event(true), other = gpu_event(true);
    CU(cuEventRecord(begin, plain));
    CU(cuDevicePrimaryCtxRetain(&primary, gpu_device()));
    CU(cuCtxFromGreenCtx(&context, green));
    CU(cuCtxSetCurrent(context));
    CUevent own = gpu_event(true);
    CU(cuCtxSetCurrent(primary));
    tell("event_of_primary", "recorded on a green context's stream",
         cu.cuEventRecord(other, stream));
    tell("event_of_green", "the same, made in that context",
         cu.cuEventRecord(own, stream));
    CU(cuCtxSynchronize());
    CU(cuStreamSynchronize(stream));
    tell("time_between_contexts", "from an event of primary to one of green",
         cu.cuEventElapsedTime(&ms, begin, own));
    CU(cuStreamDestroy(stream));
    CU(cuGreenCtxDestroy(green));
    tell("event_after_its_context", "cuEventQuery behind cuGreenCtxDestroy",
         cu.cuEventQuery(own));
}

void q_green(int variant)
{
    (void)variant;
    CUdevResource all;
    gpu_open();
    CU(cuDeviceGetDevResource(gpu_device(), &all, CU_DEV_RESOURCE_TYPE_SM));
    fact_text("granularity", "cuDeviceGetDevResource",
              "%u multiprocessors, at least %u, aligned to %u", all.sm.smCount,
              all.sm.minSmPartitionSize, all.sm.smCoscheduledAlignment);
    ask_split("split_by_8", 8, 0);
    ask_split("split_by_16", 16, 0);
    ask_split("split_by_20", 20, 0);
    ask_split("split_by_32", 32, 0);
    ask_split("split_by_2_alone", 2,
              CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING);
    ask_two(16);
    ask_progress(16);
    ask_events(16);
}
