/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Rows come to experts in the order that weft/moe.h says, and sums of
 *          what is made of them go back with the bits that it says, over one
 *          hop and two, whatever the distribution; so do gradients; between
 *          hosts each token crosses once to each.
 * Method   1 to 6 ranks as threads and as processes, on the host with a stream
 *          and without, and on the device whose memory the host does not reach,
 *          in all types; on nodes of equal and of unequal size. Two batches at
 *          once, used in turns. moes.c has the reference. With the argument
 *          cuda: over one hop, by kernels on the fake driver, each launched in
 *          a shape that is drawn.
 */
#include "device/device.h"
#include "overlap/moe_core.h"
#include "tests/comm/spread.h"
#include "tests/overlap/moes.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int dispatch(moes_side *self, weft_moe_batch *batch)
{
    *batch = (weft_moe_batch){.size_bytes = sizeof(*batch)};
    return CHECK(weft_moe_dispatch(self->moe, self->x, self->expert,
                                   self->weight, self->tokens, self->stream,
                                   batch) == WEFT_OK);
}

static int settle(moes_side *self)
{
    return CHECK(!self->stream || weft_stream_wait(self->stream) == WEFT_OK);
}

/* Rows that the batch has sent to other nodes: a token once to each over two
 * hops, once to each rank with an expert over one. */
static int check_crossings(const moes_side *self, const weft_moe_batch *batch)
{
    const wefti_moe_layout *layout = &self->moe->layout;
    const wefti_moe_held *held = batch->held;
    size_t crossed = 0, wanted = 0;
    if (self->moe->by_kernels) {
        return 0; /* what it kept is not the host's */
    }
    for (int rank = 0; rank < self->nranks; rank++) {
        const bool other = layout->nodes[rank] != layout->nodes[self->rank];
        crossed += other ? held->out_rows[0][rank] : 0;
    }
    for (size_t token = 0; token < self->tokens; token++) {
        bool nodes[MOES_MOST] = {0}, ranks[MOES_MOST] = {0};
        for (int slot = 0; slot < layout->slots; slot++) {
            const int owner = wefti_moe_owner(
                layout,
                held->experts[token * (size_t)layout->slots + (size_t)slot]);
            if (owner < 0 ||
                layout->nodes[owner] == layout->nodes[self->rank]) {
                continue;
            }
            bool *seen = layout->hops == 2 ? &nodes[layout->nodes[owner]]
                                           : &ranks[owner];
            wanted += !*seen;
            *seen = true;
        }
    }
    return CHECK(crossed == wanted);
}

static int run_round(moes_side *self, int round)
{
    weft_moe_batch batch;
    int wrong = moes_fill(self, round) + dispatch(self, &batch);
    if (wrong) {
        return wrong;
    }
    wrong +=
        settle(self) + moes_check_rows(self, &batch) +
        check_crossings(self, &batch) + moes_compute(self, &batch) +
        CHECK(weft_moe_combine(self->moe, &batch, self->y, self->out,
                               self->stream) == WEFT_OK) +
        settle(self) + moes_check_sums(self, true) +
        CHECK(weft_moe_dispatch_gradient(self->moe, &batch, self->y, self->out,
                                         self->stream) == WEFT_OK) +
        settle(self) + moes_check_sums(self, false) +
        CHECK(weft_moe_combine_gradient(self->moe, &batch, self->x, self->y,
                                        self->dy, self->dweight,
                                        self->stream) == WEFT_OK) +
        settle(self) + moes_check_gradients(self, &batch);
    weft_moe_batch_fini(self->moe, &batch);
    return wrong;
}

static int run_rank(weft_comm *comm, void *context)
{
    moes_side self;
    const moes_scene *of = context;
    int wrong = moes_set_up(&self, comm, of);
    for (int round = 0; round < of->rounds && wrong == 0; round++) {
        wrong += run_round(&self, round);
    }
    wrong += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    moes_tear_down(&self);
    return wrong;
}

static moes_scene plain(const char *device, bool streams)
{
    return (moes_scene){.device = device,
                        .streams = streams,
                        .dtype = WEFT_DTYPE_F32,
                        .dispatch = WEFT_DTYPE_F32,
                        .combine = WEFT_DTYPE_F32,
                        .hidden = 24,
                        .tokens = 20,
                        .slots = 3,
                        .experts_here = 2,
                        .rounds = 2,
                        .overflows_at = -1};
}

/* Over one hop and two, on nodes of one rank, of two and of all. */
static void run_nodes(moes_scene of, int nranks)
{
    for (of.hops = 0; of.hops <= 2; of.hops++) {
        for (of.node_ranks = 0; of.node_ranks <= 4; of.node_ranks += 2) {
            moes_run_world(of, nranks, run_rank);
        }
    }
}

/* The thread sanitizer slows everything down: every other world, and the others
 * in the next test; every third where worlds take their time to meet. */
