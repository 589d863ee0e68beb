/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: as much bandwidth in rings as the links of well-known machines allow,
 * none over its capacity, the same answer every time, soon.
 * Method: synthetic machines; what every ring asks of every link is counted
 * here anew.
 */
#include "base/clock.h"
#include "tests/topo/machine.h"
#include "topo/rings.h"
#include "topo/topo.h"

#include <stdlib.h>

typedef struct fixture {
    wefti_topo *topo;
    wefti_paths *paths;
} fixture;

/* Takes a GPU's links from it, as where they are all dead; -1: nobody's. */
static void isolate(wefti_topo *topo, int gpu)
{
    int device = wefti_topo_find(topo, WEFTI_TOPO_GPU, gpu), kept = 0;
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_link link = topo->links[i];
        if (link.type != WEFTI_LINK_NVL ||
            (link.a != device && link.b != device)) {
            topo->links[kept++] = link;
        }
    }
    topo->link_count = kept;
}

static fixture open_isolated(const char *text, int gpu)
{
    fixture f;
    assert_int_equal(wefti_topo_read_synthetic(text, &f.topo), WEFT_OK);
    if (gpu >= 0) {
        isolate(f.topo, gpu);
    }
    assert_int_equal(wefti_paths_create(f.topo, &f.paths), WEFT_OK);
    return f;
}

static fixture open_text(const char *text)
{
    return open_isolated(text, -1);
}

static void close_text(fixture f)
{
    wefti_paths_destroy(f.paths);
    wefti_topo_destroy(f.topo);
}

/* Every order names each GPU once; no link is asked for more than it has. */
static void check_rings(const wefti_paths *paths, const wefti_rings *rings,
                        bool closed)
{
    const wefti_topo *topo = paths->topo;
    double *used = calloc(2 * (size_t)topo->link_count + 1, sizeof(double));
    assert_non_null(used);
    for (int c = 0; c < rings->channels; c++) {
        const int *order =
            rings->orders + (c % rings->distinct) * rings->gpu_count;
        uint64_t seen = 0;
        for (int i = 0; i < rings->gpu_count; i++) {
            wefti_route route;
            seen |= 1ull << order[i];
            if (i + 1 == rings->gpu_count && !closed) {
                break;
            }
            wefti_route_gpu_gpu(paths, order[i],
                                order[(i + 1) % rings->gpu_count], &route);
            for (int k = 0; k < route.count; k++) {
                used[route.steps[k]] += rings->GBps;
            }
        }
        assert_int_equal(seen, (1ull << rings->gpu_count) - 1);
    }
    for (int i = 0; i < 2 * topo->link_count; i++) {
        assert_true(used[i] <= topo->links[i / 2].nccl_GBps * 1.0001);
    }
    assert_true(rings->most_use <= 1.0001);
    free(used);
}

static void test_rings_use_what_links_allow(void **state)
{
    (void)state;
    /* Each GPU's links, times the rate of one in NCCL's table (topo/rates.c);
     * NCCL itself was not run for this. */
    static const struct {
        const char *text;
        int channels;
        double GBps;
    } rows[] = {{"8xV100", 6, 20},  {"16xV100", 6, 20}, {"8xA100", 12, 20},
                {"8xH100", 12, 30}, {"4xH100", 12, 30}, {"8xP100", 4, 18},
                {"2xA100", 12, 20}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fixture f = open_text(rows[i].text);
        wefti_rings rings;
        assert_int_equal(wefti_rings_plan(f.paths, 0, &rings), WEFT_OK);
        print_message("%s: %d x %g %s\n", rows[i].text, rings.channels,
                      rings.GBps, wefti_path_type_text(rings.type));
        assert_true(rings.channels * rings.GBps >=
                    rows[i].channels * rows[i].GBps - 1e-6);
        assert_int_equal(rings.type, WEFTI_PATH_NVL);
        check_rings(f.paths, &rings, true);
        wefti_rings_fini(&rings);
        close_text(f);
    }
}

static void test_rings_over_hosts_use_every_nic(void **state)
{
    (void)state;
    fixture f = open_text("2x(8xH100,8xCX7)");
    wefti_rings rings;
    assert_int_equal(wefti_rings_plan_net(f.paths, 0, &rings), WEFT_OK);
    assert_true(rings.channels * rings.GBps >= 360);
    assert_int_equal(rings.type, WEFTI_PATH_NVL);
    uint32_t nics = 0;
    for (int i = 0; i < rings.distinct; i++) {
        nics |= 1u << rings.nics[i];
    }
    assert_int_equal(nics, 0xff);
    check_rings(f.paths, &rings, false);
    wefti_rings_fini(&rings);
    close_text(f);
}

