/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every operation gives the same bits on device memory as on the host's,
 * wherever each rank's buffers are: all collectives and messages, types and
 * reductions, counts, in place, gated, on streams and without, ranks on one
 * device and on two.
 *
 * Method: each case runs twice, first with all buffers in host memory, then
 * with each of a rank's two buffers on the device or the host, as is drawn from
 * the seed; the results, poison around them included, must be equal. The device
 * runs late and in an order that its own seed says; that also says how long
 * chunks are, on which the staging's size depends. Arguments: threads or
 * processes; the device's kind, shadow or cuda (on the fake driver); the first
 * seed, which is printed. With --long 20.
 */
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum {
    RANKS_MOST = 9,
    ROOM_BYTES = 3 << 20,
    POISON = 0xA5,
    BLOCK = 700, /* elements of a gate's chunk */
    GATE_CHUNKS = 4096
};

static const char *mode, *kind;
static unsigned first_seed;

/* What one rank has. */
struct desk {
    weft_comm *comm;
    weft_device *device;
    weft_stream *stream, *compute;
    weft_gate *ready, *arrived;
    int rank, nranks;
    unsigned random;
    uint64_t epoch;
    unsigned char *device_room[2]; /* send, recv */
    unsigned char *host_room[2];
    unsigned char *image[2]; /* what they hold before, and what must come */
    size_t counts[RANKS_MOST], from[RANKS_MOST];
    int failures;
};

/* One case as this rank posts it. */
struct job {
    weft_op op;
    size_t send_bytes, recv_bytes;
    bool in_place, gated;
    size_t in_place_at; /* byte of the longer buffer where the other begins */
};

static unsigned draw(unsigned *random, unsigned most)
{
    *random = *random * 1664525u + 1013904223u;
    return (*random >> 10) % most;
}

/* Any bits that make a number below 2, so that no sum is a NaN. */
static void fill(weft_dtype dtype, unsigned seed, unsigned char *at,
                 size_t bytes)
{
    const size_t elem = weft_dtype_bytes(dtype);
    const bool is_float = dtype == WEFT_DTYPE_F16 || dtype == WEFT_DTYPE_BF16 ||
                          dtype == WEFT_DTYPE_F32 || dtype == WEFT_DTYPE_F64 ||
                          dtype == WEFT_DTYPE_F8E4M3 ||
                          dtype == WEFT_DTYPE_F8E5M2;
    for (size_t i = 0; i < bytes; i++) {
        const bool top = i % elem == elem - 1;
        at[i] = (unsigned char)draw(&seed, 256);
        at[i] = top && is_float ? at[i] & 0xBF : at[i];
    }
}

/* From rank to peer go so many, of a v form. */
static size_t varied(size_t count, int rank, int peer)
{
    return count + (size_t)((rank + 2 * peer) % 3) * (count > 0);
}

static size_t sum(const size_t *counts, int nranks)
{
    size_t all = 0;
    for (int p = 0; p < nranks; p++) {
        all += counts[p];
    }
    return all;
}

/* Counts and sizes of a v form, never in place. */
static void plan_varied(struct desk *desk, struct job *job, size_t count)
{
    weft_op *op = &job->op;
    const size_t elem = weft_dtype_bytes(op->dtype);
    const bool root = desk->rank == op->root;
    size_t send = 0, recv = 0;
    for (int p = 0; p < desk->nranks; p++) {
        desk->counts[p] = op->collective == WEFT_COLLECTIVE_ALLTOALLV
                              ? varied(count, desk->rank, p)
                              : varied(count, p, 0);
        desk->from[p] = varied(count, p, desk->rank);
    }
    const size_t own = desk->counts[desk->rank];
    const size_t all = sum(desk->counts, desk->nranks);
    op->count = own;
    switch (op->collective) {
    case WEFT_COLLECTIVE_ALLTOALLV:
        op->send_counts = desk->counts;
        op->recv_counts = desk->from;
        send = all;
        recv = sum(desk->from, desk->nranks);
        break;
    case WEFT_COLLECTIVE_ALLGATHERV:
        op->recv_counts = desk->counts;
        send = own;
        recv = all;
        break;
    case WEFT_COLLECTIVE_GATHERV:
        op->recv_counts = root ? desk->counts : NULL;
        send = own;
        recv = root ? all : 0;
        break;
    case WEFT_COLLECTIVE_SCATTERV:
        op->send_counts = root ? desk->counts : NULL;
        send = root ? all : 0;
        recv = own;
        break;
    default: /* REDUCESCATTERV */
        op->send_counts = desk->counts;
        send = all;
        recv = own;
        break;
    }
    job->send_bytes = send * elem;
    job->recv_bytes = recv * elem;
}

