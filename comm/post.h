/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post.h - posting in two parts: what can be done once, and what each
 * post does.
 */
#ifndef COMM_POST_H
#define COMM_POST_H

#include "comm/core.h"

/* An operation with all that does not change from post to post. */
typedef struct wefti_prepared {
    weft_op desc; /* checked */
    wefti_role role;
    wefti_choice choice;
    wefti_signature signature;
} wefti_prepared;

/*
 * wefti_post_prepare - check, select, sign.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_post_prepare(const weft_op *op, uint64_t epoch,
                                              const weft_comm *comm,
                                              wefti_prepared *prepared_out);

/* The rest of weft_op_post; epoch is not checked. */
WEFT_NODISCARD weft_status wefti_post_prepared(const wefti_prepared *prepared,
                                               uint64_t epoch, weft_comm *comm,
                                               weft_stream *stream);

#endif
