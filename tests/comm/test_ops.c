/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every operation gives the exact result, for every type, reduction,
 * root, count and number of ranks, in place and not, on host and shadow
 * memory, with every algorithm and chunk size.
 *
 * Method: inputs are small integers as every type holds them, so few that the
 * expected values are a table (values.h); inputs change with every operation,
 * outputs are poisoned first and have guard bytes around them, all buffers
 * have odd addresses. Every pair of type and reduction comes with one of the
 * counts in each world, as processes with --long with all but the largest; over
 * a network in one of three tests, which differ in the algorithm. Argument:
 * threads, processes or shadow.
 */
#include "tests/comm/spread.h"
#include "tests/comm/values.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sanitizers slow everything down: fewer worlds and counts, but with --long
 * those that releases have by default. */
#if defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#define SLOW_WORLDS                                                            \
    "359" /* one rank shares nothing, two are in forced ones                   \
           */
#else
#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#define SLOW_WORLDS "12359"
#endif
static bool is_slow;

enum {
    GUARD_BYTES = 64,
    POISON = 0xA5,
    MOST_ELEMS = 70001,
    LARGE_ELEMS = 1 << 19,
    MOST_RANKS = 16
};

static const char *mode;
static bool is_long;
static bool is_shadow;
static bool is_remote; /* over a network: fewer worlds, and in each of the */
static int third; /* three tests a third of the pairs of type and reduction */

/* The one form of three in which --long leaves nothing out. */
static bool is_whole_form(void)
{
    return strcmp(mode, "processes") == 0 && !getenv("WEFT_ALGO");
}

/* One case of the matrix as one rank sees it. */
struct probe {
    weft_comm *comm;
    weft_device *device; /* NULL: host memory */
    weft_stream *stream;
    int rank, nranks, root;
    size_t count;
    weft_dtype dtype;
    weft_redop redop;
    bool in_place;
    unsigned salt;
    values values;
    unsigned char scale[16]; /* behind the first byte, poisoned once posted */
    unsigned char *send, *recv; /* as passed to weft, behind their guards */
    unsigned char *host_send, *host_recv;
    size_t room_bytes;
    int failures;
};

static void fill(const struct probe *probe, unsigned char *at, int rank,
                 size_t first, size_t elems)
{
    values_fill(&probe->values, at, rank, first, elems);
}

static void move(const struct probe *probe, void *dst, const void *src,
                 size_t bytes)
{
    if (!probe->device) {
        memcpy(dst, src, bytes);
    } else if (weft_device_copy(probe->device, dst, src, bytes, NULL) !=
               WEFT_OK) {
        fail_msg("copy: %s", weft_error_text());
    }
}

static void complain(struct probe *probe, const char *what, size_t i)
{
    if (probe->failures++ < 5) {
        fprintf(stderr,
                "%s: rank %d of %d, %s %s count %zu root %d%s: wrong at %zu\n",
                what, probe->rank, probe->nranks, weft_dtype_text(probe->dtype),
                weft_redop_text(probe->redop), probe->count, probe->root,
                probe->in_place ? " in place" : "", i);
    }
}

/* Compares recv with the host's expectation, guards included. */
static void check(struct probe *probe, const char *what,
                  const unsigned char *expected, size_t bytes,
                  unsigned char *recv)
{
    unsigned char *got = probe->host_recv;
    move(probe, got, recv - GUARD_BYTES, bytes + 2 * GUARD_BYTES);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (got[i] != POISON || got[GUARD_BYTES + bytes + i] != POISON) {
            complain(probe, "guard", i);
            return;
        }
    }
    if (memcmp(got + GUARD_BYTES, expected, bytes) == 0) {
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (got[GUARD_BYTES + i] != expected[i]) {
            complain(probe, what, i / weft_dtype_bytes(probe->dtype));
            return;
        }
    }
}

/* Poisons the receive buffer with its guards; puts data at an offset. */
static void poison(struct probe *probe, size_t bytes)
{
    memset(probe->host_recv, POISON, bytes + 2 * GUARD_BYTES);
    move(probe, probe->recv - GUARD_BYTES, probe->host_recv,
         bytes + 2 * GUARD_BYTES);
}

