/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a small operation that compute waits for soon (its class says so) waits
 * for no more gradients than one turn of one communicator moves: those in its
 * own communicator, in another, and in several.
 *
 * Method: one thread holds the locks of both ranks' engines, so that nobody
 * else moves anything, and gives the ranks turns, one after another: no clock,
 * every run is the same. Gradients are begun, and after some turns the small
 * operation. It must end in its rank's first turn after both ranks have had
 * one, and what has come of the gradients in that turn is counted when it does.
 * Threads.
 */
#include "comm/core/core.h"
#include "comm/core/observer.h"
#include "comm/engine/engine.h"
#include "tests/comm/all_reduce_op.h"
#include "tests/comm/locked_turn.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    RANKS = 2,
    GRADIENTS = 4,
    ELEMS = 1 << 20,  /* of one, 4 MiB */
    CHUNK = 64 << 10, /* so long that a step is as long as steps are */
    CHUNK_BYTES = CHUNK * 4,
    CHUNKS = ELEMS / CHUNK,
    SMALL = 1024,
    TURNS_MOST = 10000,
    TURN_BYTES = 512 << 10 /* what docs/collectives.md promises */
};

/* Which communicators have the gradients, and which the small operation. */
typedef enum arrangement {
    ONE,
    ANOTHER,
    EACH_SMALL_FIRST,
    EACH_SMALL_LAST
} arrangement;
enum { LAYOUTS = EACH_SMALL_LAST + 1, COMMS = GRADIENTS + 1 };

/* What a rank has. */
typedef struct part {
    weft_comm *comms[COMMS]; /* the first is the world's */
    weft_gate *gate;
    float *buffers[GRADIENTS];
    weft_request *gradients[GRADIENTS];
    float activations[SMALL];
    weft_request *small;
    size_t turns;  /* since both ranks have begun small */
    size_t before; /* chunks of gradients that had come before this turn */
    size_t took;   /* turns until small's end; 0: not yet */
    size_t chunks; /* that came in the last one before it */
} part;

typedef struct scene {
    arrangement layout;
    int before; /* turns from the first chunk to the small operation */
    int apart;  /* and from rank 0's to rank 1's */
    part parts[RANKS];
    pthread_barrier_t met;
} scene;

static int comm_of_gradient(arrangement layout, int gradient)
{
    return layout == EACH_SMALL_FIRST  ? gradient + 1
           : layout == EACH_SMALL_LAST ? gradient
                                       : 0;
}

static int comm_of_small(arrangement layout)
{
    return layout == ANOTHER ? 1 : layout == EACH_SMALL_LAST ? GRADIENTS : 0;
}

static size_t count_come(const part *self)
{
    size_t come = 0;
    for (size_t chunk = 0; chunk < (size_t)GRADIENTS * CHUNKS; chunk++) {
        come += weft_gate_test(self->gate, chunk, 1) == WEFT_OK;
    }
    return come;
}

static void note_end(void *context, const wefti_transfer *transfer)
{
    part *self = context;
    if (transfer->class_id == WEFT_CLASS_TP) {
        self->chunks = count_come(self) - self->before;
        self->took = self->turns;
    }
}

static int begin_gradients(part *self, arrangement layout)
{
    int failures = 0;
    for (int i = 0; i < GRADIENTS; i++) {
        weft_op op = all_reduce_op(self->buffers[i], ELEMS, WEFT_DTYPE_F32);
        op.class_id = WEFT_CLASS_DP;
        op.arrived = self->gate;
        op.arrived_chunk = (size_t)i * CHUNKS;
        op.gate_elems = CHUNK;
        failures +=
            weft_op_begin(&op, 1, self->comms[comm_of_gradient(layout, i)],
                          &self->gradients[i]) != WEFT_OK;
    }
    return failures;
}

static int begin_small(part *self, arrangement layout)
{
    weft_op op = all_reduce_op(self->activations, SMALL, WEFT_DTYPE_F32);
    op.class_id = WEFT_CLASS_TP;
    self->turns = 0;
    self->took = 0;
    return weft_op_begin(&op, 0, self->comms[comm_of_small(layout)],
                         &self->small) != WEFT_OK;
}

static void take_turn(part *self)
{
    self->before = count_come(self);
    self->turns++;
    take_locked_turn(self->comms[0]->engine);
}

typedef bool condition(const part *self);

static bool has_chunk(const part *self)
{
    return count_come(self) > 0;
}

static bool has_all_chunks(const part *self)
{
    return count_come(self) == (size_t)GRADIENTS * CHUNKS;
}

static bool has_small(const part *self)
{
    return self->took > 0;
}

