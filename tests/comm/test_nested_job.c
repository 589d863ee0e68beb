/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: ranks with levels inside their hosts, as WEFT_LEVELS says it, carry
 * operations out through these, with the results of any other way, in the world
 * and in a communicator of other order; and what cannot be a level is refused.
 *
 * Method: five ranks as threads (sharing memory as tests/comm/spread.h says),
 * uneven groups in no order, `nested` the only algorithm that may be taken.
 */
#include "base/check.h"
#include "comm/core/core.h"
#include "comm/make/explain.h"
#include "comm/oob/inner_level.h"
#include "kernels/wire/reduce.h"
#include "tests/comm/world.h"
#include "tests/repeat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 5, MOST = 70001 };

static const size_t counts[] = {1, 7, 4099, MOST};

static int32_t *room(size_t elems)
{
    int32_t *made = calloc(elems, sizeof(*made));
    WEFTI_ASSERT(made);
    return made;
}

/* Each rank's, and their sums. */
static int32_t values[RANKS][MOST], value_sums[MOST];

static int make_values(void **state)
{
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        for (size_t i = 0; i < MOST; i++) {
            values[rank][i] = (int32_t)(i * 7 + (size_t)rank * 100003);
            value_sums[i] += values[rank][i];
        }
    }
    return 0;
}

static void fill(int32_t *at, int rank, size_t count)
{
    memcpy(at, values[rank], count * sizeof(*at));
}

static int compare(const int32_t *at, int rank, size_t count)
{
    return memcmp(at, values[rank], count * sizeof(*at)) != 0;
}

static int gather(weft_comm *comm, int32_t *data, size_t count)
{
    int rank = weft_comm_get_rank(comm), failures = 0;
    int32_t *own = data + (size_t)rank * count;
    fill(own, rank, count); /* in place */
    failures +=
        weft_allgather(own, data, count, WEFT_DTYPE_I32, comm, NULL) != WEFT_OK;
    for (int from = 0; from < RANKS; from++) {
        failures += compare(data + (size_t)from * count, from, count);
    }
    return failures;
}

/* Of rank r, r parts in RANKS of count elements. */
static int gather_counted(weft_comm *comm, int32_t *data, size_t count)
{
    int rank = weft_comm_get_rank(comm), failures = 0;
    size_t parts[RANKS], begins[RANKS], end = 0;
    for (int from = 0; from < RANKS; from++) {
        begins[from] = end;
        parts[from] = count * (size_t)from / RANKS;
        end += parts[from];
    }
    int32_t *own = room(count);
    fill(own, rank, count);
    failures += weft_allgatherv(own, parts[rank], data, parts, begins,
                                WEFT_DTYPE_I32, comm, NULL) != WEFT_OK;
    for (int from = 0; from < RANKS; from++) {
        failures += compare(data + begins[from], from, parts[from]);
    }
    free(own);
    return failures;
}

static int spread(weft_comm *comm, int32_t *data, size_t count)
{
    int failures = 0;
    for (int root = 0; root < RANKS; root++) {
        memset(data, 0, count * sizeof(*data));
        if (weft_comm_get_rank(comm) == root) {
            fill(data, root, count);
        }
        failures += weft_broadcast(data, data, count, WEFT_DTYPE_I32, root,
                                   comm, NULL) != WEFT_OK;
        failures += compare(data, root, count);
    }
    return failures;
}

static int add(weft_comm *comm, int32_t *data, size_t count)
{
    fill(data, weft_comm_get_rank(comm), count);
    int failures = weft_allreduce(data, data, count, WEFT_DTYPE_I32,
                                  WEFT_REDOP_SUM, comm, NULL) != WEFT_OK;
    return failures + (memcmp(data, value_sums, count * sizeof(*data)) != 0);
}

enum { PERIOD = 5 }; /* of small values */

/* Integer number elem of rank's, small enough that all types hold sums. */
static float small_value(int rank, size_t elem)
{
    return (float)((elem + 3 * (size_t)rank) % PERIOD);
}

static float small_sum(size_t elem)
{
    float sum = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        sum += small_value(rank, elem);
    }
    return sum;
}

static void fill_small(void *at, int rank, size_t count, weft_dtype dtype)
{
    unsigned char *elems = at;
    const size_t width = weft_dtype_bytes(dtype);
    for (size_t i = 0; i < count && i < PERIOD; i++) {
        float value = small_value(rank, i);
        wefti_narrow(elems + i * width, &value, 1, 1, dtype, WEFT_REDOP_SUM);
    }
    repeat(elems, PERIOD * width, count * width);
}