static void finish(struct probe *probe, weft_status status)
{
    if (status == WEFT_OK && probe->stream) {
        status = weft_stream_wait(probe->stream);
    }
    if (status != WEFT_OK) {
        fprintf(stderr, "rank %d: %s: %s\n", probe->rank,
                weft_status_text(status), weft_error_text());
        probe->failures++;
    }
}

/* A pre-multiplied sum; the scalar is gone when it has been posted. */
static weft_status post_scaled(struct probe *probe, weft_collective collective,
                               const void *send, void *recv)
{
    unsigned char *scale = probe->scale + 1;
    memcpy(scale, probe->values.scale, 8);
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = collective,
                  .send = send,
                  .recv = recv,
                  .count = probe->count,
                  .dtype = probe->dtype,
                  .redop = WEFT_REDOP_PREMULSUM,
                  .root = probe->root,
                  .scale = scale};
    weft_status status = weft_op_post(&op, 0, probe->comm, probe->stream);
    memset(scale, POISON, 8);
    return status;
}

static void probe_allreduce(struct probe *probe)
{
    size_t bytes = probe->count * weft_dtype_bytes(probe->dtype);
    poison(probe, bytes);
    fill(probe, probe->host_send, probe->rank, 0, probe->count);
    unsigned char *send = probe->in_place ? probe->recv : probe->send;
    move(probe, send, probe->host_send, bytes);
    if (probe->redop == WEFT_REDOP_PREMULSUM) {
        finish(probe, post_scaled(probe, WEFT_COLLECTIVE_ALLREDUCE, send,
                                  probe->recv));
    } else {
        finish(probe,
               weft_allreduce(send, probe->recv, probe->count, probe->dtype,
                              probe->redop, probe->comm, probe->stream));
    }
    values_expect(&probe->values, probe->host_send, 0, probe->count);
    check(probe, "all_reduce", probe->host_send, bytes, probe->recv);
}

static void probe_reduce(struct probe *probe)
{
    size_t bytes = probe->count * weft_dtype_bytes(probe->dtype);
    bool root = probe->rank == probe->root;
    poison(probe, bytes);
    fill(probe, probe->host_send, probe->rank, 0, probe->count);
    unsigned char *send = probe->in_place && root ? probe->recv : probe->send;
    move(probe, send, probe->host_send, bytes);
    unsigned char *recv = root ? probe->recv : NULL;
    if (probe->redop == WEFT_REDOP_PREMULSUM) {
        finish(probe, post_scaled(probe, WEFT_COLLECTIVE_REDUCE, send, recv));
    } else {
        finish(probe,
               weft_reduce(send, recv, probe->count, probe->dtype, probe->redop,
                           probe->root, probe->comm, probe->stream));
    }
    if (!root) {
        memset(probe->host_send, POISON, bytes);
    }
    if (root) {
        values_expect(&probe->values, probe->host_send, 0, probe->count);
    }
    check(probe, "reduce", probe->host_send, bytes, probe->recv);
}

/* The root may keep its data without receiving them. */
static void probe_broadcast(struct probe *probe)
{
    size_t bytes = probe->count * weft_dtype_bytes(probe->dtype);
    bool root = probe->rank == probe->root;
    bool keeps = root && !probe->in_place && probe->salt % 4 == 1;
    poison(probe, bytes);
    fill(probe, probe->host_send, probe->root, 0, probe->count);
    unsigned char *send = probe->in_place && root ? probe->recv : probe->send;
    if (root) {
        move(probe, send, probe->host_send, bytes);
    }
    finish(probe, weft_broadcast(root ? send : NULL, keeps ? NULL : probe->recv,
                                 probe->count, probe->dtype, probe->root,
                                 probe->comm, probe->stream));
    if (keeps) {
        memset(probe->host_send, POISON, bytes);
    }
    check(probe, "broadcast", probe->host_send, bytes, probe->recv);
}

static void probe_allgather(struct probe *probe)
{
    size_t bytes = probe->count * weft_dtype_bytes(probe->dtype);
    size_t all = bytes * (size_t)probe->nranks;
    poison(probe, all);
    fill(probe, probe->host_send, probe->rank, 0, probe->count);
    unsigned char *send = probe->in_place
                              ? probe->recv + (size_t)probe->rank * bytes
                              : probe->send;
    move(probe, send, probe->host_send, bytes);
    finish(probe, weft_allgather(send, probe->recv, probe->count, probe->dtype,
                                 probe->comm, probe->stream));
    for (int rank = 0; rank < probe->nranks; rank++) {
        fill(probe, probe->host_send + (size_t)rank * bytes, rank, 0,
             probe->count);
    }
    check(probe, "all_gather", probe->host_send, all, probe->recv);
}

