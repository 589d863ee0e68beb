/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/optimizer_offload.c - two streams beside compute, and events between
 * the three.
 */
#include "trainer/optimizer_offload.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static weft_status make_host(wefti_offload *offload, size_t elems)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < offload->arrays && status == WEFT_OK; i++) {
        void *made;
        status = weft_device_alloc_kind(offload->device, WEFT_MEMORY_PINNED,
                                        elems * sizeof(real), &made);
        if (status == WEFT_OK) {
            offload->host[i] = memset(made, 0, elems * sizeof(real));
        }
    }
    return status;
}

static weft_status make_room(wefti_offload *offload, wefti_offload_room *room)
{
    weft_event **events[] = {&room->brought, &room->updated, &room->taken};
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < offload->arrays && status == WEFT_OK; i++) {
        void *made;
        status = weft_device_alloc(offload->device,
                                   offload->piece_elems * sizeof(real), &made);
        room->arrays[i] = status == WEFT_OK ? made : NULL;
    }
    for (size_t i = 0; i < 3 && status == WEFT_OK; i++) {
        status = weft_event_create(offload->device, events[i]);
    }
    return status;
}

weft_status wefti_offload_create(const wefti_offload *given, size_t elems,
                                 wefti_offload **out)
{
    wefti_offload *made = calloc(1, sizeof(*made));
    if (!made) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an optimizer");
    }
    *made = *given;
    weft_status status = make_host(made, elems);
    for (int i = 0; i < 2 && status == WEFT_OK; i++) {
        status = make_room(made, &made->rooms[i]);
    }
    if (status == WEFT_OK) {
        status = weft_stream_create(given->device, 0, &made->in);
    }
    if (status == WEFT_OK) {
        status = weft_stream_create(given->device, 0, &made->out);
    }
    if (status != WEFT_OK) {
        wefti_offload_destroy(made);
        made = NULL;
    }
    *out = made;
    return status;
}

void wefti_offload_destroy(wefti_offload *offload)
{
    if (!offload) {
        return;
    }
    weft_stream_destroy(offload->in);
    weft_stream_destroy(offload->out);
    for (int i = 0; i < 2; i++) {
        wefti_offload_room *room = &offload->rooms[i];
        weft_event_destroy(room->brought);
        weft_event_destroy(room->updated);
        weft_event_destroy(room->taken);
        for (size_t k = 0; k < offload->arrays; k++) {
            weft_device_free(offload->device, room->arrays[k]);
        }
    }
    for (size_t i = 0; i < offload->arrays; i++) {
        weft_device_free(offload->device, offload->host[i]);
    }
    free(offload);
}

static wefti_offload_room *room_of(wefti_offload *offload, uint64_t piece)
{
    return &offload->rooms[piece % 2];
}

/* That piece has gone, whose room or elements the next one has. */
weft_status wefti_offload_bring(wefti_offload *offload, size_t first,
                                size_t elems, real **arrays_out)
{
    const bool again = offload->pieces > 0 && offload->last_first == first;
    wefti_offload_room *room = room_of(offload, offload->pieces);
    weft_status status = weft_event_wait(
        again ? room_of(offload, offload->pieces - 1)->taken : room->taken,
        offload->in);
    offload->last_first = first;
    for (size_t i = 0; i < offload->arrays && status == WEFT_OK; i++) {
        arrays_out[i] = room->arrays[i];
        status = weft_device_copy(offload->device, room->arrays[i],
                                  offload->host[i] + first,
                                  elems * sizeof(real), offload->in);
    }
    if (status == WEFT_OK) {
        status = weft_event_post(room->brought, offload->in);
    }
    return status == WEFT_OK ? weft_event_wait(room->brought, offload->compute)
                             : status;
}

weft_status wefti_offload_take(wefti_offload *offload, size_t first,
                               size_t elems)
{
    wefti_offload_room *room = room_of(offload, offload->pieces);
    weft_status status = weft_event_post(room->updated, offload->compute);
    if (status == WEFT_OK) {
        status = weft_event_wait(room->updated, offload->out);
    }
    for (size_t i = 0; i < offload->arrays && status == WEFT_OK; i++) {
        status = weft_device_copy(offload->device, offload->host[i] + first,
                                  room->arrays[i], elems * sizeof(real),
                                  offload->out);
    }
    offload->pieces++;
    return status == WEFT_OK ? weft_event_post(room->taken, offload->out)
                             : status;
}

weft_status wefti_offload_wait(wefti_offload *offload)
{
    return weft_stream_wait(offload->out);
}
