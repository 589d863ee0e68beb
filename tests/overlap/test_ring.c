/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Every rank gets every rank's block, once, in the order that the way
 *          says, while the stream of compute is as slow as it likes; a sum
 *          comes home with what all others have added; rounds follow each other
 *          without a wait of the host; a failure ends every wait.
 * Method   1 to 6 ranks as threads, and as processes; on the host with a stream
 *          and without, and on the device whose memory the host does not reach.
 *          What compute does with a block is a copy, of it or into it, behind a
 *          copy that takes its time. Blocks of one part and of several.
 */
#include "tests/comm/world.h"
#include "tests/repeat.h"
#include "weft/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 3, LARGE = 700001, MOST = 6 };

/* Of values, elements and bytes. */
enum { PERIOD = 997, PERIOD_BYTES = PERIOD * sizeof(int32_t) };

typedef struct scene {
    const char *device;
    bool streams;
    weft_ring_kind kind;
    weft_ring_way way;
    size_t count;
    weft_device *devices[MOST];
} scene;

static int32_t value_of(int rank, size_t i, int round)
{
    return (int32_t)((i * 7 + (size_t)round * 13 + (size_t)rank * 101) %
                     PERIOD);
}

/* Counts what is not right, and says what. */
static int check(bool right, const char *what)
{
    if (!right) {
        fprintf(stderr, "%s (%s)\n", what, weft_error_text());
    }
    return !right;
}
#define CHECK(condition) check(condition, #condition)

typedef struct side {
    const scene *of;
    weft_comm *comm;
    weft_device *device;
    weft_stream *stream;
    weft_ring *ring;
    int rank, nranks;
    size_t bytes;
    void *own;        /* the device's */
    void *seen;       /* [nranks] blocks of the device's */
    int32_t *host;    /* one block */
    int32_t *staging; /* [nranks] blocks */
} side;

static int expected_owner(const side *self, int order)
{
    const int n = self->nranks;
    if (self->of->way == WEFT_RING_BOTH) {
        const int away = (order + 1) / 2;
        return (self->rank + (order % 2 ? n - away : away)) % n;
    }
    return (self->rank + n - order) % n;
}

static int set_up(side *self, weft_comm *comm, scene *of)
{
    *self = (side){.of = of,
                   .comm = comm,
                   .rank = weft_comm_get_rank(comm),
                   .nranks = weft_comm_get_nranks(comm),
                   .bytes = of->count * sizeof(int32_t)};
    self->device = of->devices[self->rank];
    self->host = malloc(self->bytes);
    self->staging = malloc(self->bytes * (size_t)self->nranks);
    const weft_ring_config config = {.size_bytes = sizeof(config),
                                     .comm = comm,
                                     .device = self->device,
                                     .kind = of->kind,
                                     .way = of->way,
                                     .count = of->count,
                                     .dtype = WEFT_DTYPE_I32,
                                     .label = "kv"};
    return CHECK(self->host && self->staging) +
           CHECK(!of->streams || weft_stream_create(self->device, 0,
                                                    &self->stream) == WEFT_OK) +
           CHECK(weft_device_alloc(self->device, self->bytes, &self->own) ==
                 WEFT_OK) +
           CHECK(weft_device_alloc(self->device,
                                   self->bytes * (size_t)self->nranks,
                                   &self->seen) == WEFT_OK) +
           CHECK(weft_ring_create(&config, &self->ring) == WEFT_OK);
}

static void tear_down(side *self)
{
    weft_ring_destroy(self->ring);
    weft_stream_destroy(self->stream);
    weft_device_free(self->device, self->own);
    weft_device_free(self->device, self->seen);
    free(self->host);
    free(self->staging);
}

static int copy(side *self, void *dst, const void *src, size_t bytes)
{
    return CHECK(weft_device_copy(self->device, dst, src, bytes,
                                  self->stream) == WEFT_OK);
}

static void *seen_of(const side *self, int owner)
{
    return (char *)self->seen + (size_t)owner * self->bytes;
}

/* How many elements of a block are looked at one by one. */
static size_t count_few(const side *self)
{
    return self->of->count < PERIOD ? self->of->count : PERIOD;
}

