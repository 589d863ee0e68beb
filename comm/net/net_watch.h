/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/net_watch.h - the network cannot ring a doorbell: a thread that
 * sleeps on the ports' descriptors does so instead, once each time somebody
 * asks for it.
 *
 *   weft_comm_create, job A --- net --+
 *   weft_comm_create, job B --- net --+-- one thread, one sleep
 *   weft_comm_create, job C --- net --+
 *
 * As with progress threads (comm/engine/driver.h), two nets of one job are two
 * ranks, and have a thread each.
 */
#ifndef COMM_NET_NET_WATCH_H
#define COMM_NET_NET_WATCH_H

#include "base/thread.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct wefti_net_watch wefti_net_watch;

/*
 * wefti_net_watch_start - news(context) is called by a thread, which others may
 * share; it returns whether it wants to be called again at once, behind those
 * of others.
 *
 * job   nets of the same share no thread
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_net_watch_start(uint64_t job, int event_fd,
                                                 bool (*news)(void *context),
                                                 void *context,
                                                 wefti_net_watch **watch_out);

/* News has returned, and is not called again. No lock that it takes is held.
 * NULL is legal. */
void wefti_net_watch_stop(wefti_net_watch *watch);

/* What the thread has done, for all that share it; valid until stop. It is one
 * thread if it is one address. */
const wefti_thread_work *wefti_net_watch_get_work(const wefti_net_watch *watch);

/*
 * wefti_net_watch_arm - after the caller has armed the bell, if it will sleep,
 * and then the port. Threads: any.
 */
void wefti_net_watch_arm(wefti_net_watch *watch);

/* wefti_net_watch_leave - news once the caller has been away for a while
 * without a word. Threads: any. */
void wefti_net_watch_leave(wefti_net_watch *watch);

#endif
