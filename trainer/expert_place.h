/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/expert_place.h - which ranks have which experts, chosen anew every so
 * many steps by the loads of the steps since, and what it has been good for.
 *
 *   loads of steps 1 .. n, weft_moe_place --> map of step n + 1
 *
 * Loads are those of all ranks (trainer/step_sums.h): all choose alike.
 */
#ifndef TRAINER_EXPERT_PLACE_H
#define TRAINER_EXPERT_PLACE_H

#include "trainer/expert_move.h"
#include "weft/moe_place.h"

/* Steps between two choices, or since the last. */
typedef struct wefti_placed_run {
    uint64_t steps;
    double ratio;   /* wefti_expert_map_ratio of their loads, the worst layer */
    double step_ms; /* mean, of this rank, of those that it timed */
    double timed;
} wefti_placed_run;

/* A choice after a step, and the steps before it; those behind it are the
 * next's. */
typedef struct wefti_placed {
    uint64_t step;
    wefti_placed_run before;
    double ratio_planned; /* before's loads, with the map that was chosen */
    size_t experts;       /* that came to another slot, of all layers */
    double bytes;         /* that they are, of all ranks */
} wefti_placed;

typedef struct wefti_expert_place {
    wefti_replica *replica;
    weft_moe_place_config how;
    uint64_t every;
    wefti_expert_move *move;
    double *loads;  /* [layers][experts] of the steps since the last choice */
    int32_t *next;  /* [layers][slots] what they will have */
    int32_t *found; /* [slots] of one layer, while it is chosen */
    bool due;       /* next is another map: what it moves is under way */
    double ms, timed;
    uint64_t steps;
    wefti_placed *placed; /* [count] */
    size_t count, room;
} wefti_expert_place;

/*
 * wefti_expert_place_create - adds it to a replica whose plan has a map; its
 * fini ends it. Collective.
 *
 * Returns     OK | ERR_NO_MEMORY | as wefti_expert_move_create.
 */
WEFT_NODISCARD weft_status wefti_expert_place_create(
    wefti_replica *replica, const weft_moe_place_config *how, uint64_t every);
void wefti_expert_place_destroy(wefti_expert_place *place); /* NULL is legal */
void wefti_expert_place_abort(wefti_expert_place *place);   /* NULL is legal */

/* The largest sum of a rank's experts over the mean, of the worst layer, as
 * experts lie now; NAN: there is no map, or no load. */
double wefti_expert_place_ratio(const wefti_replica *replica,
                                const double *loads);

/*
 * wefti_expert_place_choose - adds a step's loads, and in every n-th step but
 * the run's last chooses a map for the next one.
 *
 * Returns     OK | ERR_NO_MEMORY | as weft_moe_place.
 */
WEFT_NODISCARD weft_status wefti_expert_place_choose(wefti_expert_place *place,
                                                     uint64_t step,
                                                     const double *loads);

/* Whether experts move behind this step. NULL: no. */
bool wefti_expert_place_is_due(const wefti_expert_place *place);

/* Bytes that move behind this step, of all ranks. NULL: NAN. */
double wefti_expert_place_bytes(const wefti_expert_place *place);

/* Behind a due step, the last to look at its gradients: averages move, and its
 * map counts from now on. NULL is legal. */
WEFT_NODISCARD weft_status wefti_expert_place_end(wefti_expert_place *place);

/* How long the step has been that has just ended. NULL is legal. */
void wefti_expert_place_time(wefti_expert_place *place, double step_ms);

/* Of the steps since the last choice. */
wefti_placed_run wefti_expert_place_run(const wefti_expert_place *place);

#endif
