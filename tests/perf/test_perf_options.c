/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: weft-perf's command line means what it says, or is refused with the
 * flag, the value and what is allowed.
 * Method: tables of command lines with what must come out; the order
 * statistics, the sizes of every operation, and where buffers lie, by hand.
 */
#include "perf/perf_options.h"
#include "perf/perf_rank.h"
#include "perf/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ARGS = 32 };

/* Splits text at spaces and reads it as weft-perf's arguments. */
static weft_status read(const char *text, wefti_perf_options *options)
{
    static char copy[256]; /* the options point into it */
    char *args[ARGS] = {(char[]){"weft-perf"}}, *rest = copy;
    int count = 1;
    strncpy(copy, text, sizeof(copy) - 1);
    copy[sizeof(copy) - 1] = '\0';
    for (char *arg; (arg = strtok_r(rest, " ", &rest)) && count < ARGS - 1;) {
        args[count++] = arg;
    }
    args[count] = NULL;
    return wefti_perf_options_read(count, args, options);
}

static void test_read_sizes_step_by_factor(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t count, first, last;
    } rows[] = {{"all_reduce -b 8 -e 128 -f 4", 3, 8, 128},
                {"all_reduce -b 8 -e 127 -f 4", 2, 8, 32},
                {"-b 1K -e 1m all_reduce -f 1024", 2, 1024, 1 << 20},
                {"all_reduce --minbytes 0", 10, 0, 16 << 20},
                {"all_reduce -b 1G", 1, 1 << 30, 1 << 30},
                {"all_reduce -e 4", 1, 4, 4},
                {"all_reduce --sizes 8,64K,5", 3, 8, 5},
                {"all_reduce -b 0 -e 64", 4, 0, 64},
                {"all_reduce -b 8 -e 40 -i 16", 3, 8, 40},
                {"all_reduce -b 0 -e 1K --stepbytes 256", 5, 0, 1024},
                {"all_reduce -b 0 -e 0", 1, 0, 0},
                {"barrier -b 8 -e 64", 1, 0, 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        wefti_perf_options options;
        assert_int_equal(read(rows[i].text, &options), WEFT_OK);
        assert_int_equal(options.size_count, rows[i].count);
        assert_int_equal(options.sizes[0], rows[i].first);
        assert_int_equal(options.sizes[rows[i].count - 1], rows[i].last);
        wefti_perf_options_fini(&options);
    }
}

static void test_read_all_flags_are_kept(void **state)
{
    (void)state;
    wefti_perf_options options;
    assert_int_equal(read("reduce -n 7 -w 0 -d bfloat16 -o avg -r 3 -c 2 -z 0 "
                          "-J - --inplace --memory shadow --samples",
                          &options),
                     WEFT_OK);
    assert_string_equal(options.op->name, "reduce");
    assert_int_equal(options.iterations, 7);
    assert_int_equal(options.warmup, 0);
    assert_int_equal(options.dtypes, 1 << WEFT_DTYPE_BF16);
    assert_int_equal(options.redops, 1 << WEFT_REDOP_AVG);
    assert_int_equal(options.root, 3);
    assert_int_equal(options.checks, 2);
    assert_false(options.blocking);
    assert_true(options.inplace && options.samples && !options.overlap);
    assert_string_equal(options.json_path, "-");
    assert_string_equal(options.memory, "shadow");
    wefti_perf_options_fini(&options);
}

static void test_read_flags_of_nccl_tests_are_kept(void **state)
{
    (void)state;
    wefti_perf_options options;
    assert_int_equal(read("all_reduce -t 1 -g 1 -N 0 -T 20 -a 1 -R 1 -G 0 "
                          "--nccl-tests --output_file x",
                          &options),
                     WEFT_OK);
    assert_int_equal(options.cycles, 0);
    assert_int_equal(options.timeout_s, 20);
    assert_int_equal(options.average, WEFTI_PERF_OF_ALL);
    assert_true(options.registered && options.table && !options.graph);
    assert_string_equal(options.json_path, "x");
    wefti_perf_options_fini(&options);
    assert_int_equal(read("all_reduce -G 1 --memory cuda", &options), WEFT_OK);
    assert_true(options.graph && options.cycles == 1);
    assert_int_equal(options.average, WEFTI_PERF_MOST);
    wefti_perf_options_fini(&options);
}