static int worlds_by(void)
{
#if defined(__SANITIZE_THREAD__)
    const int few = spread_is_wide() ? 3 : 2;
    return getenv("WEFT_TEST_LONG") || getenv("WEFT_TEST_WHOLE") ? 1 : few;
#else
    return 1;
#endif
}

/* Of the types, to which threads do the same, it gets the first and the last.
 */
static size_t types_by(void)
{
    return worlds_by() > 1 ? 5 : 1;
}

static void test_moe_brings_rows_and_sums_on_streams(void **state)
{
    (void)state;
    const int by = worlds_by();
    for (int nranks = by; nranks <= MOES_MOST; nranks += by) {
        run_nodes(plain("host", true), nranks);
    }
}

static void test_moe_brings_rows_and_sums_at_once(void **state)
{
    (void)state;
    const int by = worlds_by();
    for (int nranks = 2 * by - 1; nranks <= 5; nranks += by) {
        run_nodes(plain("host", false), nranks);
    }
}

static void test_moe_takes_any_distribution(void **state)
{
    moes_scene of = plain("host", true);
    (void)state;
    for (of.hops = 1; of.hops <= 2; of.hops++) {
        of.node_ranks = 2;
        of.pattern = MOES_ONE;
        moes_run_world(of, 4, run_rank);
        moes_run_world(of, 5, run_rank);
        of.pattern = MOES_LONELY;
        moes_run_world(of, 4, run_rank);
        moes_run_world(of, 3, run_rank);
    }
}

/* Of types; hidden is more than a block of one scale, not two. */
static moes_scene typed(const char *device, bool streams,
                        const weft_dtype types[3])
{
    moes_scene of = plain(device, streams);
    of.dtype = types[0];
    of.dispatch = types[1];
    of.combine = types[2];
    of.hidden = 150;
    of.rounds = 1;
    of.node_ranks = 2;
    return of;
}

static const weft_dtype types[][3] = {
    {WEFT_DTYPE_F32, WEFT_DTYPE_F8E4M3, WEFT_DTYPE_F32},
    {WEFT_DTYPE_BF16, WEFT_DTYPE_BF16, WEFT_DTYPE_BF16},
    {WEFT_DTYPE_BF16, WEFT_DTYPE_F8E4M3, WEFT_DTYPE_BF16},
    {WEFT_DTYPE_BF16, WEFT_DTYPE_F8E4M3, WEFT_DTYPE_F32},
    {WEFT_DTYPE_F16, WEFT_DTYPE_F16, WEFT_DTYPE_F32},
    {WEFT_DTYPE_F16, WEFT_DTYPE_F8E4M3, WEFT_DTYPE_F16}};

static void test_moe_rounds_as_its_types_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i += types_by()) {
        moes_scene of = typed("host", i % 2, types[i]);
        for (of.hops = 1; of.hops <= 2; of.hops++) {
            moes_run_world(of, 5, run_rank);
        }
    }
}

static void test_moe_on_the_shadow_device(void **state)
{
    (void)state;
    for (int streams = 0; streams < 2; streams++) {
        moes_scene of = plain("shadow", streams);
        of.node_ranks = 2;
        for (of.hops = 1; of.hops <= 2; of.hops++) {
            moes_run_world(of, 4, run_rank);
        }
    }
}

/* Large rows, so that no part goes in one message. */
static void test_moe_of_many_bytes(void **state)
{
    moes_scene of = plain("host", true);
    (void)state;
    of.hidden = 3000;
    of.tokens = 60;
    of.rounds = 1;
    of.node_ranks = 2;
    of.hops = 2;
    moes_run_world(of, 4, run_rank);
    of.hops = 1;
    moes_run_world(of, 3, run_rank);
}

/* Two batches at once, everything queued before anything is looked at: what
 * comes of the first is not spoilt by the second. */
static int run_ahead(weft_comm *comm, void *context)
{
    moes_side self;
    weft_moe_batch first, second, third = {.size_bytes = sizeof(third)};
    int wrong = moes_set_up(&self, comm, context) + moes_fill(&self, 0) +
                dispatch(&self, &first) + dispatch(&self, &second);
    weft_stream *other = NULL;
    wrong += CHECK(weft_stream_create(self.device, 0, &other) == WEFT_OK);
    wrong += CHECK(weft_moe_dispatch(self.moe, self.x, self.expert, NULL,
                                     self.tokens, self.stream,
                                     &third) == WEFT_ERR_INVALID) +
             CHECK(strstr(weft_error_text(), "2 batches of \"experts\" are in "
                                             "use") != NULL);
    wrong += CHECK(weft_moe_combine(self.moe, &second, second.rows, self.out,
                                    other) == WEFT_OK) +
             CHECK(weft_stream_wait(other) == WEFT_OK);
    wrong += settle(&self) + moes_check_rows(&self, &first) +
             moes_check_rows(&self, &second) + moes_compute(&self, &first) +
             CHECK(weft_moe_combine(self.moe, &first, self.y, self.out,
                                    self.stream) == WEFT_OK) +
             settle(&self) + moes_check_sums(&self, true);
    weft_moe_batch_fini(self.moe, &first);
    wrong += CHECK(weft_moe_combine(self.moe, &first, self.y, self.out,
                                    self.stream) == WEFT_ERR_INVALID) +
             dispatch(&self, &third) + settle(&self) +
             moes_check_rows(&self, &third);
    weft_moe_batch_fini(self.moe, &third);
    weft_moe_batch_fini(self.moe, &second);
    wrong += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    weft_stream_destroy(other);
    moes_tear_down(&self);
    return wrong;
}

