/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a list of sends and receives moves every message whole, to its place,
 * whatever the order of the parts on either side, however many there are, to
 * any rank and to itself, from host and device memory, on streams and not.
 *
 * Method: all ranks draw the same random traffic from a printed seed, and each
 * lists its own parts in a random order of its own that only keeps each pair's.
 * A message's bytes are a formula of its sender, receiver and number; what is
 * received is poisoned first. Argument: threads, processes, shadow or cuda (on
 * the fake driver).
 */
#include "tests/comm/spread.h"
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
#include <sys/mman.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { MANY = 3000, ROUNDS = 3 };
#else
enum { MANY = 10000, ROUNDS = 8 };
#endif

enum { MOST_RANKS = 16, MOST_MESSAGES = 120, POISON = 0xA5 };

static const char *mode;
static bool is_long;

/* Counts up from 0, twice. */
static unsigned char ramp[512];

static bool is_on_device(void)
{
    return strcmp(mode, "shadow") == 0 || strcmp(mode, "cuda") == 0;
}

/* One message of the traffic all ranks know. */
struct message {
    int from, to;
    size_t count, bytes;
    weft_dtype dtype;
    size_t send_offset, recv_offset; /* in its rank's arena */
};

struct traffic {
    struct message messages[MOST_MESSAGES];
    int count;
};

/* What one rank works with. */
struct desk {
    weft_comm *comm;
    int rank, nranks;
    weft_device *device;
    weft_stream *stream;
    bool on_device;
    size_t room_bytes;
    unsigned char *send, *recv;           /* as passed to weft */
    unsigned char *host_send, *host_recv; /* as the host sees them */
};

/* Of what a message holds from byte i on a piece, which is *bytes_out long: the
 * bytes count up, anew each 251 and from another number each 4096. */
static const unsigned char *piece_of(const struct message *message, int number,
                                     size_t i, size_t *bytes_out)
{
    const size_t first =
        (size_t)(message->from * 31 + message->to * 17 + number * 7) +
        (i >> 12);
    const size_t left[] = {251 - i % 251, 4096 - i % 4096, message->bytes - i};
    *bytes_out = left[0] < left[1] ? left[0] : left[1];
    *bytes_out = left[2] < *bytes_out ? left[2] : *bytes_out;
    return ramp + first % 256 + i % 251;
}

static size_t random_count(uint64_t *seed)
{
    switch (random_next(seed) % 8) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2: /* several chunks of the staging */
        return 60000 + random_next(seed) % 100000;
    default:
        return random_next(seed) % 3000;
    }
}

/* Draws one round; offsets are made odd now and then. */
static void draw(struct traffic *traffic, int nranks, uint64_t seed)
{
    size_t send_end[MOST_RANKS] = {0}, recv_end[MOST_RANKS] = {0};
    traffic->count = (int)(random_next(&seed) % MOST_MESSAGES);
    for (int i = 0; i < traffic->count; i++) {
        struct message *message = &traffic->messages[i];
        message->from = (int)(random_next(&seed) % (unsigned)nranks);
        message->to = (int)(random_next(&seed) % (unsigned)nranks);
        message->dtype = (weft_dtype)(random_next(&seed) % WEFT_DTYPE_COUNT);
        message->count = random_count(&seed);
        message->bytes = message->count * weft_dtype_bytes(message->dtype);
        message->send_offset = send_end[message->from];
        message->recv_offset = recv_end[message->to];
        send_end[message->from] += message->bytes + random_next(&seed) % 3;
        recv_end[message->to] += message->bytes + random_next(&seed) % 3;
    }
}

static size_t need_bytes(const struct traffic *traffic)
{
    size_t most = 1;
    for (int i = 0; i < traffic->count; i++) {
        const struct message *message = &traffic->messages[i];
        size_t send = message->send_offset + message->bytes;
        size_t recv = message->recv_offset + message->bytes;
        most = send > most ? send : most;
        most = recv > most ? recv : most;
    }
    return most;
}

