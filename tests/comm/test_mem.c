/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: who has waited for a signal sees all that its sender had put before,
 * from one peer and from many, on streams and not, past the end of the
 * counters; what is out of bounds is refused by name; a wait that nobody ends
 * is ended, with the names of slot and peer; memory comes back.
 *
 * Method: ranks as threads or processes (argument) pass changing patterns and
 * acknowledge them by signals alone; every byte is looked at. With the argument
 * "registered" behind it, in memory that was there already.
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/spread.h"
#include "tests/comm/world.h"
#include "tests/seed.h"

#include "base/clock.h"
#include "comm/make/comm_bytes.h"
#include "comm/mem/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 150 };
#else
enum { ROUNDS = 1000 };
#endif

enum { POISON = 0xA5, MOST_BYTES = 200000 };

static const char *mode;
static bool registered;

/* Zeroed, and at an odd address where it is registered. */
static weft_status open_mem(weft_comm *comm, size_t bytes, weft_mem **mem_out)
{
    return registered
               ? weft_mem_register(comm, (char *)calloc(1, bytes + 1) + 1,
                                   bytes, mem_out)
               : weft_mem_create(comm, bytes, mem_out);
}

static void close_mem(weft_mem *mem)
{
    char *own = registered ? weft_mem_get_base(mem) : NULL;
    weft_mem_destroy(mem);
    free(own ? own - 1 : NULL);
}

static int run(const struct world *world)
{
    return strcmp(mode, "processes") == 0 ? world_run_processes(world)
                                          : world_run_threads(world);
}

static unsigned char byte_of(int rank, unsigned round, size_t i)
{
    return (unsigned char)((unsigned)rank * 37 + round * 11 +
                           (unsigned)(i % 241) + (unsigned)(i >> 11));
}

static int wrong_at(const unsigned char *at, int rank, unsigned round,
                    size_t first, size_t bytes)
{
    for (size_t i = first; i < first + bytes; i++) {
        if (at[i] != byte_of(rank, round, i)) {
            fprintf(stderr, "round %u from rank %d: wrong at %zu\n", round,
                    rank, i);
            return 1;
        }
    }
    return 0;
}

/* Each rank puts a message in pieces into the next one's memory, signals, and
 * looks at what it has got itself; slot 1 says that it has looked. */
static int pass_messages(weft_comm *comm, void *context)
{
    uint64_t seed = *(const uint64_t *)context; /* the same on all ranks */
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
    unsigned char *out = malloc(MOST_BYTES);
    weft_mem *mem;
    int failures = open_mem(comm, MOST_BYTES, &mem) != WEFT_OK;
    const unsigned char *in = weft_mem_get_base(mem);
    for (unsigned round = 1; round <= ROUNDS && !failures; round++) {
        size_t bytes = round % 16 ? random_next(&seed) % 3000
                                  : random_next(&seed) % MOST_BYTES;
        size_t offset = random_next(&seed) % (MOST_BYTES - bytes);
        size_t half = bytes ? random_next(&seed) % bytes : 0;
        for (size_t i = offset; i < offset + bytes; i++) {
            out[i] = byte_of(rank, round, i);
        }
        failures += weft_mem_wait(mem, 1, round - 1, next, NULL) != WEFT_OK;
        failures +=
            weft_mem_put(mem, offset + half, out + offset + half, bytes - half,
                         WEFT_DTYPE_U8, next, NULL) != WEFT_OK;
        failures += weft_mem_put(mem, offset, out + offset, half, WEFT_DTYPE_U8,
                                 next, NULL) != WEFT_OK;
        memset(out + offset, POISON, bytes); /* it is the caller's again */
        failures += weft_mem_signal(mem, 0, 1, next, NULL) != WEFT_OK;
        failures += weft_mem_wait(mem, 0, round, before, NULL) != WEFT_OK;
        failures += wrong_at(in, before, round, offset, bytes);
        failures += weft_mem_signal(mem, 1, 1, before, NULL) != WEFT_OK;
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    close_mem(mem);
    free(out);
    return failures > 63 ? 63 : failures;
}

static void test_mem_signal_after_puts_seen_after_their_data(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int nranks = 1; nranks <= 4; nranks++) {
        struct world world = {
            .nranks = nranks, .call = pass_messages, .context = &seed};
        assert_int_equal(run(&world), 0);
    }
}

