/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/streams/lent.h - memory of a rank's device that the devices of other
 * ranks of its host reach: by its address where both are threads of one
 * process, else by the handle that its device exports.
 */
#ifndef COMM_STREAMS_LENT_H
#define COMM_STREAMS_LENT_H

#include "comm/core/core.h"

/*
 * Where a rank's memory lies, as it travels. mapping: tells processes apart
 * that have the same number in containers of their own.
 */
typedef struct wefti_lent {
    int32_t shared; /* whether other processes can open it */
    int32_t index, process;
    void *pointer;
    const void *mapping, *kind;
    size_t offset, bytes;
    unsigned char handle[64];
} wefti_lent;

/*
 * wefti_lent_offer - of comm's device. pointer NULL: nothing but whose process
 * and device it is.
 *
 * Returns     OK (shared says whether other processes can open it) | as
 *             weft_device_export: it is for threads of this process alone.
 */
WEFT_NODISCARD weft_status wefti_lent_offer(const weft_comm *comm,
                                            const void *pointer,
                                            wefti_lent *out);

/* Whether it is of a thread of this process. */
bool wefti_lent_is_beside(const weft_comm *comm, const wefti_lent *theirs);

/*
 * wefti_lent_reach - comm's device reaches what peer has offered.
 * imported_out: weft_device_unimport is due.
 *
 * Returns     OK | ERR_UNSUPPORTED (no other process can open it, or the device
 *             is of another kind) | as weft_device_import.
 */
WEFT_NODISCARD weft_status wefti_lent_reach(const weft_comm *comm, int peer,
                                            const wefti_lent *theirs,
                                            void **pointer_out,
                                            bool *imported_out);

#endif
