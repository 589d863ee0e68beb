/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every operation gives the same bits on device memory as on the host's,
 * wherever each rank's buffers are: all collectives and messages, types and
 * reductions, counts, in place (staging_list.h), gated, planned, on streams and
 * without, ranks on one device and on two.
 *
 * Method: each case runs twice, first with all buffers in host memory, then
 * with each of a rank's two buffers on the device or the host, as is drawn; the
 * results, poison around them included, must be equal. What is drawn follows
 * the seed and the case's number, which a failure names. The device runs late
 * and in an order of the same seed; that also says how long chunks are, on
 * which the staging's size depends. Each world has a process of its own, as a
 * driver reads its seed once.
 *
 * Arguments: threads or processes; the device's kind, shadow or cuda (on the
 * fake driver); without more a few worlds of seed 1, else the seed, all worlds,
 * and into how many shares the list is divided (1: each world runs all of it).
 */
#include "base/clock.h"
#include "device/cuda.h"
#include "tests/comm/staging_run.h"
#include "tests/comm/world.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

enum {
    MARGIN_BYTES = 64, /* around a buffer */
    DEADLINE_S = 300   /* of a world */
};

/* The arguments; which numbers of ranks. */
static const char *mode, *kind, *worlds;
static bool is_process;
static unsigned seed_given;
static size_t shares_given;

static void report(staging_rank *own, const staging_job *job,
                   const staging_form *form, const bool on_device[2],
                   const char *where)
{
    static const char *const places[] = {"host", "device"};
    const weft_op *op = &job->op;
    if (own->failures++ < 5) {
        fprintf(stderr,
                "rank %d of %d: %s of %zu %s %s%s%s%s%s, send on the %s, recv "
                "on the %s: %s\n",
                own->rank, own->nranks, weft_collective_text(op->collective),
                op->count, weft_dtype_text(op->dtype),
                weft_redop_text(op->redop), job->in_place ? " in place" : "",
                form->gated ? " gated" : "", form->planned ? " planned" : "",
                form->on_stream ? " on a stream" : "", places[on_device[0]],
                places[on_device[1]], where);
    }
}

/* One rank on its way through its share of the list. */
struct walk {
    staging_rank own;
    unsigned seed;
    unsigned char *result[2][2]; /* on the host and as drawn: send, recv */
};

/* The same on host memory and as drawn, for which lot is this rank's alone. */
static void compare(struct walk *walk, const staging_job *job,
                    const staging_form *form, uint64_t lot)
{
    static const bool on_host[2] = {false, false};
    staging_rank *own = &walk->own;
    const unsigned where = random_next(&lot) % (own->nranks > 1 ? 7 : 6);
    const bool on_device[2] = {where < 4, where % 4 < 2}; /* 6: neither */
    const size_t longer =
        job->send_bytes > job->recv_bytes ? job->send_bytes : job->recv_bytes;
    const size_t room_bytes = form->lead_bytes + longer + MARGIN_BYTES;
    assert_in_range(room_bytes, 0, STAGING_ROOM_BYTES);
    staging_run(own, job, form, on_host, room_bytes, walk->result[0]);
    staging_run(own, job, form, on_device, room_bytes, walk->result[1]);
    for (int b = 0; b < 2; b++) {
        const unsigned char *host = walk->result[0][b];
        const unsigned char *device = walk->result[1][b];
        if (memcmp(host, device, room_bytes) != 0) {
            char text[64];
            size_t at = 0;
            while (host[at] == device[at]) {
                at++;
            }
            snprintf(text, sizeof(text), "%s differs at byte %zd",
                     b ? "recv" : "send", (ssize_t)(at - form->lead_bytes));
            report(own, job, form, on_device, text);
        }
    }
}

static void run_count(struct walk *walk, const staging_case *one, size_t count,
                      uint64_t random)
{
    staging_job job;
    const int rank = walk->own.rank, nranks = walk->own.nranks;
    if (one->collective == WEFT_COLLECTIVE_SEND && nranks == 1) {
        return;
    }
    staging_form form = {.gated = random_next(&random) % 4 == 0 && count > 0,
                         .gate_elems = count / 64 > 700 ? count / 64 : 700,
                         .planned = random_next(&random) % 4 == 0,
                         .on_stream = random_next(&random) % 2 == 0,
                         .lead_bytes =
                             MARGIN_BYTES + random_next(&random) % 16};
    const int root = (int)(random_next(&random) % (unsigned)nranks);
    form.values = random_next(&random);
    staging_job_init(&job, one, count, root, rank, nranks);
    compare(walk, &job, &form, random + (uint64_t)rank);
}

