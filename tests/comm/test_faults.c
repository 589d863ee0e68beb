/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: no hang without a name. A rank that never enters, posts something
 * else, aborts, is killed or stopped in any phase: every other rank returns in
 * bounded time and knows which rank and which operation.
 *
 * Method: worlds of three processes that note their phase in memory shared
 * with the parent; the parent strikes each rank in each phase at a random
 * moment (seed printed), lets the survivors report, and counts what it hit.
 * With an argument the same over the network, for ranks that share memory as it
 * says (WEFT_DOMAIN).
 */
#include "tests/comm/world.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    RANKS = 3,
    TIMEOUT_MS = 1500,
    NAMED = 10, /* exit status: failed, and the text names the victim */
    DEADLINE_S = 30
};

enum phase { BOOTSTRAP, BEFORE, INSIDE, AFTER, ENDED, PHASES = ENDED };

static const char *const phase_names[] = {"bootstrap", "before", "inside",
                                          "after"};

/* What parent and ranks share. */
struct arena {
    _Atomic int phase[RANKS];
    _Atomic int go;     /* may leave "before" */
    _Atomic int finish; /* may leave "inside" */
    _Atomic int leave;  /* may leave "after" */
    int victim;
};

static struct arena *arena;
static unsigned seed;

static unsigned next_random(void)
{
    seed = seed * 1103515245u + 12345u;
    return seed >> 8;
}

/* Whether the failed call's text and fault name the victim. */
static int verdict(weft_comm *comm, weft_status status, int victim)
{
    char name[16];
    snprintf(name, sizeof(name), "rank %d", victim);
    weft_fault fault = {.size_bytes = sizeof(fault)};
    bool known = weft_comm_get_fault(comm, &fault) == WEFT_OK &&
                 fault.status == status && fault.rank == victim &&
                 fault.op_number > 0;
    if (known && strstr(fault.text, name) &&
        strcmp(fault.text, weft_error_text()) == 0) {
        return NAMED;
    }
    fprintf(stderr, "not named: %s: %s (fault: rank %d, \"%s\")\n",
            weft_status_text(status), weft_error_text(), fault.rank,
            fault.text);
    return 1;
}

/* Mixed operations until rank 0 has seen arena->finish. */
static int work(weft_comm *comm)
{
    static float small[64], large[1 << 16];
    int rank = weft_comm_get_rank(comm);
    for (;;) {
        int32_t stop = rank == 0 && atomic_load(&arena->finish);
        weft_status status =
            weft_broadcast(&stop, &stop, 1, WEFT_DTYPE_I32, 0, comm, NULL);
        if (status == WEFT_OK) {
            status = weft_allreduce(small, small, 64, WEFT_DTYPE_F32,
                                    WEFT_REDOP_SUM, comm, NULL);
        }
        if (status == WEFT_OK) {
            status = weft_allreduce(large, large, 1 << 16, WEFT_DTYPE_F32,
                                    WEFT_REDOP_SUM, comm, NULL);
        }
        if (status == WEFT_OK) {
            status = weft_barrier(comm, NULL);
        }
        if (status != WEFT_OK) {
            return verdict(comm, status, arena->victim);
        }
        if (stop) {
            return 0;
        }
    }
}

static int live(weft_comm *comm, void *context)
{
    (void)context;
    int rank = weft_comm_get_rank(comm);
    atomic_store(&arena->phase[rank], BEFORE);
    while (!atomic_load(&arena->go)) {
        usleep(100);
    }
    atomic_store(&arena->phase[rank], INSIDE);
    int failures = work(comm);
    if (failures) {
        return failures;
    }
    atomic_store(&arena->phase[rank], AFTER);
    while (!atomic_load(&arena->leave)) {
        usleep(100);
    }
    return 0;
}

