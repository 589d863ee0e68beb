/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: alltoall, gather, scatter and every v form put each element where it
 * belongs and touch nothing else: every root, 1 to 9 ranks (to 16 with --long),
 * in place and not, host and shadow memory, counts from nothing to many chunks,
 * uneven ones with gaps and in any order, odd addresses; every reduction of
 * four types (with --long of all).
 *
 * Method: one table says who has parts for whom; from it come the buffers, the
 * call and the expected image of the whole receive room, gaps and guards
 * included. Values are small integers, others in every operation; the kernels'
 * reference reduces them. Argument: threads, processes or shadow.
 */
#include "tests/comm/part_values.h"
#include "tests/comm/spread.h"
#include "tests/comm/world.h"

#include "base/check.h"

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
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum {
    GUARD_BYTES = 64,
    POISON = 0xA5,
    MOST_RANKS = 16,
    FIRST_ROOTED = 4, /* of the forms */
    CHUNK_BYTES = 1000,
    SHADOW_CHUNK_BYTES = 4000, /* each takes long, and 80 are as good as 320 */
    MOST_ELEMS = 40000,        /* of one part */
    ROOM_BYTES = MOST_ELEMS * 8 * MOST_RANKS / 4 + 4096
};

static const char *mode;
static bool is_slow, is_long; /* long: all sizes and types; on no shadow */
static size_t chunk_bytes = CHUNK_BYTES; /* of small ones */
static bool is_remote; /* over a network: fewer worlds and counts */

/* What one collective has for whom. */
struct form {
    weft_collective collective;
    bool send_parts, recv_parts, varied, reduces;
    bool root_sends, root_receives; /* and nobody else does */
};

static const struct form forms[] = {
    {WEFT_COLLECTIVE_ALLTOALL, 1, 1, 0, 0, 0, 0},
    {WEFT_COLLECTIVE_ALLTOALLV, 1, 1, 1, 0, 0, 0},
    {WEFT_COLLECTIVE_ALLGATHERV, 0, 1, 1, 0, 0, 0},
    {WEFT_COLLECTIVE_REDUCESCATTERV, 1, 0, 1, 1, 0, 0},
    {WEFT_COLLECTIVE_GATHER, 0, 1, 0, 0, 0, 1},
    {WEFT_COLLECTIVE_GATHERV, 0, 1, 1, 0, 0, 1},
    {WEFT_COLLECTIVE_SCATTER, 1, 0, 0, 0, 1, 0},
    {WEFT_COLLECTIVE_SCATTERV, 1, 0, 1, 0, 1, 0},
};

/* One operation as one rank sees it. */
struct probe {
    weft_comm *comm;
    weft_device *device; /* NULL: host memory */
    weft_stream *stream;
    int rank, nranks;
    const struct form *form;
    int root;
    part_values values;
    unsigned char scale[8];
    size_t count; /* even forms, and the scale of uneven ones */
    unsigned lot; /* how uneven */
    size_t gap;
    bool in_place;
    unsigned salt;
    unsigned char *block_send, *block_recv; /* rooms of ROOM_BYTES */
    unsigned char *image_send, *image_recv, *got;
    size_t send_counts[MOST_RANKS], send_displs[MOST_RANKS];
    size_t recv_counts[MOST_RANKS], recv_displs[MOST_RANKS];
    size_t used_bytes; /* of the rooms, by this operation, with guards */
    size_t operations;
    int failures;
};

static size_t elem_bytes(const struct probe *probe)
{
    return probe->values.elem_bytes;
}

static bool sends(const struct probe *probe, int rank)
{
    return !probe->form->root_sends || rank == probe->root;
}

static bool receives(const struct probe *probe, int rank)
{
    return !probe->form->root_receives || rank == probe->root;
}

