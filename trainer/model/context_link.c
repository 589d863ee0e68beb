/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/context_link.c - communicators of a ring's and of a place's
 * ranks, and rings over the first.
 */
#include "trainer/model/context_link.h"

#include "trainer/model/attend.h"
#include "trainer/model/storage.h"

enum { QUEUE_KEYS, QUEUE_SUMS };

/* Of a place's keys and values. */
static size_t count_elems(const wefti_model_shape *shape, size_t sequences)
{
    const wefti_node_heads heads = wefti_attend_heads(shape);
    return wefti_context_ring(&shape->context) == 1
               ? 0
               : sequences *
                     wefti_context_attended(&shape->context, shape->seq) *
                     wefti_node_heads_keys(&heads);
}

/* Own keys and their sum; two places of each ring's way; and of bf16 what is
 * added to the sum that came. */
size_t wefti_context_link_bytes(const wefti_model_shape *shape,
                                size_t sequences)
{
    const size_t ways = wefti_context_ring(&shape->context) > 2 ? 2 : 1;
    const size_t elems = count_elems(shape, sequences);
    return (2 + 2 * (ways + 2)) * elems *
               weft_dtype_bytes(wefti_model_dtype(shape)) +
           (shape->narrow ? elems * sizeof(real) : 0);
}

/* Some of the ranks; all of them: no other communicator. */
static weft_status split(wefti_context_link *link, size_t number, size_t index,
                         size_t ranks, const char *name, weft_comm **comm_out)
{
    weft_comm_config config = {.size_bytes = sizeof(config), .name = name};
    *comm_out = link->all;
    if (ranks == (size_t)weft_comm_get_nranks(link->all)) {
        return WEFT_OK;
    }
    *comm_out = NULL;
    weft_status status =
        weft_comm_split(link->all, (int)number, (int)index, &config, comm_out);
    return status == WEFT_OK && link->ledger
               ? weft_ledger_attach(link->ledger, *comm_out)
               : status;
}

static weft_status open_ring(const wefti_context_link *link,
                             weft_ring_kind kind, weft_ring_way way, int queue,
                             const char *label, weft_ring **ring_out)
{
    const weft_ring_config config = {.size_bytes = sizeof(config),
                                     .comm = link->ring,
                                     .device = link->device,
                                     .kind = kind,
                                     .way = way,
                                     .count = link->elems,
                                     .dtype = link->dtype,
                                     .class_id = WEFT_CLASS_CP,
                                     .label = label,
                                     .queue = queue};
    return weft_ring_create(&config, ring_out);
}

static weft_status alloc(const wefti_context_link *link, size_t elems,
                         void **out)
{
    real *made = NULL;
    weft_status status =
        wefti_storage_alloc_on(link->device, link->compute, elems, &made);
    *out = made;
    return status;
}

static weft_status open_rings(wefti_context_link *link,
                              const wefti_model_shape *shape)
{
    const size_t elems = wefti_model_elems(shape, link->elems);
    weft_status status = alloc(link, elems, &link->own);
    if (status == WEFT_OK) {
        status = alloc(link, elems, &link->own_sum);
    }
    if (status == WEFT_OK && shape->narrow) {
        status = wefti_storage_alloc_on(link->device, link->compute,
                                        link->elems, &link->slopes);
    }
    if (status == WEFT_OK) {
        status = open_ring(link, WEFT_RING_READ, WEFT_RING_BOTH, QUEUE_KEYS,
                           "keys", &link->keys);
    }
    if (status == WEFT_OK) {
        status = open_ring(link, WEFT_RING_READ, WEFT_RING_ONE, QUEUE_KEYS,
                           "keys again", &link->keys_again);
    }
    return status == WEFT_OK
               ? open_ring(link, WEFT_RING_CARRY, WEFT_RING_ONE, QUEUE_SUMS,
                           "gradients of keys", &link->sums)
               : status;
}

weft_status wefti_context_link_open(wefti_context_link *link,
                                    const wefti_context_link *given,
                                    const wefti_model_shape *shape,
                                    size_t sequences)
{
    const wefti_context *context = &shape->context;
    const size_t ulysses = wefti_context_ulysses(context);
    const size_t ring = wefti_context_ring(context);
    const size_t place = context->part / ulysses;
    const size_t member = context->part % ulysses;
    weft_status status = WEFT_OK;
    *link = (wefti_context_link){.device = given->device,
                                 .compute = given->compute,
                                 .ledger = given->ledger,
                                 .all = given->all,
                                 .elems = count_elems(shape, sequences),
                                 .dtype = wefti_model_dtype(shape)};
    if (ulysses > 1) {
        status = split(link, place, member, ulysses, "heads", &link->ulysses);
    }
    if (status == WEFT_OK && ring > 1) {
        status = split(link, member, place, ring, "ring", &link->ring);
    }
    return status == WEFT_OK && ring > 1 ? open_rings(link, shape) : status;
}

/* Communicators that were split off. */
static weft_comm *own_comm(const wefti_context_link *link, weft_comm *comm)
{
    return comm != link->all ? comm : NULL;
}

void wefti_context_link_abort(wefti_context_link *link)
{
    weft_comm *comms[] = {own_comm(link, link->ring),
                          own_comm(link, link->ulysses)};
    for (int i = 0; i < 2; i++) {
        if (comms[i]) {
            (void)!weft_comm_abort(comms[i]);
        }
    }
}

void wefti_context_link_close(wefti_context_link *link)
{
    weft_comm *comms[] = {own_comm(link, link->ring),
                          own_comm(link, link->ulysses)};
    weft_ring_destroy(link->sums);
    weft_ring_destroy(link->keys_again);
    weft_ring_destroy(link->keys);
    wefti_storage_free_on(link->device, link->slopes);
    wefti_storage_free_on(link->device, link->own_sum);
    wefti_storage_free_on(link->device, link->own);
    for (int i = 0; i < 2; i++) {
        if (comms[i] && link->ledger) {
            weft_ledger_detach(link->ledger, comms[i]);
        }
        weft_comm_destroy(comms[i]);
    }
    *link = (wefti_context_link){0};
}
