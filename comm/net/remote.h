/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/remote.h - repeating what this rank writes into its region, for
 * the mirrors that ranks of other domains keep of it.
 *
 * Every call does nothing on a communicator without such ranks. The engine's
 * lock is held.
 */
#ifndef COMM_NET_REMOTE_H
#define COMM_NET_REMOTE_H

#include "comm/fabric/fabric.h"

/*
 * wefti_remote_init - reach the peers of other domains through net.
 *
 * world_ranks    [nranks] who the members are in the job
 * firsts         [nranks] the lowest rank that shares memory with each
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_remote_init(wefti_fabric *fabric,
                                             struct wefti_net *net,
                                             const int *world_ranks,
                                             const int *firsts);
void wefti_remote_fini(wefti_fabric *fabric);

/*
 * What goes to a peer with an entry.
 *
 * payload   stays until all ranks have completed the operation
 * elems     of the v forms, how many this rank has for the peer; in rounds of
 *           leaders 1
 * urgent    compute waits for it soon
 */
typedef struct wefti_announcement {
    const void *payload;
    size_t payload_bytes;
    uint64_t elems;
    bool urgent;
} wefti_announcement;

/* This rank's entry number to one peer. */
void wefti_remote_tell_entry(wefti_fabric *fabric, int peer, uint64_t number,
                             const wefti_announcement *announcement);

/*
 * How far this rank has come, with releases, to those who sent to it. All
 * messages say so, and there will be more: note tells only those who are far
 * behind; tell, before a pause, all of them, and what is due.
 */
void wefti_remote_note_completed(wefti_fabric *fabric);
void wefti_remote_tell_completed(wefti_fabric *fabric);

/* What other leaders are due (comm/net/rounds.h), and answers to those that
 * wait. */
void wefti_remote_tell_due(wefti_fabric *fabric);

/*
 * Releases that a peer waits for, or may soon, and that nothing has carried to
 * it since; after whatever may have released. Others ride on the next message
 * to the peer, whatever it says.
 */
void wefti_remote_tell_released(wefti_fabric *fabric);

/* What this rank waits in: its page's wefti_wait_page; now and then. Whoever
 * gets it says what it has entered. */
void wefti_remote_tell_waiting(wefti_fabric *fabric);

/* That somebody here wants exact times of entry. */
void wefti_remote_tell_observed(wefti_fabric *fabric);

/*
 * wefti_remote_doubt - this rank waits for peer: if it says so again and again,
 * for after_ns in which nothing comes from peer, that is asked whether it has
 * destroyed the communicator. Threads: any, without the lock.
 *
 * wefti_remote_leave - this rank destroys it. Well, that is told to no rank but
 * those that send to it later (comm/net/ended.h); after a fault, to all.
 */
void wefti_remote_doubt(wefti_fabric *fabric, int peer, int64_t after_ns);
void wefti_remote_leave(wefti_fabric *fabric, wefti_leave how);

/*
 * wefti_remote_offer - the message behind the next `later` from the path's peer
 * is wanted at memory, if it has so many bytes; the network writes them there
 * as they come, until the message is released or wefti_remote_withdraw.
 *
 * wefti_remote_withdraw - takes back what was offered to peer's messages of
 * that op slot, which are of no use any more.
 */
void wefti_remote_offer(wefti_fabric *fabric, wefti_fabric_path path,
                        uint64_t later, void *memory, size_t bytes);
void wefti_remote_withdraw(wefti_fabric *fabric, int peer, int op_slot);

#endif
