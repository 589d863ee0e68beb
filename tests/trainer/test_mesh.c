/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     in every small world each kind of group parts the ranks, in groups
 *          of the size that the axes say, and in the order in which gradients
 *          have always been added; places and ranks are one; of the two replica
 *          groups one lies in the other; what does not divide is refused with
 *          the nearest that does.
 * Method   all sizes up to 4 of five axes, with and without mirrors; what a
 *          group is, is found anew by comparing all ranks with all. Then
 *          communicators of ranks as threads.
 */
#include "tests/comm/world.h"
#include "trainer/mesh/mesh_comms.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { AXIS_MOST = 4 };

static int mirror_of(const wefti_mesh *mesh, int pp)
{
    return mesh->pp - 1 - pp;
}

/* The part of the model: mirrors have the same one. */
static bool same_part(const wefti_mesh *mesh, const wefti_mesh_place *a,
                      const wefti_mesh_place *b)
{
    return a->pp == b->pp ||
           (mesh->mirrored && a->pp == mirror_of(mesh, b->pp));
}

/* By the words of the header. */
static bool belong(const wefti_mesh *mesh, wefti_mesh_group group, int first,
                   int second)
{
    wefti_mesh_place a = wefti_mesh_locate(mesh, first);
    wefti_mesh_place b = wefti_mesh_locate(mesh, second);
    bool tp = a.tp == b.tp, cp = a.cp == b.cp, dp = a.dp == b.dp;
    bool pp = a.pp == b.pp;
    switch (group) {
    case WEFTI_MESH_TP:
        return cp && dp && pp;
    case WEFTI_MESH_CP:
        return tp && dp && pp;
    case WEFTI_MESH_EP:
        return a.expert_copy == b.expert_copy && pp;
    case WEFTI_MESH_DP:
        return tp && cp && pp;
    case WEFTI_MESH_PP:
        return tp && cp && dp;
    case WEFTI_MESH_SEQUENCE:
        return dp && pp;
    case WEFTI_MESH_STAGE:
        return pp;
    case WEFTI_MESH_COPY:
        return dp;
    case WEFTI_MESH_REPLICA:
        return tp && same_part(mesh, &a, &b);
    default:
        return a.ep == b.ep && same_part(mesh, &a, &b);
    }
}

/* In the order of ranks, but a mirror right behind its like. */
static int order_of(const wefti_mesh *mesh, wefti_mesh_group group, int rank)
{
    wefti_mesh_place at = wefti_mesh_locate(mesh, rank);
    bool folds = mesh->mirrored && (group == WEFTI_MESH_REPLICA ||
                                    group == WEFTI_MESH_EXPERT_REPLICA);
    if (!folds) {
        return rank;
    }
    bool second = mirror_of(mesh, at.pp) < at.pp;
    at.pp = second ? mirror_of(mesh, at.pp) : at.pp;
    return 2 * wefti_mesh_rank(mesh, &at) + second;
}

static void check_group(const wefti_mesh *mesh, wefti_mesh_group group)
{
    int nranks = wefti_mesh_ranks(mesh);
    for (int rank = 0; rank < nranks; rank++) {
        wefti_mesh_seat own = wefti_mesh_find(mesh, group, rank);
        int size = 0, before = 0;
        for (int other = 0; other < nranks; other++) {
            bool together = belong(mesh, group, rank, other);
            wefti_mesh_seat its = wefti_mesh_find(mesh, group, other);
            assert_int_equal(together, its.number == own.number);
            size += together;
            before += together && order_of(mesh, group, other) <
                                      order_of(mesh, group, rank);
        }
        assert_int_equal(own.size, size);
        assert_int_equal(own.index, before);
    }
}

static void check_places(const wefti_mesh *mesh)
{
    for (int rank = 0; rank < wefti_mesh_ranks(mesh); rank++) {
        wefti_mesh_place at = wefti_mesh_locate(mesh, rank);
        assert_in_range(at.tp, 0, mesh->tp - 1);
        assert_in_range(at.cp, 0, mesh->cp - 1);
        assert_in_range(at.dp, 0, mesh->dp - 1);
        assert_in_range(at.pp, 0, mesh->pp - 1);
        assert_int_equal(wefti_mesh_rank(mesh, &at), rank);
        assert_int_equal(at.expert_copy * mesh->ep + at.ep,
                         rank % (mesh->tp * mesh->cp * mesh->dp));
    }
}

