/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: ranks of several domains measure the network when they meet and all
 * have the same figures, which what is split off inherits; ranks of one domain
 * measure nothing. A rank that dies or stops while the network is tried is
 * named in time; one whose bytes came changed, too.
 *
 * Method: worlds of threads and of processes on domains of this host. The
 * victim's world has been made already, and it is the test's own end of the
 * trial: it answers some requests, and then dies or stops. One more series is
 * killed at any moment of the creation, by a timer drawn from a seed.
 */
#include "comm/make/net_measure.h"

#include "base/check.h"
#include "base/clock.h"
#include "comm/make/explain.h"
#include "comm/post/post.h"
#include "tests/comm/world.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MOST = 8, ANSWERS = 3, SERIES = 10, SPAN_US = 60000 };

#define LOOK_NS INT64_C(30000000000)

static void set_domains(const char *domains)
{
    if (domains) {
        setenv("WEFT_DOMAIN", domains, 1);
    } else {
        unsetenv("WEFT_DOMAIN");
    }
}

static int check(bool good, const weft_comm *comm, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d: %s: %s\n", weft_comm_get_rank(comm), what,
                weft_error_text());
    }
    return !good;
}

/* ---- figures --------------------------------------------------------------
 */

/* All members have what rank 0 has. */
static int compare_rates(weft_comm *comm)
{
    wefti_known_rates all[RANKS_MOST];
    const wefti_known_rates *own = &comm->rates;
    weft_status status =
        weft_allgather(own, all, sizeof(*own), WEFT_DTYPE_U8, comm, NULL);
    int failures = check(status == WEFT_OK, comm, "all-gather");
    for (int rank = 0; rank < weft_comm_get_nranks(comm); rank++) {
        failures += check(
            all[rank].source == own->source &&
                memcmp(&all[rank].rates, &own->rates, sizeof(own->rates)) == 0,
            comm, "figures differ");
    }
    return failures;
}

static int expect_source(weft_comm *comm, wefti_rates_source source)
{
    return check(comm->rates.source == source, comm,
                 wefti_rates_source_text(comm->rates.source)) +
           compare_rates(comm);
}

static int have_measured(weft_comm *comm, void *context)
{
    const wefti_rates *rates = wefti_known_rates_get(&comm->rates);
    weft_comm *part, *named;
    const int first = 0;
    int failures = expect_source(comm, WEFTI_RATES_MEASURED);
    (void)context;
    /* A loopback, whatever else runs. */
    failures += check(rates->network_latency_ns >= 500 &&
                          rates->network_latency_ns <= 5e8,
                      comm, "latency");
    failures += check(rates->network_message_ns >= 1, comm, "message");
    failures +=
        check(rates->network_byte_ns >= 0.01 && rates->network_byte_ns <= 1e4,
              comm, "bytes");
    weft_status status =
        weft_comm_split(comm, weft_comm_get_rank(comm) % 2, 0, NULL, &part);
    failures += check(status == WEFT_OK, comm, "split");
    if (status == WEFT_OK) {
        failures += expect_source(part, WEFTI_RATES_MEASURED);
        weft_comm_destroy(part);
    }
    if (weft_comm_get_rank(comm) == 0) {
        status = weft_comm_create_from(comm, &first, 1, NULL, &named);
        failures += check(status == WEFT_OK, comm, "create_from");
        failures += expect_source(named, WEFTI_RATES_MEASURED);
        weft_comm_destroy(named);
    }
    return failures;
}

static int have_usual(weft_comm *comm, void *context)
{
    (void)context;
    return expect_source(comm, WEFTI_RATES_USUAL) +
           check(wefti_known_rates_get(&comm->rates) == &wefti_rates_usual,
                 comm, "not the usual ones");
}

static char folder[64];

static void empty_cache(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'/net-*", folder);
    assert_int_equal(system(command), 0);
}

