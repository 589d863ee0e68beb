/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    whatever call of the C library or the kernel fails on one rank while
 *         a communicator, a weft_mem or a stream's progress is made: that rank
 *         gets a status and a text that names the call, the others get one that
 *         names the rank, all within the time limit, and nothing stays behind.
 *         What can be done without is done without, on all ranks.
 * Method  each call of one rank fails in turn (tests/comm/failing_calls.h), by
 *         the place that makes it or, with WEFT_TEST_LONG, every single one;
 *         ranks are processes, threads, and threads of two domains. What the
 *         process holds is counted before and after.
 */
#include "base/clock.h"
#include "tests/comm/failing_calls.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    RANKS_MOST = 4,
    TIMEOUT_MS = 4000, /* of ranks that wait for one that cannot come */
    LATE_MS = 2000     /* beyond it; a busy machine */
};

typedef struct holdings {
    int descriptors, threads;
} holdings;

/* What a rank got, from the call whose parts fail. */
typedef struct outcome {
    weft_status status;
    char text[512];
    int64_t took_ns;
    int wrong; /* what it could not do after, or does not hold any more */
    holdings before;
} outcome;

/*
 * What is tried. call is made on all ranks of a communicator; NULL: making the
 * communicator is what is tried.
 *
 * alone   it concerns the failing rank only: the others succeed, and it does,
 *         once it tries again
 * ends    the communicator has failed after it
 */
typedef struct trial {
    const char *name;
    weft_status (*call)(weft_comm *comm);
    bool alone, ends;
    int target;
    bool processes;
    outcome *outcomes; /* [RANKS_MOST], shared */
} trial;

/* Threads' races are in what a run does, not in which call fails: the thread
 * sanitizer, which is slow between domains, sees a part of it there. */
#ifdef __SANITIZE_THREAD__
enum { BRIEF = 1 };
#else
enum { BRIEF = 0 };
#endif

static bool is_long(void)
{
    return getenv("WEFT_TEST_LONG") != NULL;
}

static int count_entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

static holdings count_holdings(void)
{
    return (holdings){count_entries("/proc/self/fd"),
                      count_entries("/proc/self/task")};
}

/* A thread that was joined, and a detached server, leave a moment later. */
static int count_left_behind(holdings before)
{
    const int64_t end_ns = wefti_clock_ns() + INT64_C(5000000000);
    holdings now = count_holdings();
    while ((now.threads > before.threads ||
            now.descriptors > before.descriptors) &&
           wefti_clock_ns() < end_ns) {
        sched_yield();
        now = count_holdings();
    }
    int left = now.threads - before.threads;
    left = left > 0 ? left : 0;
    return now.descriptors > before.descriptors
               ? left + now.descriptors - before.descriptors
               : left;
}

static bool works(weft_comm *comm)
{
    float one = 1;
    weft_status status = weft_allreduce(&one, &one, 1, WEFT_DTYPE_F32,
                                        WEFT_REDOP_SUM, comm, NULL);
    bool right = status == WEFT_OK && one == (float)weft_comm_get_nranks(comm);
    if (!right) {
        fprintf(stderr, "rank %d, an all-reduce: %s\n",
                weft_comm_get_rank(comm), weft_error_text());
    }
    return right;
}

/* ---- what is tried --------------------------------------------------------
 */

static weft_status use_and_destroy(weft_status status, weft_comm *made)
{
    if (status == WEFT_OK && !works(made)) {
        status = WEFT_ERR_SYSTEM;
    }
    weft_comm_destroy(made);
    return status;
}

static weft_status split(weft_comm *comm)
{
    weft_comm *part = NULL;
    weft_status status =
        weft_comm_split(comm, 0, weft_comm_get_rank(comm), NULL, &part);
    return use_and_destroy(status, part);
}

static weft_status create_from(weft_comm *comm)
{
    const int ranks[RANKS_MOST] = {1, 0, 2, 3};
    weft_comm *listed = NULL;
    weft_status status = weft_comm_create_from(
        comm, ranks, weft_comm_get_nranks(comm), NULL, &listed);
    return use_and_destroy(status, listed);
}

static weft_status shrink(weft_comm *comm)
{
    weft_comm *less = NULL;
    weft_status status = weft_comm_shrink(comm, &less);
    return use_and_destroy(status, less);
}

