/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_sizes.h - which sizes a run of weft-perf goes through.
 */
#ifndef PERF_PERF_SIZES_H
#define PERF_PERF_SIZES_H

#include "perf/perf_options.h"

/* Bytes with an optional K, M or G, up to 1 TiB. Returns OK | ERR_INVALID. */
WEFT_NODISCARD weft_status wefti_perf_size_read(const char *flag,
                                                const char *text,
                                                size_t *bytes_out);

/* Those of a list: 8,64K,4M. Returns OK | ERR_INVALID | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_perf_sizes_list(const char *list,
                                                 wefti_perf_options *options);

/*
 * From -b to -e, by -i or else by -f, after 0 from 1, unless --sizes has listed
 * them. Returns as wefti_perf_sizes_list.
 */
WEFT_NODISCARD weft_status wefti_perf_sizes_make(wefti_perf_options *options);

#endif
