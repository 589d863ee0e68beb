/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peer/peer_measure.c - a library measured exactly as weft-perf measures
 * weft: the same start line, sizes, buffers, data, number of calls and
 * verification; only the call differs. Started by perf/peers.
 *
 *     peers-NAME RANK/NRANKS FOLDER OP SIZE[,SIZE...] ITERATIONS BUDGET_MS
 *     peers-NAME --can
 *
 * RANK/NRANKS is "-" where the library's own launcher has started the ranks;
 * FOLDER is empty and the same for all. ITERATIONS 0: by size, as weft-perf;
 * there are fewer, but at least 5, where those would take more than BUDGET_MS
 * (0: no limit). Rank 0 prints one JSON line: library, rows as of weft-perf,
 * with samples_us. Element type f32, reduction sum, root 0; a broadcast is in
 * place. Exit status 1 if anything is wrong. --can prints library and can[],
 * the operations that it has.
 */
#include "base/clock.h"
#include "base/json.h"
#include "perf/peer/peer_blocks.h"
#include "perf/peer/peer_exchange.h"
#include "perf/peer/peer_library.h"
#include "perf/perf_case.h"
#include "perf/sample.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POISON = 0xa5,
    PAGE_BYTES = 4096,
    ITERATIONS_MOST = 1000000,
    ITERATIONS_LEAST = 5,
    TRIALS = 3, /* calls that tell how long one takes */
    ARGUMENTS = 7
};

typedef struct request {
    const wefti_perf_op *op;
    wefti_peer_function *call;
    const char *folder, *sizes;
    int rank, nranks;
    int iterations;
    double budget_us;
} request;

/* One size: its buffers, and what was found. */
typedef struct point {
    wefti_perf_case subject;
    size_t counts[2][WEFTI_PEER_RANKS_MOST]; /* alltoallv */
    wefti_peer_function *function;
    int copies;
    size_t room_bytes;
    unsigned char *block;
    size_t calls; /* made so far */
    int iterations;
    double *times_us;
    long long wrong;
} point;

static wefti_peer_exchange *exchange;
static wefti_peer_blocks *blocks; /* of the size at work; NULL: not shared */
static int own_rank;
static wefti_tile own, scratch;

void wefti_peer_fail(const char *why)
{
    fprintf(stderr, "peers: %s: %s\n", wefti_peer_library_used.version(), why);
    _Exit(EXIT_FAILURE);
}

void wefti_peer_wait(void)
{
    if (!wefti_peer_exchange_wait(exchange)) {
        wefti_peer_fail("another rank has not come to the start");
    }
}

void wefti_peer_gather(const void *mine, size_t bytes, void *all_out)
{
    if (!wefti_peer_exchange_gather(exchange, mine, bytes, all_out)) {
        wefti_peer_fail("another rank has not come to the exchange");
    }
}

float *wefti_peer_remote(const float *mine, int rank)
{
    const unsigned char *base = wefti_peer_blocks_get(blocks, own_rank);
    size_t offset = (size_t)((const unsigned char *)mine - base);
    return (float *)(void *)(wefti_peer_blocks_get(blocks, rank) + offset);
}

/* ---- what the library can do ------------------------------------------- */

static wefti_peer_function *function_of(wefti_perf_kind kind)
{
    const wefti_peer_library *has = &wefti_peer_library_used;
    switch (kind) {
    case WEFTI_PERF_ALLREDUCE:
        return has->all_reduce;
    case WEFTI_PERF_ALLGATHER:
        return has->all_gather;
    case WEFTI_PERF_REDUCESCATTER:
        return has->reduce_scatter;
    case WEFTI_PERF_BROADCAST:
        return has->broadcast;
    case WEFTI_PERF_REDUCE:
        return has->reduce;
    case WEFTI_PERF_ALLTOALL:
        return has->alltoall;
    case WEFTI_PERF_ALLTOALLV:
        return has->alltoallv;
    case WEFTI_PERF_GATHER:
        return has->gather;
    case WEFTI_PERF_SCATTER:
        return has->scatter;
    case WEFTI_PERF_SENDRECV:
        return has->sendrecv;
    case WEFTI_PERF_BARRIER:
        return has->barrier;
    default:
        return NULL;
    }
}

