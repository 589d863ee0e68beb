/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/expect.h - what must come over the network before anything of it
 * is of use here, so that no byte of it need wake this rank earlier.
 *
 * It is known where all that a communicator's operations wait for from a rank
 * are messages whose sizes their lists know: then nothing can go on before the
 * shortest of these is there whole. Several in a row count as one where each of
 * them alone would change nothing that another rank, or the program, can see,
 * and their sender can send them all before it has to know that one was read.
 *
 * A list that waits until it may send more needs no more than the word that its
 * peer has read something; that can wait as long as the network has enough to
 * send.
 *
 * It is not known, and then each byte counts, where an operation waits for an
 * entry, a program for memory that others write, or where there is a fault.
 */
#ifndef COMM_STEPS_EXPECT_H
#define COMM_STEPS_EXPECT_H

#include "comm/core/core.h"

/*
 * wefti_expect - what comm waits for from peer; lists have moved as far as they
 * go. Lock held.
 *
 * Returns     whether that is known; *expected_out: the least of it, 0 and 0 if
 *             it waits for nothing.
 */
bool wefti_expect(weft_comm *comm, int peer, wefti_expected *expected_out);

#endif
