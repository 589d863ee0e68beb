/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/redop.c - making a program's reductions, and ending them.
 *
 * A number is free for a new one where no rank uses it any more; ranks tell
 * each other, so they agree whatever the order in which each destroyed its own.
 */
#include "base/error.h"
#include "comm/core/live.h"
#include "comm/post/collective.h"
#include "comm/post/consensus.h"
#include "comm/steps/reduction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What each rank says about its call. */
typedef struct info {
    int32_t status;
    char name[32];
    uint64_t used; /* bit set of the numbers that are taken here */
} info;

_Static_assert(WEFTI_REDUCTIONS == 64, "info.used has a bit for each");

static weft_status check(const char *name, weft_redop_function function,
                         const weft_redop *redop_out)
{
    if (!name || !name[0] || strlen(name) >= sizeof(((info *)0)->name)) {
        return wefti_error(
            WEFT_ERR_INVALID, "name %s%.40s%s: allowed is 1 to 31 bytes",
            name ? "\"" : "", name ? name : "NULL", name ? "\"" : "");
    }
    if (!function || !redop_out) {
        return wefti_error(WEFT_ERR_INVALID, "%s is NULL",
                           function ? "redop_out" : "function");
    }
    return WEFT_OK;
}

static weft_status make(const char *name, weft_redop_function function,
                        void *context, wefti_reduction **made_out)
{
    wefti_reduction *made = calloc(1, sizeof(*made));
    if (!made) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a reduction");
    }
    made->function = function;
    made->context = context;
    snprintf(made->name, sizeof(made->name), "%s", name);
    atomic_init(&made->holders, 1);
    *made_out = made;
    return WEFT_OK;
}

/* All ranks see the same and come to the same end. */
static weft_status agree(weft_comm *comm, weft_status refused, const char *name,
                         int *number_out)
{
    wefti_consensus consensus = {.comm = comm,
                                 .purpose = WEFTI_PURPOSE_REDOP,
                                 .refused = " could not begin"};
    info own = {.status = refused};
    uint64_t used = 0;
    for (int i = 0; i < WEFTI_REDUCTIONS; i++) {
        own.used |= (uint64_t)(comm->reductions[i] != NULL) << i;
    }
    snprintf(own.name, sizeof(own.name), "%s", refused == WEFT_OK ? name : "");
    weft_status status =
        wefti_consensus_exchange(&consensus, &own, sizeof(own));
    for (int rank = 0; rank < comm->nranks && status == WEFT_OK; rank++) {
        const info *first = wefti_consensus_get(&consensus, 0);
        const info *theirs = wefti_consensus_get(&consensus, rank);
        used |= theirs->used;
        if (strcmp(theirs->name, first->name) != 0) {
            status = wefti_error(WEFT_ERR_MISMATCH,
                                 "a reduction's name: rank 0 has \"%s\", rank "
                                 "%d \"%s\": allowed is the same on all ranks",
                                 first->name, rank, theirs->name);
        }
    }
    if (status == WEFT_OK && used == UINT64_MAX) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "\"%s\" has %d reductions: allowed is %d at a "
                             "time",
                             comm->name, WEFTI_REDUCTIONS, WEFTI_REDUCTIONS);
    }
    if (status == WEFT_OK) {
        *number_out = __builtin_ctzll(~used);
    }
    return status;
}

weft_status weft_redop_create_user(weft_comm *comm, const char *name,
                                   weft_redop_function function, void *context,
                                   weft_redop *redop_out)
{
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    wefti_reduction *made = NULL;
    int number = 0;
    weft_status refused = check(name, function, redop_out);
    if (refused == WEFT_OK) {
        refused = make(name, function, context, &made);
    }
    weft_status status = agree(comm, refused, name, &number);
    if (status != WEFT_OK) {
        wefti_reduction_drop(made);
        return status;
    }
    pthread_mutex_lock(&comm->engine->lock);
    comm->reductions[number] = made;
    pthread_mutex_unlock(&comm->engine->lock);
    *redop_out = (weft_redop)(WEFT_REDOP_USER + number);
    return WEFT_OK;
}

/* The number of an operation that may still call it; 0: none. Lock held. */
static uint64_t find_user(const weft_comm *comm, weft_redop redop)
{
    for (int op_slot = 0; op_slot < WEFTI_OP_SLOTS; op_slot++) {
        const wefti_op *op = &comm->ops[op_slot];
        if (wefti_op_pending(op) && op->desc.redop == redop) {
            return op->number;
        }
    }
    return wefti_collectives_find_user(comm, redop);
}

weft_status weft_redop_destroy(weft_comm *comm, weft_redop redop)
{
    wefti_reduction *old =
        wefti_comm_is_live(comm) ? wefti_reduction_get(comm, redop) : NULL;
    if (!old) {
        return wefti_error(WEFT_ERR_INVALID,
                           "redop %d: allowed is one that "
                           "weft_redop_create_user has made for comm",
                           (int)redop);
    }
    pthread_mutex_lock(&comm->engine->lock);
    wefti_requests_take_in(comm);
    const uint64_t user = find_user(comm, redop);
    int plans = atomic_load(&old->holders) - 1;
    if (!user && plans == 0) {
        comm->reductions[redop - WEFT_REDOP_USER] = NULL;
    }
    pthread_mutex_unlock(&comm->engine->lock);
    if (user) {
        return wefti_error(WEFT_ERR_INVALID,
                           "redop %d, \"%s\": operation #%llu on \"%s\" still "
                           "uses it",
                           (int)redop, old->name, (unsigned long long)user,
                           comm->name);
    }
    if (plans > 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "redop %d, \"%s\": %d plan%s still use%s it",
                           (int)redop, old->name, plans, plans > 1 ? "s" : "",
                           plans > 1 ? "" : "s");
    }
    wefti_reduction_drop(old);
    return WEFT_OK;
}
