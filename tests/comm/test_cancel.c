/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a rank that waits in weft_comm_create, weft_comm_split or
 * weft_comm_create_from gives up soon after its weft_cancel was posted, before
 * or meanwhile, and all others learn that it was this rank; a cancel that comes
 * too late does nothing.
 *
 * Method: one rank never comes, so that the others could only wait; all time
 * limits are far longer than the test may take. Threads as ranks.
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NRANKS = 3, SOON_S = 20, LIMIT_MS = 600000 };

static weft_cancel *make_cancel(bool posted)
{
    weft_cancel *cancel;
    assert_int_equal(weft_cancel_create(&cancel), WEFT_OK);
    if (posted) {
        assert_int_equal(weft_cancel_post(cancel), WEFT_OK);
    }
    return cancel;
}

static void *post(void *cancel)
{
    return weft_cancel_post(cancel) == WEFT_OK ? NULL : cancel;
}

/* A rank that comes to a meeting which is never complete. */
typedef struct comer {
    weft_comm_config config;
    bool known; /* had come before rank 1 gave up */
    pthread_t thread;
    int failures;
} comer;

static void *come(void *argument)
{
    comer *self = argument;
    weft_comm *comm;
    const weft_status status = weft_comm_create(&self->config, &comm);
    self->failures = CHECK(status == WEFT_ERR_ABORTED ||
                           (!self->known && status == WEFT_ERR_BOOTSTRAP)) +
                     CHECK(comm == NULL);
    if (self->known || status == WEFT_ERR_ABORTED) {
        self->failures +=
            CHECK(strstr(weft_error_text(),
                         "rank 1: its creation was cancelled") != NULL);
    }
    return NULL;
}

static void start(comer *self, const weft_unique_id *id, int rank,
                  weft_cancel *cancel)
{
    self->config = (weft_comm_config){.size_bytes = sizeof(self->config),
                                      .id = id,
                                      .rank = rank,
                                      .nranks = NRANKS + 1,
                                      .warn_ms = 1,
                                      .timeout_ms = LIMIT_MS,
                                      .cancel = cancel};
    assert_int_equal(pthread_create(&self->thread, NULL, come, self), 0);
}

/* A rank that has come is told soon whom it waits for, and logs that. */
static void await_log(int fd, const char *rank_0, const char *rank_2)
{
    static char text[1 << 16];
    size_t used = 0;
    const int64_t until_ns = wefti_clock_ns() + SOON_S * INT64_C(1000000000);
    text[0] = '\0';
    while (!strstr(text, rank_0) || !strstr(text, rank_2)) {
        struct pollfd news = {.fd = fd, .events = POLLIN};
        assert_true(used < sizeof(text) - 1);
        assert_int_equal(poll(&news, 1, wefti_clock_poll_ms(until_ns)), 1);
        const ssize_t got = read(fd, text + used, sizeof(text) - 1 - used);
        assert_true(got > 0);
        used += (size_t)got;
        text[used] = '\0';
    }
}

static void join_all(comer comers[NRANKS], int64_t begin_ns)
{
    for (int rank = 0; rank < NRANKS; rank++) {
        pthread_join(comers[rank].thread, NULL);
        assert_int_equal(comers[rank].failures, 0);
    }
    assert_true(wefti_clock_ns() - begin_ns < SOON_S * INT64_C(1000000000));
}

static void test_create_cancelled_ends_on_all_who_have_come(void **state)
{
    (void)state;
    weft_unique_id id;
    comer comers[NRANKS];
    int ends[2];
    const int kept = dup(STDERR_FILENO);
    weft_cancel *cancel = make_cancel(false);
    assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
    assert_int_equal(pipe(ends), 0);
    fflush(stderr);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    for (int rank = 0; rank < NRANKS; rank++) {
        comers[rank].known = true;
        start(&comers[rank], &id, rank, rank == 1 ? cancel : NULL);
    }
    await_log(ends[0], "rank 0: waits: ", "rank 2: waits: ");
    const int64_t begin_ns = wefti_clock_ns();
    assert_null(post(cancel));
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    join_all(comers, begin_ns);
    close(kept);
    close(ends[0]);
    close(ends[1]);
    weft_cancel_destroy(cancel);
}

static void test_create_cancelled_before_ends_on_all(void **state)
{
    (void)state;
    weft_unique_id id;
    comer comers[NRANKS];
    weft_cancel *cancel = make_cancel(true);
    assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
    const int64_t begin_ns = wefti_clock_ns();
    for (int rank = 0; rank < NRANKS; rank++) {
        comers[rank].known = rank == 1;
        start(&comers[rank], &id, rank, rank == 1 ? cancel : NULL);
    }
    join_all(comers, begin_ns);
    weft_cancel_destroy(cancel);
}