static void print_can(void)
{
    wefti_json json;
    wefti_json_init(&json, stdout);
    wefti_json_object_open(&json, NULL);
    wefti_json_text(&json, "library", wefti_peer_library_used.version());
    wefti_json_array_open(&json, "can");
    for (const wefti_perf_op *op = wefti_perf_ops; op->name; op++) {
        if (function_of(op->kind)) {
            wefti_json_text(&json, NULL, op->name);
        }
    }
    wefti_json_array_close(&json);
    wefti_json_object_close(&json);
    if (wefti_json_fini(&json) != WEFT_OK) {
        wefti_peer_fail("stdout cannot be written");
    }
}

/* ---- one call ----------------------------------------------------------- */

static wefti_perf_buffers buffers_at(const point *it, size_t call)
{
    unsigned char *send =
        it->block + 2 * (call % (size_t)it->copies) * it->room_bytes;
    return wefti_perf_case_place(
        &it->subject, (wefti_perf_buffers){send, send + it->room_bytes});
}

/* The next call, with fresh data, from the start line to its return. */
static double call_once(point *it)
{
    const wefti_perf_case *subject = &it->subject;
    wefti_perf_buffers buffers = buffers_at(it, it->calls);
    wefti_peer_call call = {.send = (float *)(void *)buffers.send,
                            .recv = (float *)(void *)buffers.recv,
                            .count = subject->count,
                            .send_counts = subject->send_counts,
                            .recv_counts = subject->recv_counts,
                            .root = subject->root,
                            .to = wefti_perf_case_after(subject),
                            .from = wefti_perf_case_before(subject),
                            .rank = subject->rank,
                            .nranks = subject->nranks};
    if (wefti_perf_case_sends(subject)) {
        wefti_tile_fill(&own, buffers.send, 0, subject->send_elems, it->calls);
    }
    wefti_peer_wait();
    int64_t begin_ns = wefti_clock_ns();
    it->function(&call);
    int64_t end_ns = wefti_clock_ns();
    it->calls++;
    return (double)(end_ns - begin_ns) / 1e3;
}

/* What call, the number of one of the last copies calls, has left behind. */
static void check(point *it, size_t call)
{
    it->wrong += (long long)wefti_perf_case_count_wrong(
        &it->subject, buffers_at(it, call).recv, call, &scratch);
}

/* The outputs of the last timed calls, and of one more after poison. */
static void verify(point *it)
{
    const wefti_perf_case *subject = &it->subject;
    size_t copies = (size_t)it->copies;
    for (size_t call = it->calls > copies ? it->calls - copies : 0;
         call < it->calls; call++) {
        check(it, call);
    }
    memset(buffers_at(it, it->calls).recv, POISON,
           subject->recv_elems * weft_dtype_bytes(subject->dtype));
    call_once(it);
    check(it, it->calls - 1);
    long long all[WEFTI_PEER_RANKS_MOST];
    wefti_peer_gather(&it->wrong, sizeof(it->wrong), all);
    it->wrong = 0;
    for (int rank = 0; rank < subject->nranks; rank++) {
        it->wrong += all[rank];
    }
}

/* ---- one size ----------------------------------------------------------- */

/* Each time becomes that of the slowest rank. */
static void take_slowest(const point *it, double *times_us, size_t count)
{
    size_t ranks = (size_t)it->subject.nranks;
    double *all = malloc(ranks * count * sizeof(*all));
    if (!all) {
        wefti_peer_fail("out of memory");
    }
    wefti_peer_gather(times_us, count * sizeof(*times_us), all);
    for (size_t i = 0; i < ranks * count; i++) {
        double *slowest = &times_us[i % count];
        *slowest = all[i] > *slowest ? all[i] : *slowest;
    }
    free(all);
}

