/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/meeting.h - which ranks of other hosts are told that this one has
 * entered an operation, and what all hosts must have of each other, in log2
 * rounds: a barrier, what the pattern dissemination carries, and that counts
 * are the same (comm/steps/common_counts.h).
 */
#ifndef COMM_STEPS_MEETING_H
#define COMM_STEPS_MEETING_H

#include "comm/core/core.h"

/*
 * wefti_meeting_tells - whether peer, of another host, is told at once: it
 * needs this rank's payload or counts, or is the leader of the next host, to
 * which this host's leader announces everything. So all hosts stand in one
 * circle, and two that differ anywhere make two neighbours that differ. In all
 * other messages the signature rides on the data; of what has rounds nothing is
 * told at once.
 */
bool wefti_meeting_tells(const weft_comm *comm, const wefti_op *op, int peer);

/* Whether this rank is told so by peer, at the latest when it has entered. */
bool wefti_meeting_hears(const weft_comm *comm, const wefti_op *op, int peer);

/* Whether op goes in rounds. */
bool wefti_meeting_has_rounds(const weft_comm *comm, const wefti_op *op);

/*
 * wefti_meeting_advance - go on with rounds that all ranks of this host have
 * entered; *moved: something was sent. Returns whether all ranks have entered.
 */
bool wefti_meeting_advance(weft_comm *comm, wefti_op *op, bool *moved);

/* Whether op has rounds that are not over: not all ranks are known to have
 * entered. */
bool wefti_meeting_awaits(const weft_comm *comm, const wefti_op *op);

/* The rank whose message or store rounds wait for next: of its host the
 * leader, which may be this rank; -1: none. */
int wefti_meeting_find_awaited(const weft_comm *comm, const wefti_op *op);

#endif
