/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/sysfs.h - what Linux says of ports and PCI links and hwloc does not
 * keep: rate, link layer, state, card, and what a link can do when awake.
 */
#ifndef TOPO_SYSFS_H
#define TOPO_SYSFS_H

#include "topo/assemble.h"

/* root is "/sys". Whatever is missing there stays as it was. */
void wefti_sysfs_apply(wefti_topo *topo, const char *root);

#endif
