/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a fault while a device still has work queued ends all the same: every
 * stream drains, every survivor's stream names the rank and the operation, the
 * communicator's end is bounded, and no descriptor or mapping is left.
 *
 * Method: three processes post all-reduces of device memory on streams of a
 * device; rank 1 then aborts, is killed, posts something else, comes no more,
 * or lets its stream stand at a gate that it raises only after the communicator
 * is gone. Arguments: the kind, shadow or cuda (on the fake driver, where rank
 * 1's GPU may also fail, after any number of its operations); the device's
 * seed, without which a few are taken; they are printed.
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
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS = 3,
    VICTIM = 1,
    ELEMS = 1 << 17,
    POSTS = 4,
    TIMEOUT_MS = 2000, /* of what rank 1 never comes to */
    DEADLINE_S = 40
};

enum fault { ABORT, KILL, MISMATCH, SILENCE, SHUT_GATE, BROKEN };

static const char *kind;
static unsigned seed_given; /* 0: none */

/* One rank's; each process has its own copy. */
struct patient {
    enum fault fault;
    weft_device *device;
    weft_stream *stream;
    weft_gate *shut;
    void *send, *recv;
    int descriptors, mappings;
    unsigned seed;
    unsigned breaks_at; /* operation of the device */
    bool on_stream;
};

static int count_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

/* Of memory that is shared or a device's: the rest is the C library's. */
static int count_mappings(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof(line), maps)) {
        count += strstr(line, "memfd:") != NULL;
    }
    fclose(maps);
    return count;
}

static void count_before(int rank, void *context)
{
    struct patient *patient = context;
    char text[32];
    /* As the fake driver does: another order in each process. */
    snprintf(text, sizeof(text), "%u", patient->seed * 64 + (unsigned)rank);
    setenv("WEFT_SHADOW_SEED", text, 1);
    if (patient->fault == BROKEN && rank == VICTIM) {
        snprintf(text, sizeof(text), "700@%u", patient->breaks_at);
        setenv("WEFT_FAKE_GPU_ERROR", text, 1);
    }
    /* What a driver opens once stays. */
    weft_device *device;
    void *memory;
    assert_int_equal(weft_device_open(kind, 0, &device), WEFT_OK);
    assert_int_equal(weft_device_alloc(device, 1, &memory), WEFT_OK);
    weft_device_free(device, memory);
    weft_device_close(device);
    patient->descriptors = count_descriptors();
    patient->mappings = count_mappings();
}

static void open_device(int rank, weft_comm_config *config, void *context)
{
    struct patient *patient = context;
    (void)rank;
    assert_int_equal(weft_device_open(kind, 0, &patient->device), WEFT_OK);
    config->device = patient->device;
}

static int expect_fault(const struct patient *patient, int rank,
                        weft_status status)
{
    static const weft_status wanted[] = {WEFT_ERR_ABORTED,  WEFT_ERR_PEER,
                                         WEFT_ERR_MISMATCH, WEFT_ERR_TIMEOUT,
                                         WEFT_ERR_TIMEOUT,  WEFT_ERR_SYSTEM};
    const char *text = weft_error_text();
    const char *operation = patient->fault == ABORT      ? "(its last: #"
                            : patient->fault == MISMATCH ? "operation #"
                                                         : "all_reduce #";
    const bool named = strstr(text, "rank 1") && strstr(text, operation);
    if (status == wanted[patient->fault] && named) {
        return 0;
    }
    fprintf(stderr, "rank %d: %s: \"%s\"\n", rank, weft_status_text(status),
            text);
    return 1;
}

/* An all-reduce with a limit of its own; 0: the communicator's. */
static weft_status allreduce(const struct patient *patient, weft_comm *comm,
                             uint64_t timeout_ms)
{
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLREDUCE,
                        .send = patient->send,
                        .recv = patient->recv,
                        .count = ELEMS,
                        .dtype = WEFT_DTYPE_F32,
                        .redop = WEFT_REDOP_SUM,
                        .timeout_ms = timeout_ms};
    return weft_op_post(&op, 0, comm, patient->stream);
}

/* What rank 1 does in the place of its second operation; whether it goes on. */
static bool strike(struct patient *patient, weft_comm *comm)
{
    weft_status status = WEFT_OK;
    switch (patient->fault) {
    case ABORT:
        status = weft_comm_abort(comm);
        break;
    case KILL:
        raise(SIGKILL);
        break;
    case MISMATCH:
        status = weft_broadcast(patient->send, patient->recv, ELEMS,
                                WEFT_DTYPE_F32, 0, comm, patient->stream);
        break;
    case SILENCE:
    case BROKEN:
        break;
    case SHUT_GATE:
        status = weft_gate_wait(patient->shut, 0, 1, patient->stream);
        break;
    }
    assert_int_equal(status, WEFT_OK);
    return patient->fault == SHUT_GATE;
}

