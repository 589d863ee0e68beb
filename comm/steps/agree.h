/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/agree.h - are all ranks in the same operation, and do senders send
 * what receivers expect? The rank that finds that not to be so fails the
 * communicator, with a text that has both sides.
 */
#ifndef COMM_STEPS_AGREE_H
#define COMM_STEPS_AGREE_H

#include "comm/core/core.h"

/*
 * wefti_op_check_peer - whether peer has entered the same operation with
 * counts that agree; false: not yet, or a fault has been published.
 */
bool wefti_op_check_peer(weft_comm *comm, wefti_op *op, int peer);
void wefti_op_report_mismatch(weft_comm *comm, const wefti_op *op, int peer,
                              wefti_signature theirs);

/* v forms: writes what goes to each rank of the domain, before this rank's
 * entry is announced; to others the announcement says it. Or what all must have
 * alike (comm/steps/common_counts.h). Returns the payload's bytes. */
size_t wefti_op_declare_counts(weft_comm *comm, wefti_op *op);

/* Whether peer has anything that this rank must have before op can end. */
bool wefti_op_needs(const wefti_op *op, int peer);

/*
 * wefti_op_check_sources - v forms: whether all who may have anything for this
 * rank have entered with the counts it expects; then nothing can still come.
 * Goes on with the rounds in which that becomes known.
 */
bool wefti_op_check_sources(weft_comm *comm, wefti_op *op);

/* Whether messages from peer say what it has entered, and nothing else need. */
bool wefti_op_is_signed(const weft_comm *comm, const wefti_op *op, int peer);

/* Whether it is the same by such a message, which carries theirs. */
bool wefti_op_check_sent(weft_comm *comm, wefti_op *op, int peer,
                         wefti_signature theirs);

/* Whether this rank compares what it has entered with peer: all ranks of a host
 * do, and hosts as comm/steps/meeting.h says. */
bool wefti_op_is_checked_by(const weft_comm *comm, const wefti_op *op,
                            int peer);

/*
 * wefti_op_check_all - whether all those have been seen in the same operation.
 * Those that this rank had nothing to wait for are looked at when it is done.
 */
bool wefti_op_check_all(weft_comm *comm, wefti_op *op);

/* A message of peer is as long as the step expects: else nothing is written. */
bool wefti_op_check_bytes(weft_comm *comm, const wefti_op *op, int peer,
                          size_t sent_bytes, size_t expected_bytes);

/*
 * wefti_op_may_read - whether the list's step may look for its messages. Those
 * of a v form that pass through other ranks fit only where all ranks have the
 * same counts: a difference is found before a message is read, and named by its
 * ranks. Where counts are signed, who passes on a message had it from ranks
 * with the same. If not, list->peer is the rank that is awaited.
 */
bool wefti_op_may_read(weft_comm *comm, wefti_op *op, wefti_step_list *list);

#endif
