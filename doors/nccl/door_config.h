/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_config.h - what a caller's ncclConfig_t of any version asks
 * for.
 */
#ifndef DOORS_NCCL_DOOR_CONFIG_H
#define DOORS_NCCL_DOOR_CONFIG_H

#include "doors/nccl/door_abi.h"

#include <stdbool.h>

/* What becomes of it: the rest is checked, and means nothing to weft. */
typedef struct wefti_door_wish {
    bool blocking;
    char name[32]; /* of the communicator; "": weft's own name */
} wefti_door_wish;

/*
 * wefti_door_config_read - check given and take over what it says.
 *
 * given    of the size and version it says itself; what lies behind what both
 *          sides know is not read. NULL: all as in parent.
 * parent   what a communicator that is split or shrunk has; NULL: none.
 *
 * Returns     SUCCESS | INVALID_ARGUMENT, with a text that names the field.
 */
int wefti_door_config_read(const wefti_door_config *given,
                           const wefti_door_wish *parent,
                           wefti_door_wish *wish_out);

#endif
