/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_reduce.h - when which gradients are reduced.
 *
 *   the list    ...  W(s, m-2) ...  W(s, m-1)           REDUCE_GRAD(s)
 *   early                           R3  R2  R1  R0      (nothing is left)
 *   else                                                R3 R2 R1 R0
 *
 * All reductions of a group of parameters are on one communicator, on which all
 * of its ranks must post in one order. A stage is early where its REDUCE_GRAD
 * follows its last W with no other compute or reduction between: then the order
 * is the list's, which the copies of a pipeline share. A list that puts it
 * later says so on purpose (so that ranks do not compete); mirrors have two
 * lists, which agree on nothing but the order of REDUCE_GRAD.
 *
 * The two ends of a tied embedding that is cut are reduced after the list, when
 * they have each other's gradients.
 */
#ifndef TRAINER_PIPE_PIPE_REDUCE_H
#define TRAINER_PIPE_PIPE_REDUCE_H

#include "trainer/pipe/pipe.h"

/* Part of wefti_pipe_open; the replica has its gradients. */
WEFT_NODISCARD weft_status
wefti_pipe_reduce_open(struct wefti_replica *replica);
void wefti_pipe_reduce_close(wefti_pipe *pipe);

/* The set of a part's buckets of a group that end with its last W. */
wefti_pipe_reduce *wefti_pipe_find_reduce(const struct wefti_replica *replica,
                                          size_t part, size_t group);

/* A step begins: nothing of it is reduced. */
void wefti_pipe_reduce_begin(wefti_pipe *pipe);

/* A step goes on in which all of a part has been: nothing of it is left. */
void wefti_pipe_reduce_skip(struct wefti_replica *replica, size_t part);

/*
 * From inside an action: a part's bucket of a group is final, after those
 * behind it.
 */
WEFT_NODISCARD weft_status wefti_pipe_reduce_final(
    struct wefti_replica *replica, size_t part, size_t group, size_t bucket);

/* Whatever is left of a part goes: all of it is final, or means nothing. */
WEFT_NODISCARD weft_status wefti_pipe_reduce_rest(struct wefti_replica *replica,
                                                  size_t part);

/* After the list, where the model's head is a copy of its embedding. */
WEFT_NODISCARD weft_status
wefti_pipe_reduce_tied(struct wefti_replica *replica);

#endif
