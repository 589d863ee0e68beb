/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/wake.c - the bells of a rank.
 */
#include "comm/core/wake.h"

void wefti_engine_wake(wefti_engine *engine)
{
    wefti_doorbell_ring(&engine->idle);
    if (engine->bell != &engine->idle) {
        wefti_doorbell_ring(engine->bell);
    }
}

void wefti_engine_woken(void *engine)
{
    wefti_engine_wake(engine);
}
