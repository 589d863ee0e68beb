/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: ranks that do not agree about an operation all hear of it, with both
 * ranks and both sides in the text, soon, and nothing is written that should
 * not be. And what one rank alone gets wrong is refused by name, with nothing
 * posted.
 *
 * Method: worlds of threads in which one rank differs in one thing, for each
 * of the collectives; those it had left already must hear of it in
 * one of the next barriers. Receive buffers are guarded, and looked at
 * afterwards.
 */
#include "tests/comm/rank_checks.h"
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

enum { MOST_RANKS = 4, ROOM = 40000, BARRIERS = 20, ODD = 1 };

/* What rank ODD does differently. */
enum difference { COUNT, ROOT, TYPE, OTHER, DIFFERENCES };

static const char *const difference_names[] = {"count", "root", "type",
                                               "operation"};

struct scene {
    weft_collective collective;
    enum difference difference;
    size_t count;
    int nranks;
};

/* Has a part for each rank of all counts, and room for one too many. */
struct buffers {
    float send[MOST_RANKS * ROOM], recv[MOST_RANKS * ROOM];
    size_t out[MOST_RANKS], in[MOST_RANKS], places[MOST_RANKS];
};

static weft_status post(const struct scene *scene, weft_comm *comm,
                        struct buffers *at, size_t own, weft_dtype dtype,
                        int root)
{
    switch (scene->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
        return weft_allreduce(at->send, at->recv, own, dtype, WEFT_REDOP_SUM,
                              comm, NULL);
    case WEFT_COLLECTIVE_ALLGATHER:
        return weft_allgather(at->send, at->recv, own, dtype, comm, NULL);
    case WEFT_COLLECTIVE_REDUCESCATTER:
        return weft_reducescatter(at->send, at->recv, own, dtype,
                                  WEFT_REDOP_SUM, comm, NULL);
    case WEFT_COLLECTIVE_ALLTOALL:
        return weft_alltoall(at->send, at->recv, own, dtype, comm, NULL);
    case WEFT_COLLECTIVE_ALLTOALLV:
        return weft_alltoallv(at->send, at->out, at->places, at->recv, at->in,
                              at->places, dtype, comm, NULL);
    case WEFT_COLLECTIVE_GATHER:
        return weft_gather(at->send, at->recv, own, dtype, root, comm, NULL);
    case WEFT_COLLECTIVE_GATHERV:
        return weft_gatherv(at->send, own, at->recv, at->in, at->places, dtype,
                            root, comm, NULL);
    case WEFT_COLLECTIVE_SCATTER:
        return weft_scatter(at->send, at->recv, own, dtype, root, comm, NULL);
    case WEFT_COLLECTIVE_SCATTERV:
        return weft_scatterv(at->send, at->out, at->places, at->recv, own,
                             dtype, root, comm, NULL);
    case WEFT_COLLECTIVE_ALLGATHERV:
        return weft_allgatherv(at->send, own, at->recv, at->in, at->places,
                               dtype, comm, NULL);
    case WEFT_COLLECTIVE_REDUCESCATTERV:
        return weft_reducescatterv(at->send, at->recv, at->out, dtype,
                                   WEFT_REDOP_SUM, comm, NULL);
    default:
        return weft_broadcast(at->send, at->recv, own, dtype, root, comm, NULL);
    }
}

/* Posts what this rank thinks is the operation. */
static weft_status play(const struct scene *scene, weft_comm *comm,
                        struct buffers *at)
{
    int rank = weft_comm_get_rank(comm);
    bool odd = rank == ODD;
    size_t own = scene->count;
    weft_dtype dtype = WEFT_DTYPE_F32;
    int root = 0;
    for (int p = 0; p < scene->nranks; p++) {
        at->out[p] = at->in[p] = scene->count;
        at->places[p] = (size_t)p * ROOM;
    }
    if (odd && scene->difference == COUNT) {
        /* Its own count, and what it has for rank 0 or wants of it. */
        at->out[ODD] = at->in[ODD] = own = scene->count + 1;
        at->out[0] = scene->count + 1;
    } else if (odd && scene->difference == ROOT) {
        root = 1;
    } else if (odd && scene->difference == TYPE) {
        dtype = WEFT_DTYPE_I32;
    } else if (odd && scene->difference == OTHER) {
        return weft_barrier(comm, NULL);
    }
    return post(scene, comm, at, own, dtype, root);
}