static void run(const char *domains, const char *setting, int nranks,
                world_rank_call call)
{
    const struct world world = {.nranks = nranks, .call = call};
    set_domains(domains);
    setenv("WEFT_NET_RATES", setting, 1);
    empty_cache();
    assert_int_equal(world_run_processes(&world), 0);
    empty_cache();
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_measure_all_ranks_have_the_same_figures(void **state)
{
    (void)state;
    run("a,b", "measured", 2, have_measured);
    run("a,a,b,b", "measured", 4, have_measured);
    run("a,b,c", "measured", 3, have_measured);
    run("a,b,a,c,d,e", "measured", 6, have_measured);
}

static void test_measure_nothing_on_one_host_or_where_not_wanted(void **state)
{
    (void)state;
    run(NULL, "measured", 4, have_usual);
    run("a,b", "usual", 2, have_usual);
    run("a,a,b", "usual", 3, have_usual);
}

/* ---- the file -------------------------------------------------------------
 */

static _Atomic int files_used;

static int count_files(weft_comm *comm, void *context)
{
    const wefti_known_rates *own = &comm->rates;
    (void)context;
    files_used += own->source == WEFTI_RATES_FILE;
    return compare_rates(comm) +
           check(own->source != WEFTI_RATES_USUAL, comm, "nothing measured");
}

/* How many of the ranks have figures from a file. */
static int use_files(void)
{
    const struct world world = {.nranks = 3, .call = count_files};
    files_used = 0;
    assert_int_equal(world_run_threads(&world), 0);
    return files_used;
}

/* Puts figures, or bytes that are none, into the only file. */
static void change_file(const char *figures)
{
    char command[256];
    snprintf(command, sizeof(command),
             "cd '%s' && test $(ls | wc -l) = 1 && for file in net-*; do "
             "printf 'weft-net-rates 1 %%s\\n%s' \"${file#net-}\" > \"$file\"; "
             "done",
             folder, figures);
    assert_int_equal(system(command), 0);
}

/* No network takes so long for a message, whatever its other figures. */
static void change_message_figure(void)
{
    char command[256];
    snprintf(command, sizeof(command),
             "sed -i 's/^message_ns .*/message_ns 900000000/' '%s'/net-*",
             folder);
    assert_int_equal(system(command), 0);
}

/* Where the machine is loaded a look may not find what was measured, and then
 * it is measured and written anew: so there are many turns. */
static void expect_file(void)
{
    const int64_t end_ns = wefti_clock_ns() + LOOK_NS;
    int used = 0;
    while (used == 0 && wefti_clock_ns() < end_ns) {
        used = use_files();
    }
    assert_int_equal(used, 3);
}

static void test_file_is_used_while_it_holds_still(void **state)
{
    (void)state;
    set_domains("a,a,b");
    setenv("WEFT_NET_RATES", "measured", 1);
    empty_cache();
    assert_int_equal(use_files(), 0);
    expect_file();
    change_message_figure();
    assert_int_equal(use_files(), 0);
    expect_file();
    /* No network is so slow, or so fast, as these. */
    change_file("latency_ns 900000000\\nmessage_ns 9\\nbyte_ps 8000000\\n");
    assert_int_equal(use_files(), 0);
    change_file("latency_ns 1\\nmessage_ns 1\\nbyte_ps 1\\n");
    assert_int_equal(use_files(), 0);
    change_file("latency_ns 1\\n");
    assert_int_equal(use_files(), 0);
    expect_file();
    setenv("WEFT_CACHE_DIR", "/dev/null/weft", 1);
    assert_int_equal(use_files(), 0);
    setenv("WEFT_CACHE_DIR", folder, 1);
}

static int refuses(int rank, weft_status status, void *context)
{
    (void)rank;
    (void)context;
    return status != WEFT_ERR_INVALID ||
           !strstr(weft_error_text(),
                   "WEFT_NET_RATES=guessed: allowed is measured or usual");
}

static int never(weft_comm *comm, void *context)
{
    (void)context;
    return check(false, comm, "was created");
}

static void test_setting_other_word_is_refused(void **state)
{
    const struct world world = {.nranks = 2, .call = never, .refused = refuses};
    (void)state;
    set_domains(NULL);
    setenv("WEFT_NET_RATES", "guessed", 1);
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_unite_names_both_ranks_and_takes_the_slowest(void **state)
{
    wefti_net_trial trials[3] = {wefti_net_trial_begin(),
                                 wefti_net_trial_begin(),
                                 wefti_net_trial_begin()};
    wefti_net_figures figures;
    (void)state;
    trials[0].measured = trials[2].measured = 1;
    trials[0].figures = (wefti_net_figures){12345, 4000, 800};
    trials[2].figures = (wefti_net_figures){1000, 5555, 8149};
    assert_int_equal(wefti_net_measure_unite(trials, 3, "eth0", &figures),
                     WEFT_OK);
    assert_int_equal(figures.latency_ns, 12000);
    assert_int_equal(figures.message_ns, 5600);
    assert_int_equal(figures.byte_ps, 8100);
    trials[1].bad_from = 2;
    trials[1].bad_place = 8000;
    trials[1].bad_bytes = 65536;
    trials[1].bad_found = 3;
    trials[1].bad_sent = 7;
    assert_int_equal(wefti_net_measure_unite(trials, 3, "eth0", &figures),
                     WEFT_ERR_SYSTEM);
    assert_string_equal(
        weft_error_text(),
        "the network (eth0) changes what it carries: of 65536 bytes that rank "
        "2 sent to rank 1, the word at byte 8000 was 0000000000000007 and came "
        "as 0000000000000003");
}

/* ---- who dies or stops ----------------------------------------------------
 */

/* What goes before a trial: who has which host, and what a file says. */
static weft_status come_to_trial(weft_comm *comm)
{
    unsigned char marks[4][16] = {{0}}, figures[sizeof(wefti_net_figures)];
    const unsigned char own[16] = {1};
    weft_status status = wefti_post_exchange(WEFTI_PURPOSE_CREATE, own, marks,
                                             sizeof(own), comm);
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_BROADCAST,
                        .recv = figures,
                        .count = sizeof(figures),
                        .dtype = WEFT_DTYPE_U8};
    return status == WEFT_OK ? wefti_post_for(WEFTI_PURPOSE_CREATE, &op, comm)
                             : status;
}

/* Rank 2, which is to follow rank 0, answers some pings and no more. */
static int lose_one(weft_comm *comm, void *context)
{
    const int number = *(const int *)context;
    const uint64_t word = 0;
    uint64_t asked[2];
    comm->tuning.measure_net = true;
    if (weft_comm_get_rank(comm) == 2) {
        if (come_to_trial(comm) != WEFT_OK) {
            return 1;
        }
        for (int i = 0; i < ANSWERS; i++) {
            if (weft_recv(asked, sizeof(asked), WEFT_DTYPE_U8, 0, comm, NULL) !=
                    WEFT_OK ||
                weft_send(&word, sizeof(word), WEFT_DTYPE_U8, 0, comm, NULL) !=
                    WEFT_OK) {
                return 1;
            }
        }
        (void)raise(number);
    }
    weft_status status = wefti_net_measure(comm);
    weft_fault fault = {.size_bytes = sizeof(fault)};
    return check(status == WEFT_ERR_PEER || status == WEFT_ERR_TIMEOUT, comm,
                 "measured without rank 2") +
           check(strstr(weft_error_text(), "rank 2") != NULL, comm,
                 "rank 2 is not named") +
           check(weft_comm_get_fault(comm, &fault) == WEFT_OK &&
                     fault.rank == 2,
                 comm, "fault of another") +
           check(comm->rates.source == WEFTI_RATES_USUAL, comm,
                 "figures of a trial that failed");
}

static void lose(int number)
{
    const struct world world = {.nranks = 4,
                                .config = {.timeout_ms = 1500},
                                .call = lose_one,
                                .context = &number};
    world_processes started;
    set_domains("a,a,b,b");
    setenv("WEFT_NET_RATES", "usual", 1);
    empty_cache();
    world_start_processes(&world, &started);
    const int victim = started.pids[2];
    started.pids[2] = 0;
    assert_int_equal(world_finish_survivors(&started, 30), 0);
    kill(victim, SIGKILL);
    assert_int_equal(waitpid(victim, NULL, 0), victim);
    for (int rank = 0; rank < 4; rank++) {
        assert_true(rank == 2 || started.exit_status[rank] == 0);
    }
}

static void test_measure_dead_rank_is_named(void **state)
{
    (void)state;
    lose(SIGKILL);
}

static void test_measure_stopped_rank_is_named(void **state)
{
    (void)state;
    lose(SIGSTOP);
}

/* Ends rank 2 so many microseconds after it began to join. */
static void arm(int rank, void *context)
{
    const struct itimerval timer = {.it_value.tv_usec = *(const int *)context};
    if (rank == 2 && setitimer(ITIMER_REAL, &timer, NULL) != 0) {
        abort();
    }
}

static int names_it(weft_status status)
{
    /* A rank that ends before it has joined is waited for. */
    bool good = status == WEFT_ERR_PEER || status == WEFT_ERR_BOOTSTRAP ||
                status == WEFT_ERR_TIMEOUT;
    if (!good || !strstr(weft_error_text(), "rank 2")) {
        fprintf(stderr, "%s: %s\n", weft_status_text(status),
                weft_error_text());
        return 1;
    }
    return 0;
}

static int refused_for_it(int rank, weft_status status, void *context)
{
    (void)context;
    return rank == 2 ? 0 : names_it(status);
}

/* Until the fault comes: rank 2 ends for certain. */
static int meet_without_it(weft_comm *comm, void *context)
{
    (void)context;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK) {
        status = weft_barrier(comm, NULL);
    }
    return names_it(status);
}