/* One round of READ: each block is copied to its owner's place. */
static int read_round(side *self, int round)
{
    int wrong = 0, owner, order = 0;
    void *block;
    for (size_t i = 0; i < count_few(self); i++) {
        self->host[i] = value_of(self->rank, i, round);
    }
    repeat(self->host, PERIOD_BYTES, self->bytes);
    wrong += copy(self, self->own, self->host, self->bytes);
    wrong +=
        CHECK(weft_ring_post(self->ring, self->own, self->stream) == WEFT_OK);
    while (wrong == 0) {
        wrong += CHECK(weft_ring_next(self->ring, self->stream, &block,
                                      &owner) == WEFT_OK);
        if (wrong || !block) {
            break;
        }
        wrong += CHECK(owner == expected_owner(self, order++));
        if (self->rank == round % self->nranks) { /* slow, by the work before */
            wrong += copy(self, seen_of(self, owner), block, self->bytes);
        }
        wrong += copy(self, seen_of(self, owner), block, self->bytes);
    }
    return wrong + CHECK(order == self->nranks && owner == -1);
}

static int check_seen(side *self, int round)
{
    int wrong = copy(self, self->staging, self->seen,
                     self->bytes * (size_t)self->nranks);
    wrong += CHECK(!self->stream || weft_stream_wait(self->stream) == WEFT_OK);
    for (int owner = 0; owner < self->nranks && wrong == 0; owner++) {
        const int32_t *got = self->staging + (size_t)owner * self->of->count;
        for (size_t i = 0; i < count_few(self) && wrong == 0; i++) {
            wrong += CHECK(got[i] == value_of(owner, i, round));
        }
        wrong += CHECK(repeats(got, PERIOD_BYTES, self->bytes));
    }
    return wrong;
}

/* What of a rank's values lies in the block of an owner. */
static int32_t part_of(int rank, int owner, size_t i, int round)
{
    return value_of(rank, i + (size_t)owner, round);
}

/* At home is what all others have added; a single rank has what it had. */
static int check_home(side *self, int round)
{
    int wrong = copy(self, self->host, self->own, self->bytes);
    wrong += CHECK(!self->stream || weft_stream_wait(self->stream) == WEFT_OK);
    wrong += CHECK(repeats(self->host, PERIOD_BYTES, self->bytes));
    for (size_t i = 0; i < count_few(self) && wrong == 0; i++) {
        int32_t sum = 0;
        for (int rank = 0; rank < self->nranks; rank++) {
            if (rank != self->rank || self->nranks == 1) {
                sum += part_of(rank, self->rank, i, round);
            }
        }
        wrong += CHECK(self->host[i] == sum);
    }
    return wrong;
}

/*
 * One round of CARRY. Compute adds rank's part to the block: here the block is
 * fetched, added to by the host, and stored again, all in stream order. Before
 * that the own block has this rank's part, which the sum replaces.
 */
static int carry_round(side *self, int round)
{
    int wrong = 0, owner, order = 0;
    void *block;
    for (size_t i = 0; i < count_few(self); i++) {
        self->host[i] = part_of(self->rank, self->rank, i, round);
    }
    repeat(self->host, PERIOD_BYTES, self->bytes);
    wrong += copy(self, self->own, self->host, self->bytes);
    wrong += CHECK(!self->stream || weft_stream_wait(self->stream) == WEFT_OK);
    wrong +=
        CHECK(weft_ring_post(self->ring, self->own, self->stream) == WEFT_OK);
    while (wrong == 0) {
        wrong += CHECK(weft_ring_next(self->ring, self->stream, &block,
                                      &owner) == WEFT_OK);
        if (wrong || !block) {
            break;
        }
        wrong += CHECK(owner == expected_owner(self, ++order));
        if (order > 1) {
            wrong += copy(self, self->host, block, self->bytes);
            wrong += CHECK(!self->stream ||
                           weft_stream_wait(self->stream) == WEFT_OK);
        } else {
            memset(self->host, 0, self->bytes);
        }
        wrong += CHECK(repeats(self->host, PERIOD_BYTES, self->bytes));
        for (size_t i = 0; i < count_few(self); i++) {
            self->host[i] += part_of(self->rank, owner, i, round);
        }
        repeat(self->host, PERIOD_BYTES, self->bytes);
        wrong += copy(self, block, self->host, self->bytes);
        wrong +=
            CHECK(!self->stream || weft_stream_wait(self->stream) == WEFT_OK);
    }
    return wrong + CHECK(order == self->nranks - 1 && owner == -1) +
           check_home(self, round);
}