static void test_read_groups_and_places_are_kept(void **state)
{
    (void)state;
    wefti_perf_options options;
    assert_int_equal(read("all_reduce -m 5 -u 3 -I 1 -R 2 --nccl-tests -p 1 "
                          "-y 0 -C 0 -S 0 -x 0 -D 0 -M 0 -U 0 -K 0",
                          &options),
                     WEFT_OK);
    assert_int_equal(options.group, 5);
    assert_int_equal(options.first_elem, 3);
    assert_true(options.spread && options.registered && !options.blocking);
    wefti_perf_options_fini(&options);
    assert_int_equal(read("all_reduce -m 1", &options), WEFT_OK);
    assert_true(options.blocking);
    wefti_perf_options_fini(&options);
}

/* Reads with a variable set, and unsets it. */
static weft_status read_with(const char *name, const char *value,
                             const char *text, wefti_perf_options *options)
{
    assert_int_equal(setenv(name, value, 1), 0);
    weft_status status = read(text, options);
    assert_int_equal(unsetenv(name), 0);
    return status;
}

static void test_read_one_flag_says_how_much_room_a_matrix_has(void **state)
{
    static const char *const flags[] = {"-b 512", "-e 512", "--sizes 512",
                                        "-b 512 -e 512"};
    (void)state;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        char text[64];
        wefti_perf_options options;
        snprintf(text, sizeof(text), "alltoallv --matrix m %s", flags[i]);
        assert_int_equal(read(text, &options), WEFT_OK);
        assert_true(options.sized && options.max_bytes == 512);
        assert_int_equal(options.size_count, 1);
        assert_int_equal(options.sizes[0], 0);
        wefti_perf_options_fini(&options);
    }
}

static void test_read_variables_of_nccl_tests_count(void **state)
{
    (void)state;
    static const char least[] = "NCCL_TESTS_MIN_BW";
    static const char spread[] = "NCCL_TESTS_ALLTOALLV_SPREAD";
    static const char scale[] = "NCCL_TESTS_ALLTOALLV_MATRIX_SCALE";
    static const char matrix[] = "NCCL_TESTS_ALLTOALLV_MATRIX_FILE";
    wefti_perf_options options;
    assert_int_equal(read_with(least, "2.5", "all_reduce", &options), WEFT_OK);
    assert_true(options.least_GBps > 2.4 && options.least_GBps < 2.6);
    wefti_perf_options_fini(&options);
    assert_int_equal(read_with(matrix, "file", "alltoallv", &options), WEFT_OK);
    assert_non_null(options.matrix_path);
    assert_int_equal(options.size_count, 1);
    wefti_perf_options_fini(&options);
    assert_int_equal(read_with(matrix, "file", "alltoall", &options), WEFT_OK);
    assert_null(options.matrix_path);
    wefti_perf_options_fini(&options);
    assert_int_equal(read_with(scale, "0.5", "alltoallv --matrix m", &options),
                     WEFT_OK);
    assert_true(options.matrix_scale > 0.4 && options.matrix_scale < 0.6);
    wefti_perf_options_fini(&options);
    static const struct {
        const char *name, *value, *text, *said;
    } rows[] = {{least, "fast", "all_reduce", "NCCL_TESTS_MIN_BW=fast"},
                {least, "-1", "all_reduce", "NCCL_TESTS_MIN_BW=-1"},
                {least, "1", "all_reduce --regret", "NCCL_TESTS_MIN_BW=1"},
                {spread, "0.5", "alltoallv", "NCCL_TESTS_ALLTOALLV_SPREAD=0.5"},
                {scale, "2x", "alltoallv", "MATRIX_SCALE=2x: allowed"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(
            read_with(rows[i].name, rows[i].value, rows[i].text, &options),
            WEFT_ERR_INVALID);
        if (!strstr(weft_error_text(), rows[i].said)) {
            fail_msg("%s=%s gave \"%s\"", rows[i].name, rows[i].value,
                     weft_error_text());
        }
    }
}

static void test_read_types_and_reductions_by_any_name(void **state)
{
    (void)state;
    const uint32_t all_dtypes = (1u << WEFT_DTYPE_COUNT) - 1;
    const uint32_t all_redops = (1u << WEFT_REDOP_COUNT) - 1;
    static const struct {
        const char *name;
        weft_dtype dtype;
    } names[] = {{"int8", WEFT_DTYPE_I8},       {"uint8", WEFT_DTYPE_U8},
                 {"int32", WEFT_DTYPE_I32},     {"uint32", WEFT_DTYPE_U32},
                 {"int64", WEFT_DTYPE_I64},     {"uint64", WEFT_DTYPE_U64},
                 {"half", WEFT_DTYPE_F16},      {"f16", WEFT_DTYPE_F16},
                 {"bfloat16", WEFT_DTYPE_BF16}, {"float", WEFT_DTYPE_F32},
                 {"double", WEFT_DTYPE_F64},    {"f8e4m3", WEFT_DTYPE_F8E4M3},
                 {"f8e5m2", WEFT_DTYPE_F8E5M2}, {"float16", WEFT_DTYPE_F16}};
    wefti_perf_options options;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[64];
        snprintf(text, sizeof(text), "all_reduce -d %s", names[i].name);
        assert_int_equal(read(text, &options), WEFT_OK);
        assert_int_equal(options.dtypes, 1u << names[i].dtype);
        wefti_perf_options_fini(&options);
    }
    assert_int_equal(read("all_reduce -d all -o all", &options), WEFT_OK);
    assert_int_equal(options.dtypes, all_dtypes);
    assert_int_equal(options.redops, all_redops);
    wefti_perf_options_fini(&options);
    assert_int_equal(read("reduce -o mulsum", &options), WEFT_OK);
    assert_int_equal(options.redops, 1u << WEFT_REDOP_PREMULSUM);
    wefti_perf_options_fini(&options);
    /* Nothing is reduced: as in nccl-tests, -o says nothing. */
    assert_int_equal(read("broadcast -d all -o bxor", &options), WEFT_OK);
    assert_int_equal(options.redops, 1u << WEFT_REDOP_SUM);
    wefti_perf_options_fini(&options);
}