/* The smaller of the two replica groups lies in the larger one. */
static void check_nested(const wefti_mesh *mesh)
{
    int nranks = wefti_mesh_ranks(mesh);
    for (int rank = 0; rank < nranks; rank++) {
        bool dense_in = true, expert_in = true;
        for (int other = 0; other < nranks; other++) {
            bool dense = belong(mesh, WEFTI_MESH_REPLICA, rank, other);
            bool expert = belong(mesh, WEFTI_MESH_EXPERT_REPLICA, rank, other);
            dense_in &= !dense || expert;
            expert_in &= !expert || dense;
        }
        assert_true(dense_in || expert_in);
        if (mesh->ep >= mesh->tp) {
            assert_true(expert_in);
        }
    }
}

/* Calls check with every mesh of axes up to most. */
static void for_each(int most, void (*check)(const wefti_mesh *mesh))
{
    for (int i = 0; i < most * most * most * most; i++) {
        wefti_mesh sizes = {.tp = i % most + 1,
                            .cp = i / most % most + 1,
                            .pp = i / most / most % most + 1};
        int dp = i / most / most / most + 1;
        int stage = sizes.tp * sizes.cp * dp;
        for (sizes.ep = 1; sizes.ep <= stage; sizes.ep++) {
            for (int mirrored = 0; mirrored < 2; mirrored++) {
                wefti_mesh mesh;
                sizes.mirrored = mirrored;
                if (wefti_mesh_make(&sizes, stage * sizes.pp, &mesh) ==
                    WEFT_OK) {
                    assert_int_equal(mesh.dp, dp);
                    assert_int_equal(wefti_mesh_ranks(&mesh), stage * sizes.pp);
                    check(&mesh);
                }
            }
        }
    }
}

static void check_all(const wefti_mesh *mesh)
{
    check_places(mesh);
    check_nested(mesh);
    for (int group = 0; group < WEFTI_MESH_GROUPS; group++) {
        check_group(mesh, (wefti_mesh_group)group);
    }
}

static void test_mesh_small_worlds_are_parted(void **state)
{
    (void)state;
    for_each(3, check_all);
}

static void test_mesh_places_are_ranks(void **state)
{
    (void)state;
    for_each(AXIS_MOST, check_places);
}

/* What a job of copies and pipelines has always been. */
static void test_mesh_pipelines_lie_across_copies(void **state)
{
    (void)state;
    for (int mirrored = 0; mirrored < 2; mirrored++) {
        const wefti_mesh sizes = {1, 1, 1, 4, 0, mirrored};
        wefti_mesh mesh;
        assert_int_equal(wefti_mesh_make(&sizes, 12, &mesh), WEFT_OK);
        for (int rank = 0; rank < 12; rank++) {
            int copy = rank % 3, pp = rank / 3;
            int mirror = mirrored && 3 - pp < pp;
            wefti_mesh_seat line = wefti_mesh_find(&mesh, WEFTI_MESH_PP, rank);
            wefti_mesh_seat data =
                wefti_mesh_find(&mesh, WEFTI_MESH_REPLICA, rank);
            assert_int_equal(line.number, copy);
            assert_int_equal(line.index, pp);
            assert_int_equal(data.number, mirror ? 3 - pp : pp);
            assert_int_equal(data.index, mirrored ? 2 * copy + mirror : copy);
        }
    }
}

static void expect_refused(wefti_mesh sizes, int nranks, const char *text)
{
    wefti_mesh mesh;
    assert_int_equal(wefti_mesh_make(&sizes, nranks, &mesh), WEFT_ERR_INVALID);
    if (!strstr(weft_error_text(), text)) {
        fail_msg("\"%s\" is not in: %s", text, weft_error_text());
    }
}

static void test_mesh_what_does_not_divide_is_refused(void **state)
{
    (void)state;
    expect_refused((wefti_mesh){2, 1, 1, 3, 0, false}, 8,
                   "tp 2 * cp 1 * pp 3 = 6 does not divide 8 ranks; nearest "
                   "that work: 6 or 12 ranks");
    expect_refused((wefti_mesh){1, 1, 1, 2, 0, false}, 1,
                   "1 rank; nearest that work: 2 ranks");
    expect_refused((wefti_mesh){1, 1, 3, 1, 0, false}, 8,
                   "tp 1 * cp 1 * dp 8; nearest that work: 2 or 4");
    /* 6 divides 12, but would cut across the pairs of cp */
    expect_refused((wefti_mesh){2, 2, 6, 1, 0, false}, 12,
                   "ep 6 is no part of a stage's ranks, tp 2 * cp 2 * dp 3; "
                   "nearest that work: 4 or 12");
    expect_refused((wefti_mesh){1, 1, 9, 1, 0, false}, 8,
                   "nearest that work: 8");
}