static int run_rank(weft_comm *comm, void *context)
{
    side self;
    scene *of = context;
    int wrong = set_up(&self, comm, of);
    for (int round = 0; round < ROUNDS && wrong == 0; round++) {
        wrong += of->kind == WEFT_RING_READ
                     ? read_round(&self, round) + check_seen(&self, round)
                     : carry_round(&self, round);
    }
    wrong += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    tear_down(&self);
    return wrong;
}

static void open_device(int rank, void *context)
{
    scene *of = context;
    if (weft_device_open(of->device, 0, &of->devices[rank]) != WEFT_OK) {
        abort();
    }
}

static void set_device(int rank, weft_comm_config *config, void *context)
{
    scene *of = context;
    config->device = of->devices[rank];
}

static void run_world(scene of, int nranks, world_rank_call call)
{
    struct world world = {
        .nranks = nranks,
        .config = {.size_bytes = sizeof(world.config), .timeout_ms = 20000},
        .call = call,
        .context = &of,
        .before = open_device,
        .configure = set_device};
    assert_int_equal(world_run_threads(&world), 0);
    for (int rank = 0; rank < nranks; rank++) {
        weft_device_close(of.devices[rank]);
    }
}

static void run_worlds(scene of)
{
    for (int nranks = 1; nranks <= MOST; nranks++) {
        of.count = nranks == 3 ? LARGE : 1000 + (size_t)nranks;
        run_world(of, nranks, run_rank);
    }
}

static void test_ring_reads_one_way(void **state)
{
    (void)state;
    run_worlds((scene){.device = "host", .streams = true});
    run_worlds((scene){.device = "host"});
}

static void test_ring_reads_both_ways(void **state)
{
    (void)state;
    run_worlds((scene){"host", true, WEFT_RING_READ, WEFT_RING_BOTH, 0, {0}});
    run_worlds((scene){"host", false, WEFT_RING_READ, WEFT_RING_BOTH, 0, {0}});
}

static void test_ring_carries_sums_home(void **state)
{
    (void)state;
    run_worlds((scene){"host", true, WEFT_RING_CARRY, WEFT_RING_ONE, 0, {0}});
    run_worlds((scene){"host", false, WEFT_RING_CARRY, WEFT_RING_ONE, 0, {0}});
}

static void test_ring_on_the_shadow_device(void **state)
{
    (void)state;
    run_world(
        (scene){"shadow", true, WEFT_RING_READ, WEFT_RING_BOTH, 3000, {0}}, 4,
        run_rank);
    run_world(
        (scene){"shadow", true, WEFT_RING_READ, WEFT_RING_ONE, LARGE, {0}}, 3,
        run_rank);
    run_world(
        (scene){"shadow", true, WEFT_RING_CARRY, WEFT_RING_ONE, 3000, {0}}, 3,
        run_rank);
}

/* Rounds that the host posts ahead of compute, all at once; and a second ring
 * beside it, in a queue of its own. */