static int set_up(struct desk *desk, weft_comm *comm, size_t room_bytes)
{
    desk->comm = comm;
    desk->rank = weft_comm_get_rank(comm);
    desk->nranks = weft_comm_get_nranks(comm);
    desk->room_bytes = room_bytes;
    desk->host_send = malloc(room_bytes);
    desk->host_recv = malloc(room_bytes);
    desk->send = desk->host_send;
    desk->recv = desk->host_recv;
    if (!desk->on_device) {
        return weft_device_open("host", 0, &desk->device) != WEFT_OK ||
               weft_stream_create(desk->device, 0, &desk->stream) != WEFT_OK;
    }
    return weft_stream_create(desk->device, 0, &desk->stream) != WEFT_OK ||
           weft_device_alloc(desk->device, room_bytes, (void **)&desk->send) !=
               WEFT_OK ||
           weft_device_alloc(desk->device, room_bytes, (void **)&desk->recv) !=
               WEFT_OK;
}

static void put_away(struct desk *desk)
{
    weft_stream_destroy(desk->stream);
    if (desk->on_device) {
        weft_device_free(desk->device, desk->send);
        weft_device_free(desk->device, desk->recv);
    } else {
        weft_device_close(desk->device);
    }
    free(desk->host_send);
    free(desk->host_recv);
}

/* Device and host copies of a buffer, where they differ. */
static int move(const struct desk *desk, void *dst, const void *src)
{
    return dst == src ? 0
                      : weft_device_copy(desk->device, dst, src,
                                         desk->room_bytes, NULL) != WEFT_OK;
}

static weft_p2p part_of(const struct desk *desk, const struct message *message,
                        weft_p2p_kind kind)
{
    bool send = kind == WEFT_P2P_SEND;
    return (weft_p2p){.size_bytes = sizeof(weft_p2p),
                      .kind = kind,
                      .buffer = send ? desk->send + message->send_offset
                                     : desk->recv + message->recv_offset,
                      .count = message->count,
                      .dtype = message->dtype,
                      .peer = send ? message->to : message->from,
                      .label = "random"};
}

/* The next message of a queue of this rank after `after`; -1: none. */
static int next_of(const struct desk *desk, const struct traffic *traffic,
                   int queue, int after)
{
    for (int i = after + 1; i < traffic->count; i++) {
        const struct message *message = &traffic->messages[i];
        bool mine = queue < desk->nranks
                        ? message->from == desk->rank && message->to == queue
                        : message->to == desk->rank &&
                              message->from == queue - desk->nranks;
        if (mine) {
            return i;
        }
    }
    return -1;
}

/* Lists this rank's parts: queues in random turn, each in its own order. */
static size_t make_list(const struct desk *desk, const struct traffic *traffic,
                        uint64_t seed, weft_p2p *list)
{
    int next[2 * MOST_RANKS], open = 0;
    for (int queue = 0; queue < 2 * desk->nranks; queue++) {
        next[queue] = next_of(desk, traffic, queue, -1);
        open += next[queue] >= 0;
    }
    size_t used = 0;
    while (open > 0) {
        int queue = (int)(random_next(&seed) % (unsigned)(2 * desk->nranks));
        if (next[queue] < 0) {
            continue;
        }
        list[used++] =
            part_of(desk, &traffic->messages[next[queue]],
                    queue < desk->nranks ? WEFT_P2P_SEND : WEFT_P2P_RECV);
        next[queue] = next_of(desk, traffic, queue, next[queue]);
        open -= next[queue] < 0;
    }
    return used;
}

static void fill(const struct desk *desk, const struct traffic *traffic)
{
    memset(desk->host_send, POISON, desk->room_bytes);
    memset(desk->host_recv, POISON, desk->room_bytes);
    for (int i = 0; i < traffic->count; i++) {
        const struct message *message = &traffic->messages[i];
        size_t b = message->from == desk->rank ? 0 : message->bytes, bytes;
        for (; b < message->bytes; b += bytes) {
            const unsigned char *piece = piece_of(message, i, b, &bytes);
            memcpy(desk->host_send + message->send_offset + b, piece, bytes);
        }
    }
}

