/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/simulator_state.h - what simulator.c sets up and simulator_step.c
 * moves.
 */
#ifndef TESTS_COMM_SIMULATOR_STATE_H
#define TESTS_COMM_SIMULATOR_STATE_H

#include "tests/comm/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SIM_MOST_RANKS = 64 };

/* One staged message; lives until its slot is free. */
typedef struct sim_message {
    struct sim_message *newer;
    unsigned unread; /* addressees that have not read it */
    size_t elems;
    bool wide;
    unsigned char bytes[];
} sim_message;

/* Messages of one (sender, receiver, channel): sent[first .. last). */
typedef struct sim_line {
    sim_message **sent;
    size_t first, last, room;
    int send_list, read_list; /* -1: not used yet */
} sim_line;

/* One rank's slots on one channel. */
typedef struct sim_channel {
    sim_message *oldest, *newest;
    int staged, slots;
    int list; /* whose sends these are; -1: not used yet */
} sim_channel;

typedef struct sim_node {
    wefti_problem problem;
    size_t *arrays;             /* [4][nranks], what problem's point to */
    unsigned char *send, *recv; /* in place: one lies in the other */
    unsigned char *block, *block_recv;
    unsigned char *send_kept;
    unsigned char *written; /* how often, per element of recv */
    unsigned char *wanted;  /* how often it must be */
    size_t send_elems, recv_elems;
    unsigned char *scratch[WEFTI_STEP_LISTS];
    size_t next[WEFTI_STEP_LISTS], count[WEFTI_STEP_LISTS]; /* steps */
    sim_channel channels[WEFTI_CHANNELS];
} sim_node;

typedef struct sim_state {
    const sim_case *what;
    int nranks;
    size_t elem_bytes, wide_bytes;
    sim_traffic traffic;
    wefti_grouping *grouping;
    wefti_nest *nest;
    int host_of[SIM_MOST_RANKS]; /* numbered by their lowest ranks */
    const int *border;           /* [nranks] host_of, or the case's */
    uint16_t *told;              /* [rank][nranks] what it tells its host of */
    const void **hosts;          /* [place in grouping] its row of told */
    sim_node *nodes;
    sim_line *lines; /* [sender][receiver][channel] */
} sim_state;

static inline sim_line *sim_line_of(const sim_state *world, int sender,
                                    int receiver, int channel)
{
    size_t pair = (size_t)sender * (size_t)world->nranks + (size_t)receiver;
    return &world->lines[pair * WEFTI_CHANNELS + (size_t)channel];
}

/* Runs the list's next step; false if it has none or cannot yet. */
bool sim_advance(sim_state *world, int rank, int list);

/* Prints the case and where everybody stands. */
void sim_describe(const sim_state *world);

#define sim_require(world, condition, ...)                                     \
    do {                                                                       \
        if (!(condition)) {                                                    \
            sim_describe(world);                                               \
            fail_msg(__VA_ARGS__);                                             \
        }                                                                      \
    } while (0)

#endif
