/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/usage.c - counters that the threads keep themselves, and their
 * clocks, which the kernel keeps.
 */
#include "comm/make/usage.h"

#include "comm/engine/driver.h"
#include "comm/net/net.h"

const struct wefti_engine *wefti_comm_get_engine(const weft_comm *comm)
{
    return comm->engine;
}

static wefti_usage read(const wefti_thread_work *work)
{
    return work ? (wefti_usage){.wakeups = atomic_load_explicit(
                                    &work->wakeups, memory_order_relaxed),
                                .cpu_ns = wefti_thread_work_ns(work)}
                : (wefti_usage){0, 0};
}

wefti_engine_usage wefti_engine_get_usage(const struct wefti_engine *engine)
{
    const wefti_net *net = engine->net;
    const wefti_thread_work *watching =
        net && net->watch ? wefti_net_watch_get_work(net->watch) : NULL;
    const wefti_driver *driver =
        atomic_load_explicit(&engine->thread_bell, memory_order_acquire)
            ? engine->driver
            : NULL;
    return (wefti_engine_usage){
        .net = read(watching),
        .driver = read(wefti_driver_get_work(driver)),
        .signals.cpu_ns =
            atomic_load_explicit(&engine->signalled_ns, memory_order_relaxed),
        .net_of = watching,
        .of = driver};
}
