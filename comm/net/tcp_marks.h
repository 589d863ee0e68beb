/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_marks.h - for how much a stream asks the kernel to be woken.
 */
#ifndef COMM_NET_TCP_MARKS_H
#define COMM_NET_TCP_MARKS_H

#include "comm/net/tcp_stream.h"

/* What the kernel may hold unsent before it takes more, or says that it does.
 * Where it cannot be told, what is urgent waits longer. */
void wefti_tcp_marks_bound(wefti_tcp_stream *stream);

/* How much is to have come, of what is announced and what is expected. */
void wefti_tcp_marks_update(wefti_tcp_stream *stream);

#endif