static weft_status make_memory(weft_comm *comm)
{
    weft_mem *mem = NULL;
    weft_status status = weft_mem_create(comm, 4096, &mem);
    weft_mem_destroy(mem);
    return status;
}

/* More than fits without memory of its own. */
static weft_status send_many(weft_comm *comm)
{
    enum { MANY = 40 };
    const int nranks = weft_comm_get_nranks(comm);
    const int rank = weft_comm_get_rank(comm);
    int32_t out[MANY], in[MANY];
    weft_p2p list[2 * MANY];
    for (int i = 0; i < MANY; i++) {
        out[i] = rank * 100 + i;
        list[2 * i] = (weft_p2p){.size_bytes = sizeof(weft_p2p),
                                 .kind = WEFT_P2P_SEND,
                                 .buffer = &out[i],
                                 .count = 1,
                                 .dtype = WEFT_DTYPE_I32,
                                 .peer = (rank + 1) % nranks};
        list[2 * i + 1] = list[2 * i];
        list[2 * i + 1].kind = WEFT_P2P_RECV;
        list[2 * i + 1].buffer = &in[i];
        list[2 * i + 1].peer = (rank + nranks - 1) % nranks;
    }
    weft_status status = weft_p2p_post(list, (size_t)2 * MANY, comm, NULL);
    for (int i = 0; i < MANY && status == WEFT_OK; i++) {
        if (in[i] != (rank + nranks - 1) % nranks * 100 + i) {
            status = WEFT_ERR_SYSTEM;
        }
    }
    return status;
}

/* A device, a stream, and the thread that makes progress for it. */
static weft_status use_stream(weft_comm *comm)
{
    float one = 1;
    weft_device *device = NULL;
    weft_stream *stream = NULL;
    weft_status status = weft_device_open("host", 0, &device);
    if (status == WEFT_OK) {
        status = weft_stream_create(device, 0, &stream);
    }
    if (status == WEFT_OK) {
        status = weft_allreduce(&one, &one, 1, WEFT_DTYPE_F32, WEFT_REDOP_SUM,
                                comm, stream);
    }
    if (status == WEFT_OK) {
        status = weft_stream_wait(stream);
    }
    weft_stream_destroy(stream);
    weft_device_close(device);
    return status;
}

static const trial creation = {.name = "creation"};
static const trial later[] = {
    {.name = "split", .call = split},
    {.name = "create_from", .call = create_from},
    {.name = "weft_mem", .call = make_memory},
    {.name = "p2p", .call = send_many, .alone = true},
    {.name = "stream", .call = use_stream, .alone = true},
    {.name = "shrink", .call = shrink, .ends = true},
};

/* ---- one run ------------------------------------------------------------- */

static void begin(const trial *own, int rank)
{
    own->outcomes[rank].took_ns = -wefti_clock_ns();
    failing_calls_arm(rank == own->target);
}

static void end(const trial *own, int rank, weft_status status)
{
    outcome *mine = &own->outcomes[rank];
    failing_calls_arm(false);
    mine->took_ns += wefti_clock_ns();
    mine->status = status;
    snprintf(mine->text, sizeof(mine->text), "%s",
             status == WEFT_OK ? "" : weft_error_text());
}

static void *do_nothing(void *argument)
{
    return argument;
}

/* With a process's first thread sanitizers start one of their own. */
static void have_thread(void)
{
    pthread_t first;
    if (pthread_create(&first, NULL, do_nothing, NULL) != 0) {
        abort();
    }
    pthread_join(first, NULL);
}

static void count_before(int rank, void *context)
{
    const trial *own = context;
    if (own->processes) {
        have_thread();
        own->outcomes[rank].before = count_holdings();
    }
}

static void begin_creation(int rank, weft_comm_config *config, void *context)
{
    const trial *own = context;
    config->timeout_ms = TIMEOUT_MS;
    if (!own->call) {
        begin(own, rank);
    }
}

static int end_refused(int rank, weft_status status, void *context)
{
    end(context, rank, status);
    return 0;
}

static int try_on(weft_comm *comm, void *context)
{
    const trial *own = context;
    const int rank = weft_comm_get_rank(comm);
    outcome *mine = &own->outcomes[rank];
    if (!own->call) {
        end(own, rank, WEFT_OK);
        mine->wrong += !works(comm);
        return 0;
    }
    mine->wrong += !works(comm);
    begin(own, rank);
    end(own, rank, own->call(comm));
    if (own->alone && mine->status != WEFT_OK) {
        mine->wrong += own->call(comm) != WEFT_OK;
    }
    mine->wrong += !own->ends && !works(comm);
    return 0;
}

