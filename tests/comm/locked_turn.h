/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/locked_turn.h - a turn of an engine by a test that holds its lock,
 * so that nobody else moves anything: a push, and the bytes that it asks for.
 */
#ifndef TESTS_COMM_LOCKED_TURN_H
#define TESTS_COMM_LOCKED_TURN_H

#include "comm/engine/engine.h"
#include "comm/engine/held_work.h"

/* Whether anything moved. */
static inline bool take_locked_turn(wefti_engine *engine)
{
    const bool moved = wefti_engine_push(engine);
    wefti_held_work *work = wefti_held_work_take(engine);
    if (work) {
        work->make(work);
        wefti_held_work_end(work);
    }
    return moved || work;
}

#endif
