/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/reserve.h - ranges of the memory file that the ranks of a domain
 * share: set aside by one of them, given back by the last that used them.
 */
#ifndef COMM_CORE_RESERVE_H
#define COMM_CORE_RESERVE_H

#include "comm/core/core.h"

/* Address space of the job's memory file; pages exist once touched. */
#define WEFTI_MEMORY_REACH_BYTES ((uint64_t)1 << 44)

/*
 * wefti_reserve - set bytes aside in this rank's domain; returns where.
 * wefti_unreserve gives them back, when no rank uses them any more.
 *
 * Threads     any.
 */
uint64_t wefti_reserve(wefti_engine *engine, uint64_t bytes);
void wefti_unreserve(wefti_engine *engine, uint64_t offset, uint64_t bytes);

#endif