/* Every message is there, and nothing beside them. */
static int check(const struct desk *desk, const struct traffic *traffic)
{
    int wrong = 0;
    size_t end = 0;
    for (int i = 0; i < traffic->count; i++) {
        const struct message *message = &traffic->messages[i];
        if (message->to != desk->rank) {
            continue;
        }
        const unsigned char *at = desk->host_recv;
        for (; end < message->recv_offset; end++) {
            wrong += at[end] != POISON;
        }
        for (size_t b = 0, bytes; b < message->bytes; b += bytes) {
            const unsigned char *piece = piece_of(message, i, b, &bytes);
            wrong += memcmp(at + end + b, piece, bytes) != 0;
        }
        end += message->bytes;
    }
    if (wrong) {
        fprintf(stderr, "rank %d of %d: %d pieces wrong\n", desk->rank,
                desk->nranks, wrong);
    }
    return wrong != 0;
}

/* One round of traffic, in one list or, split somewhere, in two. */
static int exchange(struct desk *desk, const struct traffic *traffic,
                    uint64_t seed, bool on_stream)
{
    static _Thread_local weft_p2p list[2 * MOST_MESSAGES];
    size_t parts = make_list(desk, traffic, seed, list);
    /* Only a list on a stream may be in two pieces: they must not block. */
    size_t first = on_stream && parts ? random_next(&seed) % parts : parts;
    weft_stream *stream = on_stream ? desk->stream : NULL;
    fill(desk, traffic);
    int failures = move(desk, desk->send, desk->host_send);
    failures += move(desk, desk->recv, desk->host_recv);
    failures += weft_p2p_post(list, first, desk->comm, stream) != WEFT_OK;
    if (first < parts) {
        weft_stream *other = NULL;
        failures += weft_stream_create(desk->device, 0, &other) != WEFT_OK;
        failures += weft_p2p_post(list + first, parts - first, desk->comm,
                                  other) != WEFT_OK;
        failures += weft_stream_wait(other) != WEFT_OK;
        weft_stream_destroy(other);
    }
    failures += stream && weft_stream_wait(stream) != WEFT_OK;
    failures += move(desk, desk->host_recv, desk->recv);
    return failures + check(desk, traffic);
}

static int random_lists(weft_comm *comm, void *context)
{
    uint64_t seed = *(const uint64_t *)context;
    struct desk desk = {.on_device = is_on_device()};
    int failures = 0;
    if (desk.on_device) { /* the world's: all its ranks share it */
        desk.device = *(weft_device **)((uint64_t *)context + 1);
    }
    int rounds = !is_long           ? ROUNDS
                 : spread_is_wide() ? 4 * ROUNDS
                                    : 20 * ROUNDS;
    struct traffic *traffic = malloc(sizeof(*traffic));
    for (int round = 0; round < rounds && !failures; round++) {
        draw(traffic, weft_comm_get_nranks(comm), seed + (unsigned)round);
        failures += set_up(&desk, comm, need_bytes(traffic));
        /* A free may wait for all that is queued on the device
         * (weft_device_free), by any rank: none posts before all have freed
         * what they had. */
        failures += desk.on_device && weft_barrier(comm, NULL) != WEFT_OK;
        uint64_t own = seed * 31 + (unsigned)(round * 64 + desk.rank);
        failures += exchange(&desk, traffic, own, round % 2);
        put_away(&desk);
    }
    if (failures) {
        fprintf(stderr, "rank %d: %d failures: %s\n", desk.rank, failures,
                weft_error_text());
    }
    free(traffic);
    return failures > 63 ? 63 : failures;
}

static int run(const struct world *world)
{
    return strcmp(mode, "processes") == 0 ? world_run_processes(world)
                                          : world_run_threads(world);
}

/* Over a network one world of a test, unless --long. */
static bool is_brief(void)
{
    return spread_is_wide() && !is_long;
}

static int least_ranks(int only)
{
    return is_brief() ? only : 1;
}

/* A rank has four streams on a device. A process's streams share 32
 * connections to a real GPU, and from some 34 streams on making one waits for
 * those that stand at gates. */
static bool has_few_streams(void)
{
    const char *driver = getenv("WEFT_TEST_DRIVER");
    return is_on_device() && driver && strcmp(driver, "system") == 0;
}

static int most_ranks(void)
{
    return has_few_streams() ? 6 : is_brief() ? 5 : is_long ? MOST_RANKS : 9;
}

