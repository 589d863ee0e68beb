/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/doors/door_program.h - a program that knows only nccl.h, in the words
 * that C and C++ have in common: two ranks of one thread, in groups.
 */
#ifndef TESTS_DOORS_DOOR_PROGRAM_H
#define TESTS_DOORS_DOOR_PROGRAM_H

#include <nccl.h>
#include <stdio.h>

enum { DOOR_PROGRAM_RANKS = 2 };

/* The number of things that went wrong. */
static inline int door_program(void)
{
    ncclComm_t comms[DOOR_PROGRAM_RANKS];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    float sent[DOOR_PROGRAM_RANKS] = {1, 2}, got[DOOR_PROGRAM_RANKS] = {0, 0};
    int wrong = 0, version = 0;
    wrong += ncclGetVersion(&version) != ncclSuccess;
    wrong += ncclGetUniqueId(&id) != ncclSuccess;
    wrong += ncclGroupStart() != ncclSuccess;
    for (int r = 0; r < DOOR_PROGRAM_RANKS; r++) {
        wrong += ncclCommInitRankConfig(&comms[r], DOOR_PROGRAM_RANKS, id, r,
                                        &config) != ncclSuccess;
    }
    wrong += ncclGroupEnd() != ncclSuccess;
    wrong += ncclGroupStart() != ncclSuccess;
    for (int r = 0; r < DOOR_PROGRAM_RANKS; r++) {
        wrong += ncclAllReduce(&sent[r], &got[r], 1, ncclFloat32, ncclSum,
                               comms[r], NULL) != ncclSuccess;
    }
    wrong += ncclGroupEnd() != ncclSuccess;
    for (int r = 0; r < DOOR_PROGRAM_RANKS; r++) {
        wrong += got[r] != 3.0f;
        wrong += pncclCommDestroy(comms[r]) != ncclSuccess;
    }
    if (wrong || version != 22809) {
        fprintf(stderr, "NCCL %d: %d calls: %s\n", version, wrong,
                ncclGetLastError(NULL));
    }
    return wrong;
}

#endif
