/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: messages of one queue keep their order, and those of two queues hold
 * each other up in nothing; a queue that does not exist is refused, and one
 * that the other side does not use is named.
 *
 * Method: a long message of one queue that is posted on one side only, or whose
 * data are not ready, while messages of another queue between the same two
 * ranks must come and be complete; random traffic of all queues, posted by the
 * receiver in another order of queues than by the sender, from a printed seed.
 * Short ones, of all lengths round that of a cache line, are sent long before
 * any is wanted, so that some pass at once, some fill the slots and some wait.
 * Argument: threads, processes, shadow or cuda (the fake driver).
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NRANKS = 3,
    LONG = 1 << 20, /* elements: many chunks */
    SHORT = 20000,  /* two chunks */
    MESSAGES = 20,  /* of each queue, to each rank */
    MOST_ELEMS = 40000
};

static const char *mode;
static uint64_t seed;

typedef struct desk {
    weft_comm *comm;
    weft_device *device;
    int rank;
} desk;

static weft_device *device_of(desk *self, void *context)
{
    weft_device **given = context;
    self->device = given ? *given : NULL;
    return self->device;
}

static int32_t value_of(int from, int queue, int number, size_t i)
{
    return (int32_t)(from * 1000003 + queue * 50021 + number * 1009 +
                     (int)(i % 511));
}

static int32_t *make(const desk *self, size_t elems)
{
    void *memory = NULL;
    if (weft_device_alloc(self->device, elems * sizeof(int32_t), &memory) !=
        WEFT_OK) {
        abort();
    }
    return memory;
}

static int fill(const desk *self, int32_t *to, int queue, int number,
                size_t elems)
{
    int32_t *host = malloc(elems * sizeof(*host));
    for (size_t i = 0; i < elems; i++) {
        host[i] = value_of(self->rank, queue, number, i);
    }
    const int failures =
        CHECK(weft_device_copy(self->device, to, host, elems * sizeof(*host),
                               NULL) == WEFT_OK);
    free(host);
    return failures;
}

static int compare(const desk *self, const int32_t *from_memory, int from,
                   int queue, int number, size_t elems)
{
    size_t wrong = 0;
    int32_t *host = malloc(elems * sizeof(*host));
    int failures =
        CHECK(weft_device_copy(self->device, host, from_memory,
                               elems * sizeof(*host), NULL) == WEFT_OK);
    for (size_t i = 0; i < elems; i++) {
        wrong += host[i] != value_of(from, queue, number, i);
    }
    free(host);
    return failures + CHECK(wrong == 0);
}

static weft_p2p part(weft_p2p_kind kind, int peer, int queue, int32_t *buffer,
                     size_t elems)
{
    return (weft_p2p){.size_bytes = sizeof(weft_p2p),
                      .kind = kind,
                      .buffer = buffer,
                      .count = elems,
                      .dtype = WEFT_DTYPE_I32,
                      .peer = peer,
                      .queue = queue};
}

/* ---- one waits, another passes ---------------------------------------------
 */

static bool is_pending(weft_request *request)
{
    return weft_request_test(request) == WEFT_INPROGRESS;
}

/* Rank 0's long message in `stuck` waits for its gate, or for rank 1 to want
 * it; one in `free_queue` goes by, there and back. */
static int pass_by(desk *self, int stuck, int free_queue, bool gated)
{
    const int peer = 1 - self->rank;
    weft_gate *gate = NULL;
    weft_request *waiting = NULL;
    int32_t *longs = make(self, LONG), *shorts = make(self, SHORT);
    int failures = CHECK(weft_gate_create(self->device, 1, &gate) == WEFT_OK) +
                   fill(self, longs, stuck, 1, LONG) +
                   fill(self, shorts, free_queue, 2, SHORT);
    weft_p2p slow = part(self->rank ? WEFT_P2P_RECV : WEFT_P2P_SEND, peer,
                         stuck, longs, LONG);
    const weft_p2p there = part(self->rank ? WEFT_P2P_RECV : WEFT_P2P_SEND,
                                peer, free_queue, shorts, SHORT);
    weft_p2p back = there;
    back.kind = self->rank ? WEFT_P2P_SEND : WEFT_P2P_RECV;
    if (gated && self->rank == 0) {
        slow.ready = gate;
        slow.epoch = 1;
    }
    if (gated || self->rank == 0) {
        failures +=
            CHECK(weft_p2p_begin(&slow, 1, self->comm, &waiting) == WEFT_OK);
    }
    failures += CHECK(weft_p2p_post(&there, 1, self->comm, NULL) == WEFT_OK);
    if (self->rank) {
        failures += compare(self, shorts, peer, free_queue, 2, SHORT);
        failures += waiting ? CHECK(is_pending(waiting)) : 0;
    }
    failures += CHECK(weft_p2p_post(&back, 1, self->comm, NULL) == WEFT_OK);
    failures += compare(self, shorts, 0, free_queue, 2, SHORT);
    failures += gated && !self->rank ? CHECK(is_pending(waiting)) : 0;
    if (!waiting) {
        failures +=
            CHECK(weft_p2p_begin(&slow, 1, self->comm, &waiting) == WEFT_OK);
    }
    if (self->rank == 0 && gated) {
        failures += CHECK(weft_gate_signal(gate, 0, 1, NULL) == WEFT_OK);
    }
    failures += CHECK(weft_request_wait(waiting) == WEFT_OK);
    failures += self->rank ? compare(self, longs, peer, stuck, 1, LONG) : 0;
    weft_request_destroy(waiting);
    weft_gate_destroy(gate);
    weft_device_free(self->device, longs);
    weft_device_free(self->device, shorts);
    return failures;
}

