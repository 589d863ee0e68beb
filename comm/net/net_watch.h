/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/net_watch.h - the network cannot ring a doorbell: a thread that
 * sleeps on the port's descriptor does so instead, once each time somebody
 * asks for it.
 */
#ifndef COMM_NET_NET_WATCH_H
#define COMM_NET_NET_WATCH_H

#include "base/thread.h"
#include "weft/status.h"

typedef struct wefti_net_watch wefti_net_watch;

/*
 * wefti_net_watch_start - news(context) is called by the thread.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_net_watch_start(int event_fd,
                                                 void (*news)(void *context),
                                                 void *context,
                                                 wefti_net_watch **watch_out);
void wefti_net_watch_stop(wefti_net_watch *watch); /* NULL is legal */

/* What the thread has done; valid until stop. */
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
