/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/mapped.h - memory that all of a communicator's members in this
 * domain have mapped, beside their regions: bytes there need not be staged, as
 * an offset into the domain's memory says where they are.
 *
 * A rank keeps its mapping when it has left that memory: peers that have not
 * may still send from there. By itself it sends nothing more from there, as the
 * range may by then serve ranks that are not all of these. What is set aside
 * anew has been given back by all, so a range drops those that it overlaps.
 *
 * A communicator that is split from another has its parent's ranges from then
 * on: its members are among those that have mapped them, and all of these have
 * left before a range is given back. Ranges that the parent gets later it has
 * not: that they have become all members' can end well on one rank, and on
 * another with the parent's failure, which is not the part's.
 *
 * The engine's lock guards the lists.
 */
#ifndef COMM_FABRIC_MAPPED_H
#define COMM_FABRIC_MAPPED_H

#include "comm/fabric/mapping.h"

#include <stdbool.h>

typedef struct wefti_mapped {
    struct wefti_mapped *next;
    wefti_mapping *mapping;
    uint64_t offset; /* in the domain's memory */
    bool left;
} wefti_mapped;

/* wefti_mapped_add - retains the mapping; made is the caller's until here. */
void wefti_mapped_add(wefti_mapped **list, wefti_mapped *made, uint64_t offset,
                      wefti_mapping *mapping);

/* wefti_mapped_inherit - of a parent, into an empty list. False: no memory. */
WEFT_NODISCARD bool wefti_mapped_inherit(wefti_mapped **list,
                                         const wefti_mapped *parents);

/* Of what begins at offset, if it is there: this rank, or all, have left it. */
void wefti_mapped_leave(wefti_mapped *list, uint64_t offset);
void wefti_mapped_drop(wefti_mapped **list, uint64_t offset);
void wefti_mapped_close(wefti_mapped **list);

/* Whether all these bytes are of one range that this rank has not left, and
 * where in the domain's memory they begin. */
bool wefti_mapped_locate(const wefti_mapped *list, const void *bytes_at,
                         size_t bytes, uint64_t *offset_out);

/* Where this process has them; NULL: they are of no range. */
void *wefti_mapped_find(const wefti_mapped *list, uint64_t offset,
                        size_t bytes);

#endif
