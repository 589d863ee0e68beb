/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/carried_scene.h - ranks with a GPU of the fake driver each, its
 * kernels, and the stand-in for NCCL (tests/fake/fake_nccl.h): what tests of
 * the routes nccl and streams have in common.
 */
#ifndef TESTS_COMM_CARRIED_SCENE_H
#define TESTS_COMM_CARRIED_SCENE_H

#include "comm/core/core.h"
#include "comm/make/explain.h"
#include "tests/comm/world.h"

enum {
    SCENE_RANKS = 4,
    SCENE_ELEMS = 1500,
    SCENE_ROOM_BYTES = (SCENE_ELEMS + 8) * 8 * SCENE_RANKS,
    SCENE_DEADLINE_S = 60
};

/* Of all ranks; each process has its own copy. */
struct scene {
    bool hosted; /* no device */
    bool shared; /* all on one GPU */
    weft_device *devices[SCENE_RANKS];
};

/* One rank's. */
struct own {
    weft_comm *comm;
    weft_device *device;
    weft_stream *stream;
    unsigned char *room[2]; /* of the device */
    unsigned char *image, *wanted;
    int rank, nranks, failures;
};

/* The route, the stand-in and the driver, in the environment; "shadow": streams
 * on shadow devices, of which ranks that are threads share two. */
void scene_set(const char *route);

/* Of a struct world whose context is a scene. */
void scene_open_device(int rank, weft_comm_config *config, void *context);
int scene_close_device(int rank, void *context);

int scene_run(struct scene *scene, int nranks, world_rank_call call,
              bool processes);

void scene_init(struct own *own, weft_comm *comm, weft_device *device);
void scene_fini(struct own *own);

/* Counts a failure, and prints the first few. */
void scene_expect(struct own *own, bool good, const char *what);

/* Whether an operation on such buffers would take the route. */
bool scene_is_carried(struct own *own, const weft_op *op);

/* An all-reduce of integers from a room to the second one; and what it sends
 * and must give: each rank's number + 1. */
weft_op scene_all_reduce(struct own *own, unsigned char *room, size_t count);
void scene_fill(struct own *own, unsigned char *room, size_t count);
void scene_check_sum(struct own *own, const unsigned char *room, size_t count);

/* An all-reduce on a communicator made of own's, which takes the route too: of
 * one rank only NCCL. */
void scene_run_made(struct own *own, weft_comm *made);

#endif
