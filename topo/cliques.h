/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/cliques.h - which hosts are one NVLink domain (paths.h).
 */
#ifndef TOPO_CLIQUES_H
#define TOPO_CLIQUES_H

#include "topo/paths.h"

/* Of paths whose hosts, GPUs and NICs are listed. Returns OK | ERR_NO_MEMORY
 * (wefti_cliques_fini frees what there is). */
WEFT_NODISCARD weft_status wefti_cliques_init(wefti_paths *paths);
void wefti_cliques_fini(wefti_paths *paths);

#endif