static void test_p2p_random_lists_exact(void **state)
{
    (void)state;
    struct {
        uint64_t seed;
        weft_device *device;
    } context = {random_seed(), NULL};
    for (int nranks = least_ranks(5); nranks <= most_ranks(); nranks++) {
        if (is_on_device()) {
            assert_int_equal(weft_device_open(mode, 0, &context.device),
                             WEFT_OK);
        }
        struct world world = {.nranks = nranks,
                              .config = {.device = context.device},
                              .call = random_lists,
                              .context = &context};
        assert_int_equal(run(&world), 0);
        print_message("%d ranks\n", nranks);
        weft_device_close(context.device);
        context.device = NULL;
    }
}

/* MANY parts at once between all ranks; each side goes its own way round. */
static int many_at_once(weft_comm *comm, void *context)
{
    (void)context;
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    size_t half = MANY / 2;
    uint64_t *out = calloc(half, sizeof(*out));
    uint64_t *in = calloc(half, sizeof(*in));
    weft_p2p *list = calloc(2 * half, sizeof(*list));
    for (size_t i = 0; i < half; i++) {
        int to = (int)(i + (size_t)rank) % nranks;
        out[i] = (uint64_t)rank << 32 | i;
        /* Part i comes from whoever's i-th part goes here. */
        int from = (int)(((size_t)rank + (size_t)nranks - i % (size_t)nranks) %
                         (size_t)nranks);
        weft_p2p send = {
            sizeof(send), WEFT_P2P_SEND,  &out[i], 1, WEFT_DTYPE_I64,
            to,           .label = "many"};
        weft_p2p recv = {sizeof(recv),   WEFT_P2P_RECV, &in[i],         1,
                         WEFT_DTYPE_I64, from,          .label = "many"};
        /* Even ranks send first, odd ranks receive first. */
        list[rank % 2 ? half + i : i] = send;
        list[rank % 2 ? i : half + i] = recv;
    }
    int failures = weft_p2p_post(list, 2 * half, comm, NULL) != WEFT_OK;
    for (size_t i = 0; i < half; i++) {
        uint64_t from = (uint64_t)list[rank % 2 ? i : half + i].peer;
        failures += in[i] != (from << 32 | i);
    }
    free(out);
    free(in);
    free(list);
    return failures > 63 ? 63 : failures;
}

static void test_p2p_ten_thousand_in_one_list_exact(void **state)
{
    (void)state;
    for (int nranks = least_ranks(4); nranks <= 4; nranks++) {
        struct world world = {.nranks = nranks, .call = many_at_once};
        assert_int_equal(run(&world), 0);
    }
}

/* MANY single sends on a stream before the peer receives anything. */
static int many_singles(weft_comm *comm, void *context)
{
    (void)context;
    weft_device *device;
    weft_stream *stream;
    uint32_t *words = calloc(MANY, sizeof(*words));
    bool first = weft_comm_get_rank(comm) == 0;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_stream_create(device, 0, &stream) != WEFT_OK;
    for (uint32_t i = 0; first && i < MANY; i++) {
        words[i] = i * 2654435761U;
        failures +=
            weft_send(&words[i], 1, WEFT_DTYPE_I32, 1, comm, stream) != WEFT_OK;
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    for (uint32_t i = 0; !first && i < MANY; i++) {
        uint32_t word = POISON;
        failures +=
            weft_recv(&word, 1, WEFT_DTYPE_I32, 0, comm, NULL) != WEFT_OK;
        failures += word != i * 2654435761U;
    }
    failures += weft_stream_wait(stream) != WEFT_OK;
    weft_stream_destroy(stream);
    weft_device_close(device);
    free(words);
    return failures > 63 ? 63 : failures;
}

static void test_p2p_ten_thousand_singles_on_stream_in_order(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = many_singles};
    assert_int_equal(run(&world), 0);
}

/* Everybody names its receive, or all its sends, first; more than fits into
 * the staging, so that nobody gets away with having sent. */