static void test_read_bad_lines_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } rows[] = {{"", "all_reduce"},
                {"all_to_all", "all_to_all"},
                {"all_reduce reduce", "reduce"},
                {"all_reduce -b 4x", "-b 4x"},
                {"all_reduce -b -1", "-b -1"},
                {"all_reduce -b 99999999999999999999", "-b 9999"},
                {"all_reduce -b 2048G", "-b 2048G"},
                {"all_reduce -b 8KB", "-b 8KB"},
                {"all_reduce --sizes 8,,9", "--sizes"},
                {"all_reduce --sizes 8,00000000000000000000000000000064K",
                 "--sizes 0000"},
                {"all_reduce -b 16 -e 8", "-b 16"},
                {"all_reduce -f 1", "-f 1"},
                {"all_reduce -n 0", "-n 0"},
                {"all_reduce -i 0", "-i 0"},
                {"all_reduce -t 2", "-t 2: allowed is 1; WEFT_RANKS_PER"},
                {"all_reduce -g 8", "-g 8: allowed is 1"},
                {"all_reduce -a 4", "-a 4: allowed is a whole number from 0"},
                {"all_reduce -R 3", "-R 3"},
                {"all_reduce -m 0", "-m 0"},
                {"put -m 2", "-m 2: calls of put"},
                {"all_reduce -m 2 --overlap", "all_reduce with --overlap"},
                {"all_reduce -m 2 --regret", "all_reduce with --regret"},
                {"moe_combine -u 1", "-u 1: rows of moe_combine"},
                {"all_reduce -u -1", "-u -1"},
                {"all_reduce -I 1", "-I 1: allowed is with --nccl-tests"},
                {"all_reduce -p 0", "-p 0: allowed is 1; each rank"},
                {"all_reduce -y 1", "-y 1: allowed is 0; operations"},
                {"all_reduce -C 1", "-C 1: allowed is 0; a call"},
                {"all_reduce -S 1", "-S 1: allowed is 0; rows"},
                {"all_reduce --cta_policy 2", "-x 2: allowed is 0; it is"},
                {"all_reduce -D 1", "-D 1: allowed is 0; there are no"},
                {"all_reduce -V 16", "-V 16: allowed is none"},
                {"all_reduce -M 1", "-M 1: allowed is 0; weft_comm_get_bytes"},
                {"all_reduce -U 1", "-U 1: allowed is 0; rows have"},
                {"all_reduce -K 5", "-K 5: allowed is 0; -w"},
                {"all_gatherv --matrix m", "--matrix with alltoallv"},
                {"alltoallv --matrix m -b 8 -e 64", "m says the sizes"},
                {"alltoallv --matrix m --sizes 8,9", "--sizes with 2 sizes: m"},
                {"all_reduce -N -1", "-N -1"},
                {"all_reduce -a 1 --regret", "without --overlap and --regret"},
                {"all_reduce --nccl-tests --inplace", "both forms"},
                {"put --nccl-tests --overlap", "--nccl-tests"},
                {"all_reduce -n +3", "-n +3: allowed is a whole number"},
                {"all_reduce -n 3.5", "-n 3.5"},
                {"all_reduce -d f15", "-d f15: allowed is i8 u8"},
                {"all_reduce -o band", "-o band -d f32"},
                {"reduce -d half -o bxor", "-o bxor -d f16"},
                {"all_reduce -o most", "-o most: allowed is sum prod"},
                {"all_reduce -z 2", "-z 2"},
                {"all_reduce -n", "-n"},
                {"all_reduce --nonsense", "--nonsense"},
                {"all_reduce --memory gpu", "--memory gpu"},
                {"all_reduce --device 1", "--device 1"},
                {"all_reduce --memory cuda --device x", "--device x"},
                {"sendrecv --inplace", "sendrecv"},
                {"alltoall --inplace", "alltoall"},
                {"alltoallv --inplace", "alltoallv"},
                {"put --registered", "put"},
                {"barrier --registered", "barrier"},
                {"all_reduce --registered --memory shadow", "shadow"},
                {"all_reduce --registered --unregistered", "--unregistered"},
                {"gather --overlap", "gather"},
                {"all_gather --bare", "--overlap"},
                {"broadcast --overlap --bare", "alltoall sendrecv"},
                {"barrier --overlap", "barrier"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        wefti_perf_options options;
        assert_int_equal(read(rows[i].text, &options), WEFT_ERR_INVALID);
        if (!strstr(weft_error_text(), rows[i].said)) {
            fail_msg("\"%s\" gave \"%s\"", rows[i].text, weft_error_text());
        }
        assert_null(options.sizes);
    }
}

