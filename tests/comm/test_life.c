/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    communicators come and go without a trace; leaving one that a stream
 *         still holds is safe; a failed one lets nobody wait for ever; lists
 *         of ranks become communicators; health and memory can be asked for.
 * Method  worlds of threads; what the process holds is counted in /proc before
 *         and after; streams are held back by gates that the test raises last.
 */
#include "base/clock.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1, MANY = 100 };
#else
enum { SANITIZED = 0, MANY = 1000 };
#endif

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

static int count_lines(const char *path)
{
    int count = 0, c;
    FILE *file = fopen(path, "r");
    while (file && (c = getc(file)) != EOF) {
        count += c == '\n';
    }
    fclose(file);
    return count;
}

/* What a process holds. */
typedef struct holdings {
    int descriptors, mappings, threads;
    size_t heap_bytes;
} holdings;

static holdings count_holdings(void)
{
    struct mallinfo2 heap = mallinfo2();
    return (holdings){count_entries("/proc/self/fd"),
                      count_lines("/proc/self/maps"),
                      count_entries("/proc/self/task"), heap.uordblks};
}

static int make_one(weft_comm *comm, void *context)
{
    float one = 1;
    (void)context;
    return weft_allreduce(&one, &one, 1, WEFT_DTYPE_F32, WEFT_REDOP_SUM, comm,
                          NULL) != WEFT_OK ||
           one != (float)weft_comm_get_nranks(comm);
}

/* Threads of this process before any of weft's. */
static int idle_threads;

static void *get_tid(void *tid_out)
{
    *(pid_t *)tid_out = gettid();
    return NULL;
}

/* With the one that a sanitizer may keep from the first thread on. */
static int count_idle_threads(void **state)
{
    pthread_t thread;
    pid_t tid = 0;
    (void)state;
    if (pthread_create(&thread, NULL, get_tid, &tid) != 0) {
        return -1;
    }
    pthread_join(thread, NULL);
    while (syscall(SYS_tgkill, getpid(), tid, 0) == 0) { /* joined, yet there */
        sched_yield();
    }
    idle_threads = count_entries("/proc/self/task");
    return 0;
}

/*
 * What is held once no thread is left that could still give something back: one
 * that was joined, and a detached server, leave a moment after their world.
 */
static holdings settled_holdings(void)
{
    int64_t end_ns = wefti_clock_ns() + INT64_C(20000000000);
    while (count_entries("/proc/self/task") > idle_threads &&
           wefti_clock_ns() < end_ns) {
        sched_yield();
    }
    return count_holdings();
}

static void assert_same(holdings before, holdings after)
{
    assert_int_equal(before.threads, idle_threads); /* else it says nothing */
    assert_int_equal(after.threads, idle_threads);
    assert_int_equal(after.descriptors, before.descriptors);
    if (!SANITIZED) { /* a stack or an arena more is malloc's; 1000 are ours */
        assert_in_range(after.mappings, 0, (unsigned)before.mappings + 16);
        assert_in_range(after.heap_bytes, 0, before.heap_bytes + 65536);
    }
}

static void test_comm_made_1000_times_leaves_nothing(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = make_one};
    for (int i = 0; i < 10; i++) { /* what is made once and kept */
        assert_int_equal(world_run_threads(&world), 0);
    }
    holdings before = settled_holdings();
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(world_run_threads(&world), 0);
    }
    assert_same(before, settled_holdings());
}

/* Splits, lists and shrinks of one world, with a stream and its thread. */
static int make_many(weft_comm *world, void *context)
{
    int rank = weft_comm_get_rank(world), failures = 0;
    const int list[2] = {1, 0};
    weft_comm *part, *pair;
    (void)context;
    for (int i = 0; i < MANY / 4 && !failures; i++) {
        failures += weft_comm_split(world, 0, -rank, NULL, &part) != WEFT_OK;
        failures +=
            weft_comm_create_from(part, list, 2, NULL, &pair) != WEFT_OK;
        failures += make_one(pair, NULL);
        weft_comm_destroy(part);
        failures += weft_comm_get_rank(pair) != rank;
        failures += make_one(pair, NULL);
        weft_comm_destroy(pair);
    }
    return failures;
}