static int exit_code(const world_processes *world, int rank)
{
    int status = world->exit_status[rank];
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Lets the victim get into phase, and then some way into it. */
static void wait_for_phase(int victim, int phase)
{
    int64_t end_ns = wefti_clock_ns() + (int64_t)DEADLINE_S * 1000000000;
    while (atomic_load(&arena->phase[victim]) < phase &&
           wefti_clock_ns() < end_ns) {
        usleep(50);
    }
    /* Bootstrap is over in some ms; the other phases last until released. */
    usleep((useconds_t)(next_random() % (phase == BOOTSTRAP ? 2000 : 5000)));
}

/* One strike. Returns the phase it hit. */
static int strike(int victim, int phase, int signal_number)
{
    memset(arena, 0, sizeof(*arena));
    arena->victim = victim;
    struct world world = {
        .nranks = RANKS,
        .config = {.timeout_ms = TIMEOUT_MS, .warn_ms = 60000},
        .call = live};
    world_processes started;
    world_start_processes(&world, &started);
    atomic_store(&arena->go, phase != BEFORE);
    atomic_store(&arena->finish, phase == AFTER);
    wait_for_phase(victim, phase);
    int hit = atomic_load(&arena->phase[victim]);
    kill(started.pids[victim], signal_number);
    atomic_store(&arena->go, 1);
    atomic_store(&arena->finish, phase >= AFTER);
    atomic_store(&arena->leave, 1);
    int64_t struck_ns = wefti_clock_ns();
    /* The survivors return by themselves; a stopped victim wakes later. */
    world_processes survivors = started;
    survivors.pids[victim] = 0;
    survivors.nranks = RANKS;
    int late = world_finish_survivors(&survivors, DEADLINE_S);
    double took_s = (double)(wefti_clock_ns() - struck_ns) / 1e9;
    kill(started.pids[victim], signal_number == SIGSTOP ? SIGCONT : SIGKILL);
    world_processes last = started;
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank != victim) {
            last.pids[rank] = 0;
        }
    }
    late += world_finish_survivors(&last, DEADLINE_S);
    assert_int_equal(late, 0);
    assert_true(took_s < 4 * TIMEOUT_MS / 1e3);
    for (int rank = 0; rank < RANKS; rank++) {
        int code = exit_code(&survivors, rank);
        bool must_fail = hit == BEFORE || hit == INSIDE;
        bool right = rank == victim || code == NAMED || code == 77 ||
                     (!must_fail && code == 0);
        if (!right) {
            fprintf(stderr, "rank %d: exit %d after a strike at rank %d %s\n",
                    rank, code, victim, phase_names[hit]);
        }
        assert_true(right);
    }
    return hit;
}

static void strike_everywhere(int signal_number, const char *name, int rounds)
{
    int hits[RANKS][PHASES + 1] = {{0}};
    for (int round = 0; round < rounds; round++) {
        for (int victim = 0; victim < RANKS; victim++) {
            for (int phase = 0; phase < PHASES; phase++) {
                hits[victim][strike(victim, phase, signal_number)]++;
            }
        }
    }
    /* Random moments may miss a short phase: strike there again. */
    for (int try = 0; try < 30; try++) {
        for (int victim = 0; victim < RANKS; victim++) {
            for (int phase = 0; phase < PHASES; phase++) {
                if (hits[victim][phase] == 0) {
                    hits[victim][strike(victim, phase, signal_number)]++;
                }
            }
        }
    }
    printf("%s hits:", name);
    for (int victim = 0; victim < RANKS; victim++) {
        for (int phase = 0; phase < PHASES; phase++) {
            printf(" rank %d %s %d%s", victim, phase_names[phase],
                   hits[victim][phase], phase + 1 < PHASES ? "," : ";");
        }
    }
    printf("\n");
    for (int victim = 0; victim < RANKS; victim++) {
        for (int phase = 0; phase < PHASES; phase++) {
            assert_int_not_equal(hits[victim][phase], 0);
        }
    }
}

static int rounds(void)
{
    return getenv("WEFT_TEST_LONG") ? 20 : 1;
}

static bool is_short_and_remote(void)
{
    return getenv("WEFT_DOMAIN") && !getenv("WEFT_TEST_LONG");
}

/* Over the network, where each takes longer: every rank in some phase. */
static void strike_some(int signal_number, const char *name, int strikes)
{
    const int first = (int)(next_random() % RANKS);
    for (int i = 0; i < strikes; i++) {
        int victim = (first + i) % RANKS;
        int hit = strike(victim, (int)(next_random() % PHASES), signal_number);
        printf("%s hit: rank %d %s\n", name, victim, phase_names[hit]);
    }
}

static void test_faults_kill_each_rank_each_phase_named(void **state)
{
    (void)state;
    if (is_short_and_remote()) {
        strike_some(SIGKILL, "SIGKILL", 2 * RANKS);
        return;
    }
    strike_everywhere(SIGKILL, "SIGKILL", rounds());
}

static void test_faults_stop_each_rank_each_phase_named(void **state)
{
    (void)state;
    if (is_short_and_remote()) {
        strike_some(SIGSTOP, "SIGSTOP", 1);
        return;
    }
    strike_everywhere(SIGSTOP, "SIGSTOP", getenv("WEFT_TEST_LONG") ? 5 : 1);
}

