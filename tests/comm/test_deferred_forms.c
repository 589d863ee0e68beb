/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: gatherv, scatterv and all_gatherv whose counts are deferred move what
 * each rank has, say how much came, and write nothing beyond; a count above its
 * capacity is named on all ranks.
 *
 * Method: counts are drawn anew in each round, empty and full parts and ends at
 * message borders among them; in every other round they are written behind the
 * post, right before the data are made ready. The receive buffer holds a
 * pattern. Argument: threads or processes.
 */
#include "tests/comm/deferred_parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 8, SHUT = 0x3c3c3c3c };

static const weft_collective forms[] = {WEFT_COLLECTIVE_GATHERV,
                                        WEFT_COLLECTIVE_SCATTERV,
                                        WEFT_COLLECTIVE_ALLGATHERV};
enum { FORMS = 3 };

static const char *mode = "threads";

static int32_t value_of(int round, int part, size_t i)
{
    return (int32_t)(round * 1000003 + part * 10007 + (int)(i % 97));
}

/* What one rank works with in one round. */
typedef struct desk {
    weft_comm *comm;
    int rank, root;
    weft_collective form;
    weft_gate *ready;
    int32_t *send, *recv;
    size_t most[NRANKS], counts[NRANKS], came[NRANKS];
} desk;

static const size_t buffer_elems = (size_t)NRANKS * MOST;

static bool scatters(const desk *self)
{
    return self->form == WEFT_COLLECTIVE_SCATTERV;
}

static bool receives(const desk *self)
{
    return self->form != WEFT_COLLECTIVE_GATHERV || self->rank == self->root;
}

/* A scatterv's parts are those of its receivers, else of the senders. */
static weft_op operation(desk *self)
{
    return (weft_op){
        .size_bytes = sizeof(weft_op),
        .collective = self->form,
        .send = self->send,
        .recv = self->recv,
        .count = capacity(self->rank),
        .send_counts = scatters(self) ? self->most : NULL,
        .recv_counts = scatters(self) ? NULL : self->most,
        .dtype = WEFT_DTYPE_I32,
        .root = self->form == WEFT_COLLECTIVE_ALLGATHERV ? 0 : self->root,
        .deferred_counts = self->counts,
        .arrived_counts = self->came};
}

static void write_pattern(desk *self)
{
    for (size_t i = 0; i < buffer_elems; i++) {
        self->recv[i] = SHUT;
    }
    for (int p = 0; p < NRANKS; p++) {
        const int part = scatters(self) ? p : self->rank;
        self->counts[p] = capacity(part) ? NEVER : 0;
        self->came[p] = NEVER;
    }
}

/* What this rank sends, and how much of it there is. */
static void fill(desk *self, int round)
{
    const int first = scatters(self) ? 0 : self->rank;
    const int last = scatters(self) ? NRANKS - 1 : self->rank;
    for (int part = first; part <= last; part++) {
        const size_t count = count_in(round, part);
        int32_t *to = self->send + (scatters(self) ? place_of(part) : 0);
        for (size_t i = 0; i < count; i++) {
            to[i] = value_of(round, part, i);
        }
        if (capacity(part)) { /* else it has been 0 from the post on */
            self->counts[scatters(self) ? part : 0] = count;
        }
    }
}

static int compare(const desk *self, int round)
{
    const int first = scatters(self) ? self->rank : 0;
    const int last = scatters(self) ? self->rank : NRANKS - 1;
    size_t wrong = 0;
    int failures = 0;
    if (!receives(self)) {
        return CHECK(self->came[0] == NEVER) + CHECK(self->recv[0] == SHUT);
    }
    for (int part = first; part <= last; part++) {
        const size_t count = count_in(round, part);
        const int32_t *at = self->recv + (scatters(self) ? 0 : place_of(part));
        failures += CHECK(self->came[scatters(self) ? 0 : part] == count);
        for (size_t i = 0; i < capacity(part); i++) {
            wrong += at[i] != (i < count ? value_of(round, part, i) : SHUT);
        }
    }
    return failures + CHECK(wrong == 0);
}

