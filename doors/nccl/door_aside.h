/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_aside.h - a group may send from where it also receives, as
 * nccl-tests' in-place alltoall does, which weft refuses: what is sent is
 * copied aside before, in the stream's order.
 */
#ifndef DOORS_NCCL_DOOR_ASIDE_H
#define DOORS_NCCL_DOOR_ASIDE_H

#include "doors/nccl/door_comm.h"

/*
 * Room that a communicator has for such copies, of one stream's calls, which
 * come one after another; stream NULL: of calls on host memory, which are over
 * when the next one comes. What has become too small stays, as work that is
 * queued may have it.
 */
typedef struct wefti_door_aside {
    struct wefti_door_aside *next;
    const weft_stream *stream;
    void *memory;
    size_t bytes;
} wefti_door_aside;

/*
 * wefti_door_set_aside - lets sends of a list that share bytes with one of its
 * receives read a copy of their own.
 *
 * native, stream   the program's stream, and weft's for it; NULL: none
 *
 * Returns     OK | ERR_UNSUPPORTED (the stream is being captured: nothing is
 *             queued) | ERR_NO_MEMORY | as weft_device_copy.
 */
weft_status wefti_door_set_aside(wefti_door_comm *comm, void *native,
                                 weft_stream *stream, weft_p2p *list,
                                 size_t length);

/* The stream is about to be forgotten: nobody uses its room again. */
void wefti_door_aside_forget(wefti_door_comm *comm, const weft_stream *stream);

/* Gives all room back; nothing goes on any more. */
void wefti_door_aside_free(wefti_door_comm *comm);

#endif