/* Until the communicator has failed for this rank too. */
static void await_fault(weft_comm *comm)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    const int64_t end_ns = wefti_clock_ns() + INT64_C(1000000000) * DEADLINE_S;
    while (weft_comm_get_fault(comm, &fault) == WEFT_OK &&
           fault.status == WEFT_OK && wefti_clock_ns() < end_ns) {
        usleep(1000);
    }
}

static int suffer(weft_comm *comm, void *context)
{
    struct patient *patient = context;
    const int rank = weft_comm_get_rank(comm);
    weft_device *device = patient->device;
    const size_t bytes = ELEMS * sizeof(float);
    int failures = weft_stream_create(device, 0, &patient->stream) ||
                   weft_gate_create(device, 1, &patient->shut) ||
                   weft_device_alloc(device, bytes, &patient->send) ||
                   weft_device_alloc(device, bytes, &patient->recv) ||
                   weft_barrier(comm, NULL);
    const bool limited =
        patient->fault == SILENCE || patient->fault == SHUT_GATE;
    bool posts = failures == 0, told = rank == VICTIM;
    for (int post = 0; post < POSTS && posts; post++) {
        if (post == 1 && limited) { /* only what cannot end is limited */
            failures += weft_stream_wait(patient->stream) != WEFT_OK;
        }
        const uint64_t limit_ms = post > 0 && limited ? TIMEOUT_MS : 0;
        if (post == 1 && rank == VICTIM) {
            posts = strike(patient, comm);
        }
        weft_status status =
            posts ? allreduce(patient, comm, limit_ms) : WEFT_OK;
        if (status != WEFT_OK) { /* it may have failed by now */
            failures += expect_fault(patient, rank, status);
            posts = false;
            told = true;
        }
    }
    if (rank == VICTIM && limited) {
        await_fault(comm);
        return failures;
    }
    weft_status status = weft_stream_wait(patient->stream);
    /* Where the post has said it, there may be nothing behind it. */
    if (status != WEFT_OK || !told) {
        failures += expect_fault(patient, rank, status);
    }
    return failures;
}

/* Rank 1's GPU fails meanwhile: what the communicator says of it. */
static int suffer_broken(weft_comm *comm, void *context)
{
    struct patient *patient = context;
    const int rank = weft_comm_get_rank(comm);
    const size_t bytes = ELEMS * sizeof(float);
    /* Small ones wait for one copy, with nothing more to post. */
    const size_t elems = patient->on_stream ? ELEMS : 64;
    weft_fault fault = {.size_bytes = sizeof(fault)};
    const int posts = patient->on_stream ? 12 : 100; /* it breaks in between */
    float *own = NULL;
    weft_status status =
        weft_stream_create(patient->device, 0, &patient->stream);
    if (status == WEFT_OK) {
        status = weft_device_alloc(patient->device, bytes, &patient->send);
    }
    if (status == WEFT_OK) {
        status = weft_device_alloc(patient->device, bytes, &patient->recv);
    }
    for (int post = 0; post < posts && status == WEFT_OK; post++) {
        weft_stream *stream =
            patient->on_stream && !own ? patient->stream : NULL;
        status =
            weft_allreduce(own ? own : patient->send, own ? own : patient->recv,
                           elems, WEFT_DTYPE_F32, WEFT_REDOP_SUM, comm, stream);
        const bool posted = status == WEFT_OK;
        if (posted && stream) {
            status = weft_stream_wait(stream);
        }
        /* It may have broken behind what the communicator needs of it, which
         * then goes on with memory of the host. */
        if (status == WEFT_ERR_SYSTEM && rank == VICTIM && stream) {
            own = calloc(ELEMS, sizeof(float));
            status = own ? WEFT_OK : WEFT_ERR_NO_MEMORY;
            post -= !posted;
        }
    }
    free(own);
    if (status == WEFT_OK && patient->on_stream) {
        return 0;
    }
    if (rank != VICTIM) {
        return expect_fault(patient, rank, status);
    }
    /* Its own stream may know of nothing but the GPU. */
    await_fault(comm);
    if (weft_comm_get_fault(comm, &fault) != WEFT_OK ||
        fault.status != WEFT_ERR_SYSTEM || fault.rank != VICTIM ||
        !strstr(fault.text, "all_reduce #") || status == WEFT_OK) {
        fprintf(stderr, "rank %d: %s: \"%s\"\n", rank,
                weft_status_text(fault.status), fault.text);
        return 1;
    }
    return 0;
}