static void test_case_sizes_are_those_of_nccl_tests(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        size_t asked, bytes, count, send_elems, recv_elems;
    } rows[] = {{"all_reduce", 100, 100, 25, 25, 25},
                {"all_gather", 100, 96, 8, 8, 24},
                {"reduce_scatter", 100, 96, 8, 24, 8},
                {"broadcast", 3, 4, 1, 1, 1},
                {"alltoall", 100, 96, 8, 24, 24},
                {"gather", 100, 96, 8, 8, 24},
                {"scatter", 100, 96, 8, 24, 8},
                {"all_gather", 8, 12, 1, 1, 3},
                {"reduce", 0, 0, 0, 0, 0},
                {"barrier", 64, 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        wefti_perf_case subject = {.op = wefti_perf_op_get(rows[i].op),
                                   .dtype = WEFT_DTYPE_F32,
                                   .rank = 1,
                                   .nranks = 3};
        wefti_perf_case_size(&subject, rows[i].asked);
        assert_int_equal(subject.bytes, rows[i].bytes);
        assert_int_equal(subject.count, rows[i].count);
        assert_int_equal(subject.send_elems, rows[i].send_elems);
        assert_int_equal(subject.recv_elems, rows[i].recv_elems);
    }
}

/* Rows and columns of the uneven matrix add up, with nothing and plenty. */
static void test_case_uneven_parts_add_up_and_vary(void **state)
{
    (void)state;
    enum { RANKS = 9, MEAN = 1001 };
    size_t sent = 0, got = 0, none = 0, most = 0, bytes = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        wefti_perf_case subject = {.op = wefti_perf_op_get("alltoallv"),
                                   .dtype = WEFT_DTYPE_F64,
                                   .rank = rank,
                                   .nranks = RANKS};
        wefti_perf_case_size(&subject, (size_t)RANKS * MEAN * 8);
        assert_int_equal(subject.count, MEAN);
        sent += subject.send_elems;
        got += subject.recv_elems;
        bytes = subject.bytes;
        for (int peer = 0; peer < RANKS; peer++) {
            size_t elems = wefti_perf_case_part(&subject, rank, peer);
            none += elems == 0;
            most = elems > most ? elems : most;
        }
    }
    assert_int_equal(sent, got);
    assert_int_equal(bytes, sent / RANKS * 8);
    assert_in_range(none, 3, 20);
    assert_int_equal(most, 2 * MEAN);
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

