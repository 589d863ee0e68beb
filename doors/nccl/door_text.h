/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_text.h - results, and the text that ncclGetLastError gives.
 */
#ifndef DOORS_NCCL_DOOR_TEXT_H
#define DOORS_NCCL_DOOR_TEXT_H

#include "doors/nccl/door_abi.h"
#include "weft/status.h"

/*
 * wefti_door_error(result, format, ...) - keep a text, for this thread and for
 * threads that have none of their own, and hand the result through:
 * return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT, "rank is %d: ...");
 *
 * Threads     any.  Blocks: no.  Allocates: no (cut at 511 bytes).
 */
int wefti_door_error(int result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The result that a weft call's status is, in which call; its text is kept. */
int wefti_door_status(weft_status status, const char *call);

/* The same of a status and a text that stand elsewhere. */
int wefti_door_result_of(weft_status status);

/* This thread's text, else the process's latest; "" if there is none. */
const char *wefti_door_last_text(void);

#endif