/* All ranks put into rank 0's memory; it waits for the sum of their signals,
 * or for each of them, and lets them go on. */
static int many_to_one(weft_comm *comm, void *context)
{
    (void)context;
    enum { PART = 3001 };
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    unsigned char out[PART];
    weft_mem *mem;
    int failures = open_mem(comm, (size_t)nranks * PART, &mem) != WEFT_OK;
    const unsigned char *in = weft_mem_get_base(mem);
    for (unsigned round = 1; round <= ROUNDS / 4 && !failures; round++) {
        for (size_t i = 0; i < PART; i++) {
            out[i] = byte_of(rank, round, i);
        }
        failures += weft_mem_put(mem, (size_t)rank * PART, out, PART,
                                 WEFT_DTYPE_U8, 0, NULL) != WEFT_OK;
        failures += weft_mem_signal(mem, 63, 1, 0, NULL) != WEFT_OK;
        for (int peer = 0; rank == 0 && peer < nranks; peer++) {
            failures +=
                round % 2
                    ? weft_mem_wait(mem, 63, (uint64_t)round * (unsigned)nranks,
                                    WEFT_MEM_ANY_PEER, NULL) != WEFT_OK
                    : weft_mem_wait(mem, 63, round, peer, NULL) != WEFT_OK;
            failures +=
                wrong_at(in + (size_t)peer * PART, peer, round, 0, PART);
        }
        for (int peer = 0; rank == 0 && peer < nranks; peer++) {
            failures += weft_mem_signal(mem, 7, 1, peer, NULL) != WEFT_OK;
        }
        failures += weft_mem_wait(mem, 7, round, 0, NULL) != WEFT_OK;
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    close_mem(mem);
    return failures > 63 ? 63 : failures;
}

static void test_mem_many_to_one_sum_and_each_seen(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 5; nranks++) {
        struct world world = {.nranks = nranks, .call = many_to_one};
        assert_int_equal(run(&world), 0);
    }
}

/* Counters go round several times; a wait is for what comes next. */
static int wrap_round(weft_comm *comm, void *context)
{
    (void)context;
    int peer = 1 - weft_comm_get_rank(comm);
    weft_mem *mem;
    uint64_t value = 0;
    int failures = open_mem(comm, 0, &mem) != WEFT_OK;
    for (unsigned round = 0; round < 40; round++) {
        uint64_t add = round % 3 ? (uint64_t)INT64_MAX - round : round + 1;
        value += add;
        failures += weft_mem_signal(mem, 5, add, peer, NULL) != WEFT_OK;
        failures += weft_mem_wait(mem, 5, value, peer, NULL) != WEFT_OK;
        failures += weft_mem_get_signal(mem, 5, peer) != value;
        /* Both have looked before either goes on. */
        failures += weft_barrier(comm, NULL) != WEFT_OK;
    }
    failures += weft_mem_get_signal(mem, 6, peer) != 0;
    failures += weft_mem_get_signal(mem, 64, peer) != 0;
    close_mem(mem);
    return failures > 63 ? 63 : failures;
}

static void test_mem_counters_wrap_round(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = wrap_round};
    assert_int_equal(run(&world), 0);
}

/* What a stream's call compares behind a wait. */
struct look {
    const unsigned char *at;
    int rank, wrong;
    unsigned round;
    size_t bytes;
};

static void look_at(void *argument)
{
    struct look *look = argument;
    look->wrong = wrong_at(look->at, look->rank, look->round, 0, look->bytes);
}

static void make(void *argument)
{
    struct look *look = argument;
    for (size_t i = 0; i < look->bytes; i++) {
        ((unsigned char *)(uintptr_t)look->at)[i] =
            byte_of(look->rank, look->round, i);
    }
}

