/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/post.h - posting in two parts: what can be done once, and what each
 * post does.
 */
#ifndef COMM_POST_POST_H
#define COMM_POST_POST_H

#include "comm/post/collective.h"

/*
 * wefti_post_prepare - check, select, sign.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_post_prepare(const weft_op *op, uint64_t epoch,
                                              const weft_comm *comm,
                                              wefti_prepared *prepared_out);

/*
 * wefti_post_for - what another call of weft's is made of, here and now: its
 * signature carries for what it is, so that texts can say so and a rank in
 * another call is found out.
 *
 * Returns     as weft_op_post.
 */
WEFT_NODISCARD weft_status wefti_post_for(wefti_purpose purpose,
                                          const weft_op *op, weft_comm *comm);

/* An all-gather of bytes for another call. */
WEFT_NODISCARD weft_status wefti_post_exchange(wefti_purpose purpose,
                                               const void *mine, void *all,
                                               size_t bytes, weft_comm *comm);

/* The rest of weft_op_post, or with handle_out of weft_op_begin; epoch is not
 * checked. */
WEFT_NODISCARD weft_status wefti_post_prepared(const wefti_prepared *prepared,
                                               uint64_t epoch, weft_comm *comm,
                                               weft_stream *stream,
                                               weft_request **handle_out);

#endif