/* Nobody answers where the others should be. */
static void test_create_cancelled_without_server_ends(void **state)
{
    (void)state;
    weft_cancel *cancel = make_cancel(false);
    pthread_t poster;
    void *failed;
    weft_comm *comm;
    const weft_comm_config config = {
        .size_bytes = sizeof(config), .timeout_ms = LIMIT_MS, .cancel = cancel};
    setenv("WEFT_RENDEZVOUS", "127.0.0.1:9", 1);
    setenv("WEFT_SECRET", "0123456789abcdef0123456789abcdef", 1);
    setenv("WEFT_RANK", "1", 1);
    setenv("WEFT_NRANKS", "2", 1);
    assert_int_equal(pthread_create(&poster, NULL, post, cancel), 0);
    assert_int_equal(weft_comm_create(&config, &comm), WEFT_ERR_ABORTED);
    assert_string_equal(weft_error_text(),
                        "rank 1: its creation was cancelled");
    pthread_join(poster, &failed);
    assert_null(failed);
    unsetenv("WEFT_RENDEZVOUS");
    unsetenv("WEFT_SECRET");
    unsetenv("WEFT_RANK");
    unsetenv("WEFT_NRANKS");
    weft_cancel_destroy(cancel);
}

/* How a communicator is to come of another. */
typedef struct making {
    bool from_list, before;
} making;

static int give_up(weft_comm *comm, void *context)
{
    static const int ranks[NRANKS] = {0, 1, 2};
    const making *how = context;
    const int rank = weft_comm_get_rank(comm);
    const int64_t begin_ns = wefti_clock_ns();
    weft_cancel *cancel = make_cancel(rank == 1 && how->before);
    const weft_comm_config config = {.size_bytes = sizeof(config),
                                     .cancel = rank == 1 ? cancel : NULL};
    pthread_t poster;
    weft_comm *made = NULL;
    int32_t word;
    bool posts = rank == 1 && !how->before;
    int failures =
        posts ? CHECK(pthread_create(&poster, NULL, post, cancel) == 0) : 0;
    const weft_status status =
        rank == 2 ? weft_recv(&word, 1, WEFT_DTYPE_I32, rank, comm, NULL)
        : how->from_list
            ? weft_comm_create_from(comm, ranks, NRANKS, &config, &made)
            : weft_comm_split(comm, 0, rank, &config, &made);
    failures +=
        CHECK(status == WEFT_ERR_ABORTED) + CHECK(made == NULL) +
        CHECK(strstr(weft_error_text(),
                     "rank 1 cancelled a creation on \"world\"") != NULL) +
        CHECK(wefti_clock_ns() - begin_ns < SOON_S * INT64_C(1000000000));
    if (posts) {
        void *failed;
        pthread_join(poster, &failed);
        failures += CHECK(failed == NULL);
    }
    weft_cancel_destroy(cancel);
    return failures;
}

static void test_making_from_a_parent_cancelled_ends_on_all(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        making how = {kind & 1, kind & 2};
        struct world world = {.nranks = NRANKS,
                              .config = {.timeout_ms = LIMIT_MS},
                              .call = give_up,
                              .context = &how};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* What is made is no longer the cancel's. */
static int too_late(weft_comm *comm, void *context)
{
    const int rank = weft_comm_get_rank(comm);
    const int others[] = {(rank + 1) % 2};
    weft_cancel *cancel = make_cancel(false);
    const weft_comm_config config = {.size_bytes = sizeof(config),
                                     .cancel = cancel};
    weft_comm *made = NULL;
    (void)context;
    int failures =
        CHECK(weft_comm_shrink_without(comm, others, 1, &config, &made) ==
              WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "weft_comm_shrink_without") != NULL);
    failures +=
        CHECK(weft_comm_split(comm, 0, rank, &config, &made) == WEFT_OK) +
        CHECK(weft_cancel_post(cancel) == WEFT_OK) +
        CHECK(weft_barrier(comm, NULL) == WEFT_OK) +
        CHECK(weft_barrier(made, NULL) == WEFT_OK);
    weft_comm_destroy(made);
    weft_cancel_destroy(cancel);
    return failures;
}

static void test_cancel_after_the_creation_does_nothing(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = too_late};
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_cancel_of_nothing_is_refused(void **state)
{
    (void)state;
    assert_int_equal(weft_cancel_create(NULL), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "cancel_out is NULL"));
    assert_int_equal(weft_cancel_post(NULL), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "cancel is NULL"));
    weft_cancel_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_cancelled_ends_on_all_who_have_come),
        cmocka_unit_test(test_create_cancelled_before_ends_on_all),
        cmocka_unit_test(test_create_cancelled_without_server_ends),
        cmocka_unit_test(test_making_from_a_parent_cancelled_ends_on_all),
        cmocka_unit_test(test_cancel_after_the_creation_does_nothing),
        cmocka_unit_test(test_cancel_of_nothing_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
