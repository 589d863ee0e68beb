/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/signature_text.h - a signature in words.
 */
#ifndef COMM_STEPS_SIGNATURE_TEXT_H
#define COMM_STEPS_SIGNATURE_TEXT_H

#include "comm/core/core.h"

/* "all_reduce of 1024 f32, sum", "weft_comm_split (all_gather of 16 u8)" -
 * always ends in a zero byte. comm knows the names of its own reductions; the
 * engine's lock is held. */
void wefti_signature_text(const weft_comm *comm, wefti_signature signature,
                          char *text_out, size_t text_bytes);

#endif
