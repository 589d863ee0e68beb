/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/fabric.h - move messages between the ranks of one communicator
 * in one way. No call blocks.
 *
 * A message goes from one rank to one peer on a ring (the operation's lane)
 * and channel, and is read in the order of posting. Its bytes lie where stage
 * says and must stay there until the peer has released it.
 *
 *   sender: stage -> write the bytes -> post ... read_by says it was released
 *   reader: peek  -> use the bytes where they lie -> release
 */
#ifndef COMM_FABRIC_FABRIC_H
#define COMM_FABRIC_FABRIC_H

#include "comm/fabric/shared.h"

#include <stdbool.h>

typedef struct wefti_fabric wefti_fabric;

/* Where a message travels. */
typedef struct wefti_path {
    int peer;
    int ring;
    int channel;
} wefti_path;

typedef struct wefti_outgoing {
    const void *data; /* from stage */
    size_t bytes;
    int64_t ready_ns;
    wefti_signature signature; /* point-to-point only */
} wefti_outgoing;

typedef struct wefti_incoming {
    const void *data; /* valid until release */
    size_t bytes;
    int64_t ready_ns;
    wefti_signature signature;
} wefti_incoming;

/*
 * wefti_fabric_table - one way of moving bytes.
 *
 * stage     memory for window-relative byte offset of an operation's window,
 *           or (ring LETTERS) for slot `offset` of what goes to the peer.
 * has_room  whether one more message may be posted on the path.
 * post      announce a staged message; has_room was true.
 * posted    how many messages were ever posted on the path.
 * read_by   how many of them the peer has released.
 * peek      the oldest unreleased message from the peer; false: none yet. If
 *           one is under way and due at a known time, *due_ns is lowered to
 *           that time.
 * release   done with the message that peek gave.
 */
typedef struct wefti_fabric_table {
    const char *name;
    void *(*stage)(wefti_fabric *fabric, wefti_path path, int window,
                   size_t offset);
    bool (*has_room)(wefti_fabric *fabric, wefti_path path);
    void (*post)(wefti_fabric *fabric, wefti_path path,
                 const wefti_outgoing *message);
    uint64_t (*posted)(wefti_fabric *fabric, wefti_path path);
    uint64_t (*read_by)(wefti_fabric *fabric, wefti_path path);
    bool (*peek)(wefti_fabric *fabric, wefti_path path,
                 wefti_incoming *message_out, int64_t *due_ns);
    void (*release)(wefti_fabric *fabric, wefti_path path);
} wefti_fabric_table;

/*
 * One communicator's use of a fabric. base and layout: its shared memory;
 * bells[peer]: where a peer is woken. ns_per_byte > 0 limits the rate at which
 * this rank's messages arrive; link_free_ns, shared by all communicators of a
 * rank, is when its emulated link is idle again.
 */
struct wefti_fabric {
    const wefti_fabric_table *table;
    wefti_layout layout;
    void *base;
    int rank;
    wefti_doorbell **bells;
    double ns_per_byte;
    int64_t *link_free_ns;
    uint64_t *posted; /* [peer][ring][channel] */
    uint64_t *taken;  /* the same, of messages released by this rank */
    uint64_t payload_bytes;
};

/* Memory shared by all ranks of the communicator: shm; by one alone: self. */
extern const wefti_fabric_table wefti_fabric_shm;
extern const wefti_fabric_table wefti_fabric_self;

WEFT_NODISCARD weft_status wefti_fabric_init(wefti_fabric *fabric, int rank,
                                             int nranks, void *base);
void wefti_fabric_fini(wefti_fabric *fabric);

/* When bytes handed over now will have crossed the emulated link; 0: no limit.
 */
int64_t wefti_fabric_charge(wefti_fabric *fabric, size_t bytes);

#endif