/* The communicator is gone. */
static int clean_up(int rank, void *context)
{
    struct patient *patient = context;
    int failures = 0;
    if (rank == VICTIM && patient->fault == SHUT_GATE) {
        failures += weft_gate_signal(patient->shut, 0, 1, NULL) != WEFT_OK;
        failures +=
            expect_fault(patient, rank, weft_stream_wait(patient->stream));
    }
    weft_stream_destroy(patient->stream);
    weft_gate_destroy(patient->shut);
    weft_device_free(patient->device, patient->send);
    weft_device_free(patient->device, patient->recv);
    weft_device_close(patient->device);
    if (patient->fault == BROKEN && rank == VICTIM) {
        return failures; /* the driver gives nothing back any more */
    }
    /* Rank 0 has taken over the socket that the ranks have met at. */
    const int descriptors = count_descriptors() + (rank == 0);
    const int mappings = count_mappings();
    if (descriptors != patient->descriptors || mappings != patient->mappings) {
        fprintf(stderr,
                "rank %d: %d descriptors and %d mappings, before %d and %d\n",
                rank, descriptors, mappings, patient->descriptors,
                patient->mappings);
        failures++;
    }
    return failures;
}

static void run_seed(enum fault fault, unsigned seed)
{
    char text[16];
    struct patient patient = {.fault = fault,
                              .seed = seed,
                              .breaks_at = 20 + 7 * seed,
                              .on_stream = seed % 2 == 0};
    struct world world = {
        .nranks = RANKS,
        .config = {.timeout_ms = 1000 * DEADLINE_S, .warn_ms = 60000},
        .call = fault == BROKEN ? suffer_broken : suffer,
        .context = &patient,
        .before = count_before,
        .configure = open_device,
        .after = clean_up};
    world_processes started;
    snprintf(text, sizeof(text), "%u", seed);
    setenv("WEFT_FAKE_GPU_SEED", text, 1);
    const int64_t begin_ns = wefti_clock_ns();
    world_start_processes(&world, &started);
    assert_int_equal(world_finish_survivors(&started, DEADLINE_S), 0);
    const int64_t took_ns = wefti_clock_ns() - begin_ns;
    printf("seed %u: %.1f s\n", seed, (double)took_ns * 1e-9);
    assert_true(took_ns < INT64_C(1000000000) * DEADLINE_S / 2);
    for (int rank = 0; rank < RANKS; rank++) {
        const int status = started.exit_status[rank];
        if (fault == KILL && rank == VICTIM) {
            assert_true(WIFSIGNALED(status));
        } else {
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), 0);
        }
    }
}

static void run(enum fault fault)
{
    const unsigned last = fault == BROKEN ? 8 : 2;
    if (seed_given) {
        run_seed(fault, seed_given);
    }
    for (unsigned seed = 1; seed <= last && !seed_given; seed++) {
        run_seed(fault, seed);
    }
}

static void test_abort_device_work_queued_streams_drain(void **state)
{
    (void)state;
    run(ABORT);
}

static void test_kill_device_work_queued_streams_drain(void **state)
{
    (void)state;
    run(KILL);
}

static void test_mismatch_device_work_queued_streams_drain(void **state)
{
    (void)state;
    run(MISMATCH);
}

static void test_timeout_device_work_queued_streams_drain(void **state)
{
    (void)state;
    run(SILENCE);
}

static void test_destroy_stream_at_shut_gate_bounded_told_later(void **state)
{
    (void)state;
    run(SHUT_GATE);
}

static void
test_gpu_fails_meanwhile_all_told_of_rank_and_operation(void **state)
{
    const char *driver = getenv("WEFT_TEST_DRIVER");
    (void)state;
    if (driver && strcmp(driver, "system") == 0) {
        print_message("left out: a GPU that fails on demand\n");
    } else {
        run(BROKEN);
    }
}

int main(int count, char **arguments)
{
    kind = count > 1 ? arguments[1] : "shadow";
    seed_given = count > 2 ? (unsigned)strtoul(arguments[2], NULL, 0) : 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abort_device_work_queued_streams_drain),
        cmocka_unit_test(test_kill_device_work_queued_streams_drain),
        cmocka_unit_test(test_mismatch_device_work_queued_streams_drain),
        cmocka_unit_test(test_timeout_device_work_queued_streams_drain),
        cmocka_unit_test(test_destroy_stream_at_shut_gate_bounded_told_later),
    };
    const struct CMUnitTest of_cuda[] = {
        cmocka_unit_test(
            test_gpu_fails_meanwhile_all_told_of_rank_and_operation),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (strcmp(kind, "cuda") == 0) {
        failed += cmocka_run_group_tests(of_cuda, NULL, NULL);
    }
    return failed;
}