static void probe_reducescatter(struct probe *probe)
{
    size_t bytes = probe->count * weft_dtype_bytes(probe->dtype);
    size_t all_elems = probe->count * (size_t)probe->nranks;
    unsigned char *recv = probe->recv;
    fill(probe, probe->host_send, probe->rank, 0, all_elems);
    poison(probe, bytes);
    move(probe, probe->send, probe->host_send, bytes * (size_t)probe->nranks);
    if (probe->in_place) {
        recv = probe->send + (size_t)probe->rank * bytes;
    }
    if (probe->redop == WEFT_REDOP_PREMULSUM) {
        finish(probe, post_scaled(probe, WEFT_COLLECTIVE_REDUCESCATTER,
                                  probe->send, recv));
    } else {
        finish(probe,
               weft_reducescatter(probe->send, recv, probe->count, probe->dtype,
                                  probe->redop, probe->comm, probe->stream));
    }
    if (probe->in_place) {
        move(probe, probe->host_recv, recv, bytes);
        move(probe, probe->recv, probe->host_recv, bytes);
    }
    size_t first = (size_t)probe->rank * probe->count;
    values_expect(&probe->values, probe->host_send, first, probe->count);
    check(probe, "reduce_scatter", probe->host_send, bytes, probe->recv);
}

/* Everybody to the next rank, then from the previous one, itself if alone. */
static void probe_sendrecv(struct probe *probe)
{
    size_t bytes = probe->count * weft_dtype_bytes(probe->dtype);
    int next = (probe->rank + 1) % probe->nranks;
    int previous = (probe->rank + probe->nranks - 1) % probe->nranks;
    poison(probe, bytes);
    fill(probe, probe->host_send, probe->rank, 0, probe->count);
    move(probe, probe->send, probe->host_send, bytes);
    weft_stream *sending;
    weft_device *device = probe->device, *own = NULL;
    if (!device && weft_device_open("host", 0, &own) != WEFT_OK) {
        fail();
    }
    if (weft_stream_create(device ? device : own, 0, &sending) != WEFT_OK) {
        fail();
    }
    finish(probe, weft_send(probe->send, probe->count, probe->dtype, next,
                            probe->comm, sending));
    finish(probe, weft_recv(probe->recv, probe->count, probe->dtype, previous,
                            probe->comm, probe->stream));
    if (weft_stream_wait(sending) != WEFT_OK) {
        probe->failures++;
    }
    weft_stream_destroy(sending);
    weft_device_close(own);
    fill(probe, probe->host_send, previous, 0, probe->count);
    check(probe, "sendrecv", probe->host_send, bytes, probe->recv);
}

static void probe_all(struct probe *probe)
{
    for (int place = 0; place < 2; place++) {
        probe->in_place = place;
        probe->salt++;
        values_init(&probe->values, probe->dtype, probe->redop, probe->rank,
                    probe->nranks, probe->salt);
        probe_allreduce(probe);
        probe_reducescatter(probe);
        probe_reduce(probe);
        if (probe->redop == WEFT_REDOP_SUM) {
            probe_allgather(probe);
            probe_broadcast(probe);
        }
    }
    if (probe->redop == WEFT_REDOP_SUM) {
        probe_sendrecv(probe);
    }
    finish(probe, weft_barrier(probe->comm, probe->stream));
}

/* The operations that have one, with every root. */
static void probe_roots(struct probe *probe)
{
    for (probe->root = 0; probe->root < probe->nranks; probe->root++) {
        for (int place = 0; place < 2; place++) {
            probe->in_place = place;
            probe->salt++;
            values_init(&probe->values, probe->dtype, probe->redop, probe->rank,
                        probe->nranks, probe->salt);
            probe_reduce(probe);
            if (probe->redop == WEFT_REDOP_SUM) {
                probe_broadcast(probe);
            }
        }
    }
}

