/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/area.c - who has which area, and who is done with it.
 *
 * An operation's: see page.completed in comm/fabric/shared.h. A message's: see
 * "consumed" there; what this rank has last seen of that is looked at first, as
 * for slots.
 */
#include "comm/steps/area.h"

#include "base/check.h"
#include "base/prefetch.h"

enum {
    AREAS_AT_HAND = 4, /* so many stay in a core's own cache */
    MESSAGES_MOST = WEFTI_AREAS - WEFTI_OP_SLOTS
};

_Static_assert((int)WEFTI_P2P_SLOT_BYTES <= (int)WEFTI_AREA_BYTES,
               "a message fits into an area");

static unsigned char *area_at(const weft_comm *comm, int area)
{
    return comm->fabric.shared.regions[comm->rank] +
           comm->fabric.shared.layout.areas + (size_t)area * WEFTI_AREA_BYTES;
}

/* Whether no message is in it that has yet to be read. */
static bool look_for_reader(weft_comm *comm, int area)
{
    wefti_area_message *message = &comm->area_messages[area];
    wefti_fabric *fabric = &comm->fabric;
    if (message->sequence == 0) {
        return true;
    }
    const size_t cell = wefti_fabric_cell(&message->path);
    if (fabric->read[cell] < message->sequence) {
        fabric->read[cell] = wefti_fabric_read_by(fabric, message->path);
    }
    if (fabric->read[cell] < message->sequence) {
        return false;
    }
    message->sequence = 0;
    comm->area_messages_count--;
    return true;
}

static bool is_free(weft_comm *comm, int area)
{
    return comm->area_users[area] <= comm->peers_done &&
           look_for_reader(comm, area);
}

/* The first free one from begin on and before end; end: none is. */
static int find_area(weft_comm *comm, int begin, int end)
{
    int area = begin;
    while (area < end && !is_free(comm, area)) {
        area++;
    }
    return area;
}

/* The first free one of those; NULL: none is. */
static unsigned char *take(weft_comm *comm, const wefti_op *op, int begin,
                           int end)
{
    const int area = find_area(comm, begin, end);
    if (area == end) {
        return NULL;
    }
    comm->far_area = (area + 1) % WEFTI_AREAS;
    comm->area_users[area] = op->number;
    return area_at(comm, area);
}

unsigned char *wefti_area_take(weft_comm *comm, const wefti_op *op, bool far)
{
    return take(comm, op, far ? comm->far_area : 0,
                far ? WEFTI_AREAS : AREAS_AT_HAND);
}

unsigned char *wefti_area_take_any(weft_comm *comm, const wefti_op *op)
{
    unsigned char *area = take(comm, op, 0, WEFTI_AREAS);
    WEFTI_ASSERT(area);
    return area;
}

/* Whether messages have too many. */
static bool are_many(weft_comm *comm)
{
    for (int area = 0;
         comm->area_messages_count >= MESSAGES_MOST && area < WEFTI_AREAS;
         area++) {
        (void)look_for_reader(comm, area);
    }
    return comm->area_messages_count >= MESSAGES_MOST;
}

unsigned char *wefti_area_take_for_message(weft_comm *comm,
                                           wefti_fabric_path path, size_t bytes)
{
    if (!wefti_stager_is_far(&comm->engine->stager, bytes) ||
        wefti_fabric_is_remote(&comm->fabric, path.peer) || are_many(comm)) {
        return NULL;
    }
    int area = find_area(comm, comm->far_area, WEFTI_AREAS);
    area = area < WEFTI_AREAS ? area : find_area(comm, 0, WEFTI_AREAS);
    if (area == WEFTI_AREAS) {
        return NULL;
    }
    comm->far_area = (area + 1) % WEFTI_AREAS;
    comm->area_messages[area] = (wefti_area_message){
        path, wefti_fabric_posted(&comm->fabric, path) + 1};
    comm->area_messages_count++;
    return area_at(comm, area);
}

void wefti_area_prefetch(const weft_comm *comm, size_t bytes)
{
    int area = 0;
    while (area < AREAS_AT_HAND && (comm->area_users[area] > comm->peers_done ||
                                    comm->area_messages[area].sequence)) {
        area++;
    }
    wefti_prefetch_write(area_at(comm, area % AREAS_AT_HAND), bytes);
}
