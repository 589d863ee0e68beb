/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     What cannot be is refused by name with nothing queued; more rows
 *          than a rank has room for, and experts that there are not, fail all
 *          ranks with a text that names rank and counts; a rank that dies, or
 *          aborts, leaves nobody waiting.
 * Method   Four ranks, over one hop and two, with streams and without, one of
 *          which is short of room, gives a wrong expert, aborts or is killed;
 *          every rank's error text is looked at. With the argument cuda: by
 *          kernels on the fake driver.
 */
#include "tests/overlap/moes.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4, VICTIM = 2, ROOM = 5, BAD_EXPERT = 999 };

static moes_scene plain(const char *device, bool streams)
{
    return (moes_scene){.device = device,
                        .streams = streams,
                        .dtype = WEFT_DTYPE_F32,
                        .dispatch = WEFT_DTYPE_F32,
                        .combine = WEFT_DTYPE_F32,
                        .node_ranks = 2,
                        .hidden = 16,
                        .tokens = 20,
                        .slots = 2,
                        .experts_here = 2,
                        .overflows_at = -1};
}

/* A dispatch and what its stream met. */
static weft_status dispatch(moes_side *self, weft_moe_batch *batch)
{
    *batch = (weft_moe_batch){.size_bytes = sizeof(*batch)};
    weft_status status =
        weft_moe_dispatch(self->moe, self->x, self->expert, self->weight,
                          self->tokens, self->stream, batch);
    return status == WEFT_OK && self->stream ? weft_stream_wait(self->stream)
                                             : status;
}

/* The rank it is about fails with its dispatch, others then or with what comes
 * next. */
static int expect_fault(moes_side *self, const char *words)
{
    weft_moe_batch batch;
    weft_status status = dispatch(self, &batch);
    int wrong = CHECK(self->rank != VICTIM || status == WEFT_ERR_MISMATCH);
    if (self->rank == VICTIM && batch.counted) { /* it was all queued */
        wrong += CHECK(weft_gate_wait(batch.counted, batch.counted_chunk,
                                      batch.counted_epoch,
                                      NULL) == WEFT_ERR_MISMATCH);
    }
    while (status == WEFT_OK) {
        status = weft_barrier(self->comm, NULL);
    }
    return wrong + CHECK(status == WEFT_ERR_MISMATCH) +
           CHECK(strstr(weft_error_text(), words) != NULL);
}

static int run_overflow(weft_comm *comm, void *context)
{
    moes_side self;
    int wrong = moes_set_up(&self, comm, context) + moes_fill(&self, 0) +
                expect_fault(
                    &self, "rows for the experts of rank 2: its capacity is 5");
    moes_tear_down(&self);
    return wrong;
}

/* Token 3 of one rank goes to an expert that there is not. */
static int spoil(moes_side *self)
{
    static const int32_t bad = BAD_EXPERT; /* copied when the stream comes */
    const size_t at = 3 * (size_t)self->of->slots * sizeof(bad);
    return self->rank == VICTIM
               ? CHECK(weft_device_copy(self->device, (char *)self->expert + at,
                                        &bad, sizeof(bad),
                                        self->stream) == WEFT_OK)
               : 0;
}

static int run_unknown(weft_comm *comm, void *context)
{
    moes_side self;
    int wrong =
        moes_set_up(&self, comm, context) + moes_fill(&self, 0) + spoil(&self) +
        expect_fault(&self, "rank 2 gave token 3 expert 999: allowed is");
    moes_tear_down(&self);
    return wrong;
}

static void run_all(world_rank_call call, size_t capacity)
{
    static const char *const devices[] = {"host", "shadow"};
    for (int i = 0; i < 8; i++) {
        moes_scene of = plain(devices[i / 4], i % 2);
        of.hops = 1 + i / 2 % 2;
        of.capacity = capacity;
        of.overflows_at = VICTIM;
        moes_run_world(of, RANKS, call);
    }
}

static void test_moe_overflow_is_named_on_every_rank(void **state)
{
    (void)state;
    run_all(run_overflow, ROOM);
}

static void test_moe_unknown_expert_is_named_on_every_rank(void **state)
{
    (void)state;
    run_all(run_unknown, 0);
}

/* ---- ranks that go --------------------------------------------------------
 */

static weft_status go_on(moes_side *self)
{
    weft_moe_batch batch;
    weft_status status = dispatch(self, &batch);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_moe_combine(self->moe, &batch, batch.rows, self->out,
                              self->stream);
    if (status == WEFT_OK && self->stream) {
        status = weft_stream_wait(self->stream);
    }
    weft_moe_batch_fini(self->moe, &batch);
    return status;
}

