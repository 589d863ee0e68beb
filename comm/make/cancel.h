/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/cancel.h - what a creation does about its weft_cancel, which may be
 * NULL in all of these.
 */
#ifndef COMM_MAKE_CANCEL_H
#define COMM_MAKE_CANCEL_H

#include "comm/core/core.h"

/* Readable once it is posted; NULL: there is none. */
const int *wefti_cancel_get_fd(const weft_cancel *cancel);

bool wefti_cancel_is_posted(weft_cancel *cancel);

/* From attach to detach a post, also one that was before, fails comm. */
void wefti_cancel_attach(weft_cancel *cancel, weft_comm *comm);
void wefti_cancel_detach(weft_cancel *cancel);

#endif