/* The same ring with everything queued at once, a stream for each direction. */
static int on_streams(weft_comm *comm, void *context)
{
    (void)context;
    enum { BYTES = 150000, TIMES = 30 };
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
    unsigned char *out = malloc(BYTES);
    struct look made[TIMES + 1], looks[TIMES + 1];
    weft_device *device;
    weft_stream *sending, *looking;
    weft_mem *mem;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_stream_create(device, 0, &sending) != WEFT_OK ||
                   weft_stream_create(device, 0, &looking) != WEFT_OK ||
                   open_mem(comm, BYTES, &mem) != WEFT_OK;
    for (unsigned round = 1; round <= TIMES && !failures; round++) {
        made[round] = (struct look){out, rank, 0, round, BYTES};
        looks[round] =
            (struct look){weft_mem_get_base(mem), before, 0, round, BYTES};
        failures += weft_mem_wait(mem, 1, round - 1, next, sending) != WEFT_OK;
        failures += weft_stream_call(sending, make, &made[round]) != WEFT_OK;
        failures += weft_mem_put(mem, 0, out, BYTES, WEFT_DTYPE_U8, next,
                                 sending) != WEFT_OK;
        failures += weft_mem_signal(mem, 0, 1, next, sending) != WEFT_OK;
        failures += weft_mem_wait(mem, 0, round, before, looking) != WEFT_OK;
        failures +=
            weft_stream_call(looking, look_at, &looks[round]) != WEFT_OK;
        failures += weft_mem_signal(mem, 1, 1, before, looking) != WEFT_OK;
    }
    failures += weft_stream_wait(sending) != WEFT_OK;
    failures += weft_stream_wait(looking) != WEFT_OK;
    for (unsigned round = 1; round <= TIMES && !failures; round++) {
        failures += looks[round].wrong;
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    close_mem(mem);
    weft_stream_destroy(sending);
    weft_stream_destroy(looking);
    weft_device_close(device);
    free(out);
    return failures > 63 ? 63 : failures;
}

static void test_mem_on_streams_in_stream_order(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 3; nranks++) {
        struct world world = {.nranks = nranks, .call = on_streams};
        assert_int_equal(run(&world), 0);
    }
}

/* From memory that the host may not touch, here and now and by a stream. */
static int from_shadow(weft_comm *comm, void *context)
{
    enum { BYTES = 100003 };
    weft_device *device = *(weft_device **)context;
    int rank = weft_comm_get_rank(comm), peer = 1 - rank;
    unsigned char *out = malloc(BYTES), *hidden;
    weft_stream *stream;
    weft_mem *mem;
    int failures =
        open_mem(comm, BYTES, &mem) != WEFT_OK ||
        weft_stream_create(device, 0, &stream) != WEFT_OK ||
        weft_device_alloc(device, BYTES, (void **)&hidden) != WEFT_OK;
    for (unsigned round = 1; round <= 4; round++) {
        weft_stream *where = round % 2 ? stream : NULL;
        for (size_t i = 0; i < BYTES; i++) {
            out[i] = byte_of(rank, round, i);
        }
        failures +=
            weft_device_copy(device, hidden, out, BYTES, NULL) != WEFT_OK;
        failures += weft_mem_put(mem, 0, hidden, BYTES, WEFT_DTYPE_U8, peer,
                                 where) != WEFT_OK;
        failures += weft_mem_signal(mem, 0, 1, peer, where) != WEFT_OK;
        failures += weft_mem_wait(mem, 0, round, peer, NULL) != WEFT_OK;
        failures += wrong_at(weft_mem_get_base(mem), peer, round, 0, BYTES);
        failures += weft_stream_wait(stream) != WEFT_OK;
        failures += weft_barrier(comm, NULL) != WEFT_OK;
    }
    close_mem(mem);
    weft_device_free(device, hidden);
    weft_stream_destroy(stream);
    free(out);
    return failures > 63 ? 63 : failures;
}

static void test_mem_put_from_device_memory_exact(void **state)
{
    (void)state;
    weft_device *device;
    assert_int_equal(weft_device_open("shadow", 0, &device), WEFT_OK);
    struct world world = {.nranks = 2,
                          .config = {.device = device},
                          .call = from_shadow,
                          .context = &device};
    assert_int_equal(world_run_threads(&world), 0);
    weft_device_close(device);
}