/* Over the network by processes: what UCX loads, it loads in each thread. */
static int run(const struct world *world)
{
    return getenv("WEFT_DOMAIN") ? world_run_processes(world)
                                 : world_run_threads(world);
}

/* What rank 1 does differently from the others. */
enum difference { COUNT, DTYPE, REDOP, ROOT, OPERATION, NOTHING, DIFFERENCES };

static const char *const difference_names[] = {"count", "dtype",     "redop",
                                               "root",  "operation", "absent"};

/* Until the others have given up on this rank, however long that takes. */
static void stay_away(weft_comm *comm)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    int64_t end_ns = wefti_clock_ns() + DEADLINE_S * INT64_C(1000000000);
    while (weft_comm_get_fault(comm, &fault) == WEFT_OK &&
           fault.status == WEFT_OK && wefti_clock_ns() < end_ns) {
        usleep(1000);
    }
}

static int differ(weft_comm *comm, void *context)
{
    int kind = *(int *)context;
    bool odd = weft_comm_get_rank(comm) == 1;
    static float data[8192];
    size_t count = kind == COUNT && odd ? 8001 : 8000;
    weft_dtype dtype = kind == DTYPE && odd ? WEFT_DTYPE_I32 : WEFT_DTYPE_F32;
    weft_redop redop = kind == REDOP && odd ? WEFT_REDOP_MAX : WEFT_REDOP_SUM;
    /* Who is still in here when the others find out fails here. */
    weft_status status = weft_barrier(comm, NULL);
    if (status == WEFT_OK && kind == NOTHING && odd) {
        stay_away(comm);
        status = weft_barrier(comm, NULL);
    } else if (kind == ROOT) {
        status =
            weft_broadcast(data, data, count, dtype, odd ? 2 : 0, comm, NULL);
    } else if (status == WEFT_OK && kind == OPERATION && odd) {
        status = weft_barrier(comm, NULL);
    } else if (status == WEFT_OK) {
        status = weft_allreduce(data, data, count, dtype, redop, comm, NULL);
    }
    /* Whoever had left already learns it with the next operation. */
    if (status == WEFT_OK) {
        status = weft_barrier(comm, NULL);
    }
    weft_status wanted = kind == NOTHING ? WEFT_ERR_TIMEOUT : WEFT_ERR_MISMATCH;
    const char *text = weft_error_text();
    /* A rank of another host does not know it. */
    bool missing = strstr(text, "rank 1 has not entered") ||
                   (getenv("WEFT_DOMAIN") &&
                    strstr(text, "rank 1 is not known to have entered"));
    bool both = kind == NOTHING ? missing
                                : strstr(text, "rank 1 posted") &&
                                      strstr(text, " posted ") != NULL;
    if (status != wanted || !both) {
        fprintf(stderr, "rank %d: %s: %s\n", weft_comm_get_rank(comm),
                weft_status_text(status), text);
        return 1;
    }
    return 0;
}

static void test_faults_mismatch_each_kind_both_sides_named(void **state)
{
    (void)state;
    for (int kind = 0; kind < DIFFERENCES; kind++) {
        /* Only who is absent is found by time. */
        const int limit_ms = kind == NOTHING ? 1500 : 20000;
        struct world world = {
            .nranks = RANKS,
            .config = {.timeout_ms = limit_ms, .warn_ms = 500},
            .call = differ,
            .context = &kind};
        int failures = run(&world);
        if (failures) {
            fprintf(stderr, "difference in %s\n", difference_names[kind]);
        }
        assert_int_equal(failures, 0);
    }
}

static void *abort_soon(void *comm)
{
    usleep(20000);
    return weft_comm_abort(comm) == WEFT_OK ? NULL : comm;
}

static int blocked_until_abort(weft_comm *comm, void *context)
{
    (void)context;
    pthread_t aborter;
    int rank = weft_comm_get_rank(comm);
    if (rank == 0) {
        /* Is not in the barrier, so nobody leaves it by himself. */
        return pthread_create(&aborter, NULL, abort_soon, comm) != 0 ||
               pthread_join(aborter, NULL) != 0;
    }
    weft_status status = weft_barrier(comm, NULL);
    return status != WEFT_ERR_ABORTED ||
           !strstr(weft_error_text(), "rank 0 aborted");
}

static void test_faults_abort_from_another_thread_all_return(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = blocked_until_abort};
    assert_int_equal(run(&world), 0);
}

static int leave_early(weft_comm *comm, void *context)
{
    (void)context;
    if (weft_comm_get_rank(comm) == 2) {
        return 0;
    }
    weft_status status = weft_barrier(comm, NULL);
    return status != WEFT_ERR_PEER ||
           !strstr(weft_error_text(), "rank 2 has destroyed");
}

