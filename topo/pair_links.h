/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/pair_links.h - how many NVLinks or xGMI links join two GPUs, directly or
 * by switches, and what a matrix calls it: NV12, as nvidia-smi topo -m does.
 */
#ifndef TOPO_PAIR_LINKS_H
#define TOPO_PAIR_LINKS_H

#include "topo/paths.h"

typedef struct wefti_pair_links wefti_pair_links;

/* Returns OK | ERR_NO_MEMORY. paths must outlive it. */
WEFT_NODISCARD weft_status wefti_pair_links_create(const wefti_paths *paths,
                                                   wefti_pair_links **out);
void wefti_pair_links_destroy(wefti_pair_links *links); /* takes NULL */

/* "NV12", "XGMI", "PIX", "X" for the GPU itself. */
#define WEFTI_PAIR_TEXT_BYTES 12
const char *wefti_pair_links_text(const wefti_pair_links *links, int a, int b,
                                  char text[WEFTI_PAIR_TEXT_BYTES]);

#endif