static int run_killed(weft_comm *comm, void *context)
{
    moes_side self;
    moes_scene of = plain("host", true);
    const int rank = weft_comm_get_rank(comm);
    int wrong = 0, rounds = 0;
    of.hops = *(const int *)context;
    of.devices[rank] = moes_open(&of);
    wrong += moes_set_up(&self, comm, &of) + moes_fill(&self, 0);
    weft_status status = WEFT_OK;
    while (status == WEFT_OK) {
        if (rank == VICTIM && rounds++ == 3) {
            kill(getpid(), SIGKILL);
        }
        status = go_on(&self);
    }
    wrong += CHECK(status == WEFT_ERR_PEER) +
             CHECK(strstr(weft_error_text(), "rank 2") != NULL);
    moes_tear_down(&self);
    weft_device_close(of.devices[rank]);
    return wrong;
}

static void test_moe_names_a_rank_that_was_killed(void **state)
{
    (void)state;
    for (int hops = 1; hops <= 2; hops++) {
        struct world world = {
            .nranks = RANKS,
            .config = {.size_bytes = sizeof(world.config), .timeout_ms = 60000},
            .call = run_killed,
            .context = &hops};
        assert_int_equal(world_run_killed(&world, VICTIM), 0);
    }
}

/* A rank aborts between its rounds, in the others' first or later. */
static int run_aborted(weft_comm *comm, void *context)
{
    moes_side self;
    int wrong = moes_set_up(&self, comm, context) + moes_fill(&self, 0);
    weft_status status = go_on(&self);
    if (self.rank == VICTIM) {
        wrong +=
            CHECK(status == WEFT_OK) + CHECK(weft_comm_abort(comm) == WEFT_OK);
    }
    while (status == WEFT_OK) {
        status = go_on(&self);
    }
    wrong += CHECK(status == WEFT_ERR_ABORTED) +
             CHECK(strstr(weft_error_text(), "rank 2 aborted") != NULL);
    moes_tear_down(&self);
    return wrong;
}

static void test_moe_ends_where_its_communicator_is_aborted(void **state)
{
    (void)state;
    run_all(run_aborted, 0);
}

/* ---- by kernels -----------------------------------------------------------
 */

/* What is wrong ends the next operation of the rank it is about. */
static int expect_later(moes_side *self)
{
    weft_status status = WEFT_OK;
    while (status == WEFT_OK) {
        status = go_on(self);
    }
    return CHECK(status == WEFT_ERR_MISMATCH) +
           CHECK(strstr(weft_error_text(), "rank 2 has ") != NULL) +
           CHECK(strstr(weft_error_text(), "more than the capacity") != NULL);
}

static int run_overflow_later(weft_comm *comm, void *context)
{
    moes_side self;
    int wrong = moes_set_up(&self, comm, context) + moes_fill(&self, 0) +
                expect_later(&self);
    moes_tear_down(&self);
    return wrong;
}

static int run_unknown_later(weft_comm *comm, void *context)
{
    moes_side self;
    int wrong = moes_set_up(&self, comm, context) + moes_fill(&self, 0) +
                spoil(&self) + expect_later(&self);
    moes_tear_down(&self);
    return wrong;
}

static void run_by_kernels(world_rank_call call, size_t capacity)
{
    for (int streams = 0; streams < 2; streams++) {
        moes_scene of = plain("cuda", streams);
        of.capacity = capacity;
        of.overflows_at = VICTIM;
        moes_run_world(of, RANKS, call);
    }
}

static void test_moe_by_kernels_overflow_ends_every_rank(void **state)
{
    (void)state;
    run_by_kernels(run_overflow_later, ROOM);
}

static void test_moe_by_kernels_unknown_expert_ends_every_rank(void **state)
{
    (void)state;
    run_by_kernels(run_unknown_later, 0);
}

static void test_moe_by_kernels_ends_where_it_is_aborted(void **state)
{
    (void)state;
    run_by_kernels(run_aborted, 0);
}

/* ---- what is refused ------------------------------------------------------
 */

static int refuse(weft_moe_config config, const char *words)
{
    weft_moe *moe = NULL;
    return CHECK(weft_moe_create(&config, &moe) == WEFT_ERR_INVALID) +
           CHECK(strstr(weft_error_text(), words) != NULL) + CHECK(!moe);
}