static void test_moe_batches_are_apart(void **state)
{
    (void)state;
    moes_run_world(plain("host", true), 3, run_ahead);
    moes_run_world(plain("shadow", true), 3, run_ahead);
}

static int run_as_process(weft_comm *comm, void *context)
{
    moes_scene of = plain("host", true);
    const int rank = weft_comm_get_rank(comm);
    (void)context;
    of.devices[rank] = moes_open(&of);
    int wrong = 0;
    for (of.hops = 1; of.hops <= 2; of.hops++) {
        of.node_ranks = of.hops == 2 ? 2 : 0;
        wrong += run_rank(comm, &of);
    }
    weft_device_close(of.devices[rank]);
    return wrong;
}

static void test_moe_between_processes(void **state)
{
    struct world world = {
        .nranks = 4,
        .config = {.size_bytes = sizeof(world.config), .timeout_ms = 60000},
        .call = run_as_process};
    (void)state;
    assert_int_equal(world_run_processes(&world), 0);
}

/* ---- by kernels -----------------------------------------------------------
 */

weft_status __real_wefti_stream_launch(weft_stream *stream,
                                       const wefti_launch *launch);
weft_status __wrap_wefti_stream_launch(weft_stream *stream,
                                       const wefti_launch *launch);

/* What comes of a kernel does not depend on its launch's shape. */
weft_status __wrap_wefti_stream_launch(weft_stream *stream,
                                       const wefti_launch *launch)
{
    static atomic_uint_fast64_t launches;
    uint64_t seed = atomic_fetch_add(&launches, 1);
    wefti_launch drawn = *launch;
    drawn.blocks = 1 + (unsigned)(random_next(&seed) % 3);
    drawn.threads = 32 * (1 + (unsigned)(random_next(&seed) % 4));
    return __real_wefti_stream_launch(stream, &drawn);
}

static void test_moe_by_kernels_brings_rows_and_sums(void **state)
{
    (void)state;
    const bool few = worlds_by() > 1;
    for (int nranks = few ? 2 : 1; nranks <= (few ? 3 : 4); nranks++) {
        moes_scene of = plain("cuda", nranks % 2 == 0);
        of.hops = nranks % 2;
        moes_run_world(of, nranks, run_rank);
    }
}

static void test_moe_by_kernels_takes_any_distribution(void **state)
{
    moes_scene of = plain("cuda", true);
    (void)state;
    of.node_ranks = 2;
    of.pattern = MOES_ONE;
    moes_run_world(of, 2, run_rank);
    of.pattern = MOES_LONELY;
    moes_run_world(of, 3, run_rank);
}

static void test_moe_by_kernels_rounds_as_its_types_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i += types_by()) {
        moes_scene of = typed("cuda", true, types[i]);
        of.hidden += i % 2; /* rows that end within a word */
        moes_run_world(of, 3, run_rank);
    }
}

static void test_moe_by_kernels_keeps_batches_apart(void **state)
{
    (void)state;
    moes_run_world(plain("cuda", true), 2, run_ahead);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest by_kernels[] = {
        cmocka_unit_test(test_moe_by_kernels_brings_rows_and_sums),
        cmocka_unit_test(test_moe_by_kernels_takes_any_distribution),
        cmocka_unit_test(test_moe_by_kernels_rounds_as_its_types_say),
        cmocka_unit_test(test_moe_by_kernels_keeps_batches_apart),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe_between_processes),
        cmocka_unit_test(test_moe_brings_rows_and_sums_on_streams),
        cmocka_unit_test(test_moe_brings_rows_and_sums_at_once),
        cmocka_unit_test(test_moe_takes_any_distribution),
        cmocka_unit_test(test_moe_rounds_as_its_types_say),
        cmocka_unit_test(test_moe_on_the_shadow_device),
        cmocka_unit_test(test_moe_of_many_bytes),
        cmocka_unit_test(test_moe_batches_are_apart),
    };
    if (argc > 1 && strcmp(argv[1], "cuda") == 0) {
        setenv("WEFT_KERNELS", TEST_KERNELS, 1);
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
        return cmocka_run_group_tests(by_kernels, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
