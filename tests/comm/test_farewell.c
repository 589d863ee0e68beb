/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a rank that leaves its job in good order is known to have left on every
 * other host, and is never said to have died: whoever led its domain, whoever
 * leaves at the same moment, whoever dies with what has been said, and whoever
 * asks. A rank that dies right after others have left is named as the one that
 * died.
 *
 * Method: worlds of two and three domains whose ranks destroy their
 * communicator in an order that the scene gives; the ranks that stay look at
 * what their channel knows. Where all leave at once, nobody is left to look:
 * the log of all ranks is searched.
 */
#include "base/clock.h"
#include "comm/control/channel.h"
#include "comm/core/core.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MOST = 8, STAYS = 99, LIMIT_S = 20, ROUNDS = 3 };

/*
 * turns    when each rank leaves; equal ones at once. STAYS: after all
 *          others, when it has seen how they ended
 * killed   this one is killed in its turn, instead; -1: none
 * asks     the last rank asks the host of rank 1 through a communicator that
 *          only these two have
 * ended    how many have, or are about to be killed
 * seen     how many of those that stay have looked
 */
typedef struct scene {
    int turns[RANKS_MOST];
    int nranks, killed;
    bool asks;
    _Atomic int ended, seen;
} scene;

static int64_t limit_ns(void)
{
    return wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
}

static void nap(void)
{
    const struct timespec pause = {0, 1000000};
    (void)nanosleep(&pause, NULL);
}

static bool wait_for(_Atomic int *count, int wanted)
{
    const int64_t until_ns = limit_ns();
    while (atomic_load(count) < wanted && wefti_clock_ns() < until_ns) {
        nap();
    }
    return atomic_load(count) >= wanted;
}

/* How many have an earlier turn. */
static int count_before(const scene *at, int turn)
{
    int before = 0;
    for (int rank = 0; rank < at->nranks; rank++) {
        before += at->turns[rank] < turn;
    }
    return before;
}

static int check_outcomes(weft_comm *comm, const scene *at)
{
    const wefti_control *control = comm->engine->control;
    const int64_t until_ns = limit_ns();
    int failures = 0;
    for (int rank = 0; rank < at->nranks; rank++) {
        wefti_rank_outcome is;
        const wefti_rank_outcome wanted =
            at->turns[rank] == STAYS ? WEFTI_RANK_OUTCOME_NONE
            : rank == at->killed     ? WEFTI_RANK_OUTCOME_DEAD
                                     : WEFTI_RANK_OUTCOME_LEFT;
        do {
            is = wefti_control_get_outcome(control, rank);
            nap();
        } while (wanted && !is && wefti_clock_ns() < until_ns);
        if (is != wanted) {
            fprintf(stderr, "rank %d sees %d of rank %d, not %d\n", comm->rank,
                    (int)is, rank, (int)wanted);
            failures++;
        }
    }
    return failures;
}

static int leave_in_turn(weft_comm *comm, void *context)
{
    scene *at = context;
    weft_comm *part = NULL;
    const int last = at->nranks - 1;
    const int color = at->asks && (comm->rank == 1 || comm->rank == last);
    int failures = weft_comm_split(comm, color, 0, NULL, &part) != WEFT_OK ||
                   weft_barrier(part, NULL) != WEFT_OK ||
                   weft_barrier(comm, NULL) != WEFT_OK;
    failures += !wait_for(&at->ended, count_before(at, at->turns[comm->rank]));
    if (comm->rank == at->killed) {
        atomic_fetch_add(&at->ended, 1);
        raise(SIGKILL);
    }
    if (at->turns[comm->rank] == STAYS) {
        if (at->asks && comm->rank == last) {
            wefti_control_ping(part, 0);
        }
        failures += check_outcomes(comm, at);
        atomic_fetch_add(&at->seen, 1);
        failures += !wait_for(&at->seen, count_before(at, STAYS + 1) -
                                             count_before(at, STAYS));
    }
    weft_comm_destroy(part);
    return failures;
}

static int count_ended(int rank, void *context)
{
    (void)rank;
    atomic_fetch_add(&((scene *)context)->ended, 1);
    return 0;
}

static struct world world_of(scene *at)
{
    const struct world world = {
        .nranks = at->nranks,
        .config = {.size_bytes = sizeof(weft_comm_config)},
        .call = leave_in_turn,
        .context = at,
        .after = count_ended};
    return world;
}

/* How many lines of a log say that somebody died. */
static int count_deaths(FILE *log)
{
    char line[1024];
    int deaths = 0;
    rewind(log);
    while (fgets(line, sizeof(line), log)) {
        if (strncmp(line, "weft: ", 6) != 0 || strstr(line, "has died")) {
            print_message("%s", line);
            deaths += strstr(line, "has died") != NULL;
        }
    }
    return deaths;
}

/* Ranks as threads, which all leave well. */
static void run_well(const char *spread, scene *at)
{
    const struct world world = world_of(at);
    FILE *log = tmpfile();
    const int own = dup(STDERR_FILENO);
    assert_non_null(log);
    assert_true(own >= 0);
    (void)setenv("WEFT_TEST_DOMAINS", spread, 1);
    (void)setenv("WEFT_LOG", "info", 1);
    assert_true(dup2(fileno(log), STDERR_FILENO) >= 0);
    const int failures = world_run_threads(&world);
    (void)dup2(own, STDERR_FILENO);
    (void)close(own);
    (void)unsetenv("WEFT_LOG");
    assert_int_equal(count_deaths(log), 0);
    (void)fclose(log);
    assert_int_equal(failures, 0);
}