/* No element of a part, nor behind one, that nobody sent. */
static int check_untouched(const struct scene *scene, const struct buffers *at)
{
    bool parts = scene->collective == WEFT_COLLECTIVE_ALLTOALLV ||
                 scene->collective == WEFT_COLLECTIVE_GATHERV ||
                 scene->collective == WEFT_COLLECTIVE_ALLGATHERV;
    size_t most = scene->count + 1;
    for (size_t p = 0; p < (size_t)scene->nranks && parts; p++) {
        for (size_t i = most; i < ROOM; i++) {
            if (at->recv[p * ROOM + i] != -1.0f) {
                fprintf(stderr, "written behind the part of rank %zu\n", p);
                return 1;
            }
        }
    }
    return 0;
}

static int differ(weft_comm *comm, void *context)
{
    const struct scene *scene = context;
    struct buffers *at = calloc(1, sizeof(*at));
    for (size_t i = 0; i < WEFTI_COUNT_OF(at->recv); i++) {
        at->recv[i] = -1.0f;
    }
    weft_status status = play(scene, comm, at);
    for (int i = 0; i < BARRIERS && status == WEFT_OK; i++) {
        status = weft_barrier(comm, NULL);
    }
    const char *text = weft_error_text();
    const char *name = weft_collective_text(scene->collective);
    char more[32], less[32];
    snprintf(more, sizeof(more), "%zu", scene->count + 1);
    snprintf(less, sizeof(less), "%zu", scene->count);
    bool counts = scene->difference != COUNT ||
                  (strstr(text, more) && strstr(text, less));
    bool right = status == WEFT_ERR_MISMATCH && strstr(text, "rank 1 ") &&
                 strstr(text, name) && counts;
    if (!right) {
        fprintf(stderr, "%s of %zu, other %s: rank %d: %s: %s\n", name,
                scene->count, difference_names[scene->difference],
                weft_comm_get_rank(comm), weft_status_text(status), text);
    }
    int failures = !right + check_untouched(scene, at);
    free(at);
    return failures;
}

static bool has_root(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_BROADCAST ||
           collective == WEFT_COLLECTIVE_GATHER ||
           collective == WEFT_COLLECTIVE_GATHERV ||
           collective == WEFT_COLLECTIVE_SCATTER ||
           collective == WEFT_COLLECTIVE_SCATTERV;
}

static void test_disagree_each_kind_both_sides_named(void **state)
{
    (void)state;
    static const weft_collective collectives[] = {
        WEFT_COLLECTIVE_BROADCAST,      WEFT_COLLECTIVE_ALLTOALL,
        WEFT_COLLECTIVE_ALLTOALLV,      WEFT_COLLECTIVE_GATHER,
        WEFT_COLLECTIVE_GATHERV,        WEFT_COLLECTIVE_SCATTER,
        WEFT_COLLECTIVE_SCATTERV,       WEFT_COLLECTIVE_ALLGATHERV,
        WEFT_COLLECTIVE_REDUCESCATTERV, WEFT_COLLECTIVE_ALLREDUCE,
        WEFT_COLLECTIVE_ALLGATHER,      WEFT_COLLECTIVE_REDUCESCATTER};
    static const size_t counts[] = {3, 0, ROOM - 1};
    for (size_t c = 0; c < WEFTI_COUNT_OF(collectives); c++) {
        for (int difference = 0; difference < DIFFERENCES; difference++) {
            for (size_t i = 0; i < WEFTI_COUNT_OF(counts); i++) {
                int nranks = 2 + (int)(c + i) % 3;
                struct scene scene = {collectives[c],
                                      (enum difference)difference, counts[i],
                                      nranks};
                if (difference == ROOT && !has_root(scene.collective)) {
                    continue;
                }
                struct world world = {.nranks = nranks,
                                      .config = {.timeout_ms = 20000},
                                      .call = differ,
                                      .context = &scene};
                assert_int_equal(world_run_threads(&world), 0);
            }
        }
    }
}

/* Both take themselves for the root of a small broadcast, and need nothing of
 * each other. */