/* Counts and data become known behind the post, or are there before it. */
static int run_round(desk *self, int round, bool later)
{
    const uint64_t epoch = later ? (uint64_t)round + 1 : 0;
    weft_op op = operation(self);
    weft_request *request;
    op.ready = later ? self->ready : NULL;
    write_pattern(self);
    if (!later) {
        fill(self, round);
    }
    int failures = CHECK(weft_op_begin(&op, epoch, self->comm, &request) == 0);
    if (failures) {
        return failures;
    }
    if (later) {
        fill(self, round);
        failures += CHECK(weft_gate_signal(self->ready, 0, epoch, NULL) == 0);
    }
    failures += CHECK(weft_request_wait(request) == 0);
    weft_request_destroy(request);
    return failures + (failures ? 0 : compare(self, round));
}

static int set_up(desk *self, weft_comm *comm, weft_device **device_out)
{
    *self = (desk){.comm = comm, .rank = weft_comm_get_rank(comm)};
    for (int p = 0; p < NRANKS; p++) {
        self->most[p] = capacity(p);
    }
    self->send = malloc(buffer_elems * sizeof(int32_t));
    self->recv = malloc(buffer_elems * sizeof(int32_t));
    return CHECK(self->send && self->recv) +
           CHECK(weft_device_open("host", 0, device_out) == 0) +
           CHECK(weft_gate_create(*device_out, 1, &self->ready) == 0);
}

static void put_away(desk *self, weft_device *device)
{
    weft_gate_destroy(self->ready);
    weft_device_close(device);
    free(self->send);
    free(self->recv);
}

static int work(weft_comm *comm, void *context)
{
    desk self;
    weft_device *device;
    (void)context;
    int failures = set_up(&self, comm, &device);
    for (int i = 0; failures == 0 && i < ROUNDS * FORMS; i++) {
        self.form = forms[i % FORMS];
        self.root = i % NRANKS;
        failures += run_round(&self, i, i / FORMS % 2);
    }
    failures += CHECK(weft_barrier(comm, NULL) == 0);
    put_away(&self, device);
    return failures;
}

static void test_deferred_forms_move_what_there_is(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, NRANKS, work), 0);
}

/* Rank 1 has more than its part may have: as the sender, or for rank 3. */
static int overflow(weft_comm *comm, void *context)
{
    static const char *const texts[FORMS] = {
        "rank 1 has 1001 i32, more than the capacity of 1000",
        "rank 1 has 32770 i32 for rank 3, more than the capacity of 32769",
        "rank 1 has 1001 i32, more than the capacity of 1000"};
    desk self;
    weft_device *device;
    weft_comm *part;
    (void)context;
    int failures = set_up(&self, comm, &device);
    for (int f = 0; failures == 0 && f < FORMS; f++) {
        failures +=
            CHECK(weft_comm_split(comm, 0, self.rank, NULL, &part) == WEFT_OK);
        self.form = forms[f];
        self.root = 1;
        write_pattern(&self);
        for (int p = 0; p < NRANKS; p++) {
            const int owner = scatters(&self) ? p : self.rank;
            const bool odd =
                self.rank == 1 && owner == (scatters(&self) ? 3 : 1);
            self.counts[p] = odd ? capacity(owner) + 1 : 0;
        }
        const weft_op op = operation(&self);
        weft_status status = weft_op_post(&op, 0, part, NULL);
        /* A rank that needs nothing of rank 1 learns it in its next. */
        status = status == WEFT_OK ? weft_barrier(part, NULL) : status;
        failures += CHECK(status == WEFT_ERR_MISMATCH) +
                    CHECK(strstr(weft_error_text(), texts[f]) != NULL);
        weft_comm_destroy(part);
    }
    put_away(&self, device);
    return failures;
}

static void test_deferred_forms_wrong_is_named_on_all_ranks(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, NRANKS, overflow), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deferred_forms_move_what_there_is),
        cmocka_unit_test(test_deferred_forms_wrong_is_named_on_all_ranks)};
    if (argc > 1) {
        mode = argv[1];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