static void test_leader_that_leaves_last_says_who_left(void **state)
{
    scene at = {{1, 0, STAYS, STAYS}, 4, -1, false, 0, 0};
    (void)state;
    run_well("pairs", &at);
}

static void test_leader_that_leaves_first_has_an_heir(void **state)
{
    scene at = {{0, 1, STAYS, STAYS}, 4, -1, false, 0, 0};
    scene upper = {{STAYS, STAYS, 0, 1}, 4, -1, false, 0, 0};
    (void)state;
    run_well("pairs", &at);
    run_well("pairs", &upper);
}

static void test_whole_domain_that_leaves_at_once_is_known(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        scene pair = {{0, 0, STAYS, STAYS}, 4, -1, false, 0, 0};
        scene three = {{0, 0, 0, STAYS, 0, 0, 0, 0}, 7, -1, false, 0, 0};
        run_well("pairs", &pair);
        run_well("uneven", &three);
    }
}

static void test_all_that_leave_at_once_have_left(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        scene at = {{0}, 8, -1, false, 0, 0};
        run_well("pairs", &at);
    }
}

/* The leader lives, and nothing has told the asking host. */
static void test_who_left_before_a_question_has_left(void **state)
{
    scene at = {{STAYS, 0, STAYS, STAYS}, 4, -1, true, 0, 0};
    (void)state;
    run_well("pairs", &at);
}

static void run_killed(const char *spread, const scene *wanted)
{
    scene *at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    *at = *wanted;
    const struct world world = world_of(at);
    (void)setenv("WEFT_TEST_DOMAINS", spread, 1);
    assert_int_equal(world_run_killed(&world, at->killed), 0);
    (void)munmap(at, sizeof(*at));
}

static void test_death_after_leaves_is_the_right_ranks(void **state)
{
    (void)state;
    run_killed("pairs", &(scene){{0, 1, STAYS, STAYS}, 4, 1, false, 0, 0});
    run_killed("pairs", &(scene){{1, 0, STAYS, STAYS}, 4, 0, false, 0, 0});
    run_killed(
        "uneven",
        &(scene){{1, 0, 2, STAYS, STAYS, STAYS, STAYS}, 7, 2, false, 0, 0});
    run_killed(
        "uneven",
        &(scene){{1, 2, 0, STAYS, STAYS, STAYS, STAYS}, 7, 1, false, 0, 0});
}

/* Rank 2 leads the other domain, and is killed before it reads that ranks 0 and
 * 1 leave. */
typedef struct deathbed {
    _Atomic int pid, left;
    _Atomic int64_t left_ns, killed_ns;
} deathbed;

/* Those who leave wait a second for the network's farewell of the stopped rank,
 * then have another for what the channel says: that lies unread in the middle
 * of it, and later they need not wait. */
enum { ATTEMPTS = 10 };
static const int64_t pause_ns = 50000000;
static const int64_t unread_ns = 1400000000;
static const int64_t timely_ns = 1800000000;

static void rest(int64_t ns)
{
    const int64_t until_ns = wefti_clock_ns() + ns;
    while (wefti_clock_ns() < until_ns) {
        nap();
    }
}

static int64_t killed_after_ns(const deathbed *at)
{
    return atomic_load(&at->killed_ns) - atomic_load(&at->left_ns);
}

static int leave_to_the_dying(weft_comm *comm, void *context)
{
    deathbed *at = context;
    scene known = {{0, 0, 0, STAYS}, 4, 2, false, 0, 0};
    int failures = weft_barrier(comm, NULL) != WEFT_OK;
    rest(pause_ns); /* their channels stand */
    if (comm->rank == 2) {
        atomic_store(&at->pid, getpid());
        return raise(SIGSTOP) + 1;
    }
    failures += !wait_for(&at->pid, 1);
    rest(pause_ns);
    if (comm->rank < 2) {
        int64_t none = 0;
        (void)atomic_compare_exchange_strong(&at->left_ns, &none,
                                             wefti_clock_ns());
        atomic_fetch_add(&at->left, 1);
        return failures;
    }
    failures += !wait_for(&at->left, 2);
    rest(unread_ns);
    failures += kill((pid_t)atomic_load(&at->pid), SIGKILL) != 0;
    atomic_store(&at->killed_ns, wefti_clock_ns());
    return killed_after_ns(at) > timely_ns
               ? failures
               : failures + check_outcomes(comm, &known);
}

static void
test_farewell_that_dies_with_a_leader_is_said_to_its_heir(void **state)
{
    deathbed *at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct world world = {
        .nranks = 4,
        .config = {.size_bytes = sizeof(weft_comm_config)},
        .call = leave_to_the_dying,
        .context = at};
    (void)state;
    assert_true(at != MAP_FAILED);
    (void)setenv("WEFT_TEST_DOMAINS", "pairs", 1);
    bool timely = false;
    for (int attempt = 0; attempt < ATTEMPTS && !timely; attempt++) {
        memset(at, 0, sizeof(*at));
        assert_int_equal(world_run_killed(&world, 2), 0);
        timely = killed_after_ns(at) <= timely_ns;
    }
    assert_true(timely);
    (void)munmap(at, sizeof(*at));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death_after_leaves_is_the_right_ranks),
        cmocka_unit_test(test_leader_that_leaves_last_says_who_left),
        cmocka_unit_test(test_leader_that_leaves_first_has_an_heir),
        cmocka_unit_test(test_whole_domain_that_leaves_at_once_is_known),
        cmocka_unit_test(test_all_that_leave_at_once_have_left),
        cmocka_unit_test(test_who_left_before_a_question_has_left),
        cmocka_unit_test(
            test_farewell_that_dies_with_a_leader_is_said_to_its_heir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