static void test_comm_split_and_listed_leave_nothing(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = make_many};
    assert_int_equal(world_run_threads(&world), 0);
    holdings before = settled_holdings();
    assert_int_equal(world_run_threads(&world), 0);
    assert_same(before, settled_holdings());
}

/* ---- create_from ----------------------------------------------------------
 */

/* 1, 3 and 0 make one; 2 and 4 another, at the same time. */
static int list_ranks(weft_comm *world, void *context)
{
    static const int odd[] = {3, 1, 0}, rest[] = {2, 4};
    static const char *const wrong[] = {
        "rank_count 6: allowed is 1 to 5", "ranks is NULL", "ranks[1] is 9",
        "ranks[0] and ranks[2] are both", "ranks lacks this rank"};
    const int far[] = {0, 9}, twice[] = {1, 0, 1};
    int rank = weft_comm_get_rank(world), failures = 0;
    const int other[] = {rank == 0 ? 1 : 0};
    bool is_rest = rank == 2 || rank == 4;
    weft_comm *comm;
    (void)context;
    for (int i = 0; i < 5; i++) {
        weft_status refused =
            i == 0   ? weft_comm_create_from(world, other, 6, NULL, &comm)
            : i == 1 ? weft_comm_create_from(world, NULL, 1, NULL, &comm)
            : i == 2 ? weft_comm_create_from(world, far, 2, NULL, &comm)
            : i == 3 ? weft_comm_create_from(world, twice, 3, NULL, &comm)
                     : weft_comm_create_from(world, other, 1, NULL, &comm);
        failures +=
            refused != WEFT_ERR_INVALID || !strstr(weft_error_text(), wrong[i]);
    }
    weft_comm_config config = {.size_bytes = sizeof(config), .name = "list"};
    weft_status status = weft_comm_create_from(world, is_rest ? rest : odd,
                                               is_rest ? 2 : 3, &config, &comm);
    if (status != WEFT_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, weft_error_text());
        return failures + 1;
    }
    static const int expected[] = {2, 1, 0, 0, 1};
    failures += weft_comm_get_rank(comm) != expected[rank];
    failures += weft_comm_get_nranks(comm) != (is_rest ? 2 : 3);
    failures += make_one(comm, NULL);
    weft_comm_destroy(comm);
    return failures + make_one(world, NULL);
}

static void test_create_from_lists_makes_what_they_say(void **state)
{
    (void)state;
    struct world world = {.nranks = 5, .call = list_ranks};
    assert_int_equal(world_run_threads(&world), 0);
}

/* Rank 1 lists one more than rank 0. */
static int list_differently(weft_comm *world, void *context)
{
    const int two[] = {0, 1}, three[] = {0, 1, 2};
    int rank = weft_comm_get_rank(world);
    weft_comm *comm;
    (void)context;
    if (rank == 2) {
        return 0;
    }
    weft_status status =
        rank == 0 ? weft_comm_create_from(world, two, 2, NULL, &comm)
                  : weft_comm_create_from(world, three, 3, NULL, &comm);
    int failures =
        status != WEFT_ERR_INVALID || comm != NULL ||
        !strstr(weft_error_text(), "rank 1 lists other members than rank 0");
    return failures;
}

static void test_create_from_lists_that_differ_is_refused(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = list_differently};
    assert_int_equal(world_run_threads(&world), 0);
}

/* ---- leaving while streams hold operations ---------------------------------
 */

/* A stream that stands at a gate, with an operation of a world behind it. */
typedef struct held {
    weft_device *device;
    weft_stream *stream;
    weft_gate *hold, *arrived;
    float value;
} held;

static int held_init(held *own)
{
    return weft_device_open("host", 0, &own->device) != WEFT_OK ||
           weft_stream_create(own->device, 0, &own->stream) != WEFT_OK ||
           weft_gate_create(own->device, 1, &own->hold) != WEFT_OK ||
           weft_gate_create(own->device, 1, &own->arrived) != WEFT_OK ||
           weft_gate_wait(own->hold, 0, 1, own->stream) != WEFT_OK;
}

