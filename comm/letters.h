/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/letters.h - send and receive: operations between two ranks, matched per
 * ordered pair in the order of posting.
 */
#ifndef COMM_LETTERS_H
#define COMM_LETTERS_H

#include "comm/core.h"

/* After a failure too, fini frees what there is. */
WEFT_NODISCARD weft_status wefti_letters_init(weft_comm *comm);
void wefti_letters_fini(weft_comm *comm);

/*
 * wefti_letters_take - a free operation at the end of its pair's queue; NULL:
 * all are pending. Engine's lock held.
 */
wefti_op *wefti_letters_take(weft_comm *comm, const weft_op *desc,
                             uint64_t epoch, bool on_stream);

/* One push for all pairs; returns whether anything moved. */
bool wefti_letters_advance(weft_comm *comm);

#endif
