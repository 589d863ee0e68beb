/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/payload.h - where the payload of an operation in one shot lies.
 *
 *      up to 16 bytes   in the first line of the entry
 *      up to 4 KiB      behind it, in whole lines
 *      more             among ranks of one domain: in one of this rank's areas,
 *                       or in its own buffer, where all have mapped that
 *                       memory; the entry says where
 *
 * What a rank gives to itself it takes from its buffer, if the host can read it
 * there and it is not to be scaled.
 *
 * An area is free again when all ranks have completed the operation that used
 * it last, as this rank has seen; it looks at the others' pages only when none
 * is that it may take: of the few that stay in a cache, or where
 * comm/fabric/stager.h has them take turns, of all behind the last one.
 */
#ifndef COMM_STEPS_PAYLOAD_H
#define COMM_STEPS_PAYLOAD_H

#include "comm/core/core.h"

/* What this rank shows its peers; 0: nothing. */
size_t wefti_payload_bytes(const weft_comm *comm, const wefti_op *op);

/* Puts it where they read it, from memory that the host can read; or decides
 * that they read it there. Before the entry is announced. */
void wefti_payload_show(weft_comm *comm, wefti_op *op, const void *payload);

/*
 * wefti_payload_find - where rank's payload can be read; its entry has been
 * checked, or it is this rank.
 *
 * lent        set to true if those are rank's own buffers: see
 *             wefti_payload_give_back
 */
const unsigned char *wefti_payload_find(weft_comm *comm, const wefti_op *op,
                                        int rank, bool *lent);

/* An area of this rank's region for op's payload, far or not: see
 * comm/steps/area.h. */
unsigned char *wefti_payload_take_area(weft_comm *comm, const wefti_op *op,
                                       bool far);

/* This rank has read all payloads that it needs. */
void wefti_payload_give_back(weft_comm *comm, const wefti_op *op);

/* The first peer that has yet to give back this rank's payload, which it lends;
 * -1: all have. */
int wefti_payload_find_reader(weft_comm *comm, const wefti_op *op);

/* Whether this rank takes its own part from its buffer. */
bool wefti_payload_own_is_here(const wefti_op *op);

/* The next operation of this size will write here: fetches those lines. */
void wefti_payload_prefetch(const weft_comm *comm, const wefti_op *op);

#endif
