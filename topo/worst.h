/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/worst.h - of unlike hosts the one that holds the others back: whose
 * rings carry least. A job is as fast as its slowest host.
 */
#ifndef TOPO_WORST_H
#define TOPO_WORST_H

#include "topo/rings.h"

typedef struct wefti_worst {
    int host;     /* whose rings, and chains, carry least; -1: none has a GPU */
    int net_host; /* whose rings over hosts do */
    int kinds;    /* of hosts that have GPUs; 1: all are alike */
} wefti_worst;

/*
 * wefti_worst_find - hosts of one NVLink domain count as one. Hosts of one kind
 * are planned once, of very many kinds those with the least links.
 *
 * topo        that of paths: gets warning 4 for hosts that fall behind most
 *             others, with the GPU or port that is the cause.
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_worst_find(const wefti_paths *paths,
                                            wefti_topo *topo,
                                            wefti_worst *worst_out);

/* Warns (4) where no ring fits, and names the GPU by which that is. */
void wefti_worst_warn_fallback(const wefti_paths *paths, wefti_topo *topo,
                               int host, const wefti_rings *rings);

#endif