static void run_case(struct walk *walk, size_t number)
{
    const staging_case one = staging_list_get(number);
    const int before = walk->own.failures;
    uint64_t random = ((uint64_t)walk->seed << 32) + number;
    const size_t odd = 3 + 2 * (size_t)(random_next(&random) % 300);
    const size_t large = 2000 + (size_t)(random_next(&random) % 3000);
    const size_t counts[] = {0, 1, odd, large};
    run_count(walk, &one, counts[one.count], random);
    if (walk->own.failures != before) {
        fprintf(stderr, "rank %d of %d: that was case %zu of seed %u\n",
                walk->own.rank, walk->own.nranks, number, walk->seed);
    }
}

/* Many chunks, so that fetches run ahead. */
static void run_long(struct walk *walk, size_t bytes)
{
    static const weft_collective turns[] = {WEFT_COLLECTIVE_ALLREDUCE,
                                            WEFT_COLLECTIVE_SEND};
    uint64_t random = walk->seed;
    const staging_case one = {
        .collective = turns[(walk->seed + (unsigned)walk->own.nranks) % 2],
        .dtype = (weft_dtype)(random_next(&random) % WEFT_DTYPE_COUNT)};
    run_count(walk, &one, (bytes / weft_dtype_bytes(one.dtype)) | 1, random);
}

struct plan {
    unsigned seed;
    size_t shares, long_bytes;
    int ordinals;
    weft_device *devices[STAGING_RANKS];
};

static void set_number(const char *name, unsigned value)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", value);
    setenv(name, text, 1);
}

static void open_device(int rank, weft_comm_config *config, void *context)
{
    struct plan *plan = context;
    if (is_process) { /* as the fake driver does: another order in each */
        set_number("WEFT_SHADOW_SEED", plan->seed * 64 + (unsigned)rank);
    }
    int there = plan->ordinals, version; /* one, of the system's driver */
    if (strcmp(kind, "cuda") == 0) {
        assert_int_equal(wefti_cuda_count(&there, &version), WEFT_OK);
    }
    const int used = there < plan->ordinals ? there : plan->ordinals;
    assert_int_equal(weft_device_open(kind, rank % used, &plan->devices[rank]),
                     WEFT_OK);
    config->device = plan->devices[rank];
}

/* Processes of a world end without a look at what they have leaked. */
static int close_device(int rank, void *context)
{
    struct plan *plan = context;
    weft_device_close(plan->devices[rank]);
    plan->devices[rank] = NULL;
#if defined(__SANITIZE_ADDRESS__)
    if (is_process && rank == 0) {
        return __lsan_do_recoverable_leak_check();
    }
#endif
    return 0;
}

static int run_rank(weft_comm *comm, void *context)
{
    const struct plan *plan = context;
    struct walk walk = {.seed = plan->seed};
    staging_rank_init(&walk.own, comm, plan->devices[weft_comm_get_rank(comm)]);
    for (int i = 0; i < 4; i++) {
        walk.result[i / 2][i % 2] = malloc(STAGING_ROOM_BYTES);
        assert_non_null(walk.result[i / 2][i % 2]);
    }
    for (size_t i =
             staging_list_first(plan->seed, walk.own.nranks, plan->shares);
         i < staging_list_count(); i += plan->shares) {
        run_case(&walk, i);
    }
    run_long(&walk, plan->long_bytes);
    /* A free may wait for all that is queued on the device, by any rank. */
    walk.own.failures += weft_barrier(comm, NULL) != WEFT_OK;
    for (int i = 0; i < 4; i++) {
        free(walk.result[i / 2][i % 2]);
    }
    staging_rank_fini(&walk.own);
    return walk.own.failures;
}

/* In a process that ends as programs do, leaks being looked for. */
static int run_threads_apart(const struct world *world)
{
    int status = 1;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(DEADLINE_S);
        exit(world_run_threads(world) != 0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return 1;
    }
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "ended by signal %d\n", WTERMSIG(status));
    }
    return status != 0;
}