static void test_faults_peer_left_named(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = leave_early};
    assert_int_equal(run(&world), 0);
}

/* Whether the last error's text is the communicator's, rank and operation. */
static bool names_operation(weft_comm *comm)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    bool right = weft_comm_get_fault(comm, &fault) == WEFT_OK &&
                 strcmp(fault.text, weft_error_text()) == 0 &&
                 strstr(fault.text, "all_reduce #2 on \"world\": rank 2 ");
    if (!right) {
        fprintf(stderr, "rank %d: %s\n", weft_comm_get_rank(comm),
                weft_error_text());
    }
    return right;
}

static int failed_stream(weft_comm *comm, void *context)
{
    (void)context;
    static float data[8192];
    weft_device *device;
    weft_stream *stream;
    weft_gate *arrived;
    char posted = 1;
    if (weft_comm_get_rank(comm) == 2) { /* leaves when both have posted */
        return weft_recv(&posted, 1, WEFT_DTYPE_U8, 0, comm, NULL) != WEFT_OK ||
               weft_recv(&posted, 1, WEFT_DTYPE_U8, 1, comm, NULL) != WEFT_OK;
    }
    assert_int_equal(weft_device_open("host", 0, &device), WEFT_OK);
    assert_int_equal(weft_stream_create(device, 0, &stream), WEFT_OK);
    assert_int_equal(weft_gate_create(device, 1, &arrived), WEFT_OK);
    float *out = malloc(sizeof(data));
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = data,
                  .recv = out,
                  .count = 8192,
                  .dtype = WEFT_DTYPE_F32,
                  .arrived = arrived};
    int failures = weft_op_post(&op, 1, comm, stream) != WEFT_OK;
    failures += weft_send(&posted, 1, WEFT_DTYPE_U8, 2, comm, NULL) != WEFT_OK;
    failures += weft_gate_wait(arrived, 0, 1, NULL) != WEFT_ERR_PEER;
    failures += !names_operation(comm);
    failures += weft_stream_wait(stream) != WEFT_ERR_PEER;
    failures += !names_operation(comm);
    weft_stream_destroy(stream);
    weft_gate_destroy(arrived);
    weft_device_close(device);
    free(out);
    return failures;
}

static void test_faults_on_stream_gates_and_stream_released(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = failed_stream};
    assert_int_equal(run(&world), 0);
}

static int count_entries(const char *folder)
{
    int entries = 0;
    DIR *open_folder = opendir(folder);
    while (open_folder && readdir(open_folder)) {
        entries++;
    }
    if (open_folder) {
        closedir(open_folder);
    }
    return entries;
}

/* Its memory has no name in the file system that could outlive a kill. */
static int only_anonymous(weft_comm *comm, void *context)
{
    (void)context;
    char line[512];
    int failures = weft_barrier(comm, NULL) != WEFT_OK;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps)) {
        failures += strstr(line, "/dev/shm/") != NULL;
    }
    if (!maps || fclose(maps) != 0) {
        failures++;
    }
    return failures;
}

static void test_faults_after_all_nothing_left_behind(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = only_anonymous};
    if (getenv("WEFT_DOMAIN")) {
        assert_int_equal(run(&world), 0);
        return;
    }
    assert_int_equal(world_run_threads(&world), 0);
    int descriptors = count_entries("/proc/self/fd");
    int threads = count_entries("/proc/self/task");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(world_run_threads(&world), 0);
    }
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    assert_int_equal(count_entries("/proc/self/task"), threads);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        setenv("WEFT_DOMAIN", argv[1], 1);
    }
    /* Others of this machine may come and go there meanwhile. */
    const char *given = getenv("WEFT_TEST_SEED");
    seed =
        given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)wefti_clock_ns();
    printf("WEFT_TEST_SEED=%u\n", seed);
    arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct CMUnitTest tests[] = {
        /* Processes first: the parent may not have threads yet. */
        cmocka_unit_test(test_faults_kill_each_rank_each_phase_named),
        cmocka_unit_test(test_faults_stop_each_rank_each_phase_named),
        cmocka_unit_test(test_faults_mismatch_each_kind_both_sides_named),
        cmocka_unit_test(test_faults_abort_from_another_thread_all_return),
        cmocka_unit_test(test_faults_peer_left_named),
        cmocka_unit_test(test_faults_on_stream_gates_and_stream_released),
        cmocka_unit_test(test_faults_after_all_nothing_left_behind),
    };
    return arena == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