/* How many elements a rank's part has, or a pair's. */
static size_t drawn(const struct probe *probe, int from, int to)
{
    const struct form *form = probe->form;
    bool pairs = form->send_parts && form->recv_parts;
    unsigned a = (unsigned)(form->recv_parts ? from : to);
    unsigned b = pairs ? (unsigned)to : 0;
    switch (form->varied ? probe->lot : 4) {
    case 0: /* some nothing */
        return (a * 5 + b * 3 + probe->salt) % 4 ? (a * 5 + b * 3) % 41 : 0;
    case 1: /* one part, or pair, has all */
        return a == probe->salt % (unsigned)probe->nranks && b == 0
                   ? probe->count
                   : 0;
    case 2: /* at the edges of count */
        return probe->count + (a * 3 + b) % 3 - (probe->count > 0);
    case 3: /* from nothing to count */
        return probe->count * ((a + b) % 3) / 2;
    default:
        return probe->count;
    }
}

/* The elements that go from one rank to another. */
static size_t amount(const struct probe *probe, int from, int to)
{
    return sends(probe, from) && receives(probe, to) ? drawn(probe, from, to)
                                                     : 0;
}

/* Parts one after another, or the other way round with gaps. Returns the end.
 */
static size_t lay_out(const struct probe *probe, const size_t *counts,
                      size_t *displs)
{
    size_t end = 0;
    for (int i = 0; i < probe->nranks; i++) {
        int p = probe->gap ? probe->nranks - 1 - i : i;
        displs[p] = end + probe->gap;
        end = displs[p] + counts[p];
    }
    return end;
}

static void fill_part(const struct probe *probe, unsigned char *at, int from,
                      int to, size_t elems)
{
    part_values_fill(&probe->values, at, from, to, elems);
}

/* Where the buffers begin in their rooms, behind guards, at odd addresses. */
enum { SEND_AT = GUARD_BYTES + 1, RECV_AT = GUARD_BYTES + 3 };

/* Fills image_send with what this rank has for the others. */
static void make_input(struct probe *probe, size_t own_elems)
{
    const struct form *form = probe->form;
    unsigned char *begin = probe->image_send + SEND_AT;
    memset(probe->image_send, POISON, probe->used_bytes);
    for (int to = 0; to < probe->nranks && sends(probe, probe->rank); to++) {
        if (form->send_parts) {
            fill_part(probe, begin + probe->send_displs[to] * elem_bytes(probe),
                      probe->rank, to, probe->send_counts[to]);
        } else if (to == 0) {
            fill_part(probe, begin, probe->rank, 0, own_elems);
        }
    }
}

/* Puts into image_recv, at begin, what must have arrived. */
static void make_expected(struct probe *probe, unsigned char *begin,
                          size_t own_elems)
{
    const struct form *form = probe->form;
    if (!receives(probe, probe->rank)) {
        return;
    }
    for (int from = 0; from < probe->nranks && form->recv_parts; from++) {
        fill_part(probe, begin + probe->recv_displs[from] * elem_bytes(probe),
                  from, form->send_parts ? probe->rank : 0,
                  probe->recv_counts[from]);
    }
    if (form->reduces) {
        part_values_reduce(&probe->values, begin, probe->rank, own_elems);
    } else if (!form->recv_parts) {
        fill_part(probe, begin, probe->root, probe->rank, own_elems);
    }
}

static void move(const struct probe *probe, void *dst, const void *src)
{
    if (!probe->device) {
        memcpy(dst, src, probe->used_bytes);
    } else if (weft_device_copy(probe->device, dst, src, probe->used_bytes,
                                NULL) != WEFT_OK) {
        fail_msg("copy: %s", weft_error_text());
    }
}

static void complain(struct probe *probe, const char *what, size_t byte)
{
    if (probe->failures++ < 5) {
        fprintf(stderr,
                "%s: rank %d of %d, %s %s count %zu lot %u gap %zu root %d%s: "
                "%s at byte %zu\n",
                weft_collective_text(probe->form->collective), probe->rank,
                probe->nranks, weft_dtype_text(probe->values.dtype),
                weft_redop_text(probe->values.redop), probe->count, probe->lot,
                probe->gap, probe->root, probe->in_place ? " in place" : "",
                what, byte);
    }
}