/* Of asan's leak checker; absent elsewhere. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static int count_after(int rank, void *context)
{
    const trial *own = context;
    outcome *mine = &own->outcomes[rank];
    if (own->processes) {
        mine->wrong += count_left_behind(mine->before);
        if (__lsan_do_recoverable_leak_check) {
            mine->wrong += __lsan_do_recoverable_leak_check() != 0;
        }
    }
    return 0;
}

static bool says(const char *text, const char *call)
{
    return strstr(text, call) ||
           (strstr(call, "alloc") && strstr(text, "memory"));
}

/* Whether all is as it should be where call has failed on the target. */
static bool is_right(const trial *own, int nranks, const char *call)
{
    char name[24];
    const outcome *hit = &own->outcomes[own->target];
    snprintf(name, sizeof(name), "rank %d", own->target);
    bool right = hit->status == WEFT_OK || says(hit->text, call);
    for (int rank = 0; rank < nranks; rank++) {
        const outcome *other = &own->outcomes[rank];
        right &= other->wrong == 0;
        right &= other->took_ns < (TIMEOUT_MS + LATE_MS) * INT64_C(1000000);
        if (rank == own->target) {
            continue;
        }
        right &= hit->status == WEFT_OK || own->alone
                     ? other->status == WEFT_OK
                     : other->status != WEFT_OK && strstr(other->text, name);
    }
    return right;
}

static void show(const trial *own, int nranks, const char *call)
{
    fprintf(stderr, "%s, %s on rank %d fails at 0x%zx:\n", own->name, call,
            own->target, failing_calls_get_place());
    for (int rank = 0; rank < nranks; rank++) {
        const outcome *one = &own->outcomes[rank];
        fprintf(stderr, "  rank %d: %s, %d wrong, %.3f s: %s\n", rank,
                weft_status_text(one->status), one->wrong,
                (double)one->took_ns / 1e9, one->text);
    }
}

/* Runs until nothing new has failed; returns how many runs went wrong. */
static int run_all(const trial *what, int nranks, int target, bool processes)
{
    trial own = *what;
    int wrong = 0;
    own.target = target;
    own.processes = processes;
    own.outcomes =
        mmap(NULL, RANKS_MOST * sizeof(outcome), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(own.outcomes != MAP_FAILED);
    struct world world = {.nranks = nranks,
                          .before = count_before,
                          .configure = begin_creation,
                          .call = try_on,
                          .refused = end_refused,
                          .after = count_after,
                          .context = &own};
    const bool shows = getenv("WEFT_TEST_SHOW") != NULL;
    if (!processes) {
        have_thread();
    }
    const holdings before = count_holdings();
    const int64_t begun_ns = wefti_clock_ns();
    failing_calls_open(is_long() ? FAILING_EACH_CALL : FAILING_EACH_SITE);
    for (;;) {
        memset(own.outcomes, 0, RANKS_MOST * sizeof(outcome));
        failing_calls_begin_run();
        int failures =
            processes ? world_run_processes(&world) : world_run_threads(&world);
        const char *call = failing_calls_get_name();
        const int left = count_left_behind(before);
        const bool right = is_right(&own, nranks, call ? call : "nothing") &&
                           !failures && !left &&
                           (call || own.outcomes[target].status == WEFT_OK);
        if (!right || shows) {
            show(&own, nranks, call ? call : "nothing");
        }
        if (!right) {
            fprintf(stderr, "  wrong; exit %d, %d left behind\n", failures,
                    left);
            wrong++;
        }
        if (!call) {
            break;
        }
    }
    print_message("%s, %d %s, rank %d: %d calls in %.1f s\n", own.name, nranks,
                  processes ? "processes" : "threads", target,
                  failing_calls_count(),
                  (double)(wefti_clock_ns() - begun_ns) / 1e9);
    assert_true(failing_calls_count() > 0);
    munmap(own.outcomes, RANKS_MOST * sizeof(outcome));
    return wrong;
}

static void test_creation_in_processes(void **state)
{
    (void)state;
    assert_int_equal(run_all(&creation, 2, 0, true), 0);
    assert_int_equal(run_all(&creation, 2, 1, true), 0);
}

static void test_creation_in_threads(void **state)
{
    (void)state;
    assert_int_equal(run_all(&creation, 2, 0, false), 0);
    assert_int_equal(run_all(&creation, 2, 1, false), 0);
}

static void test_creation_in_two_domains(void **state)
{
    (void)state;
    setenv("WEFT_DOMAIN", "a,a,b", 1);
    int wrong = 0;
    /* One that is led, and a leader; rank 0 makes the same calls. */
    for (int target = is_long() ? 0 : 1 + BRIEF; target < 3; target++) {
        wrong += run_all(&creation, 3, target, false);
    }
    unsetenv("WEFT_DOMAIN");
    assert_int_equal(wrong, 0);
}

static void test_what_comes_later(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
        wrong += run_all(&later[i], 2, 0, false);
        wrong += run_all(&later[i], 2, 1, false);
    }
    assert_int_equal(wrong, 0);
}