static void test_mesh_ep_beyond_tp_and_cp_is_of_dp(void **state)
{
    (void)state;
    const wefti_mesh sizes[] = {{2, 2, 2, 1, 4, false},
                                {2, 2, 4, 1, 4, false},
                                {2, 2, 8, 1, 4, false},
                                {1, 1, 4, 1, 4, false}};
    const int wanted[] = {1, 1, 2, 4};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(wefti_mesh_ep_of_dp(&sizes[i]), wanted[i]);
    }
}

/* ---- communicators --------------------------------------------------------
 */

/* Each rank's number, gathered on each of the communicators. */
static int connect_all(weft_comm *comm, void *context)
{
    const wefti_mesh *mesh = context;
    int32_t rank = weft_comm_get_rank(comm);
    wefti_mesh_comms comms;
    int wrong = wefti_mesh_connect(&comms, mesh, comm, NULL, 2) != WEFT_OK;
    static const wefti_mesh_group groups[] = {
        WEFTI_MESH_PP,      WEFTI_MESH_PP,
        WEFTI_MESH_REPLICA, WEFTI_MESH_EXPERT_REPLICA,
        WEFTI_MESH_TP,      WEFTI_MESH_CP,
        WEFTI_MESH_EP};
    for (int i = 0; i < WEFTI_MESH_LINKS && !wrong; i++) {
        int32_t all[16];
        wefti_mesh_seat seat = wefti_mesh_find(mesh, groups[i], rank);
        if (!comms.comms[i]) {
            wrong = i < WEFTI_MESH_TENSOR || seat.size > 1;
            continue;
        }
        wrong = weft_comm_get_nranks(comms.comms[i]) != seat.size ||
                weft_comm_get_rank(comms.comms[i]) != seat.index ||
                weft_allgather(&rank, all, 1, WEFT_DTYPE_I32, comms.comms[i],
                               NULL) != WEFT_OK;
        for (int k = 0; k < seat.size && !wrong; k++) {
            wefti_mesh_seat its = wefti_mesh_find(mesh, groups[i], all[k]);
            wrong = its.number != seat.number || its.index != k;
        }
    }
    wrong += (comms.comms[WEFTI_MESH_DATA] == comm) !=
             (mesh->pp == 1 && mesh->tp == 1);
    wrong += wefti_mesh_class(WEFTI_MESH_LINE) != WEFT_CLASS_PP ||
             wefti_mesh_class(WEFTI_MESH_DATA) != WEFT_CLASS_DP ||
             wefti_mesh_class(WEFTI_MESH_TENSOR) != WEFT_CLASS_TP ||
             wefti_mesh_class(WEFTI_MESH_CONTEXT) != WEFT_CLASS_CP ||
             wefti_mesh_class(WEFTI_MESH_EXPERTS) != WEFT_CLASS_EP;
    wefti_mesh_leave(&comms);
    return wrong;
}

static void test_mesh_communicators_are_the_groups(void **state)
{
    (void)state;
    wefti_mesh meshes[] = {
        {1, 1, 1, 1, 4, false}, {1, 1, 2, 1, 4, false}, {1, 1, 2, 2, 2, true},
        {1, 1, 1, 2, 2, false}, {1, 1, 1, 4, 1, false}, {1, 1, 1, 2, 2, true},
        {1, 1, 1, 4, 1, true},  {2, 1, 1, 1, 2, false}, {2, 1, 2, 2, 1, false},
        {1, 2, 4, 1, 2, false}, {2, 2, 2, 1, 1, false}, {1, 2, 2, 2, 1, true},
        {4, 1, 1, 1, 1, false}};
    for (size_t i = 0; i < sizeof(meshes) / sizeof(*meshes); i++) {
        const struct world world = {
            .nranks = 4, .call = connect_all, .context = &meshes[i]};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh_small_worlds_are_parted),
        cmocka_unit_test(test_mesh_places_are_ranks),
        cmocka_unit_test(test_mesh_pipelines_lie_across_copies),
        cmocka_unit_test(test_mesh_what_does_not_divide_is_refused),
        cmocka_unit_test(test_mesh_ep_beyond_tp_and_cp_is_of_dp),
        cmocka_unit_test(test_mesh_communicators_are_the_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
