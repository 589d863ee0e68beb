/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: ranks whose threads have stacks of 64 KiB create communicators, move
 * data of all sizes, split and leave, on one host and between domains.
 *
 * Method: such stacks are made this process's default, which the library's own
 * threads inherit as well; worlds of threads do one of everything. Sanitizers
 * make frames several times as large, so there the stacks are larger.
 */
#include "tests/comm/spread.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STACK_BYTES = 2 << 20 };
#else
enum { STACK_BYTES = 64 << 10 };
#endif

enum { NRANKS = 3, LARGE = 1 << 20 };

static int reduce(weft_comm *comm, size_t count, weft_stream *stream)
{
    float *data = calloc(count, sizeof(*data));
    int wrong = 0;
    if (!data) {
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        data[i] = (float)(weft_comm_get_rank(comm) + 1);
    }
    weft_status status = weft_allreduce(data, data, count, WEFT_DTYPE_F32,
                                        WEFT_REDOP_SUM, comm, stream);
    if (status == WEFT_OK && stream) {
        status = weft_stream_wait(stream);
    }
    for (size_t i = 0; i < count; i++) {
        wrong += data[i] != (float)(NRANKS * (NRANKS + 1) / 2);
    }
    free(data);
    return status != WEFT_OK || wrong > 0;
}

static int do_everything(weft_comm *comm, void *context)
{
    const int rank = weft_comm_get_rank(comm);
    const int next = (rank + 1) % NRANKS, last = (rank + NRANKS - 1) % NRANKS;
    weft_device *host = NULL;
    weft_stream *stream = NULL;
    weft_comm *part = NULL;
    char text[4096];
    int sent = rank, got = -1, failures = 0;
    (void)context;
    failures += weft_device_open("host", 0, &host) != WEFT_OK;
    failures += weft_stream_create(host, 0, &stream) != WEFT_OK;
    failures += reduce(comm, 2, NULL) + reduce(comm, LARGE, NULL);
    failures += reduce(comm, LARGE, stream);
    weft_p2p both[2] = {{.size_bytes = sizeof(both[0]),
                         .kind = WEFT_P2P_SEND,
                         .buffer = &sent,
                         .count = 1,
                         .dtype = WEFT_DTYPE_I32,
                         .peer = next},
                        {.size_bytes = sizeof(both[0]),
                         .kind = WEFT_P2P_RECV,
                         .buffer = &got,
                         .count = 1,
                         .dtype = WEFT_DTYPE_I32,
                         .peer = last}};
    failures += weft_p2p_post(both, 2, comm, NULL) != WEFT_OK || got != last;
    failures += weft_comm_split(comm, 0, rank, NULL, &part) != WEFT_OK;
    failures += reduce(part, 100, NULL);
    failures += weft_comm_dump(part, text, sizeof(text)) != WEFT_OK;
    weft_comm_destroy(part);
    weft_stream_destroy(stream);
    weft_device_close(host);
    return failures;
}

static void run(const char *spread)
{
    const struct world world = {.nranks = NRANKS, .call = do_everything};
    spread_set_domains(spread, NRANKS);
    int failures = world_run_threads(&world);
    spread_unset_domains(spread);
    assert_int_equal(failures, 0);
}

static void test_small_stacks_one_host_everything_works(void **state)
{
    (void)state;
    run(NULL);
}

static void test_small_stacks_domains_everything_works(void **state)
{
    (void)state;
    run("apart");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_stacks_one_host_everything_works),
        cmocka_unit_test(test_small_stacks_domains_everything_works),
    };
    pthread_attr_t small;
    if (pthread_attr_init(&small) != 0 ||
        pthread_attr_setstacksize(&small, STACK_BYTES) != 0 ||
        pthread_setattr_default_np(&small) != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
