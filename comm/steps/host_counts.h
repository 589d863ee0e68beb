/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/host_counts.h - what the ranks of a host have for each rank, told
 * in their entries: two_hop with counts needs it before its lists begin
 * (comm/pattern/relay.h). The v forms have no payload there.
 *
 *   entry of rank r   payload: uint16_t[nranks], elements for each rank
 */
#ifndef COMM_STEPS_HOST_COUNTS_H
#define COMM_STEPS_HOST_COUNTS_H

#include "comm/core/core.h"

/* Writes this rank's into its entry, which is announced later. */
void wefti_host_counts_declare(weft_comm *comm, wefti_op *op);

/* Gives op's problem those of the host; false: not all of its ranks have
 * entered. */
bool wefti_host_counts_find(weft_comm *comm, wefti_op *op);

#endif