static bool is_varied(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_ALLTOALLV ||
           collective == WEFT_COLLECTIVE_ALLGATHERV ||
           collective == WEFT_COLLECTIVE_GATHERV ||
           collective == WEFT_COLLECTIVE_SCATTERV ||
           collective == WEFT_COLLECTIVE_REDUCESCATTERV;
}

/* Sizes of the plain forms, and where in place is. */
static void plan_plain(const struct desk *desk, struct job *job, size_t count)
{
    weft_op *op = &job->op;
    const size_t part = count * weft_dtype_bytes(op->dtype);
    const size_t all = part * (size_t)desk->nranks;
    const size_t own = part * (size_t)desk->rank;
    const bool root = desk->rank == op->root;
    job->send_bytes = job->recv_bytes = part;
    op->count = count;
    switch (op->collective) {
    case WEFT_COLLECTIVE_REDUCE:
        job->recv_bytes = root ? part : 0;
        job->in_place = job->in_place && root;
        break;
    case WEFT_COLLECTIVE_BROADCAST:
        job->send_bytes = root ? part : 0;
        job->in_place = job->in_place && root;
        break;
    case WEFT_COLLECTIVE_ALLGATHER:
        job->recv_bytes = all;
        job->in_place_at = own;
        break;
    case WEFT_COLLECTIVE_REDUCESCATTER:
        job->send_bytes = all;
        job->in_place_at = own;
        break;
    case WEFT_COLLECTIVE_ALLTOALL:
        job->send_bytes = job->recv_bytes = all;
        job->in_place = false;
        break;
    case WEFT_COLLECTIVE_GATHER:
        job->recv_bytes = root ? all : 0;
        job->in_place_at = own;
        job->in_place = job->in_place && root;
        break;
    case WEFT_COLLECTIVE_SCATTER:
        job->send_bytes = root ? all : 0;
        job->in_place_at = own;
        job->in_place = job->in_place && root;
        break;
    case WEFT_COLLECTIVE_BARRIER:
        job->send_bytes = job->recv_bytes = op->count = 0;
        break;
    default:
        break;
    }
}

/* Whether both halves of the job lie in one buffer, and which. */
static int in_place_in(const struct job *job)
{
    return !job->in_place ? -1 : job->send_bytes > job->recv_bytes ? 0 : 1;
}

/* Where the op finds its buffers, given the two rooms. */
static void point(struct job *job, unsigned char *const rooms[2])
{
    const int one = in_place_in(job);
    unsigned char *send = rooms[0], *recv = rooms[1];
    if (one == 0) {
        recv = send + job->in_place_at;
    } else if (one == 1) {
        send = recv + job->in_place_at;
    }
    job->op.send = job->send_bytes ? send : NULL;
    job->op.recv = job->recv_bytes ? recv : NULL;
}

static void expect_ok(struct desk *desk, weft_status status, const char *what)
{
    if (status != WEFT_OK && desk->failures++ < 5) {
        fprintf(stderr, "rank %d: %s: %s: %s\n", desk->rank, what,
                weft_status_text(status), weft_error_text());
    }
}

static size_t chunks_of(size_t bytes, size_t block_bytes)
{
    return bytes ? (bytes - 1) / block_bytes + 1 : 1;
}

/*
 * Posts it, its inputs where they are to come from: for a gated one they come
 * while it runs, chunk by chunk, on a stream of their own.
 */