static void run_world(int nranks, unsigned seed, size_t shares)
{
    static const char *const chunks[] = {"256", "0", "524288"};
    static const size_t longs[] = {60000, 700000, 700000};
    const unsigned world_number = seed * STAGING_RANKS + (unsigned)nranks;
    const char *chunk = chunks[world_number % 3];
    struct plan plan = {.seed = seed,
                        .shares = shares,
                        .long_bytes = longs[world_number % 3],
                        .ordinals = 1 + (int)(world_number / 3 % 2)};
    struct world world = {.nranks = nranks,
                          .config = {.warn_ms = 20000, .timeout_ms = 60000},
                          .call = run_rank,
                          .context = &plan,
                          .configure = open_device,
                          .after = close_device,
                          .deadline_s = DEADLINE_S};
    set_number("WEFT_SHADOW_SEED", seed);
    set_number("WEFT_FAKE_GPU_SEED", seed);
    setenv("WEFT_CHUNK_BYTES", chunk, 1);
    setenv("WEFT_FAKE_GPU_COUNT", "2", 1);
    printf("seed %u, %d ranks as %s on %d of %s, chunks of %s bytes: cases "
           "%zu + %zu k of %zu\n",
           seed, nranks, mode, plan.ordinals, kind,
           *chunk == '0' ? "chosen" : chunk,
           staging_list_first(seed, nranks, shares), shares,
           staging_list_count());
    const int64_t begin_ns = wefti_clock_ns();
    const int failures =
        is_process ? world_run_processes(&world) : run_threads_apart(&world);
    printf("%s, %.1f s\n", failures ? "failed" : "passed",
           (double)(wefti_clock_ns() - begin_ns) * 1e-9);
    assert_int_equal(failures, 0);
}

static void test_all_on_device_memory_same_bits_as_on_the_hosts(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= STAGING_RANKS; nranks++) {
        if (strchr(worlds, '0' + nranks)) {
            run_world(nranks, seed_given, shares_given);
        }
    }
}

/* At two numbers of ranks at least; and each collective, kind of count and
 * place at each number of ranks. */
static void test_list_20_seeds_meet_each_case_twice(void **state)
{
    (void)state;
    const size_t count = staging_list_count();
    unsigned short *ranks = calloc(count, sizeof(*ranks)); /* as bits */
    assert_non_null(ranks);
    for (unsigned seed = 1; seed <= 20; seed++) {
        for (int nranks = 1; nranks <= STAGING_RANKS; nranks++) {
            for (size_t i = staging_list_first(seed, nranks, STAGING_SHARES);
                 i < count; i += STAGING_SHARES) {
                ranks[i] |= (unsigned short)(1 << nranks);
            }
        }
    }
    unsigned met[WEFT_COLLECTIVE_COUNT][STAGING_COUNT_COUNT][2] = {0};
    for (size_t i = 0; i < count; i++) {
        const staging_case one = staging_list_get(i);
        assert_true((ranks[i] & (ranks[i] - 1)) != 0);
        met[one.collective][one.count][one.in_place] |= ranks[i];
    }
    const unsigned all = (2u << STAGING_RANKS) - 2;
    for (size_t i = 0; i < count; i++) {
        const staging_case one = staging_list_get(i);
        assert_true(met[one.collective][one.count][one.in_place] == all ||
                    one.collective == WEFT_COLLECTIVE_BARRIER);
    }
    free(ranks);
}

int main(int count, char **arguments)
{
    mode = count > 1 ? arguments[1] : "threads";
    kind = count > 2 ? arguments[2] : "shadow";
    is_process = strcmp(mode, "processes") == 0;
    seed_given = count > 3 ? (unsigned)strtoul(arguments[3], NULL, 0) : 1;
    shares_given =
        count > 4 ? strtoul(arguments[4], NULL, 0) : (size_t)STAGING_SHARES;
    if (shares_given == 0) {
        fprintf(stderr, "%s: allowed are 1 or more shares\n", arguments[4]);
        return 2;
    }
    const bool many = strcmp(kind, "shadow") == 0; /* one thread runs it all */
    worlds = count > 3 ? "123456789" : is_process ? "24" : many ? "1359" : "13";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_20_seeds_meet_each_case_twice),
        cmocka_unit_test(test_all_on_device_memory_same_bits_as_on_the_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
