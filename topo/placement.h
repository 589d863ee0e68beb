/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/placement.h - which rank goes where, so that the fewest bytes cross slow
 * links.
 *
 * A rank has one coordinate in each kind of parallelism; ranks are numbered
 * with tensor parallelism fastest, then context, expert, data, pipeline
 * (expert groups lie inside data-parallel ones: dp here is what is left beside
 * ep). Traffic is counted by what each group does: a ring in TP, CP and DP
 * (DP over ep too), all with all in EP, a chain in PP.
 */
#ifndef TOPO_PLACEMENT_H
#define TOPO_PLACEMENT_H

#include "topo/levels.h"

#include <stdio.h>

typedef enum wefti_axis {
    WEFTI_AXIS_TP,
    WEFTI_AXIS_CP,
    WEFTI_AXIS_EP,
    WEFTI_AXIS_DP,
    WEFTI_AXIS_PP,
    WEFTI_AXIS_COUNT
} wefti_axis;

const char *wefti_axis_text(wefti_axis axis);

typedef struct wefti_place_job {
    int sizes[WEFTI_AXIS_COUNT];    /* 1: not used */
    double bytes[WEFTI_AXIS_COUNT]; /* a rank sends in its group a step */
    /* The place each rank has, kept where none is better; NULL: rank i has
     * place i, and nothing runs yet. */
    const int *now;
} wefti_place_job;

typedef struct wefti_placement {
    int rank_count;
    int *places;                 /* of levels, by rank */
    int order[WEFTI_AXIS_COUNT]; /* axes, the one that lies closest first */
    /* Bytes a step that cross each level: ranks in order, and as placed. */
    double before[WEFTI_LEVELS_MOST], after[WEFTI_LEVELS_MOST];
    /* Of them, by axis, as placed. */
    double by_axis[WEFTI_AXIS_COUNT][WEFTI_LEVELS_MOST];
} wefti_placement;

/*
 * wefti_place_plan - the best of all nestings of the axes, then, in small
 * worlds, of exchanges of two ranks. First of all TP and then CP stay in a
 * host, then bytes count, the outermost level first.
 *
 * Returns     OK | ERR_INVALID (sizes that do not multiply to the places, a
 *             negative number) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_place_plan(const wefti_levels *levels,
                                            const wefti_place_job *job,
                                            wefti_placement *placement_out);
void wefti_placement_fini(wefti_placement *placement);

/* The map, bytes by level before and after, and what must cross. */
void wefti_placement_print(const wefti_levels *levels,
                           const wefti_place_job *job,
                           const wefti_placement *placement, FILE *file);

/* "tp=8,pp=4,dp=16,tp_bytes=1e9". Returns OK | ERR_INVALID. */
WEFT_NODISCARD weft_status wefti_place_job_read(const char *text,
                                                wefti_place_job *job);

#endif