static int run_ahead(weft_comm *comm, void *context)
{
    enum { AHEAD = 6 };
    side self;
    scene *of = context;
    weft_ring *other = NULL;
    int wrong = set_up(&self, comm, of), owner, owner_other;
    const size_t all = self.bytes * (size_t)self.nranks;
    const weft_ring_config config = {.size_bytes = sizeof(config),
                                     .comm = comm,
                                     .device = self.device,
                                     .count = of->count,
                                     .dtype = WEFT_DTYPE_I32,
                                     .queue = 1};
    void *block, *block_other, *kept = NULL;
    wrong += CHECK(weft_ring_create(&config, &other) == WEFT_OK);
    wrong +=
        CHECK(weft_device_alloc(self.device, AHEAD * all, &kept) == WEFT_OK);
    int32_t *from = malloc(AHEAD * self.bytes), *back = malloc(AHEAD * all);
    for (size_t i = 0; i < AHEAD * of->count; i++) {
        from[i] = value_of(self.rank, i, 0);
    }
    for (int round = 0; round < AHEAD && wrong == 0; round++) {
        wrong +=
            copy(&self, self.own, from + (size_t)round * of->count, self.bytes);
        wrong +=
            CHECK(weft_ring_post(self.ring, self.own, self.stream) == WEFT_OK) +
            CHECK(weft_ring_post(other, self.own, self.stream) == WEFT_OK);
        do {
            wrong += CHECK(weft_ring_next(self.ring, self.stream, &block,
                                          &owner) == WEFT_OK) +
                     CHECK(weft_ring_next(other, self.stream, &block_other,
                                          &owner_other) == WEFT_OK);
            wrong += CHECK(owner == owner_other && !block == !block_other);
            if (wrong == 0 && block) {
                wrong += copy(&self,
                              (char *)kept + (size_t)round * all +
                                  (size_t)owner * self.bytes,
                              round % 2 ? block_other : block, self.bytes);
            }
        } while (wrong == 0 && block);
    }
    wrong += copy(&self, back, kept, AHEAD * all) +
             CHECK(weft_stream_wait(self.stream) == WEFT_OK);
    for (size_t i = 0; i < AHEAD * all / sizeof(*back) && wrong == 0; i++) {
        const size_t round = i / ((size_t)self.nranks * of->count);
        const size_t rank = i / of->count % (size_t)self.nranks;
        wrong +=
            CHECK(back[i] ==
                  value_of((int)rank, round * of->count + i % of->count, 0));
    }
    wrong += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    weft_ring_destroy(other);
    weft_device_free(self.device, kept);
    tear_down(&self);
    free(from);
    free(back);
    return wrong;
}

static void test_ring_rounds_and_rings_run_ahead_of_compute(void **state)
{
    (void)state;
    run_world((scene){.device = "host", .streams = true, .count = 5000}, 4,
              run_ahead);
    run_world((scene){.device = "shadow", .streams = true, .count = 900}, 3,
              run_ahead);
}

static int run_as_process(weft_comm *comm, void *context)
{
    scene of = {.device = "host", .streams = true, .count = LARGE};
    (void)context;
    open_device(weft_comm_get_rank(comm), &of);
    int wrong = run_rank(comm, &of);
    of.kind = WEFT_RING_CARRY;
    wrong += run_rank(comm, &of);
    weft_device_close(of.devices[weft_comm_get_rank(comm)]);
    return wrong;
}

static void test_ring_between_processes(void **state)
{
    struct world world = {
        .nranks = 3,
        .config = {.size_bytes = sizeof(world.config), .timeout_ms = 20000},
        .call = run_as_process};
    (void)state;
    assert_int_equal(world_run_processes(&world), 0);
}

static int refuse(const weft_ring_config *config, const char *words)
{
    weft_ring *ring = NULL;
    return CHECK(weft_ring_create(config, &ring) == WEFT_ERR_INVALID) +
           CHECK(strstr(weft_error_text(), words) != NULL) + CHECK(!ring);
}

