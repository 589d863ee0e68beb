/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/handle.h - what a program holds of a request that it has begun
 * (weft_request): it outlives the request, and the communicator.
 */
#ifndef COMM_ENGINE_HANDLE_H
#define COMM_ENGINE_HANDLE_H

#include "weft/request.h"

#include "comm/core/core.h"

/* Returns     OK | ERR_NO_MEMORY; to be freed with free() if its request does
 * not come to be. */
WEFT_NODISCARD weft_status wefti_handle_create(weft_comm *comm,
                                               weft_request **handle_out);

/* Its request has ended. It may be gone after. Lock held. */
void wefti_handle_end(weft_comm *comm, weft_request *handle,
                      weft_status status);

#endif
