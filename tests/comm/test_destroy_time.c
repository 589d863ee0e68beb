/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: leaving a failed communicator is quick, whatever has become of the rank
 * that it failed for: killed, stopped, or the one that aborted it.
 *
 * Method: processes, on one host, with every rank in a domain of its own, and
 * with two in each; the last rank does what the scene says, the others wait for
 * the fault and measure their destroy. A slow one is tried again. On one host
 * the fault's text says that the process is stopped.
 */
#include "tests/comm/spread.h"
#include "tests/comm/world.h"

#include "base/clock.h"

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
#include <sys/wait.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { QUICK_MS = 2400 };
#else
enum { QUICK_MS = 1200 };
#endif

enum { NRANKS = 4, ELEMS = 1 << 18, LIMIT_MS = 1500, DEADLINE_S = 40 };
enum { TRIES = 4 };

/* Exits of a rank. */
enum { WRONG = 1, SLOW = 2 };

enum scene { KILLED, STOPPED, ABORTS };

static int fall(weft_comm *comm, enum scene scene)
{
    switch (scene) {
    case KILLED:
        return raise(SIGKILL);
    case STOPPED:
        return raise(SIGSTOP);
    case ABORTS:
        break;
    }
    return weft_comm_abort(comm) != WEFT_OK;
}

static int leave(weft_comm *comm, void *context)
{
    const enum scene scene = *(const enum scene *)context;
    float *data = calloc(ELEMS, sizeof(*data));
    weft_status status = WEFT_OK;
    int failures = data ? weft_barrier(comm, NULL) != WEFT_OK : 1;
    if (weft_comm_get_rank(comm) == NRANKS - 1) {
        failures += fall(comm, scene);
    }
    for (int i = 0; i < 1000 && data && status == WEFT_OK; i++) {
        status = weft_allreduce(data, data, ELEMS, WEFT_DTYPE_F32,
                                WEFT_REDOP_SUM, comm, NULL);
    }
    const int unclear = scene == STOPPED && !getenv("WEFT_DOMAIN") &&
                        !strstr(weft_error_text(), "its process is stopped");
    if (status == WEFT_OK || unclear) {
        fprintf(stderr, "scene %d: %s: %s\n", (int)scene,
                weft_status_text(status), weft_error_text());
        failures++;
    }
    const int64_t begin_ns = wefti_clock_ns();
    weft_comm_destroy(comm);
    const int64_t took_ms = (wefti_clock_ns() - begin_ns) / 1000000;
    free(data);
    /* exit: the world would destroy it once more */
    exit(failures ? WRONG : took_ms > QUICK_MS ? SLOW : 0);
}

/* The worst of the ranks' exits. */
static int run_on(const char *spread, enum scene scene)
{
    struct world world = {.nranks = NRANKS,
                          .config.timeout_ms = LIMIT_MS,
                          .call = leave,
                          .context = &scene};
    world_processes started;
    spread_set_domains(spread, NRANKS);
    world_start_processes(&world, &started);
    spread_unset_domains(spread);
    const int last = started.pids[NRANKS - 1];
    if (scene != ABORTS) {
        started.pids[NRANKS - 1] = 0;
    }
    assert_int_equal(world_finish_survivors(&started, DEADLINE_S), 0);
    int worst = 0;
    for (int rank = 0; rank < NRANKS - (scene != ABORTS); rank++) {
        const int status = WIFEXITED(started.exit_status[rank])
                               ? WEXITSTATUS(started.exit_status[rank])
                               : WRONG;
        worst = status == 0 || worst == WRONG ? worst
                : status == SLOW              ? SLOW
                                              : WRONG;
    }
    if (scene != ABORTS) {
        kill(last, SIGKILL);
        started.pids[NRANKS - 1] = last;
        assert_int_equal(world_finish_survivors(&started, DEADLINE_S), 0);
    }
    return worst;
}

/* What waits too long does so each time, a busy machine not. */
static void run(enum scene scene)
{
    static const char *const spreads[] = {NULL, "apart", "pairs"};
    const int first = scene == STOPPED ? 0 : 1; /* the others: apart */
    const int end = scene == STOPPED ? 3 : 2;
    for (int i = first; i < end; i++) {
        int worst = SLOW;
        for (int attempt = 0; attempt < TRIES && worst == SLOW; attempt++) {
            worst = run_on(spreads[i], scene);
        }
        assert_int_equal(worst, 0);
    }
}

static void test_destroy_after_a_kill_is_quick(void **state)
{
    (void)state;
    run(KILLED);
}

static void test_destroy_beside_a_stopped_rank_is_quick(void **state)
{
    (void)state;
    run(STOPPED);
}

static void test_destroy_after_an_abort_is_quick(void **state)
{
    (void)state;
    run(ABORTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_destroy_after_a_kill_is_quick),
        cmocka_unit_test(test_destroy_beside_a_stopped_rank_is_quick),
        cmocka_unit_test(test_destroy_after_an_abort_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