static void compare(struct probe *probe, const char *what,
                    const unsigned char *image, const unsigned char *block)
{
    move(probe, probe->got, block);
    if (memcmp(probe->got, image, probe->used_bytes) == 0) {
        return;
    }
    for (size_t i = 0; i < probe->used_bytes; i++) {
        if (probe->got[i] != image[i]) {
            complain(probe, what, i);
            return;
        }
    }
}

/* Own elements of whoever has no parts for each rank. */
static size_t own_amount(const struct probe *probe)
{
    int rank = probe->rank;
    bool gathers = probe->form->recv_parts && !probe->form->send_parts;
    return gathers ? amount(probe, rank, probe->root)
                   : amount(probe, probe->root, rank);
}

/* A pre-multiplied sum has no short form. */
static weft_status post_scaled(struct probe *probe, const void *send,
                               void *recv)
{
    part_values_scale(&probe->values, probe->scale, probe->rank);
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = probe->form->collective,
                  .send = send,
                  .recv = recv,
                  .count = probe->send_counts[probe->rank],
                  .send_counts = probe->send_counts,
                  .dtype = probe->values.dtype,
                  .redop = probe->values.redop,
                  .scale = probe->scale};
    return weft_op_post(&op, 0, probe->comm, probe->stream);
}

static weft_status call(struct probe *probe, const void *send, void *recv,
                        size_t own)
{
    const size_t *send_displs = probe->gap ? probe->send_displs : NULL;
    const size_t *recv_displs = probe->gap ? probe->recv_displs : NULL;
    weft_comm *comm = probe->comm;
    weft_stream *stream = probe->stream;
    weft_dtype dtype = probe->values.dtype;
    int root = probe->root;
    bool is_root = probe->rank == root;
    switch (probe->form->collective) {
    case WEFT_COLLECTIVE_ALLTOALL:
        return weft_alltoall(send, recv, probe->count, dtype, comm, stream);
    case WEFT_COLLECTIVE_ALLTOALLV:
        return weft_alltoallv(send, probe->send_counts, send_displs, recv,
                              probe->recv_counts, recv_displs, dtype, comm,
                              stream);
    case WEFT_COLLECTIVE_GATHER:
        return weft_gather(send, is_root ? recv : NULL, probe->count, dtype,
                           root, comm, stream);
    case WEFT_COLLECTIVE_GATHERV:
        return weft_gatherv(send, own, is_root ? recv : NULL,
                            is_root ? probe->recv_counts : NULL,
                            is_root ? recv_displs : NULL, dtype, root, comm,
                            stream);
    case WEFT_COLLECTIVE_SCATTER:
        return weft_scatter(is_root ? send : NULL, recv, probe->count, dtype,
                            root, comm, stream);
    case WEFT_COLLECTIVE_SCATTERV:
        return weft_scatterv(
            is_root ? send : NULL, is_root ? probe->send_counts : NULL,
            is_root ? send_displs : NULL, recv, own, dtype, root, comm, stream);
    case WEFT_COLLECTIVE_ALLGATHERV:
        return weft_allgatherv(send, own, recv, probe->recv_counts, recv_displs,
                               dtype, comm, stream);
    default:
        return probe->values.redop == WEFT_REDOP_PREMULSUM
                   ? post_scaled(probe, send, recv)
                   : weft_reducescatterv(send, recv, probe->send_counts, dtype,
                                         probe->values.redop, comm, stream);
    }
}

