/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/unstaged.h - messages whose bytes stay in the sender's buffer
 * until their reader has copied or reduced them: one copy where staging takes
 * two.
 *
 * The sender's operation ends only when all have been read, so the buffer is
 * the program's again when it expects that. A rank that fails gives its buffers
 * back at once: a rank that has read from one believes it only while no fault
 * is published.
 *
 * What lies in memory that all have mapped (a weft_mem of the communicator) is
 * read by loads. Anything else of other processes is read by process_vm_readv,
 * with WEFT_SINGLE_COPY=on; ranks that are threads of one process stage it.
 *
 * To other hosts the network takes it from there; then the sender's operation
 * waits for the network only, and has the rest copied if it fails.
 */
#ifndef COMM_STEPS_UNSTAGED_H
#define COMM_STEPS_UNSTAGED_H

#include "comm/core/core.h"

/*
 * wefti_unstaged_find - how comm's members read what is not staged; all have
 * built their ends.
 *
 * why_out   why all is staged, else NULL; lives as long as comm
 */
wefti_reading wefti_unstaged_find(weft_comm *comm, const char **why_out);

/* What op, whose slots are counted, sends from its buffers as they are. */
wefti_bytes_place wefti_unstaged_choose(weft_comm *comm, const wefti_op *op);

/* Where readers find the bytes that such an operation's step sends, of its
 * buffers: src. STAGED: they are to be staged. */
wefti_bytes_place wefti_unstaged_place(const weft_comm *comm,
                                       const wefti_op *op,
                                       const wefti_step *step, const void *src,
                                       size_t bytes);

/* Whether what was sent so is still being read; its steps are done. */
bool wefti_unstaged_is_read(weft_comm *comm, const wefti_op *op);

/* Whether message can be read by loads. */
bool wefti_unstaged_is_here(const weft_comm *comm, int peer,
                            const wefti_incoming *message);

/*
 * wefti_unstaged_copy - dst = the bytes of a message that peer has not staged.
 *
 * Returns     whether they are right; if not, the communicator has a fault, or
 *             the peer's death will be one.
 */
bool wefti_unstaged_copy(weft_comm *comm, const wefti_op *op, int peer,
                         void *dst, const wefti_incoming *message);

/* Whether what was read by loads just now may be believed. */
bool wefti_unstaged_holds(weft_comm *comm);

#endif