static void test_what_comes_later_in_two_domains(void **state)
{
    (void)state;
    int wrong = 0;
    setenv("WEFT_DOMAIN", "a,a,b", 1);
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
        if (is_long() || later[i].ends || (!BRIEF && !later[i].alone)) {
            wrong += run_all(&later[i], 3, 1, false);
        }
    }
    unsetenv("WEFT_DOMAIN");
    assert_int_equal(wrong, 0);
}

/* ---- the meeting of a unique id -------------------------------------------
 */

typedef struct guest {
    weft_unique_id id;
    int rank;
    weft_status status;
    char text[512];
    pthread_t thread;
} guest;

static void *join_by_id(void *argument)
{
    guest *own = argument;
    weft_comm *comm = NULL;
    weft_comm_config config = {.size_bytes = sizeof(config),
                               .id = &own->id,
                               .rank = own->rank,
                               .nranks = 2,
                               .timeout_ms = TIMEOUT_MS};
    own->status = weft_comm_create(&config, &comm);
    snprintf(own->text, sizeof(own->text), "%s", weft_error_text());
    if (own->status == WEFT_OK && !works(comm)) {
        own->status = WEFT_ERR_SYSTEM;
    }
    weft_comm_destroy(comm);
    return NULL;
}

/* The server's thread is armed, the ranks are not. */
static bool meet_by_id(const char **call_out)
{
    guest guests[2] = {{.rank = 0}, {.rank = 1}};
    weft_unique_id id;
    failing_calls_arm(true);
    weft_status status = weft_unique_id_create(&id);
    failing_calls_arm(false);
    *call_out = failing_calls_get_name();
    if (status != WEFT_OK) {
        return *call_out && says(weft_error_text(), *call_out);
    }
    for (int i = 0; i < 2; i++) {
        guests[i].id = id;
        assert_int_equal(
            pthread_create(&guests[i].thread, NULL, join_by_id, &guests[i]), 0);
    }
    bool right = true;
    for (int i = 0; i < 2; i++) {
        pthread_join(guests[i].thread, NULL);
        *call_out = failing_calls_get_name();
    }
    for (int i = 0; i < 2; i++) {
        right &= guests[i].status == guests[0].status;
        right &= guests[i].status == WEFT_OK ||
                 (*call_out && says(guests[i].text, *call_out));
        if (!right) {
            fprintf(stderr, "rank %d: %s: %s\n", i,
                    weft_status_text(guests[i].status), guests[i].text);
        }
    }
    return right;
}

static void test_unique_id_and_its_server(void **state)
{
    (void)state;
    int wrong = 0;
    const char *call = "";
    have_thread();
    const holdings before = count_holdings();
    failing_calls_open(is_long() ? FAILING_EACH_CALL : FAILING_EACH_SITE);
    while (call) {
        failing_calls_begin_run();
        bool right = meet_by_id(&call);
        if (!right || count_left_behind(before) != 0) {
            fprintf(stderr, "unique id: %s fails at 0x%zx: wrong\n",
                    call ? call : "nothing", failing_calls_get_place());
            wrong++;
        }
    }
    print_message("unique id: %d calls\n", failing_calls_count());
    assert_true(failing_calls_count() > 5);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_creation_in_processes),
        cmocka_unit_test(test_creation_in_threads),
        cmocka_unit_test(test_creation_in_two_domains),
        cmocka_unit_test(test_what_comes_later),
        cmocka_unit_test(test_what_comes_later_in_two_domains),
        cmocka_unit_test(test_unique_id_and_its_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