static int rings(weft_comm *comm, void *context)
{
    (void)context;
    enum { BYTES = 700001 };
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    unsigned char *out = malloc(BYTES), *in = malloc(4 * (size_t)BYTES);
    int failures = 0;
    for (int first = 0; first < 2; first++) {
        memset(out, rank + 1 + first, BYTES);
        memset(in, POISON, 4 * (size_t)BYTES);
        weft_p2p list[8];
        for (int i = 0; i < 8; i++) {
            bool send = (i < 4) == (first == 0);
            int step = i % 4;
            list[i] = (weft_p2p){
                .size_bytes = sizeof(list[0]),
                .kind = send ? WEFT_P2P_SEND : WEFT_P2P_RECV,
                .buffer = send ? out : in + (size_t)step * BYTES,
                .count = BYTES,
                .dtype = WEFT_DTYPE_U8,
                .peer =
                    (send ? rank + step : rank + 4 * nranks - step) % nranks};
        }
        failures += weft_p2p_post(list, 8, comm, NULL) != WEFT_OK;
        for (int step = 0; step < 4; step++) {
            int from = (rank + 4 * nranks - step) % nranks;
            const unsigned char *at = in + (size_t)step * BYTES;
            for (size_t b = 0; b < BYTES; b++) {
                failures += at[b] != from + 1 + first;
            }
        }
    }
    free(out);
    free(in);
    return failures > 63 ? 63 : failures;
}

static void test_p2p_rings_and_selves_in_any_order_no_deadlock(void **state)
{
    (void)state;
    for (int nranks = least_ranks(5); nranks <= 5; nranks++) {
        struct world world = {.nranks = nranks, .call = rings};
        assert_int_equal(run(&world), 0);
    }
}

/* More than 2^31 elements to itself and on; untouched pages cost nothing. */
static int huge(weft_comm *comm, void *context)
{
    (void)context;
    enum { MARKS = 4 };
    const size_t count = ((size_t)1 << 31) + 4099;
    const size_t marks[MARKS] = {0, (size_t)1 << 31, count / 2 + 1, count - 1};
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    int rank = weft_comm_get_rank(comm), other = 1 - rank;
    uint8_t *out = mmap(NULL, count, PROT_READ | PROT_WRITE, kind, -1, 0);
    uint8_t *in = mmap(NULL, count, PROT_READ | PROT_WRITE, kind, -1, 0);
    if (out == MAP_FAILED || in == MAP_FAILED) {
        return 1;
    }
    for (int i = 0; i < MARKS; i++) {
        out[marks[i]] = (uint8_t)(10 + 10 * rank + i);
    }
    weft_p2p list[] = {{sizeof(list[0]), WEFT_P2P_RECV, in, count,
                        WEFT_DTYPE_U8, other, .label = "huge"},
                       {sizeof(list[0]), WEFT_P2P_SEND, out, count,
                        WEFT_DTYPE_U8, other, .label = "huge"}};
    int failures = weft_p2p_post(list, 2, comm, NULL) != WEFT_OK;
    for (int i = 0; i < MARKS; i++) {
        failures += in[marks[i]] != 10 + 10 * other + i;
    }
    munmap(out, count);
    munmap(in, count);
    return failures;
}

static void test_p2p_beyond_two_to_31_elements_exact(void **state)
{
    (void)state;
    if (is_long) { /* seconds, and 4 GiB */
        struct world world = {.nranks = 2, .call = huge};
        assert_int_equal(run(&world), 0);
    }
}

int main(int argc, char **argv)
{
    mode = argc > 1 ? argv[1] : "threads";
    is_long = getenv("WEFT_TEST_LONG") != NULL;
    for (size_t i = 0; i < sizeof(ramp); i++) {
        ramp[i] = (unsigned char)i;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p2p_random_lists_exact),
        cmocka_unit_test(test_p2p_ten_thousand_in_one_list_exact),
        cmocka_unit_test(test_p2p_ten_thousand_singles_on_stream_in_order),
        cmocka_unit_test(test_p2p_rings_and_selves_in_any_order_no_deadlock),
        cmocka_unit_test(test_p2p_beyond_two_to_31_elements_exact),
    };
    /* The first is the one whose buffers a device has. */
    const struct CMUnitTest on_device[] = {tests[0]};
    if (is_on_device()) {
        setenv("WEFT_SPIN_US", "0", 0); /* the device needs a core, too */
        return cmocka_run_group_tests(on_device, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
