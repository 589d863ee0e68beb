/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/least_traffic.h - the least that a collective must send from host
 * to host, by its definition alone.
 */
#ifndef TESTS_COMM_LEAST_TRAFFIC_H
#define TESTS_COMM_LEAST_TRAFFIC_H

#include "comm/pattern/pattern.h"

/* hosts: [nranks] the lowest rank that shares memory with each. */
int least_hosts(const int *hosts, int nranks);

/*
 * least_elems - in elements, all hosts together. Of sums, what a rank gets
 * needs a message from each other host; an all-reduce's result must reach all
 * hosts again. Data that all ranks get alike go to a host once.
 *
 * counts   of a v form, as in tests/comm/simulator.h; else NULL
 */
size_t least_elems(const wefti_problem *problem, const size_t *counts,
                   const int *hosts);

#endif
