/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/key_count.c - a table that grows before it must.
 */
#include "comm/make/key_count.h"

#include "base/error.h"

#include <stdlib.h>

/* More than a rank tries to make before one is made, and makes at once. */
enum { LISTS_SPARE = 64 };

weft_status wefti_key_count_prepare(wefti_engine *engine)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&engine->lock);
    if (engine->list_room - engine->list_count < LISTS_SPARE) {
        const size_t room = 2 * engine->list_room + LISTS_SPARE;
        wefti_list *more =
            realloc(engine->lists, room * sizeof(*engine->lists));
        if (more) {
            engine->lists = more;
            engine->list_room = room;
        } else {
            status = wefti_error(WEFT_ERR_NO_MEMORY,
                                 "no memory for %zu lists of members", room);
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}

uint64_t wefti_key_count(wefti_engine *engine, uint64_t key)
{
    uint64_t times = 0;
    size_t i = 0;
    weft_status status = wefti_key_count_prepare(engine);
    (void)status; /* what there was may do */
    pthread_mutex_lock(&engine->lock);
    while (i < engine->list_count && engine->lists[i].digest != key) {
        i++;
    }
    if (i < engine->list_room) {
        if (i == engine->list_count) {
            engine->lists[engine->list_count++] = (wefti_list){key, 0};
        }
        times = ++engine->lists[i].times;
    }
    pthread_mutex_unlock(&engine->lock);
    return times;
}
