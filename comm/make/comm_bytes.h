/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/comm_bytes.h - what all communicators of a rank take of memory, for
 * a program that plans its own. Each is counted with comm's engine: those split
 * from it, and those that it was split from.
 */
#ifndef COMM_MAKE_COMM_BYTES_H
#define COMM_MAKE_COMM_BYTES_H

#include "weft/comm.h"

#include <stdint.h>

/*
 * wefti_comm_count_made - what they were made with: their own memory, and of
 * what is shared the cells that every operation uses. Staging is not in it, nor
 * are weft_mems.
 *
 * Threads     any.  Blocks: no, but for the engine's lock; so below.
 */
uint64_t wefti_comm_count_made(weft_comm *comm);

/*
 * wefti_comm_plan_staging - what of a communicator's staging is used once many
 * operations have sent so many bytes each, one at a time, and copied: those
 * that entries do not hold take turns in all areas, or a staging buffer's part
 * (comm/fabric/stager.h). Where they are written near it is less.
 */
size_t wefti_comm_plan_staging(const weft_comm *comm, size_t bytes);

/* Likewise where many messages of so many bytes have been sent: they take turns
 * in all areas (comm/steps/area.h). */
size_t wefti_comm_plan_messages(const weft_comm *comm, size_t bytes);

/*
 * wefti_comm_count_part - of the memory that ranks of the host share, this
 * rank's part, as far as it is there: its regions and its parts of weft_mems,
 * whichever rank has written to them. Over all ranks of the host it adds up to
 * all of it. 0: this rank shares none, and all it has is private.
 */
uint64_t wefti_comm_count_part(weft_comm *comm);

#endif
