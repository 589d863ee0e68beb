/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/entry.h - what a rank says when it enters an operation, and the
 * algorithm oneshot: every rank writes its payload beside its signature, once,
 * and reads those it needs. One cache-line exchange; no staging, no
 * acknowledgement.
 */
#ifndef COMM_STEPS_ENTRY_H
#define COMM_STEPS_ENTRY_H

#include "comm/core/core.h"

/* Writes this rank's entry with its payload. */
void wefti_oneshot_enter(weft_comm *comm, wefti_op *op);

/* Goes on as far as peers have entered; returns whether anything moved. */
bool wefti_oneshot_advance(weft_comm *comm, wefti_op *op);

/*
 * Publishes this rank's entry: payload_bytes of it are for each reader, and all
 * readers together take sent_bytes of data.
 */
void wefti_oneshot_announce(weft_comm *comm, wefti_op *op, size_t payload_bytes,
                            size_t sent_bytes);

/* Writes what stands in this rank's entry but for the payload, and wakes who
 * waits for it. */
void wefti_entry_publish(weft_comm *comm, uint64_t number,
                         const wefti_signature *signature, int64_t stamp_ns);

/* Copies this rank's own part, if it need not wait for peers' payloads. */
void wefti_oneshot_take_own(weft_comm *comm, wefti_op *op);

/* Makes this rank's result of what all have sent, which is there. Returns its
 * bytes. */
size_t wefti_oneshot_produce(weft_comm *comm, wefti_op *op, void *result);

#endif
