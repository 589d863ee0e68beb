/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/carried_scene.c - devices, rooms and sums of those tests.
 */
#include "tests/comm/carried_scene.h"

#include "tests/fake/fake_functions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *route_name;
static bool on_shadow;

void scene_set(const char *route)
{
    on_shadow = strcmp(route, "shadow") == 0;
    route_name = on_shadow ? "streams" : route;
    setenv("WEFT_ROUTE", route_name, 1);
    setenv("WEFT_KERNELS", FAKE_KERNELS, 0);
    setenv("WEFT_NCCL", FAKE_NCCL, 0);
    setenv("WEFT_FAKE_GPU_COUNT", "4", 1);
    setenv("WEFT_FAKE_GPU_SEED", "7", 0);
    setenv("WEFT_FAKE_GPU_DELAY", "10", 0);
}

/* The system's driver (scripts/gpu-check) may have one. */
static int count_devices(void)
{
    int count = 2;
    if (!on_shadow) {
        assert_int_equal(cuInit(0), CUDA_SUCCESS);
        assert_int_equal(cuDeviceGetCount(&count), CUDA_SUCCESS);
    }
    return count;
}

void scene_open_device(int rank, weft_comm_config *config, void *context)
{
    struct scene *scene = context;
    if (!scene->hosted) {
        const int index = scene->shared ? 0 : rank % count_devices();
        assert_int_equal(weft_device_open(on_shadow ? "shadow" : "cuda", index,
                                          &scene->devices[rank]),
                         WEFT_OK);
        config->device = scene->devices[rank];
    }
}

int scene_close_device(int rank, void *context)
{
    struct scene *scene = context;
    weft_device_close(scene->devices[rank]);
    return 0;
}

int scene_run(struct scene *scene, int nranks, world_rank_call call,
              bool processes)
{
    struct world world = {
        .nranks = nranks,
        .config = {.timeout_ms = 1000 * SCENE_DEADLINE_S, .warn_ms = 30000},
        .call = call,
        .context = scene,
        .configure = scene_open_device,
        .after = scene_close_device,
        .deadline_s = SCENE_DEADLINE_S};
    return processes ? world_run_processes(&world) : world_run_threads(&world);
}

void scene_init(struct own *own, weft_comm *comm, weft_device *device)
{
    *own = (struct own){.comm = comm,
                        .device = device,
                        .rank = weft_comm_get_rank(comm),
                        .nranks = weft_comm_get_nranks(comm)};
    scene_expect(own, weft_stream_create(device, 0, &own->stream) == WEFT_OK,
                 "stream");
    for (int b = 0; b < 2; b++) {
        void *room = NULL;
        scene_expect(
            own, weft_device_alloc(device, SCENE_ROOM_BYTES, &room) == WEFT_OK,
            "room");
        own->room[b] = room;
    }
    own->image = malloc(SCENE_ROOM_BYTES);
    own->wanted = malloc(SCENE_ROOM_BYTES);
    assert_non_null(own->image);
    assert_non_null(own->wanted);
}

void scene_fini(struct own *own)
{
    weft_stream_destroy(own->stream);
    for (int b = 0; b < 2; b++) {
        weft_device_free(own->device, own->room[b]);
    }
    free(own->image);
    free(own->wanted);
}

void scene_expect(struct own *own, bool good, const char *what)
{
    if (!good && own->failures++ < 5) {
        fprintf(stderr, "rank %d of %d: %s (%s)\n", own->rank, own->nranks,
                what, weft_error_text());
    }
}

bool scene_is_carried(struct own *own, const weft_op *op)
{
    const char *fabric;
    return strcmp(wefti_comm_explain(own->comm, op, &fabric), route_name) == 0;
}

weft_op scene_all_reduce(struct own *own, unsigned char *room, size_t count)
{
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = WEFT_COLLECTIVE_ALLREDUCE,
                     .send = room,
                     .recv = own->room[1],
                     .count = count,
                     .dtype = WEFT_DTYPE_I32};
}

void scene_fill(struct own *own, unsigned char *room, size_t count)
{
    int32_t *image = (void *)own->image;
    for (size_t i = 0; i < count; i++) {
        image[i] = own->rank + 1;
    }
    scene_expect(own,
                 weft_device_copy(own->device, room, image,
                                  count * sizeof(*image), NULL) == WEFT_OK,
                 "input");
}

void scene_check_sum(struct own *own, const unsigned char *room, size_t count)
{
    const int32_t wanted = own->nranks * (own->nranks + 1) / 2;
    int32_t *image = (void *)own->image;
    scene_expect(own,
                 weft_device_copy(own->device, image, room,
                                  count * sizeof(*image), NULL) == WEFT_OK,
                 "output");
    bool right = true;
    for (size_t i = 0; i < count; i++) {
        right = right && image[i] == wanted;
    }
    scene_expect(own, right, "wrong sum");
}

void scene_run_made(struct own *own, weft_comm *made)
{
    struct own its = *own;
    its.comm = made;
    its.rank = weft_comm_get_rank(made);
    its.nranks = weft_comm_get_nranks(made);
    weft_op op = scene_all_reduce(&its, its.room[0], 100);
    scene_expect(&its,
                 scene_is_carried(&its, &op) ==
                     (its.nranks > 1 || strcmp(route_name, "nccl") == 0),
                 "another route on one made of it");
    scene_fill(&its, its.room[0], 100);
    scene_expect(&its, weft_op_post(&op, 0, made, its.stream) == WEFT_OK,
                 "post");
    scene_expect(&its, weft_stream_wait(its.stream) == WEFT_OK, "stream");
    scene_check_sum(&its, its.room[1], 100);
    own->failures = its.failures;
}
