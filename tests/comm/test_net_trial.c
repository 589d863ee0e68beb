/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: of a trial of the network either end finds the first word that comes
 * changed, and refuses a request that makes no sense.
 *
 * Method: two ranks on domains of this host; one of them is the test's own end,
 * which sends other bytes than the trial's.
 */
#include "comm/make/net_trial.h"

#include "base/check.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const wefti_net_effort brief = {.pings = 4,
                                       .bursts = 1,
                                       .repeats = 1,
                                       .most_bytes = 128 << 10,
                                       .limit_ns = 10000000};

static int check(bool good, const weft_comm *comm, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d: %s: %s\n", weft_comm_get_rank(comm), what,
                weft_error_text());
    }
    return !good;
}

typedef struct request {
    uint64_t kind, bytes;
} request;

enum { END, PING, BURST, DATA, BACK }; /* as comm/make/net_trial.h draws them */

/* The test's own follower: sends back one word that is not the pattern's. */
static int follow_badly(weft_comm *comm)
{
    static uint64_t words[WEFTI_TRIAL_MOST_BYTES / 8];
    const uint64_t word = 0;
    request asked = {.kind = PING};
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && asked.kind != END) {
        status = weft_recv(&asked, sizeof(asked), WEFT_DTYPE_U8, 0, comm, NULL);
        if (status == WEFT_OK && asked.kind != BACK && asked.kind != END) {
            status =
                weft_send(&word, sizeof(word), WEFT_DTYPE_U8, 0, comm, NULL);
        }
        if (asked.kind == BURST) {
            for (int i = 0; i < 16 && status == WEFT_OK; i++) {
                status = weft_recv(words, sizeof(word), WEFT_DTYPE_U8, 0, comm,
                                   NULL);
            }
        } else if (asked.kind == DATA && status == WEFT_OK) {
            status =
                weft_recv(words, asked.bytes, WEFT_DTYPE_U8, 0, comm, NULL);
        } else if (asked.kind == BACK) {
            for (size_t at = 0; at < asked.bytes / 8; at++) {
                words[at] = wefti_net_trial_word(1, at);
            }
            words[1000] ^= 0x10;
            status =
                weft_send(words, asked.bytes, WEFT_DTYPE_U8, 0, comm, NULL);
        }
        if ((asked.kind == BURST || asked.kind == DATA) && status == WEFT_OK) {
            status =
                weft_send(&word, sizeof(word), WEFT_DTYPE_U8, 0, comm, NULL);
        }
    }
    return check(status == WEFT_OK, comm, "follower");
}

static int lead_a_bad_one(weft_comm *comm, void *context)
{
    wefti_net_trial trial = wefti_net_trial_begin();
    (void)context;
    if (weft_comm_get_rank(comm) == 1) {
        return follow_badly(comm);
    }
    weft_status status = wefti_net_trial_run(comm, 1, &brief, &trial);
    return check(status == WEFT_OK && trial.measured, comm, "trial") +
           check(trial.bad_from == 1 && trial.bad_place == 8000 &&
                     trial.bad_bytes == WEFTI_TRIAL_BACK_BYTES &&
                     (trial.bad_sent ^ trial.bad_found) == 0x10,
                 comm, "the changed word was not found");
}

/* The test's own leader: what it sends is shifted by one word. */
static int follow_a_bad_one(weft_comm *comm, void *context)
{
    static uint64_t words[1024];
    const request data = {DATA, sizeof(words)}, over = {END, 0};
    uint64_t word;
    (void)context;
    if (weft_comm_get_rank(comm) == 1) {
        wefti_net_trial trial = wefti_net_trial_begin();
        weft_status status = wefti_net_trial_run(comm, 0, NULL, &trial);
        return check(status == WEFT_OK && !trial.measured, comm, "trial") +
               check(trial.bad_from == 0 && trial.bad_place == 0 &&
                         trial.bad_bytes == sizeof(words) &&
                         trial.bad_found == wefti_net_trial_word(0, 1) &&
                         trial.bad_sent == wefti_net_trial_word(0, 0),
                     comm, "the changed word was not found");
    }
    for (size_t at = 0; at < WEFTI_COUNT_OF(words); at++) {
        words[at] = wefti_net_trial_word(0, at + 1);
    }
    weft_status status =
        weft_send(&data, sizeof(data), WEFT_DTYPE_U8, 1, comm, NULL);
    for (int turn = 0; turn < 2 && status == WEFT_OK; turn++) {
        status = weft_recv(&word, sizeof(word), WEFT_DTYPE_U8, 1, comm, NULL);
        if (turn == 0 && status == WEFT_OK) {
            status =
                weft_send(words, sizeof(words), WEFT_DTYPE_U8, 1, comm, NULL);
        }
    }
    if (status == WEFT_OK) {
        status = weft_send(&over, sizeof(over), WEFT_DTYPE_U8, 1, comm, NULL);
    }
    return check(status == WEFT_OK, comm, "leader");
}

static int ask_nonsense(weft_comm *comm, void *context)
{
    const request asked = {DATA, WEFTI_TRIAL_MOST_BYTES + 8};
    wefti_net_trial trial = wefti_net_trial_begin();
    (void)context;
    if (weft_comm_get_rank(comm) == 0) {
        return check(weft_send(&asked, sizeof(asked), WEFT_DTYPE_U8, 1, comm,
                               NULL) == WEFT_OK,
                     comm, "leader");
    }
    return check(wefti_net_trial_run(comm, 0, NULL, &trial) ==
                         WEFT_ERR_SYSTEM &&
                     strstr(weft_error_text(), "rank 0 asked rank 1"),
                 comm, "nonsense was not refused");
}

static void run(world_rank_call call)
{
    const struct world world = {.nranks = 2, .call = call};
    setenv("WEFT_DOMAIN", "a,b", 1);
    assert_int_equal(world_run_processes(&world), 0);
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_lead_changed_bytes_are_found(void **state)
{
    (void)state;
    run(lead_a_bad_one);
}

static void test_follow_changed_bytes_are_found(void **state)
{
    (void)state;
    run(follow_a_bad_one);
}

static void test_follow_nonsense_is_refused(void **state)
{
    (void)state;
    run(ask_nonsense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lead_changed_bytes_are_found),
        cmocka_unit_test(test_follow_changed_bytes_are_found),
        cmocka_unit_test(test_follow_nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
