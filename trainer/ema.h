/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/ema.h - the exponential moving average of the weights, in the host's
 * memory: of this rank's shares alone, updated by a thread beside the steps.
 *
 *   training   update 1, take | forward, backward ...  | update 2, take | ...
 *   thread                     average of step 1        average of step 2
 *
 * take copies a bucket's share of the parameters, or of bf16 ones' masters, as
 * soon as it is updated; the thread reads that copy alone. Only a step's first
 * take waits, if the thread has not done with the copy of the step before.
 *
 * The average begins as the parameters that the run begins with. It is saved
 * with the rest of the state, by tensor: "NAME.ema", and of fp8 what that
 * leaves out, "NAME.ema_rest". Bits are the same on every layout that trains
 * the same bits.
 */
#ifndef TRAINER_EMA_H
#define TRAINER_EMA_H

#include "trainer/ema_code.h"
#include "trainer/replica.h"

typedef struct wefti_ema wefti_ema;

/*
 * wefti_ema_create - adds the average that the replica's configuration names to
 * it, as its parameters are now; the replica's fini ends it. Nothing of format
 * NONE.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM | the device's.
 */
WEFT_NODISCARD weft_status wefti_ema_create(wefti_replica *replica);
void wefti_ema_destroy(wefti_ema *ema); /* NULL is legal */

/* Bytes of the host that it takes for a replica, planned. */
size_t wefti_ema_plan_bytes(const wefti_replica *replica);

/* The average is what the parameters are now, which have arrived. */
WEFT_NODISCARD weft_status wefti_ema_begin(wefti_ema *ema);

/*
 * wefti_ema_take - a bucket of a group has been updated on the replica's
 * compute, and is about to be sent. NULL is legal.
 */
WEFT_NODISCARD weft_status wefti_ema_take(wefti_ema *ema, size_t group,
                                          size_t bucket);

/* All buckets of step have been taken: the thread goes on. NULL is legal. */
WEFT_NODISCARD weft_status wefti_ema_start(wefti_ema *ema, uint64_t step);

/* Waits until the thread has nothing to do. NULL is legal. */
WEFT_NODISCARD weft_status wefti_ema_settle(wefti_ema *ema);

/* The averages of a group's shares, [own_elems]; settled. */
wefti_ema_words wefti_ema_words_of(const wefti_ema *ema, size_t group);
wefti_ema_format wefti_ema_format_of(const wefti_ema *ema);

/*
 * wefti_ema_swap - the parameters are the average on all ranks, or again what
 * they were, with the same bits; all ranks together, between steps.
 */
WEFT_NODISCARD weft_status wefti_ema_swap(wefti_replica *replica,
                                          bool averages);

/* As wefti_replica_evaluate, of the average. */
WEFT_NODISCARD weft_status wefti_ema_evaluate(wefti_replica *replica,
                                              double *loss_out);

#endif