/* ---- all at once ------------------------------------------------------------
 */

/* Elements of a message, the same on both sides. */
static size_t elems_of(int from, int to, int queue, int number)
{
    uint64_t state = seed + (uint64_t)(((from * 7 + to) * 5 + queue) * 1000) +
                     (uint64_t)number;
    const uint64_t drawn = random_next(&state);
    return number % 4 ? drawn % 300 : drawn % MOST_ELEMS;
}

/* Parts of one kind, queue by queue from `first` on. */
static size_t list_parts(desk *self, weft_p2p_kind kind, int first,
                         weft_p2p *list, int32_t *memory)
{
    size_t count = 0, at = 0;
    for (int q = 0; q < WEFT_P2P_QUEUES; q++) {
        const int queue = (first + q) % WEFT_P2P_QUEUES;
        for (int peer = 0; peer < NRANKS; peer++) {
            for (int number = 0; number < MESSAGES; number++) {
                const bool sends = kind == WEFT_P2P_SEND;
                const size_t elems =
                    elems_of(sends ? self->rank : peer,
                             sends ? peer : self->rank, queue, number);
                list[count++] = part(kind, peer, queue, memory + at, elems);
                at += elems;
            }
        }
    }
    return count;
}

static int move_all(desk *self)
{
    enum { PARTS = WEFT_P2P_QUEUES * NRANKS * MESSAGES };
    const size_t most = (size_t)PARTS / 4 * (MOST_ELEMS + 900);
    weft_p2p *list = calloc((size_t)2 * PARTS, sizeof(*list));
    int32_t *out = make(self, most), *in = make(self, most);
    size_t count = list_parts(self, WEFT_P2P_SEND, self->rank, list, out);
    int failures = 0;
    for (size_t i = 0; i < count; i++) {
        failures += fill(self, list[i].buffer, list[i].queue,
                         (int)(i % MESSAGES), list[i].count);
    }
    count += list_parts(self, WEFT_P2P_RECV, self->rank + 1, list + count, in);
    failures += CHECK(weft_p2p_post(list, count, self->comm, NULL) == WEFT_OK);
    for (size_t i = PARTS; i < count; i++) {
        failures += compare(self, list[i].buffer, list[i].peer, list[i].queue,
                            (int)(i % MESSAGES), list[i].count);
    }
    weft_device_free(self->device, out);
    weft_device_free(self->device, in);
    free(list);
    return failures;
}

static int work(weft_comm *comm, void *context)
{
    desk self = {.comm = comm, .rank = weft_comm_get_rank(comm)};
    weft_device *own = NULL;
    int failures = 0;
    if (!device_of(&self, context)) {
        failures += CHECK(weft_device_open("host", 0, &own) == WEFT_OK);
        self.device = own;
    }
    for (int i = 0; failures == 0 && self.rank < 2 && i < 6; i++) {
        const int stuck = i % WEFT_P2P_QUEUES;
        failures += pass_by(&self, stuck, (stuck + 1) % WEFT_P2P_QUEUES, i > 2);
    }
    failures += failures ? 0 : move_all(&self);
    failures += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    weft_device_close(own);
    return failures;
}

static void test_p2p_queues_hold_each_other_up_in_nothing(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, NRANKS, work), 0);
}

/* ---- wrong uses -------------------------------------------------------------
 */

static int refuse(weft_comm *comm, void *context)
{
    int32_t one = 1;
    int failures = 0;
    (void)context;
    for (int i = 0; i < 2; i++) {
        const weft_p2p wrong =
            part(WEFT_P2P_SEND, 0, i ? -1 : WEFT_P2P_QUEUES, &one, 1);
        failures +=
            CHECK(weft_p2p_post(&wrong, 1, comm, NULL) == WEFT_ERR_INVALID) +
            CHECK(strstr(weft_error_text(), i ? "queue -1: allowed is 0..2"
                                              : "queue 3: allowed is 0..2") !=
                  NULL);
    }
    return failures;
}