static int refuse_configs(const moes_side *self)
{
    const weft_moe_config good = {.size_bytes = sizeof(good),
                                  .comm = self->comm,
                                  .device = self->device,
                                  .hidden = 8,
                                  .experts = RANKS,
                                  .slots = 1,
                                  .tokens = 4,
                                  .capacity = 4,
                                  .dtype = WEFT_DTYPE_BF16,
                                  .dispatch_dtype = WEFT_DTYPE_F8E4M3,
                                  .combine_dtype = WEFT_DTYPE_F32};
    weft_moe_config bad = good;
    int wrong = 0;
    bad.device = NULL;
    wrong += refuse(bad, "config.device is NULL");
    bad = good;
    bad.experts = RANKS + 1;
    wrong += refuse(bad, "config.experts 5: allowed is a multiple of the 4");
    bad = good;
    bad.slots = WEFT_MOE_SLOTS_MOST + 1;
    wrong += refuse(bad, "config.slots 33");
    bad = good;
    bad.tokens = 0;
    wrong += refuse(bad, "tokens 0");
    bad = good;
    bad.dtype = WEFT_DTYPE_I32;
    wrong += refuse(bad, "allowed is f32, bf16 or f16");
    bad = good;
    bad.combine_dtype = WEFT_DTYPE_F16;
    wrong += refuse(bad, "combine_dtype");
    bad = good;
    bad.hops = 3;
    wrong += refuse(bad, "hops 3");
    bad = good;
    bad.hidden += self->rank == VICTIM; /* nobody gets an object */
    wrong += refuse(bad, "config.hidden is ");
    return wrong + CHECK(strstr(weft_error_text(), "8 to 9 on all ranks"));
}

static int run_refused(weft_comm *comm, void *context)
{
    moes_side self;
    weft_moe_batch batch = {.size_bytes = sizeof(batch)}, none = batch;
    int wrong = moes_set_up(&self, comm, context) + moes_fill(&self, 0) +
                refuse_configs(&self);
    wrong += CHECK(weft_moe_dispatch(self.moe, self.x, self.expert, NULL,
                                     self.of->tokens + 1, self.stream,
                                     &batch) == WEFT_ERR_INVALID) +
             CHECK(strstr(weft_error_text(), "allowed is 0 .. 20") != NULL) +
             CHECK(weft_moe_dispatch(self.moe, NULL, self.expert, NULL, 1,
                                     self.stream, &batch) == WEFT_ERR_INVALID) +
             CHECK(strstr(weft_error_text(), "x is NULL") != NULL) +
             CHECK(weft_moe_dispatch(self.moe, self.x, self.expert, NULL, 1,
                                     self.stream, NULL) == WEFT_ERR_INVALID) +
             CHECK(weft_moe_combine(self.moe, &none, self.y, self.out,
                                    self.stream) == WEFT_ERR_INVALID) +
             CHECK(strstr(weft_error_text(), "batch is not in use") != NULL) +
             CHECK(weft_moe_dispatch(NULL, self.x, self.expert, NULL, 1,
                                     self.stream, &batch) == WEFT_ERR_INVALID);
    weft_moe_batch_fini(self.moe, &none);
    weft_moe_batch_fini(self.moe, NULL);
    weft_moe_destroy(NULL);
    wrong += CHECK(go_on(&self) == WEFT_OK);
    moes_tear_down(&self);
    return wrong;
}

static int run_two_hops(weft_comm *comm, void *context)
{
    const moes_scene *of = context;
    const weft_moe_config config = {.size_bytes = sizeof(config),
                                    .comm = comm,
                                    .device =
                                        of->devices[weft_comm_get_rank(comm)],
                                    .hidden = 8,
                                    .experts = RANKS,
                                    .slots = 1,
                                    .tokens = 4,
                                    .capacity = 4,
                                    .dtype = WEFT_DTYPE_F32,
                                    .dispatch_dtype = WEFT_DTYPE_F32,
                                    .combine_dtype = WEFT_DTYPE_F32,
                                    .hops = 2};
    weft_moe *moe = NULL;
    return CHECK(weft_moe_create(&config, &moe) == WEFT_ERR_UNSUPPORTED) +
           CHECK(strstr(weft_error_text(), "hops 2: allowed is 0 or 1") !=
                 NULL) +
           CHECK(!moe);
}

static void test_moe_by_kernels_refuses_two_hops(void **state)
{
    (void)state;
    moes_run_world(plain("cuda", true), RANKS, run_two_hops);
}

static void test_moe_refuses_what_cannot_be(void **state)
{
    (void)state;
    moes_run_world(plain("host", true), RANKS, run_refused);
    moes_run_world(plain("host", false), RANKS, run_refused);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest by_kernels[] = {
        cmocka_unit_test(test_moe_by_kernels_overflow_ends_every_rank),
        cmocka_unit_test(test_moe_by_kernels_unknown_expert_ends_every_rank),
        cmocka_unit_test(test_moe_by_kernels_ends_where_it_is_aborted),
        cmocka_unit_test(test_moe_by_kernels_refuses_two_hops),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe_names_a_rank_that_was_killed),
        cmocka_unit_test(test_moe_overflow_is_named_on_every_rank),
        cmocka_unit_test(test_moe_unknown_expert_is_named_on_every_rank),
        cmocka_unit_test(test_moe_ends_where_its_communicator_is_aborted),
        cmocka_unit_test(test_moe_refuses_what_cannot_be),
    };
    if (argc > 1 && strcmp(argv[1], "cuda") == 0) {
        setenv("WEFT_KERNELS", TEST_KERNELS, 1);
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
        return cmocka_run_group_tests(by_kernels, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
