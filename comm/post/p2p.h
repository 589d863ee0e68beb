/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/p2p.h - posting point-to-point operations, one or a list.
 */
#ifndef COMM_POST_P2P_H
#define COMM_POST_P2P_H

#include "comm/post/p2p_queue.h"
#include "weft/p2p.h"

/*
 * wefti_p2p_check - every part of a list, and their buffers against each other;
 * fills messages_out[list_count]. epoch > 0 stands for that of the parts.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_p2p_check(const weft_p2p *list,
                                           size_t list_count, uint64_t epoch,
                                           const weft_comm *comm,
                                           wefti_p2p_message *messages_out);

/*
 * wefti_p2p_post_messages - post messages, desc and epoch of which are checked;
 * a stream, or a handle, gets copies. The stream is checked too.
 */
WEFT_NODISCARD weft_status wefti_p2p_post_messages(wefti_p2p_message *messages,
                                                   size_t count,
                                                   weft_comm *comm,
                                                   weft_stream *stream,
                                                   weft_request **handle_out);

/*
 * wefti_p2p_begin_round - of messages that are posted ahead of what lets them
 * go (weft/ring.h): such ones of another that came behind them in the same
 * queue could wait for each other's. label: borrowed until end_round. Both by
 * the thread that posts.
 *
 * Returns     OK | ERR_INVALID (another round is under way there).
 */
WEFT_NODISCARD weft_status wefti_p2p_begin_round(weft_comm *comm, int queue,
                                                 const char *label);
void wefti_p2p_end_round(weft_comm *comm, int queue);

#endif
