/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/common_counts.h - all_gatherv and reduce_scatterv: all ranks pass
 * the same counts, so a digest of them is part of the signature, and goes where
 * that goes. What a rank has entered need not be told to each other then.
 *
 *   entry   count     the digest
 *           payload   uint64_t[], the counts themselves; of more ranks than
 *                     fit, sums of as many in a row: they say what differs
 */
#ifndef COMM_STEPS_COMMON_COUNTS_H
#define COMM_STEPS_COMMON_COUNTS_H

#include "comm/core/core.h"

/* Whether op is one of them. */
bool wefti_op_has_common_counts(const wefti_op *op);

/* Signs op and writes its counts into this rank's entry, which is announced
 * later, with so many bytes of payload. */
size_t wefti_common_counts_declare(weft_comm *comm, wefti_op *op);
size_t wefti_common_counts_bytes(int nranks);

/* Publishes that peer, whose signature differs in nothing else, has other
 * counts. entry: it has told its counts; NULL: it was only asked. */
void wefti_common_counts_report(weft_comm *comm, const wefti_op *op, int peer,
                                wefti_entry *entry);

/* counts: [nranks]. Writes the row; returns the digest. */
uint64_t wefti_common_counts_pack(const size_t *counts, int nranks,
                                  uint64_t *row_out);

/* Both sides in words, of this rank's row and peer's; equal rows: only that
 * they differ. */
void wefti_common_counts_text(const wefti_op *op, int peer, const uint64_t *own,
                              const uint64_t *theirs, char *text_out,
                              size_t text_bytes);

#endif