/* How many calls the budget has room for, the same on all ranks. */
static int iterations_within(point *it, int asked, double budget_us)
{
    double least_us = 0;
    for (int i = 0; i < TRIALS; i++) {
        double time_us = call_once(it);
        least_us = i == 0 || time_us < least_us ? time_us : least_us;
    }
    take_slowest(it, &least_us, 1);
    if (budget_us == 0 || asked * least_us <= budget_us) {
        return asked;
    }
    int fitting = (int)(budget_us / least_us);
    int least = asked < ITERATIONS_LEAST ? asked : ITERATIONS_LEAST;
    return fitting > least ? fitting : least;
}

static void make_buffers(point *it)
{
    it->copies = wefti_sample_copies(it->subject.bytes);
    it->room_bytes = (wefti_perf_case_room(&it->subject) + PAGE_BYTES - 1) /
                     PAGE_BYTES * PAGE_BYTES;
    size_t all_bytes = 2 * (size_t)it->copies * it->room_bytes;
    if (wefti_peer_library_used.shares_buffers) {
        own_rank = it->subject.rank;
        blocks = wefti_peer_blocks_create(exchange, all_bytes);
        it->block = blocks ? wefti_peer_blocks_get(blocks, own_rank) : NULL;
    } else {
        it->block = aligned_alloc(PAGE_BYTES, all_bytes);
    }
    if (!it->block) {
        wefti_peer_fail("out of memory");
    }
    memset(it->block, POISON, all_bytes);
}

static void measure(point *it, const request *asked)
{
    make_buffers(it);
    int iterations = asked->iterations
                         ? asked->iterations
                         : wefti_sample_iterations(it->subject.bytes);
    it->iterations = iterations_within(it, iterations, asked->budget_us);
    it->times_us = calloc((size_t)it->iterations, sizeof(*it->times_us));
    if (!it->times_us) {
        wefti_peer_fail("out of memory");
    }
    for (int i = TRIALS; i < wefti_sample_warmup(it->iterations); i++) {
        call_once(it);
    }
    for (int i = 0; i < it->iterations; i++) {
        it->times_us[i] = call_once(it);
    }
    take_slowest(it, it->times_us, (size_t)it->iterations);
    verify(it);
}

static void set_point(point *it, const request *asked, size_t bytes)
{
    wefti_perf_case *subject = &it->subject;
    *subject =
        (wefti_perf_case){.op = asked->op,
                          .dtype = WEFT_DTYPE_F32,
                          .redop = WEFT_REDOP_SUM,
                          .rank = asked->rank,
                          .nranks = asked->nranks,
                          .inplace = asked->op->kind == WEFTI_PERF_BROADCAST};
    wefti_perf_case_size(subject, bytes);
    it->function = asked->call;
    if (wefti_perf_op_is_uneven(asked->op)) {
        for (int rank = 0; rank < asked->nranks; rank++) {
            it->counts[0][rank] =
                wefti_perf_case_part(subject, asked->rank, rank);
            it->counts[1][rank] =
                wefti_perf_case_part(subject, rank, asked->rank);
        }
        subject->send_counts = it->counts[0];
        subject->recv_counts = it->counts[1];
    }
}

static void write_row(const point *it, wefti_json *json)
{
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "op", it->subject.op->name);
    wefti_json_uint(json, "bytes", it->subject.bytes);
    wefti_json_int(json, "nranks", it->subject.nranks);
    wefti_json_int(json, "wrong", it->wrong);
    wefti_json_array_open(json, "samples_us");
    for (int i = 0; i < it->iterations; i++) {
        wefti_json_real(json, NULL, it->times_us[i]);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}

/* Measures all sizes; how many elements were wrong. */
static long long run(const request *asked, wefti_json *json)
{
    long long wrong = 0;
    wefti_tile_make(&own, WEFT_DTYPE_F32, WEFT_REDOP_SUM, asked->rank,
                    asked->nranks);
    for (const char *at = asked->sizes; at; at = strchr(at, ',')) {
        at += *at == ',';
        point now = {0};
        set_point(&now, asked, (size_t)strtoull(at, NULL, 10));
        measure(&now, asked);
        wrong += now.wrong;
        if (asked->rank == 0) {
            write_row(&now, json);
        }
        free(now.times_us);
        if (blocks) {
            wefti_peer_blocks_destroy(blocks);
            blocks = NULL;
        } else {
            free(now.block);
        }
    }
    return wrong;
}