/* ---- short ones, far ahead -------------------------------------------------
 */

enum { AHEAD = 200, AHEAD_ELEMS_MOST = 20 };

/* Elements of one message: 0 to more than a cache line has room for. */
static size_t ahead_elems(int number)
{
    return (size_t)number * 7 % (AHEAD_ELEMS_MOST + 1);
}

static weft_op ahead_op(const desk *self, int32_t *buffer, int number)
{
    const bool sends = self->rank == 0;
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective =
                         sends ? WEFT_COLLECTIVE_SEND : WEFT_COLLECTIVE_RECV,
                     .send = sends ? buffer : NULL,
                     .recv = sends ? NULL : buffer,
                     .count = ahead_elems(number),
                     .dtype = WEFT_DTYPE_I32,
                     .root = 1 - self->rank};
}

static int send_ahead(const desk *self, int32_t *buffer)
{
    weft_request *requests[AHEAD] = {0};
    int failures = 0;
    for (int n = 0; n < AHEAD; n++) {
        int32_t *at = buffer + n * AHEAD_ELEMS_MOST;
        const weft_op op = ahead_op(self, at, n);
        failures +=
            fill(self, at, 0, n, ahead_elems(n)) +
            CHECK(weft_op_begin(&op, 0, self->comm, &requests[n]) == WEFT_OK);
    }
    failures += CHECK(weft_barrier(self->comm, NULL) == WEFT_OK);
    for (int n = 0; n < AHEAD && failures == 0; n++) {
        failures += CHECK(weft_request_wait(requests[n]) == WEFT_OK);
        weft_request_destroy(requests[n]);
    }
    return failures;
}

static int receive_late(const desk *self, int32_t *buffer)
{
    int failures = CHECK(weft_barrier(self->comm, NULL) == WEFT_OK);
    for (int n = 0; n < AHEAD && failures == 0; n++) {
        int32_t *at = buffer + n * AHEAD_ELEMS_MOST;
        const weft_op op = ahead_op(self, at, n);
        failures += CHECK(weft_op_post(&op, 0, self->comm, NULL) == WEFT_OK) +
                    compare(self, at, 0, 0, n, ahead_elems(n));
    }
    return failures;
}

static int run_ahead(weft_comm *comm, void *context)
{
    desk self = {.comm = comm, .rank = weft_comm_get_rank(comm)};
    weft_device *own = NULL;
    int failures = 0;
    if (!device_of(&self, context)) {
        failures += CHECK(weft_device_open("host", 0, &own) == WEFT_OK);
        self.device = own;
    }
    int32_t *buffer = make(&self, (size_t)AHEAD * AHEAD_ELEMS_MOST);
    failures += self.rank == 0 ? send_ahead(&self, buffer)
                               : receive_late(&self, buffer);
    weft_device_free(self.device, buffer);
    weft_device_close(own);
    return failures;
}

static void test_p2p_short_sent_far_ahead_come_in_order(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, 2, run_ahead), 0);
}

static void test_p2p_queue_unknown_is_refused(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, 1, refuse), 0);
}

/* Sent in queue 1, awaited in queue 2. */
static int differ(weft_comm *comm, void *context)
{
    static const char *const texts[] = {"send #1 to rank 1 in queue 1",
                                        "recv #1 from rank 0 in queue 2"};
    const int rank = weft_comm_get_rank(comm);
    int32_t *buffer = calloc(LONG, sizeof(*buffer));
    const weft_p2p own = part(rank ? WEFT_P2P_RECV : WEFT_P2P_SEND, 1 - rank,
                              1 + rank, buffer, LONG);
    (void)context;
    int failures = CHECK(weft_p2p_post(&own, 1, comm, NULL) != WEFT_OK);
    failures += CHECK(strstr(weft_error_text(), texts[0]) ||
                      strstr(weft_error_text(), texts[1]));
    free(buffer);
    return failures;
}

static void test_p2p_queue_of_one_side_is_named(void **state)
{
    (void)state;
    struct world world = {.nranks = 2,
                          .config = {.warn_ms = 300, .timeout_ms = 600},
                          .call = differ};
    assert_int_equal(world_run_threads(&world), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p2p_queue_unknown_is_refused),
        cmocka_unit_test(test_p2p_queues_hold_each_other_up_in_nothing),
        cmocka_unit_test(test_p2p_short_sent_far_ahead_come_in_order),
        cmocka_unit_test(test_p2p_queue_of_one_side_is_named)};
    mode = argc > 1 ? argv[1] : "threads";
    seed = random_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
