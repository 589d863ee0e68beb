/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: results so large that they are written past the cache are whole as soon
 * as the operation has ended, at any alignment, and nothing beside is written.
 *
 * Method: two ranks, as threads, exchange parts of a little more than 8 MiB
 * between buffers at odd addresses. That they are written so is seen in the
 * calls of the copy. Each byte tells its sender, its reader and
 * its place; buffers are poisoned, and so is what lies around them.
 */
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART = (8 << 20) + 333, ROOM = 128, POISON = 0xa5, EXCHANGES = 6 };

typedef struct buffers {
    unsigned char *memory, *send, *recv;
    size_t parts; /* of 2, what is sent */
} buffers;

static unsigned char byte_at(int from, int to, size_t i)
{
    uint32_t mixed = (uint32_t)i * 2654435761U + (uint32_t)(from * 7 + to * 3);
    return (unsigned char)(mixed >> 24);
}

/* ---- what passes the cache --------------------------------------------------
 */

/* As kernels/wire/copy.c has it. */
enum { WHOLE_LEAST = 16 << 20, PIECE_LEAST = 4096 };

static _Atomic size_t passed_bytes;

void __real_wefti_copy_part(void *dst, const void *src, size_t bytes,
                            size_t whole_bytes);
void __wrap_wefti_copy_part(void *dst, const void *src, size_t bytes,
                            size_t whole_bytes);

void __wrap_wefti_copy_part(void *dst, const void *src, size_t bytes,
                            size_t whole_bytes)
{
    if (whole_bytes >= WHOLE_LEAST && bytes >= PIECE_LEAST) {
        atomic_fetch_add(&passed_bytes, bytes);
    }
    __real_wefti_copy_part(dst, src, bytes, whole_bytes);
}

/* send begins where an address ends in send_at, recv in recv_at. */
static int make(buffers *made, int rank, size_t send_at, size_t recv_at)
{
    const size_t bytes = 2 * PART + 2 * ROOM;
    made->memory = aligned_alloc(64, (2 * bytes + 63) / 64 * 64);
    if (!made->memory) {
        return 1;
    }
    memset(made->memory, POISON, 2 * bytes);
    made->send = made->memory + ROOM / 2 + send_at;
    made->recv = made->memory + bytes / 64 * 64 + ROOM / 2 + recv_at;
    for (size_t to = 0; to < made->parts; to++) {
        for (size_t i = 0; i < PART; i++) {
            made->send[to * PART + i] = byte_at(rank, (int)to, i);
        }
    }
    return 0;
}

static int count_wrong(const buffers *made, int rank)
{
    int wrong = 0;
    for (int from = 0; from < 2; from++) {
        const int to = made->parts == 2 ? rank : 0;
        for (size_t i = 0; i < PART; i++) {
            wrong +=
                made->recv[(size_t)from * PART + i] != byte_at(from, to, i);
        }
    }
    for (size_t i = 1; i <= ROOM / 4; i++) {
        wrong += made->recv[-(ptrdiff_t)i] != POISON;
        wrong += made->recv[2 * PART + i - 1] != POISON;
    }
    return wrong;
}

static int exchange(weft_comm *comm, size_t parts, size_t send_at,
                    size_t recv_at)
{
    const int rank = weft_comm_get_rank(comm);
    buffers made = {.parts = parts};
    if (make(&made, rank, send_at, recv_at) != 0) {
        return 1;
    }
    weft_status status = parts == 2 ? weft_alltoall(made.send, made.recv, PART,
                                                    WEFT_DTYPE_U8, comm, NULL)
                                    : weft_allgather(made.send, made.recv, PART,
                                                     WEFT_DTYPE_U8, comm, NULL);
    const int wrong = status == WEFT_OK ? count_wrong(&made, rank) : 1;
    if (wrong != 0) {
        fprintf(stderr, "rank %d, %zu parts at %zu and %zu: %d wrong, %s\n",
                rank, parts, send_at, recv_at, wrong, weft_error_text());
    }
    free(made.memory);
    return wrong != 0;
}

static int exchange_all(weft_comm *comm, void *context)
{
    (void)context;
    static const size_t places[][2] = {{0, 0}, {1, 0}, {13, 29}};
    int failures = 0;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        failures += exchange(comm, 2, places[i][0], places[i][1]);
        failures += exchange(comm, 1, places[i][0], places[i][1]);
    }
    return failures;
}

static void test_exchange_past_the_cache_is_whole_and_guarded(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = exchange_all};
    assert_int_equal(world_run_threads(&world), 0);
    /* Each rank's results, but for what is left of a part behind its chunks. */
    const size_t results = 2 * EXCHANGES * (size_t)2 * PART;
    assert_true(atomic_load(&passed_bytes) >= results - results / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange_past_the_cache_is_whole_and_guarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
