/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/wake.c - the bells of a rank.
 */
#include "comm/core/wake.h"

static void ring_thread(wefti_engine *engine)
{
    wefti_doorbell *bell =
        atomic_load_explicit(&engine->thread_bell, memory_order_acquire);
    if (bell) {
        wefti_doorbell_ring(bell);
    }
}

void wefti_engine_wake(wefti_engine *engine)
{
    ring_thread(engine);
    wefti_doorbell_ring(engine->bell);
}

void wefti_engine_woken(void *engine)
{
    wefti_engine *own = engine;
    wefti_doorbell_ring(own->bell);
}

void wefti_engine_posted(wefti_engine *engine, bool first)
{
    if (first) {
        ring_thread(engine);
    } else {
        wefti_doorbell_ring(engine->bell);
    }
}