static int broadcast_own(weft_comm *comm, void *context)
{
    float values[32] = {0};
    const int rank = weft_comm_get_rank(comm);
    weft_status status = WEFT_OK;
    (void)context;
    for (int i = 0; i < 3 && status == WEFT_OK; i++) {
        status = weft_allreduce(values, values, 32, WEFT_DTYPE_F32,
                                WEFT_REDOP_SUM, comm, NULL);
    }
    if (status == WEFT_OK) {
        status = weft_broadcast(values, values, 32, WEFT_DTYPE_F32, rank, comm,
                                NULL);
    }
    if (status == WEFT_OK) {
        status = weft_allreduce(values, values, 32, WEFT_DTYPE_F32,
                                WEFT_REDOP_SUM, comm, NULL);
    }
    /* What goes in steps does not look at the ranks' entries again. */
    const int barriers = getenv("WEFT_ALGO") ? BARRIERS : 0;
    for (int i = 0; i < barriers && status == WEFT_OK; i++) {
        status = weft_barrier(comm, NULL);
    }
    const bool right = status == WEFT_ERR_MISMATCH &&
                       strstr(weft_error_text(), "of 32 f32, root 0") &&
                       strstr(weft_error_text(), "of 32 f32, root 1");
    if (!right) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, weft_status_text(status),
                weft_error_text());
    }
    return !right;
}