static int run_refused(weft_comm *comm, void *context)
{
    side self;
    void *block;
    int owner, wrong = set_up(&self, comm, context);
    weft_ring_config good = {.size_bytes = sizeof(good),
                             .comm = comm,
                             .device = self.device,
                             .count = 4,
                             .dtype = WEFT_DTYPE_F32};
    weft_ring_config bad = good;
    wrong += refuse(NULL, "config is NULL");
    bad.count = 0;
    wrong += refuse(&bad, "0 elements");
    bad = good;
    bad.kind = WEFT_RING_CARRY;
    bad.way = WEFT_RING_BOTH;
    wrong += refuse(&bad, "CARRY, one way");
    bad = good;
    bad.queue = WEFT_P2P_QUEUES;
    wrong += refuse(&bad, "queue 3");
    bad = good;
    bad.device = NULL;
    wrong += refuse(&bad, "device is NULL");
    weft_ring *other;
    wrong += CHECK(weft_ring_create(&good, &other) == WEFT_OK);
    wrong += CHECK(weft_ring_next(self.ring, self.stream, &block, &owner) ==
                   WEFT_ERR_INVALID) +
             CHECK(strstr(weft_error_text(), "no round") != NULL);
    wrong +=
        CHECK(weft_ring_post(self.ring, NULL, self.stream) == WEFT_ERR_INVALID);
    wrong +=
        CHECK(weft_ring_post(self.ring, self.own, self.stream) == WEFT_OK) +
        CHECK(weft_ring_post(self.ring, self.own, self.stream) ==
              WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "under way") != NULL) +
        CHECK(weft_ring_next(self.ring, NULL, &block, &owner) ==
              WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "not the stream") != NULL) +
        CHECK(weft_ring_post(other, self.own, self.stream) ==
              WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "\"kv\" is under way in queue 0") !=
              NULL);
    do {
        wrong += CHECK(weft_ring_next(self.ring, self.stream, &block, &owner) ==
                       WEFT_OK);
    } while (wrong == 0 && block);
    wrong += CHECK(weft_ring_post(other, self.own, self.stream) == WEFT_OK);
    do {
        wrong += CHECK(weft_ring_next(other, self.stream, &block, &owner) ==
                       WEFT_OK);
    } while (wrong == 0 && block);
    wrong += CHECK(weft_stream_wait(self.stream) == WEFT_OK) +
             CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    weft_ring_destroy(other);
    tear_down(&self);
    weft_ring_destroy(NULL);
    return wrong;
}

static void test_ring_refuses_what_cannot_be(void **state)
{
    (void)state;
    run_world((scene){.device = "host", .streams = true, .count = 10}, 4,
              run_refused);
}

/* One rank aborts in the middle of a round: the others' next says why, and all
 * can be destroyed. */
static int run_aborted(weft_comm *comm, void *context)
{
    side self;
    void *block;
    int owner, wrong = set_up(&self, comm, context);
    weft_status status = weft_ring_post(self.ring, self.own, self.stream);
    wrong += CHECK(status == WEFT_OK || status == WEFT_ERR_ABORTED);
    if (self.rank == 1) {
        wrong += CHECK(weft_comm_abort(comm) == WEFT_OK);
    }
    do {
        status = weft_ring_next(self.ring, self.stream, &block, &owner);
    } while (status == WEFT_OK && block);
    if (!self.stream) {
        wrong += CHECK(status == WEFT_ERR_ABORTED);
    }
    wrong += CHECK(weft_comm_abort(comm) == WEFT_OK);
    tear_down(&self);
    return wrong;
}

static void test_ring_ends_where_its_communicator_is_aborted(void **state)
{
    (void)state;
    for (int streams = 0; streams < 2; streams++) {
        run_world((scene){.device = "host", .streams = streams, .count = LARGE},
                  4, run_aborted);
    }
}

/* A rank that goes in the middle of a round leaves nobody waiting. */
static int run_left(weft_comm *comm, void *context)
{
    side self;
    void *block;
    int owner, wrong = set_up(&self, comm, context);
    weft_status status = weft_ring_post(self.ring, self.own, self.stream);
    if (status == WEFT_OK) {
        status = weft_ring_next(self.ring, self.stream, &block, &owner);
    }
    wrong += CHECK(status == WEFT_OK || status == WEFT_ERR_ABORTED);
    wrong += CHECK(weft_comm_abort(comm) == WEFT_OK);
    tear_down(&self);
    return wrong;
}

static void test_ring_is_destroyed_in_a_round(void **state)
{
    (void)state;
    run_world((scene){.device = "host", .streams = true, .count = LARGE}, 3,
              run_left);
    run_world((scene){.device = "shadow", .streams = true, .count = 500}, 3,
              run_left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_between_processes),
        cmocka_unit_test(test_ring_reads_one_way),
        cmocka_unit_test(test_ring_reads_both_ways),
        cmocka_unit_test(test_ring_carries_sums_home),
        cmocka_unit_test(test_ring_on_the_shadow_device),
        cmocka_unit_test(test_ring_rounds_and_rings_run_ahead_of_compute),
        cmocka_unit_test(test_ring_refuses_what_cannot_be),
        cmocka_unit_test(test_ring_ends_where_its_communicator_is_aborted),
        cmocka_unit_test(test_ring_is_destroyed_in_a_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