/* Beyond 2^32 bytes; only touched pages exist. */
static int remote_offset(weft_comm *comm, void *context)
{
    (void)context;
    size_t bytes = (size_t)6 << 30, offset = ((size_t)5 << 30) + 13;
    int peer = 1 - weft_comm_get_rank(comm);
    uint64_t word = 40 + (unsigned)peer, got = 0;
    weft_mem *mem;
    int failures = weft_mem_create(comm, bytes, &mem) != WEFT_OK;
    failures += weft_mem_put(mem, offset, &word, 1, WEFT_DTYPE_I64, peer,
                             NULL) != WEFT_OK;
    failures += weft_mem_signal(mem, 0, 1, peer, NULL) != WEFT_OK;
    failures += weft_mem_wait(mem, 0, 1, peer, NULL) != WEFT_OK;
    memcpy(&got, (char *)weft_mem_get_base(mem) + offset, sizeof(got));
    failures += got != 40 + (unsigned)(1 - peer);
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    weft_mem_destroy(mem);
    return failures;
}

static void test_mem_beyond_four_gib_exact(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = remote_offset};
    assert_int_equal(run(&world), 0);
}

static int bad_arguments(weft_comm *comm, void *context)
{
    (void)context;
    char data[64] = {0};
    weft_mem *mem, *none;
    int rank = weft_comm_get_rank(comm);
    int failures = weft_mem_create(comm, 100, &mem) != WEFT_OK;
    failures += weft_mem_get_bytes(mem) != 100;
    failures += weft_mem_get_peer_base(mem, 2) != NULL;
    failures += weft_mem_get_peer_base(mem, rank) != weft_mem_get_base(mem);
    bool local = !spread_parts(0, 1);
    failures += (weft_mem_get_peer_base(mem, 1 - rank) != NULL) != local;
    failures += expect(weft_mem_put(mem, 90, data, 11, WEFT_DTYPE_U8, 1, NULL),
                       WEFT_ERR_INVALID, "dst_offset 90 and 11 u8");
    failures += expect(weft_mem_put(mem, 101, data, 0, WEFT_DTYPE_U8, 1, NULL),
                       WEFT_ERR_INVALID, "100 bytes of rank 1's memory");
    failures += expect(
        weft_mem_put(mem, 8, data, SIZE_MAX / 4, WEFT_DTYPE_F64, 1, NULL),
        WEFT_ERR_INVALID, "dst_offset 8");
    failures += expect(weft_mem_put(mem, 0, data, 1, WEFT_DTYPE_U8, 2, NULL),
                       WEFT_ERR_INVALID, "peer 2: allowed is 0..1");
    failures += expect(weft_mem_put(mem, 0, NULL, 1, WEFT_DTYPE_U8, 1, NULL),
                       WEFT_ERR_INVALID, "src is NULL");
    failures += expect(weft_mem_put(mem, 0, data, 1, (weft_dtype)99, 1, NULL),
                       WEFT_ERR_INVALID, "dtype 99");
    failures += expect(weft_mem_put(NULL, 0, data, 1, WEFT_DTYPE_U8, 1, NULL),
                       WEFT_ERR_INVALID, "mem is NULL");
    failures += expect(weft_mem_put(mem, 4, weft_mem_get_base(mem), 8,
                                    WEFT_DTYPE_U8, rank, NULL),
                       WEFT_ERR_INVALID, "overlaps dst_offset 4");
    failures += expect(weft_mem_signal(mem, 64, 1, 1, NULL), WEFT_ERR_INVALID,
                       "slot 64: allowed is 0..63");
    failures +=
        expect(weft_mem_signal(mem, 0, 0, 1, NULL), WEFT_ERR_INVALID, "add 0");
    failures += expect(weft_mem_signal(mem, 0, 1, -1, NULL), WEFT_ERR_INVALID,
                       "peer -1: allowed is 0..1");
    failures += expect(weft_mem_wait(mem, 0, 1, -2, NULL), WEFT_ERR_INVALID,
                       "peer -2: allowed is -1..1");
    failures +=
        expect(weft_mem_wait(mem, -1, 1, 0, NULL), WEFT_ERR_INVALID, "slot -1");
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    failures += weft_mem_get_signal(mem, 0, WEFT_MEM_ANY_PEER) != 0;
    weft_mem_destroy(mem);
    failures += expect(weft_mem_create(comm, 100 + (unsigned)rank, &none),
                       WEFT_ERR_INVALID, "rank 0 has 100, rank 1 101");
    failures += expect(weft_mem_create(comm, rank ? 1 : SIZE_MAX, &none),
                       WEFT_ERR_INVALID, rank ? "rank 0 could not" : "bytes 1");
    failures += expect(weft_mem_create(NULL, 1, &none), WEFT_ERR_INVALID,
                       "comm is NULL");
    weft_mem_destroy(NULL);
    return failures;
}