static void test_rings_without_nics_fall_back_in_the_open(void **state)
{
    (void)state;
    fixture f = open_text("2x(4xA100)");
    wefti_rings rings;
    assert_int_equal(wefti_rings_plan_net(f.paths, 0, &rings), WEFT_OK);
    assert_int_equal(rings.channels, 1);
    assert_true(rings.GBps == 0.1);
    assert_int_equal(rings.type, WEFTI_PATH_SYS);
    wefti_rings_fini(&rings);
    close_text(f);
    f = open_text("2x(4xCX6)");
    assert_int_equal(wefti_rings_plan(f.paths, 0, &rings), WEFT_OK);
    assert_int_equal(rings.channels, 0);
    wefti_rings_fini(&rings);
    close_text(f);
}

static void test_chains_fit_in_both_directions(void **state)
{
    (void)state;
    fixture f = open_text("8xA100");
    wefti_rings chains;
    assert_int_equal(wefti_chains_plan(f.paths, 0, &chains), WEFT_OK);
    assert_true(chains.channels * chains.GBps >= 120);
    check_rings(f.paths, &chains, false);
    wefti_rings_fini(&chains);
    close_text(f);
}

static void test_rings_are_the_same_every_time(void **state)
{
    (void)state;
    wefti_rings first = {0}, again;
    for (int round = 0; round < 3; round++) {
        fixture f = open_text("8xV100,4xCX5");
        assert_int_equal(wefti_rings_plan(f.paths, 0, &again), WEFT_OK);
        if (round > 0) {
            assert_int_equal(first.distinct, again.distinct);
            assert_memory_equal(first.orders, again.orders,
                                8 * (size_t)first.distinct * sizeof(int));
            wefti_rings_fini(&again);
        } else {
            first = again;
        }
        close_text(f);
    }
    wefti_rings_fini(&first);
}

static void test_rings_of_sixteen_are_found_soon(void **state)
{
    (void)state;
    fixture f = open_text("16xH100,8xCX7");
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < 5; i++) {
        wefti_rings rings;
        int64_t begin = wefti_clock_thread_ns();
        assert_int_equal(wefti_rings_plan(f.paths, 0, &rings), WEFT_OK);
        int64_t end = wefti_clock_thread_ns();
        best_ns = end - begin < best_ns ? end - begin : best_ns;
        assert_true(rings.channels * rings.GBps >= 360);
        wefti_rings_fini(&rings);
    }
    print_message("16 GPUs with 18 NVLinks each: %.2f ms\n",
                  (double)best_ns / 1e6);
#ifdef NDEBUG
    assert_true(best_ns < 50000000);
#endif
    close_text(f);
}

/* What reaches it is PCIe, and there is an answer by PCIe. */
static void test_rings_reach_a_gpu_without_links(void **state)
{
    (void)state;
    static const char *const texts[] = {"8xH100,8xCX7", "8xV100,4xCX5",
                                        "16xV100,8xCX6", "16xH100,8xCX7"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (int gpu = 0; gpu < 8; gpu += 5) {
            fixture f = open_isolated(texts[i], gpu);
            wefti_rings rings;
            int64_t begin = wefti_clock_thread_ns();
            assert_int_equal(wefti_rings_plan_net(f.paths, 0, &rings), WEFT_OK);
            int64_t spent = wefti_clock_thread_ns() - begin;
            print_message("%s without links of gpu%d: %d x %g %s, %.2f ms\n",
                          texts[i], gpu, rings.channels, rings.GBps,
                          wefti_path_type_text(rings.type),
                          (double)spent / 1e6);
            assert_true(rings.channels * rings.GBps >= 5);
            assert_true(rings.type > WEFTI_PATH_NVB);
            check_rings(f.paths, &rings, false);
#ifdef NDEBUG
            assert_true(spent < 50000000);
#endif
            wefti_rings_fini(&rings);
            close_text(f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rings_use_what_links_allow),
        cmocka_unit_test(test_rings_over_hosts_use_every_nic),
        cmocka_unit_test(test_rings_without_nics_fall_back_in_the_open),
        cmocka_unit_test(test_chains_fit_in_both_directions),
        cmocka_unit_test(test_rings_are_the_same_every_time),
        cmocka_unit_test(test_rings_reach_a_gpu_without_links),
        cmocka_unit_test(test_rings_of_sixteen_are_found_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
