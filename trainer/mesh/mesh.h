/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/mesh/mesh.h - the ranks of a job on the axes of parallelism, and who
 * belongs together on them; arithmetic alone.
 *
 *   rank = ((pp * DP + dp) * CP + cp) * TP + tp
 *
 *   a stage's ranks    in dense layers    | tp | cp |    dp    |
 *                      in expert layers   |    ep    | its copies |
 *
 * So ranks that talk most lie next to each other. Experts are spread over ep of
 * a stage's ranks in a row, whatever these are in dense layers; ep ends where
 * an axis, or a whole part of one, does, so that of a rank's two replica groups
 * one lies in the other.
 *
 * A schedule with two directions has the parts of the model twice: on rank pp
 * of a pipeline and on its mirror, PP - 1 - pp. Replica groups have both.
 */
#ifndef TRAINER_MESH_MESH_H
#define TRAINER_MESH_MESH_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Sizes; 1: not used. */
typedef struct wefti_mesh {
    int tp; /* matrices are cut */
    int cp; /* sequences are cut */
    int ep; /* experts are spread */
    int pp; /* layers are cut */
    int dp; /* what is left: copies of the dense layers on whole sequences */
    bool mirrored;
} wefti_mesh;

/* Where a rank is. */
typedef struct wefti_mesh_place {
    int tp, cp, dp, pp;
    int ep, expert_copy; /* what tp, cp and dp are in expert layers */
} wefti_mesh_place;

/* Ranks that belong together: alike in all but what is said here. */
typedef enum wefti_mesh_group {
    WEFTI_MESH_TP,
    WEFTI_MESH_CP,
    WEFTI_MESH_EP,
    WEFTI_MESH_DP,
    WEFTI_MESH_PP,
    WEFTI_MESH_SEQUENCE,       /* tp, cp: one sequence's activations */
    WEFTI_MESH_STAGE,          /* tp, cp, dp */
    WEFTI_MESH_COPY,           /* tp, cp, pp: the whole model */
    WEFTI_MESH_REPLICA,        /* cp, dp: the same dense parameters */
    WEFTI_MESH_EXPERT_REPLICA, /* of tp, cp, dp what ep leaves: same experts */
    WEFTI_MESH_GROUPS
} wefti_mesh_group;

/* A rank's seat in one of the groups of a kind. */
typedef struct wefti_mesh_seat {
    int number; /* of the group, from 0: one for each kind of rank */
    int index;  /* in it: in the order of dp, then cp, tp, then mirrors */
    int size;
} wefti_mesh_seat;

/*
 * wefti_mesh_make - so many ranks; dp has those that the others leave.
 *
 * sizes       dp does not count
 *
 * Returns     OK | ERR_INVALID (what does not divide, with the nearest that
 *             do).
 */
WEFT_NODISCARD weft_status wefti_mesh_make(const wefti_mesh *sizes, int nranks,
                                           wefti_mesh *mesh_out);

/* dp for so many ranks; 0: tp, cp and pp do not divide them. */
int wefti_mesh_copies(const wefti_mesh *sizes, int nranks);

int wefti_mesh_ranks(const wefti_mesh *mesh);

wefti_mesh_place wefti_mesh_locate(const wefti_mesh *mesh, int rank);

/* The rank at a place; its ep and expert_copy do not count. */
int wefti_mesh_rank(const wefti_mesh *mesh, const wefti_mesh_place *place);

wefti_mesh_seat wefti_mesh_find(const wefti_mesh *mesh, wefti_mesh_group group,
                                int rank);

/*
 * Where a copy's run of so many things begins, as evenly as they go; copy
 * copies: how many there are.
 */
size_t wefti_mesh_first(size_t count, size_t copy, size_t copies);

/* How much of ep lies in dp alone: beyond tp and cp. */
int wefti_mesh_ep_of_dp(const wefti_mesh *mesh);

#endif