/* The arrays are the caller's again as soon as the post has returned. */
static void run(struct probe *probe, const void *send, void *recv, size_t own)
{
    weft_status status = call(probe, send, recv, own);
    memset(probe->send_counts, POISON, sizeof(probe->send_counts));
    memset(probe->send_displs, POISON, sizeof(probe->send_displs));
    memset(probe->recv_counts, POISON, sizeof(probe->recv_counts));
    memset(probe->recv_displs, POISON, sizeof(probe->recv_displs));
    memset(probe->scale, POISON, sizeof(probe->scale));
    if (status == WEFT_OK && probe->stream) {
        status = weft_stream_wait(probe->stream);
    }
    if (status != WEFT_OK) {
        fprintf(stderr, "rank %d: %s: %s\n", probe->rank,
                weft_status_text(status), weft_error_text());
        complain(probe, "failed", 0);
    }
    probe->operations++;
}

static void plan_parts(struct probe *probe)
{
    for (int p = 0; p < probe->nranks; p++) {
        probe->send_counts[p] = amount(probe, probe->rank, p);
        probe->recv_counts[p] = amount(probe, p, probe->rank);
    }
    size_t send_end = lay_out(probe, probe->send_counts, probe->send_displs);
    size_t recv_end = lay_out(probe, probe->recv_counts, probe->recv_displs);
    size_t end = send_end > recv_end ? send_end : recv_end;
    end = end > own_amount(probe) ? end : own_amount(probe);
    probe->used_bytes = end * elem_bytes(probe) + 4 * GUARD_BYTES;
    assert_true(probe->used_bytes <= ROOM_BYTES);
}

/* In place both lie in the one block: the whole of one at a part of other. */
static void probe_once(struct probe *probe)
{
    const struct form *form = probe->form;
    size_t width = elem_bytes(probe), rank = (size_t)probe->rank;
    probe->values.salt = ++probe->salt;
    plan_parts(probe);
    size_t own = own_amount(probe);
    bool in_place = probe->in_place && sends(probe, probe->rank) &&
                    receives(probe, probe->rank);
    size_t send_own = form->send_parts ? probe->send_displs[rank] * width : 0;
    size_t recv_own = form->recv_parts ? probe->recv_displs[rank] * width : 0;
    unsigned char *send = probe->block_send + SEND_AT;
    unsigned char *recv = probe->block_recv + RECV_AT;
    unsigned char *expected = probe->image_recv + RECV_AT;
    make_input(probe, own);
    if (in_place && form->recv_parts) { /* input into the output's room */
        memset(probe->image_recv, POISON, probe->used_bytes);
        memcpy(expected + recv_own, probe->image_send + SEND_AT, own * width);
        send = recv + recv_own;
    } else if (in_place) { /* output into the input's room */
        memcpy(probe->image_recv, probe->image_send, probe->used_bytes);
        expected = probe->image_recv + SEND_AT + send_own;
        recv = probe->block_recv + SEND_AT + send_own;
        send = probe->block_recv + SEND_AT;
    } else {
        memset(probe->image_recv, POISON, probe->used_bytes);
    }
    move(probe, probe->block_send, probe->image_send);
    move(probe, probe->block_recv, probe->image_recv);
    make_expected(probe, expected, own);
    run(probe, send, recv, own);
    compare(probe, "output", probe->image_recv, probe->block_recv);
    compare(probe, "input", probe->image_send, probe->block_send);
}

/* In place and not, one after another and with gaps. */
static void probe_places(struct probe *probe)
{
    const struct form *form = probe->form;
    bool pairs = form->send_parts && form->recv_parts;
    for (int place = 0; place < (pairs ? 1 : 2); place++) {
        probe->in_place = place;
        for (int gap = 0; gap < (form->varied && !form->reduces ? 2 : 1);
             gap++) {
            probe->gap = gap ? 1 + probe->salt % 5 : 0;
            probe_once(probe);
        }
    }
}

/* The next reduction that the type has. */
static void turn_redop(struct probe *probe)
{
    part_values *values = &probe->values;
    do {
        values->redop = (weft_redop)((values->redop + 1) % WEFT_REDOP_COUNT);
    } while (!weft_redop_applies(values->redop, values->dtype));
}

