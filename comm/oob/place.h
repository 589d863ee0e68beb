/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/place.h - where a rank runs, as keys that are equal for ranks
 * that have something in common. Host names say nothing here.
 */
#ifndef COMM_OOB_PLACE_H
#define COMM_OOB_PLACE_H

#include "comm/oob/inner_level.h"
#include "weft/status.h"

enum { WEFTI_PLACE_KEY_BYTES = 16 };

/*
 * host     the running kernel: its boot
 * domain   also the namespaces for networks and processes, and what
 *          WEFT_DOMAIN says of the rank
 * inner    also the rank's group on that level and those around it, the
 *          innermost level first
 */
typedef struct wefti_place {
    unsigned char host[WEFTI_PLACE_KEY_BYTES];
    unsigned char domain[WEFTI_PLACE_KEY_BYTES];
    unsigned char inner[WEFTI_PLACE_LEVELS][WEFTI_PLACE_KEY_BYTES];
} wefti_place;

/*
 * wefti_place_check - whether WEFT_DOMAIN and WEFT_LEVELS fit a job of so many
 * ranks.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_place_check(int nranks);

/*
 * wefti_place_find - of the calling process's rank.
 *
 * Returns     OK | ERR_SYSTEM | ERR_NO_MEMORY: what the kernel says could not
 *             be read; the rank would be taken for one of another place.
 */
WEFT_NODISCARD weft_status wefti_place_find(int rank, wefti_place *place_out);

#endif
