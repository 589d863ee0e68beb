/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/interface.h - the network interfaces of this rank's namespace.
 */
#ifndef COMM_NET_INTERFACE_H
#define COMM_NET_INTERFACE_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFTI_INTERFACES_MOST = 16, WEFTI_INTERFACE_NAME_BYTES = 16 };

/* address, mask: IPv4, network order; mbps 0: not known */
typedef struct wefti_interface {
    char name[WEFTI_INTERFACE_NAME_BYTES];
    uint32_t address, mask;
    bool loopback;
    int mbps;
} wefti_interface;

/*
 * wefti_interface_list - those that are up and have an IPv4 address.
 *
 * Returns     OK | ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_interface_list(
    wefti_interface list_out[WEFTI_INTERFACES_MOST], int *count_out);

/* "10.0.0.2" */
void wefti_interface_text(uint32_t address, char text_out[16]);

/* Whether two are in one network. */
static inline bool wefti_interface_is_beside(const wefti_interface *a,
                                             const wefti_interface *b)
{
    return a->mask == b->mask && ((a->address ^ b->address) & a->mask) == 0;
}

/*
 * Interfaces in use, names between commas, and their counters before.
 * numbers: by which ranks of several hosts know a rail that they have in
 * common; 0: of none.
 */
typedef struct wefti_interface_use {
    char names[WEFTI_INTERFACES_MOST * WEFTI_INTERFACE_NAME_BYTES];
    int count;
    uint32_t numbers[WEFTI_INTERFACES_MOST];
    uint64_t sent_before, received_before;
} wefti_interface_use;

/* Adds one, with its counters as they stand. */
void wefti_interface_add(wefti_interface_use *use, const char *name,
                         uint32_t number);

/* What their counters have gained. */
void wefti_interface_count(const wefti_interface_use *use, uint64_t *sent_out,
                           uint64_t *received_out);

#endif
