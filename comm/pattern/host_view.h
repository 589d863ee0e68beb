/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/host_view.h - one rank on its host, for exchanges by way of
 * agents (two_hop.c, relay.c).
 *
 * Members stand by host (grouping.h). Ranks of other hosts are counted going
 * round from the end of this one: number d is that of place d behind it, and
 * its agent here the rank of place d modulo ranks.
 */
#ifndef COMM_PATTERN_HOST_VIEW_H
#define COMM_PATTERN_HOST_VIEW_H

#include "comm/pattern/pattern.h"

typedef struct wefti_host_view {
    const wefti_problem *problem;
    const wefti_grouping *grouping;
    int host;
    size_t ranks, local; /* of the host, and this rank's place there */
    size_t remotes;      /* ranks of other hosts */
    size_t handled;      /* of them, whose agent this rank is */
} wefti_host_view;

wefti_host_view wefti_host_view_of(const wefti_problem *problem);

/* The remote rank of that number. */
int wefti_host_view_remote(const wefti_host_view *view, size_t number);

/* The host that is so many before this one, going round. */
int wefti_host_view_before(const wefti_host_view *view, int back);

#endif
