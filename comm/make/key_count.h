/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/key_count.h - how often something has been made that all its ranks
 * count alike: groups of one list, splits of one color.
 */
#ifndef COMM_MAKE_KEY_COUNT_H
#define COMM_MAKE_KEY_COUNT_H

#include "comm/core/core.h"

/*
 * wefti_key_count_prepare - make room for what is remembered of communicators
 * that come of those there are. With each communicator, so that it cannot lack
 * when ranks count together.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_key_count_prepare(wefti_engine *engine);

/* How often this rank's engine has seen key, this time included; 0: no memory
 * to know it. */
uint64_t wefti_key_count(wefti_engine *engine, uint64_t key);

/* One word more in a key, or in an id: FNV-1a. */
static inline uint64_t wefti_key_mix(uint64_t key, uint64_t word)
{
    return (key ^ word) * UINT64_C(1099511628211);
}

#endif
