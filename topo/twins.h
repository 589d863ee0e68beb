/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/twins.h - GPUs of one model are held against each other: one that has
 * fewer links, or slower ones, is named.
 */
#ifndef TOPO_TWINS_H
#define TOPO_TWINS_H

#include "topo/graph.h"

/* Whether both are GPUs of one model. */
bool wefti_twins_are(const wefti_device *a, const wefti_device *b);

/*
 * wefti_twins_compare - warns (4) of GPUs with another number of links than
 * most of their twins; with rates, also (5) of those whose links are slower
 * together, which is for hosts that no switch joins: within one, links are
 * compared one by one.
 */
void wefti_twins_compare(wefti_topo *topo, bool rates);

#endif