static weft_status held_post(held *own, weft_comm *comm, uint64_t epoch)
{
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = &own->value,
                  .recv = &own->value,
                  .count = 1,
                  .dtype = WEFT_DTYPE_F32,
                  .redop = WEFT_REDOP_SUM,
                  .arrived = own->arrived};
    return weft_op_post(&op, epoch, comm, own->stream);
}

static void held_fini(held *own)
{
    weft_stream_destroy(own->stream);
    weft_gate_destroy(own->hold);
    weft_gate_destroy(own->arrived);
    weft_device_close(own->device);
}

enum leaving { HEALTHY, ABORTED, LATE };

static int leave_held(weft_comm *world, void *context)
{
    const enum leaving how = *(const enum leaving *)context;
    held own = {.value = 1};
    weft_comm *part;
    int failures = held_init(&own);
    weft_comm_config config = {.size_bytes = sizeof(config),
                               .timeout_ms = how == LATE ? 300 : 20000};
    failures += weft_comm_split(world, 0, 0, &config, &part) != WEFT_OK;
    failures += held_post(&own, part, 1) != WEFT_OK;
    failures += weft_barrier(world, NULL) != WEFT_OK; /* all have posted */
    if (how == ABORTED) {
        failures += weft_comm_abort(part) != WEFT_OK;
    }
    if (how == HEALTHY) {
        failures += weft_gate_signal(own.hold, 0, 1, NULL) != WEFT_OK;
    }
    weft_comm_destroy(part);
    /* Only now the stream comes to what the communicator left in it. */
    failures += weft_gate_signal(own.hold, 0, 1, NULL) != WEFT_OK;
    weft_status ended = weft_stream_wait(own.stream);
    failures += ended != (how == HEALTHY ? WEFT_OK : WEFT_ERR_ABORTED);
    ended = weft_gate_wait(own.arrived, 0, 1, NULL);
    failures += ended != (how == HEALTHY ? WEFT_OK : WEFT_ERR_ABORTED);
    failures += how == HEALTHY && own.value != 2.0f;
    held_fini(&own);
    return failures;
}

static void test_destroy_while_a_stream_holds_operations_is_safe(void **state)
{
    (void)state;
    for (enum leaving how = HEALTHY; how <= LATE; how++) {
        for (int round = 0; round < 20; round++) {
            struct world world = {
                .nranks = 2, .call = leave_held, .context = &how};
            assert_int_equal(world_run_threads(&world), 0);
            if (how == LATE && round == 2) {
                break;
            }
        }
    }
}

/* A failed communicator refuses, and releases what would have arrived. */
static int post_on_failed(weft_comm *comm, void *context)
{
    held own = {.value = 1};
    (void)context;
    int failures = held_init(&own);
    failures += weft_comm_abort(comm) != WEFT_OK;
    failures += held_post(&own, comm, 1) != WEFT_ERR_ABORTED;
    /* Without the mark this would wait for ever. */
    failures += weft_gate_wait(own.arrived, 0, 1, NULL) != WEFT_ERR_ABORTED;
    failures += weft_gate_signal(own.hold, 0, 1, NULL) != WEFT_OK;
    failures += weft_stream_wait(own.stream) != WEFT_OK;
    held_fini(&own);
    return failures;
}

static void test_post_on_failed_comm_releases_its_gates(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = post_on_failed};
    assert_int_equal(world_run_threads(&world), 0);
}

/* ---- health, memory, dump --------------------------------------------------
 */