static void sweep_roots(struct probe *probe)
{
    static const size_t counts[] = {1, 37, 6007};
    static const weft_dtype dtypes[] = {WEFT_DTYPE_F32, WEFT_DTYPE_I64,
                                        WEFT_DTYPE_BF16};
    static const weft_redop redops[] = {WEFT_REDOP_SUM, WEFT_REDOP_MAX,
                                        WEFT_REDOP_AVG};
    for (size_t c = 0; c < 3; c++) {
        for (size_t pair = 0; pair < 3; pair++) {
            probe->count = counts[c];
            probe->dtype = dtypes[pair];
            probe->redop = redops[pair];
            probe_roots(probe);
        }
    }
}

/* Several chunks per share; each world another type, with --long all. */
static void sweep_large(struct probe *probe)
{
    size_t elems = is_long || !is_slow ? LARGE_ELEMS : LARGE_ELEMS / 4;
    if (is_shadow && getenv("WEFT_CHUNK_BYTES")) {
        elems = LARGE_ELEMS / 8; /* some dozen chunks are several, too */
    }
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
        bool mine = dtype == probe->nranks % WEFT_DTYPE_COUNT;
        if (mine || (is_long && !is_remote)) {
            probe->count = elems / (size_t)probe->nranks;
            probe->dtype = (weft_dtype)dtype;
            probe->redop = WEFT_REDOP_SUM;
            probe->root = probe->nranks - 1;
            probe_all(probe);
        }
    }
}

static void sweep(struct probe *probe)
{
    static const size_t counts[] = {0, 1, 37, 1021, 6007, 70001};
    /* All but the largest with each pair of type and reduction, in one of the
     * forms; else each pair with one of the counts. */
    bool whole = is_long && !is_remote && !probe->stream && is_whole_form();
    size_t many = whole ? 6 : is_slow || is_remote ? 4 : 5;
    unsigned turn_root = 0;
    int pairs = WEFT_DTYPE_COUNT * WEFT_REDOP_COUNT;
    for (size_t c = 0; c < many; c++) {
        for (int pair = 0; pair < pairs; pair++) {
            size_t turn = (size_t)(pair + probe->nranks) % many;
            probe->count = counts[c];
            probe->dtype = (weft_dtype)(pair / WEFT_REDOP_COUNT);
            probe->redop = (weft_redop)(pair % WEFT_REDOP_COUNT);
            probe->root = (int)(turn_root++ % (unsigned)probe->nranks);
            if (!weft_redop_applies(probe->redop, probe->dtype) ||
                !(turn == c || (whole && c + 1 < many)) ||
                (is_remote && (pair + (int)c) % 3 != third)) {
                continue;
            }
            probe_all(probe);
            if (whole && turn == c) {
                probe_roots(probe);
            }
        }
    }
    sweep_roots(probe);
    sweep_large(probe);
}

static unsigned char *room(const struct probe *probe)
{
    void *memory;
    if (!probe->device) {
        memory = malloc(probe->room_bytes);
    } else if (weft_device_alloc(probe->device, probe->room_bytes, &memory) !=
               WEFT_OK) {
        memory = NULL;
    }
    assert_non_null(memory);
    return memory;
}

static void give_back(const struct probe *probe, unsigned char *memory)
{
    if (probe->device) {
        weft_device_free(probe->device, memory);
    } else {
        free(memory);
    }
}

/* context: the device, or NULL. Runs everything here and through a stream. */
static int run_matrix(weft_comm *comm, void *context)
{
    struct probe probe = {.comm = comm, .device = context};
    probe.rank = weft_comm_get_rank(comm);
    probe.nranks = weft_comm_get_nranks(comm);
    size_t elems = (size_t)(is_long ? MOST_ELEMS : 6007) * (size_t)probe.nranks;
    elems = elems < LARGE_ELEMS ? LARGE_ELEMS : elems;
    probe.room_bytes = elems * 8 + 4 * GUARD_BYTES;
    unsigned char *send = room(&probe), *recv = room(&probe);
    /* Odd addresses: alignment is nobody's duty. */
    probe.send = send + GUARD_BYTES + 1;
    probe.recv = recv + GUARD_BYTES + 3;
    probe.host_send = malloc(probe.room_bytes);
    probe.host_recv = malloc(probe.room_bytes);
    if (!is_remote || is_long) {
        sweep(&probe);
    }
    weft_device *host = NULL;
    if (!probe.device) {
        assert_int_equal(weft_device_open("host", 0, &host), WEFT_OK);
    }
    assert_int_equal(weft_stream_create(probe.device ? probe.device : host, 0,
                                        &probe.stream),
                     WEFT_OK);
    probe.salt += 1000;
    sweep(&probe);
    weft_stream_destroy(probe.stream);
    weft_device_close(host);
    free(probe.host_send);
    free(probe.host_recv);
    give_back(&probe, send);
    give_back(&probe, recv);
    return probe.failures;
}