/* Whether elements from first on are the sums of all. */
static int compare_small(const void *at, size_t first, size_t count,
                         weft_dtype dtype)
{
    const unsigned char *elems = at;
    const size_t width = weft_dtype_bytes(dtype);
    int failures = !repeats(elems, PERIOD * width, count * width);
    for (size_t i = 0; i < count && i < PERIOD; i++) {
        float value;
        wefti_widen(&value, elems + i * width, 1, dtype);
        failures += value != small_sum(first + i);
    }
    return failures != 0;
}

/* The sums that have levels of their own, in a type that grows on the way. */
static int add_floats(weft_comm *comm, int32_t *data, size_t count,
                      weft_dtype dtype)
{
    const int rank = weft_comm_get_rank(comm), root = (int)(count % RANKS);
    size_t parts[RANKS], begin = 0;
    int failures = 0;
    void *out = room(count * RANKS);
    fill_small(data, rank, count * RANKS, dtype);
    failures += weft_allreduce(data, out, count, dtype, WEFT_REDOP_SUM, comm,
                               NULL) != WEFT_OK ||
                compare_small(out, 0, count, dtype);
    failures += weft_reduce(data, out, count, dtype, WEFT_REDOP_SUM, root, comm,
                            NULL) != WEFT_OK ||
                (rank == root && compare_small(out, 0, count, dtype));
    failures += weft_reducescatter(data, out, count, dtype, WEFT_REDOP_SUM,
                                   comm, NULL) != WEFT_OK ||
                compare_small(out, (size_t)rank * count, count, dtype);
    for (int to = 0; to < RANKS; to++) {
        parts[to] = count * (size_t)to / RANKS;
        begin += to < rank ? parts[to] : 0;
    }
    failures += weft_reducescatterv(data, out, parts, dtype, WEFT_REDOP_SUM,
                                    comm, NULL) != WEFT_OK ||
                compare_small(out, begin, parts[rank], dtype);
    free(out);
    return failures;
}

static int run_sums(weft_comm *comm, void *context)
{
    static const weft_dtype types[] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16,
                                       WEFT_DTYPE_F8E4M3};
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_REDUCE,
                        .dtype = WEFT_DTYPE_I32,
                        .count = MOST};
    const char *fabric;
    int32_t *data = room((size_t)RANKS * MOST);
    int failures =
        strcmp(wefti_comm_explain(comm, &op, &fabric), "nested_sums");
    (void)context;
    for (size_t i = 0; i < WEFTI_COUNT_OF(counts); i++) {
        failures += add(comm, data, counts[i]);
        for (size_t t = 0; t < WEFTI_COUNT_OF(types); t++) {
            failures += add_floats(comm, data, counts[i], types[t]);
        }
    }
    free(data);
    return failures;
}

static int run_all(weft_comm *comm)
{
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLREDUCE,
                        .dtype = WEFT_DTYPE_I32,
                        .count = MOST};
    const char *fabric;
    int32_t *data = room((size_t)RANKS * MOST);
    int failures = strcmp(wefti_comm_explain(comm, &op, &fabric), "nested");
    for (size_t i = 0; i < WEFTI_COUNT_OF(counts); i++) {
        failures += gather(comm, data, counts[i]);
        failures += gather_counted(comm, data, counts[i]);
        failures += spread(comm, data, counts[i]);
        failures += add(comm, data, counts[i]);
    }
    free(data);
    return failures;
}

static int run_both(weft_comm *comm, void *context)
{
    const weft_comm_config config = {.size_bytes = sizeof(config),
                                     .name = "backward"};
    weft_comm *backward;
    (void)context;
    int failures = run_all(comm);
    if (weft_comm_split(comm, 0, -weft_comm_get_rank(comm), &config,
                        &backward) != WEFT_OK) {
        return failures + 1;
    }
    failures += run_all(backward);
    weft_comm_destroy(backward);
    return failures;
}

static void run_with(const char *levels)
{
    struct world world = {.nranks = RANKS, .call = run_both};
    setenv("WEFT_LEVELS", levels, 1);
    setenv("WEFT_ALGO",
           "all_reduce:nested,all_gather:nested,all_gatherv:nested,"
           "broadcast:nested",
           1);
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_ALGO");
    unsetenv("WEFT_LEVELS");
}