static void run(struct desk *desk, struct job *job, bool on_stream,
                const unsigned char *input)
{
    weft_op *op = &job->op;
    weft_stream *stream = on_stream ? desk->stream : NULL;
    const size_t block = BLOCK * weft_dtype_bytes(op->dtype);
    if (job->gated) {
        op->ready = desk->ready;
        op->arrived = desk->arrived;
        op->gate_elems = BLOCK;
        stream = desk->stream;
        desk->epoch++;
    }
    if (op->collective == WEFT_COLLECTIVE_SEND) {
        const size_t count = op->count;
        const weft_p2p list[] = {
            {.size_bytes = sizeof(list[0]),
             .kind = WEFT_P2P_SEND,
             .buffer = (void *)(uintptr_t)op->send,
             .count = count,
             .dtype = op->dtype,
             .peer = (desk->rank + 1) % desk->nranks},
            {.size_bytes = sizeof(list[0]),
             .kind = WEFT_P2P_RECV,
             .buffer = op->recv,
             .count = count,
             .dtype = op->dtype,
             .peer = (desk->rank + desk->nranks - 1) % desk->nranks}};
        expect_ok(desk, weft_p2p_post(list, 2, desk->comm, stream), "p2p");
    } else {
        expect_ok(desk, weft_op_post(op, desk->epoch, desk->comm, stream),
                  weft_collective_text(op->collective));
    }
    if (job->gated) {
        unsigned char *send = (void *)(uintptr_t)op->send;
        const size_t chunks = chunks_of(job->send_bytes, block);
        for (size_t c = 0; c < chunks; c++) {
            size_t at = c * block, left = job->send_bytes - at;
            expect_ok(desk,
                      weft_device_copy(desk->device, send + at, input + at,
                                       left < block ? left : block,
                                       desk->compute),
                      "copy of a chunk");
            expect_ok(
                desk,
                weft_gate_signal(desk->ready, c, desk->epoch, desk->compute),
                "ready");
        }
        for (size_t c = 0; c < chunks_of(job->recv_bytes, block); c++) {
            expect_ok(desk, weft_gate_wait(desk->arrived, c, desk->epoch, NULL),
                      "arrived");
        }
    }
    if (stream) {
        expect_ok(desk, weft_stream_wait(stream), "stream");
    }
    op->ready = op->arrived = NULL;
    op->gate_elems = 0;
}

/* Runs it with its buffers in rooms, of which some are the device's. */
static void play(struct desk *desk, struct job *job,
                 unsigned char *const rooms[2], bool on_stream,
                 unsigned char *const results[2])
{
    const size_t bytes[2] = {job->send_bytes + 64, job->recv_bytes + 64};
    size_t most = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
    const bool late = job->gated;
    for (int b = 0; b < 2; b++) {
        memset(desk->image[b], POISON, most);
    }
    point(job, desk->image);
    unsigned char *input = (void *)(uintptr_t)job->op.send;
    if (input) {
        fill(job->op.dtype, desk->random + (unsigned)desk->rank, input,
             job->send_bytes);
    }
    unsigned char *later = malloc(job->send_bytes + 1);
    if (late) {
        memcpy(later, input, job->send_bytes);
        memset(input, POISON, job->send_bytes);
    }
    for (int b = 0; b < 2; b++) {
        expect_ok(desk,
                  weft_device_copy(desk->device, rooms[b], desk->image[b], most,
                                   NULL),
                  "copy in");
    }
    point(job, rooms);
    run(desk, job, on_stream, later);
    expect_ok(desk, weft_stream_wait(desk->compute), "compute");
    free(later);
    for (int b = 0; b < 2; b++) {
        expect_ok(
            desk,
            weft_device_copy(desk->device, results[b], rooms[b], most, NULL),
            "copy out");
    }
}

