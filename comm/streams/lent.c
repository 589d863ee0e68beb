/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/streams/lent.h"

#include "base/error.h"

#include <string.h>
#include <unistd.h>

weft_status wefti_lent_offer(const weft_comm *comm, const void *pointer,
                             wefti_lent *out)
{
    weft_export given = {.size_bytes = sizeof(given), .descriptor = -1};
    *out = (wefti_lent){.pointer = (void *)(uintptr_t)pointer,
                        .mapping = comm->mapping,
                        .kind = wefti_device_get_table(comm->device),
                        .index = wefti_device_get_index(comm->device),
                        .process = (int32_t)getpid()};
    if (!pointer || !wefti_device_can(comm->device, WEFT_CAP_IPC)) {
        return WEFT_OK;
    }
    weft_status status = weft_device_export(comm->device, pointer, &given);
    if (status == WEFT_OK && given.descriptor >= 0) {
        close(given.descriptor);
        status = wefti_error(WEFT_ERR_UNSUPPORTED,
                             "pointer %p: exportable memory goes by a file "
                             "descriptor, which ranks do not pass on",
                             pointer);
    }
    out->shared = status == WEFT_OK;
    out->offset = given.offset;
    out->bytes = given.bytes;
    memcpy(out->handle, given.handle, sizeof(out->handle));
    return status;
}

bool wefti_lent_is_beside(const weft_comm *comm, const wefti_lent *theirs)
{
    return theirs->mapping == comm->mapping &&
           theirs->process == (int32_t)getpid();
}

static weft_status import(const weft_comm *comm, const wefti_lent *theirs,
                          void **pointer_out)
{
    weft_export given = {.size_bytes = sizeof(given),
                         .offset = theirs->offset,
                         .bytes = theirs->bytes,
                         .index = theirs->index,
                         .process = theirs->process,
                         .descriptor = -1};
    memcpy(given.handle, theirs->handle, sizeof(given.handle));
    return weft_device_import(comm->device, &given, pointer_out);
}

weft_status wefti_lent_reach(const weft_comm *comm, int peer,
                             const wefti_lent *theirs, void **pointer_out,
                             bool *imported_out)
{
    const bool beside = wefti_lent_is_beside(comm, theirs);
    *pointer_out = theirs->pointer;
    *imported_out = false;
    if (beside && theirs->kind != wefti_device_get_table(comm->device)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "rank %d's device is of another kind", peer);
    }
    if (beside) {
        return wefti_device_reach(comm->device, theirs->index);
    }
    if (!theirs->shared) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "rank %d is another process, and its device shares "
                           "no memory with those",
                           peer);
    }
    weft_status status = import(comm, theirs, pointer_out);
    *imported_out = status == WEFT_OK;
    return status;
}