static void test_create_killed_at_any_moment_is_named(void **state)
{
    uint64_t seed = random_seed();
    (void)state;
    set_domains("a,a,b,b");
    setenv("WEFT_NET_RATES", "measured", 1);
    for (int i = 0; i < SERIES; i++) {
        int after_us = 1 + (int)(random_next(&seed) % SPAN_US);
        const struct world world = {.nranks = 4,
                                    .config = {.timeout_ms = 4000},
                                    .call = meet_without_it,
                                    .context = &after_us,
                                    .before = arm,
                                    .refused = refused_for_it};
        world_processes started;
        world_start_processes(&world, &started);
        assert_int_equal(world_finish_survivors(&started, 30), 0);
        for (int rank = 0; rank < 4; rank++) {
            if (rank != 2 && started.exit_status[rank] != 0) {
                fail_msg("rank %d, killed after %d us", rank, after_us);
            }
        }
    }
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weft-measure.XXXXXX");
    return mkdtemp(folder) ? setenv("WEFT_CACHE_DIR", folder, 1) : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measure_all_ranks_have_the_same_figures),
        cmocka_unit_test(test_measure_nothing_on_one_host_or_where_not_wanted),
        cmocka_unit_test(test_file_is_used_while_it_holds_still),
        cmocka_unit_test(test_setting_other_word_is_refused),
        cmocka_unit_test(test_unite_names_both_ranks_and_takes_the_slowest),
        cmocka_unit_test(test_measure_dead_rank_is_named),
        cmocka_unit_test(test_measure_stopped_rank_is_named),
        cmocka_unit_test(test_create_killed_at_any_moment_is_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