/* The same case on host memory and as drawn. */
static void compare(struct desk *desk, struct job *job)
{
    static const char *const places[] = {"host", "device"};
    unsigned own = desk->random * 31u + (unsigned)desk->rank * 7u;
    const unsigned where = draw(&own, 4);
    const bool on_stream = draw(&desk->random, 2) != 0;
    const size_t most = (job->send_bytes > job->recv_bytes ? job->send_bytes
                                                           : job->recv_bytes) +
                        64;
    unsigned char *got[2][2];
    for (int i = 0; i < 4; i++) {
        got[i / 2][i % 2] = malloc(most);
    }
    unsigned char *const rooms[2] = {
        (where & 1 ? desk->device_room : desk->host_room)[0],
        (where & 2 ? desk->device_room : desk->host_room)[1]};
    play(desk, job, desk->host_room, on_stream, got[0]);
    play(desk, job, rooms, on_stream, got[1]);
    for (int b = 0; b < 2; b++) {
        if (memcmp(got[0][b], got[1][b], most) != 0 && desk->failures++ < 5) {
            size_t at = 0;
            while (got[0][b][at] == got[1][b][at]) {
                at++;
            }
            fprintf(
                stderr,
                "rank %d of %d: %s of %zu %s %s%s%s%s, send on the %s, "
                "recv on the %s: %s differs at byte %zu\n",
                desk->rank, desk->nranks,
                weft_collective_text(job->op.collective), job->op.count,
                weft_dtype_text(job->op.dtype), weft_redop_text(job->op.redop),
                job->in_place ? " in place" : "", job->gated ? " gated" : "",
                on_stream ? " on a stream" : "", places[where & 1],
                places[where >> 1], b ? "recv" : "send", at);
        }
    }
    for (int i = 0; i < 4; i++) {
        free(got[i / 2][i % 2]);
    }
}

static bool reduces(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_ALLREDUCE ||
           collective == WEFT_COLLECTIVE_REDUCE ||
           collective == WEFT_COLLECTIVE_REDUCESCATTER ||
           collective == WEFT_COLLECTIVE_REDUCESCATTERV;
}

static void run_case(struct desk *desk, weft_collective collective,
                     size_t count)
{
    struct job job = {
        .op = {.size_bytes = sizeof(job.op), .collective = collective}};
    unsigned scale = 0x3c003c00u; /* a small number of every type */
    unsigned char scalar[8];
    memcpy(scalar, &scale, 4);
    memcpy(scalar + 4, &scale, 4);
    job.op.dtype = (weft_dtype)draw(&desk->random, WEFT_DTYPE_COUNT);
    weft_redop redop = (weft_redop)draw(&desk->random, WEFT_REDOP_COUNT);
    job.in_place = draw(&desk->random, 3) == 0;
    job.gated = draw(&desk->random, 4) == 0 && !is_varied(collective);
    job.op.root = (int)draw(&desk->random, (unsigned)desk->nranks);
    if (reduces(collective)) {
        job.op.redop =
            weft_redop_applies(redop, job.op.dtype) ? redop : WEFT_REDOP_SUM;
        job.op.scale = job.op.redop == WEFT_REDOP_PREMULSUM ? scalar : NULL;
    }
    if (collective == WEFT_COLLECTIVE_RECV) {
        return; /* goes with SEND */
    }
    if (is_varied(collective)) {
        job.in_place = false;
        plan_varied(desk, &job, count);
    } else {
        plan_plain(desk, &job, count);
    }
    /* Gates of whole buffers, with all that goes in and comes out here. */
    job.gated = job.gated && count > 0 && !job.in_place &&
                (collective == WEFT_COLLECTIVE_ALLREDUCE ||
                 collective == WEFT_COLLECTIVE_ALLGATHER ||
                 collective == WEFT_COLLECTIVE_REDUCESCATTER ||
                 collective == WEFT_COLLECTIVE_ALLTOALL);
    job.in_place = job.in_place && collective != WEFT_COLLECTIVE_SEND;
    if (collective == WEFT_COLLECTIVE_SEND && desk->nranks == 1) {
        return;
    }
    compare(desk, &job);
}

static void *room(struct desk *desk, bool device)
{
    void *memory = NULL;
    if (!device) {
        memory = malloc(ROOM_BYTES);
    } else if (weft_device_alloc(desk->device, ROOM_BYTES, &memory) !=
               WEFT_OK) {
        memory = NULL;
    }
    assert_non_null(memory);
    return memory;
}

struct plan {
    unsigned seed;
    int ordinals;
    weft_device *devices[RANKS_MOST];
};

static void open_device(int rank, weft_comm_config *config, void *context)
{
    struct plan *plan = context;
    assert_int_equal(
        weft_device_open(kind, rank % plan->ordinals, &plan->devices[rank]),
        WEFT_OK);
    config->device = plan->devices[rank];
}

static int close_device(int rank, void *context)
{
    struct plan *plan = context;
    weft_device_close(plan->devices[rank]);
    return 0;
}

