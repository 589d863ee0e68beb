/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/usage.c - counters that the threads keep themselves, and their
 * clocks, which the kernel keeps.
 */
#include "comm/make/usage.h"

#include "comm/core/core.h"
#include "comm/net/net.h"

const struct wefti_engine *wefti_comm_get_engine(const weft_comm *comm)
{
    return comm->engine;
}

wefti_usage wefti_engine_get_usage(const struct wefti_engine *engine)
{
    wefti_usage usage = {.wakeups = atomic_load_explicit(&engine->work.wakeups,
                                                         memory_order_relaxed),
                         .cpu_ns = wefti_thread_work_ns(&engine->work)};
    if (engine->net && engine->net->watch) {
        const wefti_thread_work *work =
            wefti_net_watch_get_work(engine->net->watch);
        usage.wakeups +=
            atomic_load_explicit(&work->wakeups, memory_order_relaxed);
        usage.cpu_ns += wefti_thread_work_ns(work);
    }
    return usage;
}
