/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/collective.h - collectives that have been posted: each gets its
 * number and its op slot in the order of posting, as soon as the op slot is
 * free.
 */
#ifndef COMM_POST_COLLECTIVE_H
#define COMM_POST_COLLECTIVE_H

#include "comm/engine/request.h"

/* An operation with all that does not change from post to post. */
typedef struct wefti_prepared {
    weft_op desc; /* checked */
    wefti_role role;
    wefti_op_places places;
    wefti_choice choice;
    wefti_signature signature;
} wefti_prepared;

struct wefti_collective {
    wefti_request request;
    struct wefti_collective *next;
    const wefti_prepared *prepared;
    uint64_t epoch;
};

/*
 * wefti_collective_post - run it here, or queue a copy on a stream or, with
 * handle_out, for a handle; its counts and its scalar are copied too.
 *
 * Returns     as weft_op_post.
 */
WEFT_NODISCARD weft_status wefti_collective_post(const wefti_prepared *prepared,
                                                 uint64_t epoch,
                                                 weft_comm *comm,
                                                 weft_stream *stream,
                                                 weft_request **handle_out);

/* Those that have no op slot get one in turn; those that have one move. */
extern const wefti_request_kind wefti_collective_kind;

/* The number that one without an op slot will get which reduces by redop; 0:
 * none does. Lock held. */
uint64_t wefti_collectives_find_user(const weft_comm *comm, weft_redop redop);

#endif