static void test_mem_bad_arguments_refused_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = bad_arguments};
    assert_int_equal(run(&world), 0);
}

static int never_signalled(weft_comm *comm, void *context)
{
    (void)context;
    weft_mem *mem;
    int rank = weft_comm_get_rank(comm);
    int failures = open_mem(comm, 8, &mem) != WEFT_OK;
    if (rank == 0) {
        failures += weft_mem_signal(mem, 3, 2, 1, NULL) != WEFT_OK;
    }
    weft_status status =
        rank == 1 ? weft_mem_wait(mem, 3, 5, 0, NULL)
                  : weft_mem_wait(mem, 9, 1, 0, NULL); /* for itself */
    failures += status != WEFT_ERR_TIMEOUT;
    bool named = strstr(weft_error_text(),
                        "wait for rank 0 to raise slot 3 of memory #1 of "
                        "\"world\" to 5: it is at 2") ||
                 strstr(weft_error_text(), "raise slot 9");
    failures += !named;
    /* Whatever comes later fails at once, by the same name. */
    failures += weft_mem_put(mem, 0, &rank, 1, WEFT_DTYPE_I32, 1, NULL) !=
                WEFT_ERR_TIMEOUT;
    failures += weft_mem_signal(mem, 3, 1, 1, NULL) != WEFT_ERR_TIMEOUT;
    close_mem(mem);
    return failures;
}

static void test_mem_wait_without_signal_timeout_names_slot(void **state)
{
    (void)state;
    struct world world = {.nranks = 2,
                          .config = {.warn_ms = 100, .timeout_ms = 3000},
                          .call = never_signalled};
    assert_int_equal(run(&world), 0);
}

/* Rank 2 is killed while rank 0 waits for it and rank 1 for anybody. */
static int lose_peer(weft_comm *comm, void *context)
{
    (void)context;
    weft_mem *mem;
    int rank = weft_comm_get_rank(comm);
    int failures = open_mem(comm, 8, &mem) != WEFT_OK;
    if (rank == 2) {
        kill(getpid(), SIGKILL);
    }
    failures += expect(
        weft_mem_wait(mem, 0, 1, rank == 0 ? 2 : WEFT_MEM_ANY_PEER, NULL),
        WEFT_ERR_PEER, "rank 2 has died");
    close_mem(mem);
    return failures;
}

static void test_mem_signaller_killed_wait_fails_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = lose_peer};
    assert_int_equal(world_run_killed(&world, 2), 0);
}

/* 1000 memories come and go, one kept among them; then the job's memory is as
 * large as before. */