static int run_world(int nranks, weft_device *device)
{
    struct world world = {
        .nranks = nranks,
        .config = {.device = device, .warn_ms = 20000, .timeout_ms = 60000},
        .call = run_matrix,
        .context = device,
        .deadline_s = 300};
    return strcmp(mode, "processes") == 0 ? world_run_processes(&world)
                                          : world_run_threads(&world);
}

/* Of 4 to 9 ranks those whose trees have shapes of their own; where everything
 * is slow, the many only as threads with what the library chooses itself. */
static bool is_worth(int nranks)
{
    static const char *const few[] = {"1234579", SLOW_WORLDS, "5", "5"};
    static const char *const fewer = "1257"; /* of more, unless it is usual */
    bool forced = getenv("WEFT_ALGO") != NULL;
    bool usual = !forced && strcmp(mode, "threads") == 0;
    if (is_shadow) { /* all runs late there */
        return is_long ? strchr("12359", '0' + nranks) != NULL
                       : nranks == (forced ? 2 : 3);
    }
    if (is_long) { /* 10, 13, 16 everywhere, all of them where it is whole */
        return nranks <= 9 || nranks % 3 == 1 ||
               (is_whole_form() && !is_remote);
    }
    const char *worlds =
        usual || is_slow || is_remote ? few[is_slow + 2 * is_remote] : fewer;
    return nranks <= 9 && !(is_slow && !usual && nranks > 2 && !is_remote) &&
           strchr(worlds, '0' + nranks);
}

static int run_worlds(int which)
{
    int failures = 0;
    third = which;
    for (int nranks = 1; nranks <= MOST_RANKS; nranks++) {
        if (!is_worth(nranks)) {
            continue;
        }
        weft_device *device = NULL;
        if (is_shadow) {
            assert_int_equal(weft_device_open("shadow", 0, &device), WEFT_OK);
        }
        failures += run_world(nranks, device);
        weft_device_close(device);
    }
    return failures;
}

static void test_ops_default_choice_exact(void **state)
{
    (void)state;
    assert_int_equal(run_worlds(0), 0);
}

static void test_ops_direct_small_chunks_exact(void **state)
{
    (void)state;
    setenv("WEFT_ALGO",
           "all_reduce:direct,reduce:direct,broadcast:direct,"
           "all_gather:direct,reduce_scatter:direct",
           1);
    /* On a shadow each takes long, and several are as good as many. */
    setenv("WEFT_CHUNK_BYTES", is_shadow ? "4000" : "1000", 1);
    assert_int_equal(run_worlds(1), 0);
    unsetenv("WEFT_CHUNK_BYTES");
    unsetenv("WEFT_ALGO");
}

static void test_ops_tree_exact(void **state)
{
    (void)state;
    setenv("WEFT_ALGO", "all_reduce:tree,reduce:tree,broadcast:tree", 1);
    setenv("WEFT_CHUNK_BYTES", "4096", 1);
    assert_int_equal(run_worlds(2), 0);
    unsetenv("WEFT_CHUNK_BYTES");
    unsetenv("WEFT_ALGO");
}

int main(int count, char **arguments)
{
    mode = count > 1 ? arguments[1] : "threads";
    is_long = getenv("WEFT_TEST_LONG") != NULL;
    is_slow = SANITIZED && !getenv("WEFT_TEST_WHOLE");
    is_remote = spread_is_wide();
    is_shadow = strcmp(mode, "shadow") == 0;
    if (is_shadow) {
        setenv("WEFT_SPIN_US", "0", 0); /* the device needs a core, too */
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_default_choice_exact),
        cmocka_unit_test(test_ops_direct_small_chunks_exact),
        cmocka_unit_test(test_ops_tree_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