static void test_ranks_in_a_row_carry_all_out(void **state)
{
    (void)state;
    run_with("2");
}

static void test_two_levels_of_words_carry_all_out(void **state)
{
    (void)state;
    run_with("a,a,b,a,c/x,x,x,x,y");
}

static void run_sums_with(const char *levels)
{
    struct world world = {.nranks = RANKS, .call = run_sums};
    setenv("WEFT_LEVELS", levels, 1);
    setenv("WEFT_ALGO",
           "all_reduce:nested_sums,reduce:nested_sums,"
           "reduce_scatter:nested_sums,reduce_scatterv:nested_sums",
           1);
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_ALGO");
    unsetenv("WEFT_LEVELS");
}

static void test_sums_of_ranks_in_a_row_go_through_levels(void **state)
{
    (void)state;
    run_sums_with("2");
    run_sums_with("2/4");
}

static void test_sums_of_groups_in_part_nodes_go_through_levels(void **state)
{
    (void)state;
    run_sums_with("a,a,b,b,b"); /* 0 1 are a node, 2 3, and 4 */
    run_sums_with("a,a,b,a,a");
}

static int refuse_sums(weft_comm *comm, void *context)
{
    int32_t data[2] = {1, 2};
    (void)context;
    return weft_reduce(data, data, 2, WEFT_DTYPE_I32, WEFT_REDOP_SUM, 0, comm,
                       NULL) != WEFT_ERR_INVALID ||
           !strstr(weft_error_text(), "nested_sums");
}

/* No group is a node of the tree: refused by name, on every rank. */
static void test_sums_of_interleaved_groups_refused(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = refuse_sums};
    setenv("WEFT_LEVELS", "a,b,a,b,a", 1);
    setenv("WEFT_ALGO", "reduce:nested_sums", 1);
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_ALGO");
    unsetenv("WEFT_LEVELS");
}

static int count_levels(weft_comm *comm, void *context)
{
    (void)context;
    return comm->nest ? comm->nest->level_count : 0;
}

/* One node, or one to each rank: nothing is parted. */
static void test_levels_that_part_nothing_are_none(void **state)
{
    (void)state;
    static const char *const none[] = {"off", "8", "1", "1/8"};
    for (size_t i = 0; i < WEFTI_COUNT_OF(none); i++) {
        struct world world = {.nranks = RANKS, .call = count_levels};
        setenv("WEFT_LEVELS", none[i], 1);
        assert_int_equal(world_run_threads(&world), 0);
    }
    unsetenv("WEFT_LEVELS");
}

static void test_setting_refused_by_name(void **state)
{
    (void)state;
    static const char *const wrong[] = {"2/2/2", "socket", "0",  "-1",
                                        "2x",    "a,b",    "2/", "off/2",
                                        "/2",    "numa "};
    static const char *const right[] = {"off", "numa",      "2/numa",
                                        "1/4", "a,b,a,b,b", "a,b,a,b,b,c/4"};
    for (size_t i = 0; i < WEFTI_COUNT_OF(wrong); i++) {
        setenv("WEFT_LEVELS", wrong[i], 1);
        assert_int_equal(wefti_inner_levels_check(RANKS), WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), "WEFT_LEVELS="));
    }
    for (size_t i = 0; i < WEFTI_COUNT_OF(right); i++) {
        setenv("WEFT_LEVELS", right[i], 1);
        assert_int_equal(wefti_inner_levels_check(RANKS), WEFT_OK);
    }
    unsetenv("WEFT_LEVELS");
}

static void test_label_is_that_of_the_group(void **state)
{
    (void)state;
    char label[WEFTI_INNER_LABEL_BYTES], other[WEFTI_INNER_LABEL_BYTES];
    setenv("WEFT_LEVELS", "a,b,a/2", 1);
    wefti_inner_level_label(0, 0, label);
    wefti_inner_level_label(2, 0, other);
    assert_string_equal(label, other);
    wefti_inner_level_label(1, 0, other);
    assert_string_not_equal(label, other);
    wefti_inner_level_label(0, 1, label);
    wefti_inner_level_label(1, 1, other);
    assert_string_equal(label, other);
    wefti_inner_level_label(2, 1, other);
    assert_string_not_equal(label, other);
    wefti_inner_level_label(2, 2, other);
    assert_string_equal(other, "");
    unsetenv("WEFT_LEVELS");
}

/* ---- counts that differ ---------------------------------------------------
 */