static int come_and_go(weft_comm *comm, void *context)
{
    (void)context;
    enum { BYTES = 300000 };
    const wefti_membership *job = comm->engine->members;
    struct stat before, after;
    weft_comm_bytes without = {.size_bytes = sizeof(without)}, with = without;
    weft_mem *mem, *kept;
    int failures = weft_comm_get_bytes(comm, &without) != WEFT_OK;
    failures += weft_mem_create(comm, BYTES, &kept) != WEFT_OK;
    memset(weft_mem_get_base(kept), POISON, BYTES);
    failures += weft_comm_get_bytes(comm, &with) != WEFT_OK;
    failures += with.shared_bytes < without.shared_bytes + BYTES;
    const uint64_t parts = (uint64_t)comm->local_count; /* of this domain */
    failures += with.reserved_bytes < without.reserved_bytes + parts * BYTES;
    failures +=
        with.reserved_bytes >= without.reserved_bytes + (parts + 1) * BYTES;
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    failures += fstat(job->memory_fd, &before) != 0;
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    for (int i = 0; i < ROUNDS && !failures; i++) {
        failures += weft_mem_create(comm, BYTES, &mem) != WEFT_OK;
        char *base = weft_mem_get_base(mem);
        for (size_t at = 0; at < BYTES; at++) {
            failures += at % 4096 == 0 && base[at] != 0;
        }
        memset(base, POISON, BYTES);
        weft_mem_destroy(mem);
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    failures += fstat(job->memory_fd, &after) != 0;
    /* Staging of the barriers and gathers may have been touched since. */
    if (after.st_blocks > before.st_blocks + 2 * BYTES / 512) {
        fprintf(stderr, "%lld blocks before, %lld after\n",
                (long long)before.st_blocks, (long long)after.st_blocks);
        failures++;
    }
    weft_mem_destroy(kept);
    return failures > 63 ? 63 : failures;
}

/* What a rank has written into another's part is the other's; apart, that one
 * writes. */
static int count_parts(weft_comm *comm, void *context)
{
    (void)context;
    enum { BYTES = 1 << 20, ENTRIES_BYTES = 1 << 17 };
    const int rank = weft_comm_get_rank(comm);
    const int writer = spread_parts(0, 1) ? 1 : 0;
    weft_mem *mem;
    int failures = weft_mem_create(comm, BYTES, &mem) != WEFT_OK;
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    const uint64_t before = wefti_comm_count_part(comm);
    failures += before == 0;
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    if (rank == writer) {
        memset(wefti_mem_get_data(mem, 1), POISON, BYTES);
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    const uint64_t grown = wefti_comm_count_part(comm) - before;
    /* Entries of the barriers may have come, and the trial's page was there. */
    failures += grown > (rank == 1 ? BYTES : 0) + ENTRIES_BYTES;
    failures += rank == 1 && grown < BYTES - ENTRIES_BYTES;
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    weft_mem_destroy(mem);
    return failures;
}

static void test_mem_part_written_by_another_counts_as_its_owners(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = count_parts};
    assert_int_equal(world_run_processes(&world), 0);
}

static void test_mem_thousand_come_and_go_leave_nothing(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = come_and_go};
    assert_int_equal(run(&world), 0);
}

int main(int argc, char **argv)
{
    mode = argc > 1 ? argv[1] : "threads";
    registered = argc > 2 && strcmp(argv[2], "registered") == 0;
    const struct CMUnitTest in_registered[] = {
        cmocka_unit_test(test_mem_signaller_killed_wait_fails_by_name),
        cmocka_unit_test(test_mem_signal_after_puts_seen_after_their_data),
        cmocka_unit_test(test_mem_many_to_one_sum_and_each_seen),
        cmocka_unit_test(test_mem_counters_wrap_round),
        cmocka_unit_test(test_mem_on_streams_in_stream_order),
        cmocka_unit_test(test_mem_wait_without_signal_timeout_names_slot),
        cmocka_unit_test(test_mem_put_from_device_memory_exact),
    };
    if (registered) {
        return cmocka_run_group_tests(in_registered, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mem_signaller_killed_wait_fails_by_name),
        cmocka_unit_test(test_mem_signal_after_puts_seen_after_their_data),
        cmocka_unit_test(test_mem_many_to_one_sum_and_each_seen),
        cmocka_unit_test(test_mem_counters_wrap_round),
        cmocka_unit_test(test_mem_on_streams_in_stream_order),
        cmocka_unit_test(test_mem_beyond_four_gib_exact),
        cmocka_unit_test(test_mem_bad_arguments_refused_by_name),
        cmocka_unit_test(test_mem_wait_without_signal_timeout_names_slot),
        cmocka_unit_test(test_mem_thousand_come_and_go_leave_nothing),
        cmocka_unit_test(test_mem_part_written_by_another_counts_as_its_owners),
        cmocka_unit_test(test_mem_put_from_device_memory_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