/* Every room begins at a line; its buffers so many elements behind that, and
 * end before the next room. */
static void test_pool_buffers_begin_behind_their_room(void **state)
{
    (void)state;
    wefti_perf_options options = {.op = wefti_perf_op_get("all_reduce"),
                                  .memory = "host"};
    wefti_perf_rank self = {.options = &options};
    wefti_perf_case subject = {
        .op = options.op, .dtype = WEFT_DTYPE_F16, .nranks = 2};
    wefti_perf_case_size(&subject, 4096);
    assert_int_equal(weft_device_open("host", 0, &self.device), WEFT_OK);
    for (int first = 0; first < 4; first += 3) {
        wefti_perf_pool pool;
        options.first_elem = first;
        assert_int_equal(wefti_perf_pool_init(&pool, &self, &subject, 2),
                         WEFT_OK);
        const unsigned char *begin = pool.block, *end = begin;
        for (size_t call = 0; call < 2; call++) {
            wefti_perf_buffers at = wefti_perf_pool_at(&pool, call);
            assert_ptr_equal(at.send, end + 2 * first);
            assert_true(at.recv >= at.send + 4096 + 2 * first);
            assert_int_equal((at.recv - begin) % 4096, 2 * first);
            end = at.recv + (at.recv - at.send) - 2 * first;
        }
        wefti_perf_pool_fini(&pool, &self);
    }
    weft_device_close(self.device);
}

static void test_sample_known_times_give_known_quantiles(void **state)
{
    (void)state;
    int64_t times_ns[11];
    for (int i = 0; i < 11; i++) {
        times_ns[i] = ((i * 7) % 11) * 1000; /* 0 .. 10 us, shuffled */
    }
    wefti_sample sample = wefti_sample_get(times_ns, 11);
    assert_true(near(sample.median_us, 5.0) && near(sample.p10_us, 1.0) &&
                near(sample.p90_us, 9.0) && near(sample.min_us, 0.0) &&
                near(sample.max_us, 10.0));
    assert_true(near(sample.p99_us, 9.9) && near(sample.mean_us, 5.0) &&
                near(sample.deviation_us, sqrt(10.0)));
    sample = wefti_sample_get((int64_t[]){3000, 1000}, 2);
    assert_true(near(sample.median_us, 2.0) && near(sample.p90_us, 2.8));
    /* Equal times have one quantile, to the last bit. */
    sample = wefti_sample_get((int64_t[]){137, 137, 137, 137}, 4);
    assert_true(sample.min_us == sample.p10_us &&
                sample.p90_us == sample.max_us);
    sample = wefti_sample_get((int64_t[]){4000}, 1);
    assert_true(near(sample.p10_us, 4.0) && near(sample.max_us, 4.0));
}

/* Past the splitting at spaces: the shell lets quoted ones through. */
static void test_read_size_with_a_blank_is_refused(void **state)
{
    (void)state;
    static const char *const sizes[] = {"1 ", " 1", "1K ", "1\t", "+1", ""};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char name[] = "weft-perf", op[] = "all_reduce", flag[] = "-b", size[8];
        char *args[] = {name, op, flag, size, NULL};
        wefti_perf_options options;
        snprintf(size, sizeof(size), "%s", sizes[i]);
        assert_int_equal(wefti_perf_options_read(4, args, &options),
                         WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), "allowed is a size"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_sizes_step_by_factor),
        cmocka_unit_test(test_read_size_with_a_blank_is_refused),
        cmocka_unit_test(test_read_all_flags_are_kept),
        cmocka_unit_test(test_read_flags_of_nccl_tests_are_kept),
        cmocka_unit_test(test_read_groups_and_places_are_kept),
        cmocka_unit_test(test_read_one_flag_says_how_much_room_a_matrix_has),
        cmocka_unit_test(test_read_variables_of_nccl_tests_count),
        cmocka_unit_test(test_read_types_and_reductions_by_any_name),
        cmocka_unit_test(test_read_bad_lines_are_refused_by_name),
        cmocka_unit_test(test_case_sizes_are_those_of_nccl_tests),
        cmocka_unit_test(test_case_uneven_parts_add_up_and_vary),
        cmocka_unit_test(test_pool_buffers_begin_behind_their_room),
        cmocka_unit_test(test_sample_known_times_give_known_quantiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