/* Every form from the first with one count, type, root. */
static void probe_forms(struct probe *probe, size_t first)
{
    for (size_t f = first; f < WEFTI_COUNT_OF(forms); f++) {
        probe->form = &forms[f];
        for (unsigned lot = 0; lot < (forms[f].varied ? 4 : 1); lot++) {
            probe->lot = lot;
            probe->values.kinds =
                forms[f].reduces ? PART_VALUES_FEW : PART_VALUES_KINDS;
            turn_redop(probe);
            probe_places(probe);
        }
    }
}

static void hold(struct probe *probe, weft_dtype dtype)
{
    weft_redop redop = probe->values.redop;
    part_values_init(&probe->values, dtype, probe->nranks);
    probe->values.redop = redop;
}

static void sweep(struct probe *probe)
{
    static const weft_dtype dtypes[] = {
        WEFT_DTYPE_U8,     WEFT_DTYPE_F64, WEFT_DTYPE_BF16, WEFT_DTYPE_I32,
        WEFT_DTYPE_F8E4M3, WEFT_DTYPE_I8,  WEFT_DTYPE_U32,  WEFT_DTYPE_I64,
        WEFT_DTYPE_U64,    WEFT_DTYPE_F16, WEFT_DTYPE_F32,  WEFT_DTYPE_F8E5M2};
    size_t most = (size_t)MOST_ELEMS * MOST_RANKS / 4 / (size_t)probe->nranks;
    /* The first four have all sizes, which is what the network sees. */
    size_t kinds = is_long && !is_remote ? WEFTI_COUNT_OF(dtypes) : 4;
    for (size_t d = 0; d < kinds; d++) {
        hold(probe, dtypes[d]);
        size_t wide = elem_bytes(probe) == 2 ? 4 : elem_bytes(probe);
        size_t chunk = chunk_bytes / wide;
        const size_t counts[] = {0,     1,         37,        chunk - 1,
                                 chunk, chunk + 1, 3 * chunk, MOST_ELEMS};
        size_t many = WEFTI_COUNT_OF(counts) - !is_long;
        for (size_t c = 0; c < many; c++) {
            size_t stride = 2u << (is_slow + is_remote);
            if ((!is_long || is_remote) && (c + d) % stride) {
                continue;
            }
            probe->count = counts[c] < most ? counts[c] : most;
            probe->root = (int)(probe->salt % (unsigned)probe->nranks);
            probe_forms(probe, 0);
        }
    }
    /* Every root; and once much more than is staged at a time. */
    probe->count = 37;
    for (probe->root = 0; probe->root < probe->nranks; probe->root++) {
        probe_forms(probe, probe->root > 0 ? FIRST_ROOTED : 0);
    }
    probe->root = probe->nranks - 1;
    probe->count = most < MOST_ELEMS ? most : MOST_ELEMS;
    hold(probe, WEFT_DTYPE_F64);
    probe_forms(probe, 0);
}