static void sit_down(struct desk *desk)
{
    assert_int_equal(weft_stream_create(desk->device, 0, &desk->stream),
                     WEFT_OK);
    assert_int_equal(weft_stream_create(desk->device, 0, &desk->compute),
                     WEFT_OK);
    assert_int_equal(weft_gate_create(desk->device, GATE_CHUNKS, &desk->ready),
                     WEFT_OK);
    assert_int_equal(
        weft_gate_create(desk->device, GATE_CHUNKS, &desk->arrived), WEFT_OK);
    for (int b = 0; b < 2; b++) {
        desk->device_room[b] = room(desk, true);
        desk->host_room[b] = room(desk, false);
        desk->image[b] = room(desk, false);
    }
}

static void get_up(struct desk *desk)
{
    weft_stream_destroy(desk->stream);
    weft_stream_destroy(desk->compute);
    weft_gate_destroy(desk->ready);
    weft_gate_destroy(desk->arrived);
    for (int b = 0; b < 2; b++) {
        weft_device_free(desk->device, desk->device_room[b]);
        free(desk->host_room[b]);
        free(desk->image[b]);
    }
}

static int run_rank(weft_comm *comm, void *context)
{
    const struct plan *plan = context;
    struct desk desk = {.comm = comm, .random = plan->seed};
    desk.rank = weft_comm_get_rank(comm);
    desk.nranks = weft_comm_get_nranks(comm);
    desk.device = plan->devices[desk.rank];
    sit_down(&desk);
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        const size_t counts[] = {draw(&desk.random, 2),
                                 3 + 2 * draw(&desk.random, 300),
                                 2000 + draw(&desk.random, 3000)};
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            run_case(&desk, (weft_collective)c, counts[i]);
        }
    }
    /* Many chunks, so that fetches run ahead. */
    run_case(&desk, WEFT_COLLECTIVE_ALLREDUCE, 300001);
    run_case(&desk, WEFT_COLLECTIVE_SEND, 200003);
    get_up(&desk);
    return desk.failures;
}

static int run_world(int nranks, unsigned seed)
{
    struct plan plan = {.seed = seed, .ordinals = 1 + (int)(seed % 2)};
    struct world world = {.nranks = nranks,
                          .config = {.warn_ms = 20000, .timeout_ms = 60000},
                          .call = run_rank,
                          .context = &plan,
                          .configure = open_device,
                          .after = close_device,
                          .deadline_s = 100};
    char text[16];
    snprintf(text, sizeof(text), "%u", seed);
    setenv("WEFT_SHADOW_SEED", text, 1);
    static const char *const chunks[] = {"64", "0", "524288"};
    setenv("WEFT_CHUNK_BYTES", chunks[seed % 3], 1);
    setenv("WEFT_FAKE_GPU_SEED", text, 1);
    setenv("WEFT_FAKE_GPU_COUNT", "2", 1);
    return strcmp(mode, "processes") == 0 ? world_run_processes(&world)
                                          : world_run_threads(&world);
}

static void test_all_on_device_memory_same_bits_as_on_the_hosts(void **state)
{
    (void)state;
    const bool is_long = getenv("WEFT_TEST_LONG") != NULL;
    const bool processes = strcmp(mode, "processes") == 0;
    /* The fake driver has a thread for each stream, and the copies of all. */
    const bool slow =
        (SANITIZED && !getenv("WEFT_TEST_WHOLE")) || strcmp(kind, "cuda") == 0;
    const char *worlds = is_long     ? "123456789"
                         : processes ? "24"
                         : slow      ? "13"
                                     : "12359";
    const unsigned seeds = is_long ? 20 : processes || slow ? 1 : 2;
    printf("seeds from %u\n", first_seed);
    for (unsigned s = 0; s < seeds; s++) {
        for (int nranks = 1; nranks <= RANKS_MOST; nranks++) {
            if (strchr(worlds, '0' + nranks)) {
                assert_int_equal(run_world(nranks, first_seed + s), 0);
            }
        }
    }
}

int main(int count, char **arguments)
{
    mode = count > 1 ? arguments[1] : "threads";
    kind = count > 2 ? arguments[2] : "shadow";
    first_seed = count > 3 ? (unsigned)strtoul(arguments[3], NULL, 0) : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_on_device_memory_same_bits_as_on_the_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