static int ask_health(weft_comm *comm, void *context)
{
    char text[4096], small[8];
    int rank = weft_comm_get_rank(comm), failures = 0;
    weft_comm_bytes bytes = {.size_bytes = sizeof(bytes)};
    (void)context;
    failures += make_one(comm, NULL) + make_one(comm, NULL);
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    failures += weft_comm_get_bytes(comm, &bytes) != WEFT_OK;
    failures += bytes.own_bytes < 10000 || bytes.shared_bytes < 4096 ||
                bytes.reserved_bytes < bytes.shared_bytes;
    failures += weft_comm_get_health(comm, WEFT_COMM_TEXT, text,
                                     sizeof(text)) != WEFT_OK;
    failures += !strstr(text, "\"world\": healthy, rank ") ||
                !strstr(text, "rank 1: alive, last #") ||
                strstr(text, "-0.") != NULL;
    failures += weft_comm_get_health(comm, WEFT_COMM_JSON, small,
                                     sizeof(small)) != WEFT_ERR_INVALID;
    failures += small[0] != 0;
    failures += weft_comm_get_health(comm, (weft_comm_format)7, text,
                                     sizeof(text)) != WEFT_ERR_INVALID;
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    if (rank == 1) {
        failures += weft_comm_abort(comm) != WEFT_OK;
    } else {
        failures += weft_barrier(comm, NULL) != WEFT_ERR_ABORTED;
    }
    failures += weft_comm_get_health(comm, WEFT_COMM_JSON, text,
                                     sizeof(text)) != WEFT_OK;
    cJSON *json = cJSON_Parse(text);
    const cJSON *fault = cJSON_GetObjectItem(json, "fault");
    const cJSON *ranks = cJSON_GetObjectItem(json, "ranks");
    failures += !json || !cJSON_IsObject(fault) ||
                cJSON_GetArraySize(ranks) != 3 ||
                strcmp(cJSON_GetObjectItem(json, "state")->valuestring,
                       "failed") != 0 ||
                cJSON_GetObjectItem(fault, "rank")->valueint != 1;
    const cJSON *one = NULL;
    cJSON_ArrayForEach(one, ranks)
    {
        failures += cJSON_GetObjectItem(one, "age_s")->valuedouble < 0;
        failures += cJSON_GetObjectItem(one, "last_op")->valueint < 3;
    }
    cJSON_Delete(json);
    failures += weft_comm_dump(comm, text, sizeof(text)) != WEFT_OK;
    failures += !strstr(text, "did #2 all_reduce");
    if (failures) {
        fprintf(stderr, "rank %d: %d failures\n%s\n", rank, failures, text);
    }
    return failures;
}

static void test_health_says_how_it_stands(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = ask_health};
    assert_int_equal(world_run_threads(&world), 0);
}

/* Several operations on streams that stand still: the dump has them all. */
static int dump_in_flight(weft_comm *comm, void *context)
{
    char text[4096] = "";
    static float value[2][4];
    int rank = weft_comm_get_rank(comm), failures = 0;
    weft_device *device;
    weft_stream *streams[4];
    (void)context;
    failures += weft_device_open("host", 0, &device) != WEFT_OK;
    for (int i = 0; i < 4; i++) {
        failures += weft_stream_create(device, 0, &streams[i]) != WEFT_OK;
        if (rank == 0) { /* rank 1 comes later, so these stay inside */
            failures +=
                weft_allreduce(&value[0][i], &value[0][i], 1, WEFT_DTYPE_F32,
                               WEFT_REDOP_SUM, comm, streams[i]) != WEFT_OK;
        }
    }
    int64_t end_ns = wefti_clock_ns() + INT64_C(20000000000);
    while (rank == 0 && wefti_clock_ns() < end_ns &&
           (!strstr(text, "inside #2") || !strstr(text, "inside #5"))) {
        failures += weft_comm_dump(comm, text, sizeof(text)) != WEFT_OK;
        sched_yield();
    }
    for (int number = 2; rank == 0 && number <= 5; number++) {
        char wanted[32];
        snprintf(wanted, sizeof(wanted), "inside #%d all_reduce", number);
        failures += !strstr(text, wanted);
    }
    int32_t go = 1;
    failures +=
        rank == 0 ? weft_send(&go, 1, WEFT_DTYPE_I32, 1, comm, NULL) != WEFT_OK
                  : weft_recv(&go, 1, WEFT_DTYPE_I32, 0, comm, NULL) != WEFT_OK;
    for (int i = 0; i < 4; i++) {
        if (rank == 1) {
            failures +=
                weft_allreduce(&value[1][i], &value[1][i], 1, WEFT_DTYPE_F32,
                               WEFT_REDOP_SUM, comm, streams[i]) != WEFT_OK;
        }
        failures += weft_stream_wait(streams[i]) != WEFT_OK;
        weft_stream_destroy(streams[i]);
    }
    weft_device_close(device);
    return failures;
}