static unsigned char *room(const struct probe *probe, bool on_host)
{
    void *memory = NULL;
    if (on_host || !probe->device) {
        memory = malloc(ROOM_BYTES);
    } else if (weft_device_alloc(probe->device, ROOM_BYTES, &memory) !=
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

/* context: the device, or NULL. Everything here and now, then on a stream. */
static int run_matrix(weft_comm *comm, void *context)
{
    struct probe probe = {.comm = comm, .device = context};
    probe.rank = weft_comm_get_rank(comm);
    probe.nranks = weft_comm_get_nranks(comm);
    probe.block_send = room(&probe, false);
    probe.block_recv = room(&probe, false);
    probe.image_send = room(&probe, true);
    probe.image_recv = room(&probe, true);
    probe.got = room(&probe, true);
    if (is_long || (!is_remote && (!is_slow || probe.nranks == 2))) {
        sweep(&probe);
    }
    weft_device *host = NULL;
    if (!probe.device) {
        assert_int_equal(weft_device_open("host", 0, &host), WEFT_OK);
    }
    assert_int_equal(weft_stream_create(probe.device ? probe.device : host, 0,
                                        &probe.stream),
                     WEFT_OK);
    sweep(&probe);
    if (probe.rank == 0) {
        printf("%d ranks: %zu operations\n", probe.nranks, probe.operations);
    }
    weft_stream_destroy(probe.stream);
    weft_device_close(host);
    free(probe.got);
    free(probe.image_send);
    free(probe.image_recv);
    give_back(&probe, probe.block_send);
    give_back(&probe, probe.block_recv);
    return probe.failures < 63 ? probe.failures : 63;
}

static int run_world(int nranks)
{
    weft_device *device = NULL;
    if (strcmp(mode, "shadow") == 0) {
        assert_int_equal(weft_device_open("shadow", 0, &device), WEFT_OK);
    }
    struct world world = {
        .nranks = nranks,
        .config = {.device = device, .warn_ms = 20000, .timeout_ms = 60000},
        .call = run_matrix,
        .context = device,
        .deadline_s = 300};
    int failures = strcmp(mode, "processes") == 0 ? world_run_processes(&world)
                                                  : world_run_threads(&world);
    weft_device_close(device);
    return failures;
}

static int run_worlds(void)
{
    static const int some[] = {2, 5, 1, 3, 9};
    int failures = 0;
    bool shadow = strcmp(mode, "shadow") == 0; /* all runs late there */
    if (!is_long) {
        bool threads = strcmp(mode, "threads") == 0;
        size_t many = is_slow || is_remote ? 2 : threads ? 5 : 4;
        bool later = is_remote || (is_slow && !threads && !shadow);
        many = !shadow ? many : getenv("WEFT_TEST_LONG") ? 5 : 1;
        for (size_t i = later; i < many; i++) {
            failures += run_world(some[i]);
        }
        return failures;
    }
    for (int nranks = 1; nranks <= MOST_RANKS; nranks++) {
        if (nranks <= 9 || nranks % 3 == 1) { /* 10, 13, 16 */
            failures += run_world(nranks);
        }
    }
    return failures;
}

static void test_collectives_default_choice_exact(void **state)
{
    (void)state;
    assert_int_equal(run_worlds(), 0);
}

/* Many messages, none in one shot; in two hops and along trees where it can. */
static void test_collectives_small_chunks_exact(void **state)
{
    (void)state;
    setenv("WEFT_ALGO",
           !is_remote && strcmp(mode, "threads") == 0
               ? "alltoall:pairwise,gather:pairwise,scatter:pairwise"
               : "alltoall:two_hop/pairwise,alltoallv:two_hop/pairwise,"
                 "gather:binomial,scatter:binomial",
           1);
    char bytes[32];
    snprintf(bytes, sizeof(bytes), "%zu", chunk_bytes);
    setenv("WEFT_CHUNK_BYTES", bytes, 1);
    assert_int_equal(run_worlds(), 0);
    unsetenv("WEFT_CHUNK_BYTES");
    unsetenv("WEFT_ALGO");
}

int main(int count, char **arguments)
{
    mode = count > 1 ? arguments[1] : "threads";
    is_long = getenv("WEFT_TEST_LONG") && strcmp(mode, "shadow") != 0;
    is_slow = SANITIZED && !getenv("WEFT_TEST_WHOLE");
    is_remote = spread_is_wide();
    if (strcmp(mode, "shadow") == 0) {
        setenv("WEFT_SPIN_US", "0", 0); /* the device needs a core, too */
        chunk_bytes = SHADOW_CHUNK_BYTES;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives_default_choice_exact),
        cmocka_unit_test(test_collectives_small_chunks_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
