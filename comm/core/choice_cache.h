/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/choice_cache.h - the choices that a communicator has made, so that
 * an operation posted again does not weigh the algorithms again.
 *
 * An entry's key is all that wefti_select reads of an operation, and what
 * WEFT_ALGO allows its collective; whatever else it reads is the
 * communicator's and the same in every call. Entries are replaced as they
 * collide: a lost one costs time, never another choice.
 */
#ifndef COMM_CORE_CHOICE_CACHE_H
#define COMM_CORE_CHOICE_CACHE_H

#include "comm/core/select.h"

typedef struct wefti_choice_cache wefti_choice_cache;

/* NULL: no memory. Destroy takes NULL. */
wefti_choice_cache *wefti_choice_cache_create(void);
void wefti_choice_cache_destroy(wefti_choice_cache *cache);

/* Bytes of memory of one. */
size_t wefti_choice_cache_bytes(void);

/*
 * wefti_choice_cache_get - what wefti_select returns. Of scope, everything but
 * the tuning's `allowed` is the same in all calls for one cache, and its rates
 * change once, from the usual ones; any thread.
 */
wefti_choice wefti_choice_cache_get(wefti_choice_cache *cache,
                                    const wefti_scope *scope, const weft_op *op,
                                    const wefti_role *role);

#endif