/* ---- the program -------------------------------------------------------- */

/* false: no such arguments. */
static bool read_request(char **argv, request *asked)
{
    char *end = argv[1];
    asked->rank = asked->nranks = -1;
    if (strcmp(argv[1], "-") != 0) {
        asked->rank = (int)strtol(argv[1], &end, 10);
        asked->nranks = *end == '/' ? (int)strtol(end + 1, &end, 10) : 0;
        if (*end || asked->rank < 0 || asked->rank >= asked->nranks ||
            asked->nranks > WEFTI_PEER_RANKS_MOST) {
            return false;
        }
    }
    asked->folder = argv[2];
    asked->op = wefti_perf_op_get(argv[3]);
    asked->call = asked->op ? function_of(asked->op->kind) : NULL;
    asked->sizes = argv[4];
    long iterations = strtol(argv[5], &end, 10);
    asked->iterations = (int)iterations;
    asked->budget_us = 1e3 * (double)strtol(argv[6], NULL, 10);
    return asked->call && *end == '\0' && iterations >= 0 &&
           iterations <= ITERATIONS_MOST && asked->budget_us >= 0;
}

/* glibc's thresholds as they become in a program that has run for a while:
 * else what was freed before a size decides whether a library's temporary
 * memory is mapped anew in each call, which may take six times as long. */
static void settle_heap(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

/* What the library's own launcher says; weft-run's was an argument. */
static void check_ranks(int nranks)
{
    if (nranks > WEFTI_PEER_RANKS_MOST) {
        char text[64];
        snprintf(text, sizeof(text), "%d ranks: allowed is 1..%d", nranks,
                 WEFTI_PEER_RANKS_MOST);
        wefti_peer_fail(text);
    }
}

static void start(request *asked)
{
    settle_heap();
    const wefti_peer_library *library = &wefti_peer_library_used;
    if (library->start) {
        library->start(&asked->rank, &asked->nranks);
    }
    if (asked->rank < 0) {
        wefti_peer_fail(
            "RANK/NRANKS is \"-\", but this library has no launcher "
            "of its own");
    }
    check_ranks(asked->nranks);
    exchange =
        wefti_peer_exchange_open(asked->folder, asked->rank, asked->nranks);
    if (!exchange) {
        fprintf(stderr, "peers: %s: %s\n", asked->folder, strerror(errno));
        _Exit(EXIT_FAILURE);
    }
    if (library->connect) {
        library->connect(asked->rank, asked->nranks, asked->folder);
    }
}

int main(int argc, char **argv)
{
    request asked;
    if (argc == 2 && strcmp(argv[1], "--can") == 0) {
        print_can();
        return EXIT_SUCCESS;
    }
    if (argc != ARGUMENTS || !read_request(argv, &asked)) {
        wefti_peer_fail("usage: peers-NAME RANK/NRANKS FOLDER OP "
                        "SIZE[,SIZE...] ITERATIONS BUDGET_MS; OP is one of "
                        "those that --can names");
    }
    start(&asked);
    wefti_json json;
    wefti_json_init(&json, stdout);
    if (asked.rank == 0) {
        wefti_json_object_open(&json, NULL);
        wefti_json_text(&json, "library", wefti_peer_library_used.version());
        wefti_json_array_open(&json, "rows");
    }
    long long wrong = run(&asked, &json);
    if (asked.rank == 0) {
        wefti_json_array_close(&json);
        wefti_json_object_close(&json);
        if (wefti_json_fini(&json) != WEFT_OK) {
            wefti_peer_fail("stdout cannot be written");
        }
    }
    wefti_peer_wait();
    if (wefti_peer_library_used.finish) {
        wefti_peer_library_used.finish();
    }
    wefti_peer_exchange_close(exchange);
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