static void test_dump_shows_all_that_is_in_flight(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = dump_in_flight};
    assert_int_equal(world_run_threads(&world), 0);
}

/* Dumps until the text has both parts, or too long. */
static int await_dump(weft_comm *comm, const char *one, const char *other)
{
    char text[4096] = "";
    int64_t end_ns = wefti_clock_ns() + INT64_C(20000000000);
    int failures = 0;
    while (!failures && (!strstr(text, one) || !strstr(text, other)) &&
           wefti_clock_ns() < end_ns) {
        failures += weft_comm_dump(comm, text, sizeof(text)) != WEFT_OK;
        sched_yield();
    }
    if (!strstr(text, one) || !strstr(text, other)) {
        fprintf(stderr, "\"%s\" or \"%s\" is not in:\n%s", one, other, text);
        failures++;
    }
    return failures;
}

/* Rank 0 has posted three receives; both see what it waits for. */
static int dump_pending(weft_comm *comm, void *context)
{
    static const char waits[] = ", waits in recv #1 from rank 1 of 4 f32 (";
    static const char pending[] =
        "rank 0 pending: recv from rank 1: 3, the first #1 of 4 f32\n";
    float data[3][4] = {{0}}, go = 1;
    int rank = weft_comm_get_rank(comm), failures = 0;
    weft_device *device;
    weft_stream *stream;
    (void)context;
    failures += weft_device_open("host", 0, &device) != WEFT_OK ||
                weft_stream_create(device, 0, &stream) != WEFT_OK;
    for (int i = 0; i < 3 && rank == 0; i++) {
        failures +=
            weft_recv(data[i], 4, WEFT_DTYPE_F32, 1, comm, stream) != WEFT_OK;
    }
    failures += await_dump(comm, waits, rank == 0 ? pending : waits);
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    for (int i = 0; i < 3 && rank == 1; i++) {
        data[i][0] = (float)i + 1;
        failures +=
            weft_send(data[i], 4, WEFT_DTYPE_F32, 0, comm, NULL) != WEFT_OK;
    }
    failures += weft_stream_wait(stream) != WEFT_OK;
    failures += rank == 0 && data[2][0] != 3;
    /* What is over is no longer told. */
    failures += weft_allreduce(&go, &go, 1, WEFT_DTYPE_F32, WEFT_REDOP_SUM,
                               comm, NULL) != WEFT_OK;
    char text[4096];
    failures += weft_comm_dump(comm, text, sizeof(text)) != WEFT_OK;
    failures += strstr(text, "pending") != NULL;
    weft_stream_destroy(stream);
    weft_device_close(device);
    return failures;
}

static void test_dump_shows_sends_and_receives_that_wait(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = dump_pending};
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_made_1000_times_leaves_nothing),
        cmocka_unit_test(test_comm_split_and_listed_leave_nothing),
        cmocka_unit_test(test_create_from_lists_makes_what_they_say),
        cmocka_unit_test(test_create_from_lists_that_differ_is_refused),
        cmocka_unit_test(test_destroy_while_a_stream_holds_operations_is_safe),
        cmocka_unit_test(test_post_on_failed_comm_releases_its_gates),
        cmocka_unit_test(test_health_says_how_it_stands),
        cmocka_unit_test(test_dump_shows_all_that_is_in_flight),
        cmocka_unit_test(test_dump_shows_sends_and_receives_that_wait),
    };
    return cmocka_run_group_tests(tests, count_idle_threads, NULL);
}