enum { MANY = 18, LIAR = 10, PART = 4099 };

/* Ranks 12 and 14 have a part; the liar takes the first one for rank 0's. Its
 * neighbours would get both parts through it, in its order. */
static int gather_two(weft_comm *comm, void *context)
{
    (void)context;
    const int rank = weft_comm_get_rank(comm);
    const bool has = rank == 12 || rank == 14;
    size_t taken[MANY] = {0}, begins[MANY];
    for (size_t i = 0; i < MANY; i++) {
        begins[i] = i * PART;
    }
    taken[12] = taken[14] = PART;
    if (rank == LIAR) {
        taken[12] = 0;
        taken[0] = PART;
    }
    int32_t *own = calloc(PART, sizeof(*own));
    int32_t *all = calloc((size_t)MANY * PART, sizeof(*all));
    int failures = !own || !all;
    for (size_t i = 0; !failures && i < PART; i++) {
        own[i] = rank;
    }
    if (!failures) {
        const weft_status status =
            weft_allgatherv(own, has ? PART : 0, all, taken, begins,
                            WEFT_DTYPE_I32, comm, NULL);
        failures += status != WEFT_ERR_MISMATCH &&
                    (rank == LIAR || status != WEFT_OK ||
                     all[begins[12]] != 12 || all[begins[14]] != 14);
    }
    free(own);
    free(all);
    return failures;
}

static void
test_counts_that_differ_are_found_before_parts_are_passed_on(void **state)
{
    (void)state;
    const struct world world = {.nranks = MANY, .call = gather_two};
    setenv("WEFT_LEVELS", "2/6", 1);
    setenv("WEFT_ALGO", "all_gatherv:nested", 1);
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_LEVELS");
    unsetenv("WEFT_ALGO");
}

/* ---- NUMA nodes -----------------------------------------------------------
 */

static void write_node(const char *sysfs, int node, const char *list)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/devices/system/node/node%d", sysfs, node);
    assert_int_equal(mkdir(path, 0700), 0);
    strncat(path, "/cpulist", sizeof(path) - strlen(path) - 1);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(list, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static cpu_set_t cpus_of(size_t first, size_t last)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    CPU_SET(last, &set);
    return set;
}

static void test_numa_node_that_has_all_cpus(void **state)
{
    (void)state;
    char sysfs[] = "/tmp/weft_nodes_XXXXXX", path[256], command[300];
    assert_non_null(mkdtemp(sysfs));
    const cpu_set_t low = cpus_of(1, 9), high = cpus_of(4, 6),
                    both = cpus_of(1, 4), none = cpus_of(40, 41);
    assert_int_equal(wefti_numa_find(sysfs, &low), -1);
    snprintf(path, sizeof(path), "%s/devices", sysfs);
    assert_int_equal(mkdir(path, 0700), 0);
    strncat(path, "/system", sizeof(path) - strlen(path) - 1);
    assert_int_equal(mkdir(path, 0700), 0);
    strncat(path, "/node", sizeof(path) - strlen(path) - 1);
    assert_int_equal(mkdir(path, 0700), 0);
    write_node(sysfs, 0, "0-3,8-11\n");
    write_node(sysfs, 2, "4-7,12\n"); /* there is no node 1 */
    assert_int_equal(wefti_numa_find(sysfs, &low), 0);
    assert_int_equal(wefti_numa_find(sysfs, &high), 2);
    assert_int_equal(wefti_numa_find(sysfs, &both), -1);
    assert_int_equal(wefti_numa_find(sysfs, &none), -1);
    snprintf(command, sizeof(command), "rm -r '%s'", sysfs);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_setting_refused_by_name),
        cmocka_unit_test(test_label_is_that_of_the_group),
        cmocka_unit_test(test_numa_node_that_has_all_cpus),
        cmocka_unit_test(test_levels_that_part_nothing_are_none),
        cmocka_unit_test(test_ranks_in_a_row_carry_all_out),
        cmocka_unit_test(test_two_levels_of_words_carry_all_out),
        cmocka_unit_test(test_sums_of_ranks_in_a_row_go_through_levels),
        cmocka_unit_test(test_sums_of_groups_in_part_nodes_go_through_levels),
        cmocka_unit_test(test_sums_of_interleaved_groups_refused),
        cmocka_unit_test(
            test_counts_that_differ_are_found_before_parts_are_passed_on),
    };
    return cmocka_run_group_tests(tests, make_values, NULL);
}