static void test_disagree_two_roots_named_by_the_next(void **state)
{
    (void)state;
    const struct world world = {
        .nranks = 2, .config = {.timeout_ms = 20000}, .call = broadcast_own};
    for (int i = 0; i < 50; i++) {
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* One pair of an alltoallv: sender and receiver differ, either way, from and
 * to nothing. */
struct pair_scene {
    size_t sent, expected;
};

static int differ_in_pair(weft_comm *comm, void *context)
{
    const struct pair_scene *scene = context;
    struct buffers *at = calloc(1, sizeof(*at));
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    for (int p = 0; p < nranks; p++) {
        at->out[p] = at->in[p] = 5;
        at->places[p] = (size_t)p * ROOM;
    }
    if (rank == 2) {
        at->out[1] = scene->sent;
    } else if (rank == 1) {
        at->in[2] = scene->expected;
    }
    weft_status status =
        weft_alltoallv(at->send, at->out, at->places, at->recv, at->in,
                       at->places, WEFT_DTYPE_F32, comm, NULL);
    for (int i = 0; i < BARRIERS && status == WEFT_OK; i++) {
        status = weft_barrier(comm, NULL);
    }
    char wanted[128];
    snprintf(wanted, sizeof(wanted),
             "rank 2 posted alltoallv with %zu f32 for rank 1, rank 1 expects "
             "%zu",
             scene->sent, scene->expected);
    weft_fault fault = {.size_bytes = sizeof(fault)};
    bool right =
        status == WEFT_ERR_MISMATCH && strstr(weft_error_text(), wanted) &&
        weft_comm_get_fault(comm, &fault) == WEFT_OK && fault.rank == 2;
    if (!right) {
        fprintf(stderr, "rank %d: wanted \"%s\", got %s: %s\n", rank, wanted,
                weft_status_text(status), weft_error_text());
    }
    free(at);
    return !right;
}

static void test_disagree_one_pair_both_counts_named(void **state)
{
    (void)state;
    static const struct pair_scene scenes[] = {
        {0, 7}, {7, 0}, {7, 8}, {8, 7}, {30000, 29999}, {1, 40000}, {40000, 1}};
    for (size_t i = 0; i < WEFTI_COUNT_OF(scenes); i++) {
        struct pair_scene scene = scenes[i];
        struct world world = {.nranks = MOST_RANKS,
                              .config = {.timeout_ms = 20000},
                              .call = differ_in_pair,
                              .context = &scene};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* Counts that all have alike, of which rank ODD has one of its own: of itself,
 * of another, or of another host's, which neither of two that compare is. */
struct common_scene {
    weft_collective collective;
    int of;
    bool deferred;
};

enum { SAME = 5, OWN = 6 };

/* On whatever rank it is found, both ranks and both counts are named. */
static bool names_both(const struct common_scene *scene, const char *text)
{
    char of[32];
    snprintf(of, sizeof(of), "rank %d", scene->of);
    return strstr(text, "rank 1 ") && strstr(text, of) && strstr(text, " 5") &&
           strstr(text, " 6") &&
           strstr(text, weft_collective_text(scene->collective));
}

static int differ_in_common(weft_comm *comm, void *context)
{
    const struct common_scene *scene = context;
    struct buffers *at = calloc(1, sizeof(*at));
    const int rank = weft_comm_get_rank(comm);
    const bool gathers = scene->collective == WEFT_COLLECTIVE_ALLGATHERV;
    for (int p = 0; p < MOST_RANKS; p++) {
        at->out[p] = rank == ODD && p == scene->of ? OWN : SAME;
    }
    const size_t deferred[MOST_RANKS] = {1, 1, 1, 1};
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = scene->collective,
                        .send = at->send,
                        .recv = at->recv,
                        .count = at->out[rank],
                        .send_counts = gathers ? NULL : at->out,
                        .recv_counts = gathers ? at->out : NULL,
                        .deferred_counts = scene->deferred ? deferred : NULL,
                        .dtype = WEFT_DTYPE_F32,
                        .redop = WEFT_REDOP_SUM};
    weft_status status = weft_op_post(&op, 1, comm, NULL);
    for (int i = 0; i < BARRIERS && status == WEFT_OK; i++) {
        status = weft_barrier(comm, NULL);
    }
    const bool right =
        status == WEFT_ERR_MISMATCH && names_both(scene, weft_error_text());
    if (!right) {
        fprintf(stderr, "rank %d: count of rank %d: %s: %s\n", rank, scene->of,
                weft_status_text(status), weft_error_text());
    }
    free(at);
    return !right;
}

static void test_disagree_one_common_count_both_sides_named(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * MOST_RANKS; i++) {
        struct common_scene scene = {i & 1 ? WEFT_COLLECTIVE_ALLGATHERV
                                           : WEFT_COLLECTIVE_REDUCESCATTERV,
                                     i / 4, (i & 2) != 0};
        struct world world = {.nranks = MOST_RANKS,
                              .config = {.timeout_ms = 20000},
                              .call = differ_in_common,
                              .context = &scene};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

static int misuse_buffers(weft_comm *comm, struct buffers *at)
{
    const weft_dtype f32 = WEFT_DTYPE_F32;
    float *s = at->send, *r = at->recv;
    int failures = 0;
    failures += refused(weft_alltoall(NULL, r, 4, f32, comm, NULL), "send is");
    failures += refused(weft_alltoall(s, NULL, 4, f32, comm, NULL), "recv is");
    failures += refused(weft_alltoall(s, s, 4, f32, comm, NULL), "never in");
    failures += refused(weft_alltoall(s, s + 7, 4, f32, comm, NULL), "overlap");
    failures +=
        refused(weft_gather(s, s + 1, 4, f32, 0, comm, NULL),
                weft_comm_get_rank(comm) == 0 ? "in-place form of " : "root 9");
    failures += refused(weft_scatter(s + 1, s, 4, f32, 9, comm, NULL),
                        "root 9: allowed is 0..1");
    failures +=
        refused(weft_alltoall(s, r, SIZE_MAX / 8, f32, comm, NULL), "more");
    failures += refused(weft_gather(s, r, SIZE_MAX / 8 + 1, f32, 0, comm, NULL),
                        "more");
    return failures;
}

static int misuse_counts(weft_comm *comm, struct buffers *at)
{
    const weft_dtype f32 = WEFT_DTYPE_F32;
    float *s = at->send, *r = at->recv;
    size_t rank = (size_t)weft_comm_get_rank(comm);
    const size_t fours[] = {4, 4}, same[] = {2, 2}, close[] = {7, 4};
    const size_t huge[] = {SIZE_MAX / 8, SIZE_MAX / 8}, far[] = {0, SIZE_MAX};
    const size_t uneven[] = {3 + rank, 4 - rank};
    const char *overlap = "recv_displs[0] 2 and recv_displs[1] 2: 4 and 4";
    int failures = 0;
    failures +=
        refused(weft_alltoallv(s, NULL, NULL, r, fours, NULL, f32, comm, NULL),
                "send_counts is NULL");
    failures +=
        refused(weft_alltoallv(s, fours, NULL, r, NULL, NULL, f32, comm, NULL),
                "recv_counts is NULL");
    failures +=
        refused(weft_alltoallv(s, fours, NULL, r, fours, same, f32, comm, NULL),
                overlap);
    failures += refused(
        weft_alltoallv(s, fours, NULL, r, fours, close, f32, comm, NULL),
        "overlap; allowed is apart");
    failures +=
        refused(weft_alltoallv(s, huge, NULL, r, fours, NULL, f32, comm, NULL),
                "send_counts");
    failures +=
        refused(weft_alltoallv(s, fours, far, r, fours, NULL, f32, comm, NULL),
                "send_displs");
    failures += refused(
        weft_alltoallv(s, fours, NULL, r, uneven, NULL, f32, comm, NULL),
        rank ? "send_counts[1] 4: allowed" : "send_counts[0] 4: allowed");
    failures +=
        refused(weft_alltoallv(s, fours, NULL, s, fours, NULL, f32, comm, NULL),
                "never in place");
    failures += refused(weft_allgatherv(s, 3, r, fours, NULL, f32, comm, NULL),
                        "4: allowed is send_elems (in weft_op: count), 3");
    failures += refused(
        weft_allgatherv(r + 1, 4, r, fours, NULL, f32, comm, NULL), "in-place");
    failures += refused(weft_allgatherv(s, 4, r, NULL, NULL, f32, comm, NULL),
                        "recv_counts is NULL");
    failures += refused(
        weft_reducescatterv(s, r, NULL, f32, WEFT_REDOP_SUM, comm, NULL),
        "recv_counts (in weft_op: send_counts) is NULL");
    return failures;
}

static int misuse_gates(weft_comm *comm, struct buffers *at)
{
    const size_t fours[] = {4, 4};
    weft_device *device;
    weft_gate *gate;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_gate_create(device, 2, &gate) != WEFT_OK;
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLTOALLV,
                  .send = at->send,
                  .recv = at->recv,
                  .send_counts = fours,
                  .recv_counts = fours,
                  .dtype = WEFT_DTYPE_F32,
                  .gate_elems = 2};
    failures += refused(weft_op_post(&op, 0, comm, NULL), "gate_elems 2 in");
    op.collective = WEFT_COLLECTIVE_ALLTOALL;
    op.count = 4;
    op.ready = gate;
    failures += refused(weft_op_post(&op, 1, comm, NULL), "ready needs");
    op.ready = NULL;
    op.arrived = gate;
    failures += refused(weft_op_post(&op, 1, comm, NULL), "arrived needs");
    weft_gate_destroy(gate);
    weft_device_close(device);
    return failures;
}

/* After all of it the communicator is as good as before. */
static int misuse(weft_comm *comm, void *context)
{
    (void)context;
    struct buffers *at = calloc(1, sizeof(*at));
    int failures = 0;
    int32_t one = 1, both[2] = {0, 0};
    const size_t none[] = {0, 0}, anywhere[] = {5, 5};
    if (weft_comm_get_rank(comm) == 0) {
        failures += misuse_buffers(comm, at);
    }
    failures += misuse_counts(comm, at) + misuse_gates(comm, at);
    /* Nothing at all needs no buffers, and overlaps nothing. */
    failures += weft_alltoallv(NULL, none, anywhere, NULL, none, anywhere,
                               WEFT_DTYPE_F32, comm, NULL) != WEFT_OK;
    failures += weft_alltoall(at->send, at->send, 0, WEFT_DTYPE_F32, comm,
                              NULL) != WEFT_OK;
    failures +=
        weft_allgather(&one, both, 1, WEFT_DTYPE_I32, comm, NULL) != WEFT_OK;
    failures += both[0] != 1 || both[1] != 1;
    free(at);
    return failures;
}

static void test_misuse_refused_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = misuse};
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disagree_each_kind_both_sides_named),
        cmocka_unit_test(test_disagree_two_roots_named_by_the_next),
        cmocka_unit_test(test_disagree_one_pair_both_counts_named),
        cmocka_unit_test(test_disagree_one_common_count_both_sides_named),
        cmocka_unit_test(test_misuse_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
