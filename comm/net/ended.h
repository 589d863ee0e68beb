/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/ended.h - what a rank still knows of the communicators that it has
 * destroyed: enough to answer, once, each rank that sends to one of them that
 * it has left it. So leaving one costs no message while all is well.
 *
 * The engine's lock guards it.
 */
#ifndef COMM_NET_ENDED_H
#define COMM_NET_ENDED_H

#include "comm/fabric/fabric.h"

struct wefti_net;
struct wefti_wire;
typedef struct wefti_ended_comm wefti_ended_comm;

/*
 * wefti_ended_add - keeps the fabric's lines, of the last WEFTI_ENDED_MOST
 * communicators. Returns whether there was memory; else they are the fabric's
 * still.
 */
enum { WEFTI_ENDED_MOST = 64 };

bool wefti_ended_add(struct wefti_net *net, wefti_fabric *fabric,
                     wefti_leave how);

/* What came is of no communicator that this rank has: its sender is to know. */
void wefti_ended_hear(struct wefti_net *net, const struct wefti_wire *wire);

/* Tells all that are to know, outside of what reads messages: a connection that
 * fails under an answer still has some. */
void wefti_ended_answer(struct wefti_net *net);

/* Frees all. */
void wefti_ended_fini(struct wefti_net *net);

#endif