/* Turns until it is so on both ranks; false: it never is. */
static bool take_turns_until(part *parts, condition *is)
{
    for (int turn = 0; turn < TURNS_MOST; turn++) {
        if (is(&parts[0]) && is(&parts[1])) {
            return true;
        }
        take_turn(&parts[0]);
        take_turn(&parts[1]);
    }
    return false;
}

/* The engines' locks are held, so this thread alone moves anything. */
static int conduct(scene *shown)
{
    part *parts = shown->parts;
    int failures = begin_gradients(&parts[0], shown->layout) +
                   begin_gradients(&parts[1], shown->layout);
    failures += !take_turns_until(parts, has_chunk);
    for (int turn = 0; turn < shown->before; turn++) {
        take_turn(&parts[0]);
        take_turn(&parts[1]);
    }
    failures += begin_small(&parts[0], shown->layout);
    for (int turn = 0; turn < shown->apart; turn++) {
        take_turn(&parts[0]);
    }
    failures += begin_small(&parts[1], shown->layout);
    parts[0].turns = 0;
    failures += !take_turns_until(parts, has_small);
    return failures + !take_turns_until(parts, has_all_chunks);
}

static int sit_down(part *self, arrangement layout, weft_comm *comm,
                    weft_device *device)
{
    const wefti_observer observer = {note_end, self};
    int failures = weft_gate_create(device, (size_t)GRADIENTS * CHUNKS,
                                    &self->gate) != WEFT_OK;
    self->comms[0] = comm;
    for (int i = 1; i < COMMS; i++) {
        failures += weft_comm_split(comm, 0, weft_comm_get_rank(comm), NULL,
                                    &self->comms[i]) != WEFT_OK;
    }
    for (int i = 0; i < GRADIENTS; i++) {
        self->buffers[i] = calloc(ELEMS, sizeof(float));
        failures += self->buffers[i] == NULL;
    }
    /* The engine's thread is there from its first request on. */
    failures += begin_small(self, layout);
    failures += weft_request_wait(self->small) != WEFT_OK;
    weft_request_destroy(self->small);
    return failures + (wefti_comm_observe(self->comms[comm_of_small(layout)],
                                          &observer) != WEFT_OK);
}

static int get_up(part *self, arrangement layout)
{
    int failures = weft_request_wait(self->small) != WEFT_OK;
    weft_request_destroy(self->small);
    for (int i = 0; i < GRADIENTS; i++) {
        failures += weft_request_wait(self->gradients[i]) != WEFT_OK;
        weft_request_destroy(self->gradients[i]);
        free(self->buffers[i]);
    }
    failures +=
        wefti_comm_observe(self->comms[comm_of_small(layout)], NULL) != WEFT_OK;
    for (int i = 1; i < COMMS; i++) {
        weft_comm_destroy(self->comms[i]);
    }
    weft_gate_destroy(self->gate);
    return failures;
}

static int play(weft_comm *comm, void *context)
{
    scene *shown = context;
    part *self = &shown->parts[weft_comm_get_rank(comm)];
    weft_device *device;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK;
    failures += sit_down(self, shown->layout, comm, device);
    pthread_barrier_wait(&shown->met);
    if (weft_comm_get_rank(comm) == 0) {
        for (int rank = 0; rank < RANKS; rank++) {
            pthread_mutex_lock(&shown->parts[rank].comms[0]->engine->lock);
        }
        failures += conduct(shown);
        for (int rank = RANKS; rank-- > 0;) {
            wefti_engine_unlock(shown->parts[rank].comms[0]->engine);
        }
    }
    pthread_barrier_wait(&shown->met);
    failures += get_up(self, shown->layout);
    weft_device_close(device);
    return failures;
}

static void check(arrangement layout, int before, int apart)
{
    scene shown = {.layout = layout, .before = before, .apart = apart};
    struct world world = {.nranks = RANKS, .call = play, .context = &shown};
    pthread_barrier_init(&shown.met, NULL, RANKS);
    assert_int_equal(world_run_threads(&world), 0);
    pthread_barrier_destroy(&shown.met);
    for (int rank = 0; rank < RANKS; rank++) {
        const part *self = &shown.parts[rank];
        printf("layout %d, %d turns, %d apart, rank %d: turn %zu, after %zu "
               "chunks\n",
               (int)layout, before, apart, rank, self->took, self->chunks);
        assert_in_range(self->took, 1, 2); /* the first enters it */
        assert_in_range(self->chunks * CHUNK_BYTES, 0, TURN_BYTES);
    }
}

static void test_small_operation_passes_gradients(void **state)
{
    (void)state;
    for (int layout = 0; layout < LAYOUTS; layout++) {
        for (int before = 0; before < 3; before += 2) {
            for (int apart = 0; apart < 3; apart += 2) {
                check((arrangement)layout, before, apart);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_operation_passes_gradients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
