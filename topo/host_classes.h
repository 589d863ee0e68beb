/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/host_classes.h - which hosts of a cluster are equal, so that one of them
 * is shown for all: the same devices at the same addresses, links and rates.
 */
#ifndef TOPO_HOST_CLASSES_H
#define TOPO_HOST_CLASSES_H

#include "topo/paths.h"

typedef struct wefti_host_classes {
    int count;
    int *of;     /* class of each host, by ordinal */
    int *first;  /* a class's lowest host */
    int *counts; /* hosts in a class */
} wefti_host_classes;

/* Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_host_classes_init(wefti_host_classes *classes,
                                                   const wefti_paths *paths);
void wefti_host_classes_fini(wefti_host_classes *classes);

#endif
