/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what nvcc makes of tests/simt/simt_sample.cu runs to the right result,
 * and its wrong kernels stop where they are wrong; and one changed instruction
 * in a kernel's PTX shows, in those and in kernels of kernels/wire.
 *
 * Method: the PTX of compute_80 and compute_90, of which the interpreter must
 * name the faulty line; then the same text with one instruction replaced, at
 * each place in turn, which must give another result or a fault.
 */
#include "base/check.h"
#include "kernels/wire/launch.h"
#include "kernels/wire/reduce.h"
#include "tests/kernels/reduce_reference.h"
#include "tests/ptx/ptx.h"
#include "tests/ptx/ptx_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = 128, BLOCKS = 3, COUNT = BLOCK * BLOCKS };

/* The samples of each architecture, and their wire kernels' folders. */
/* By architecture; the long tests have two. */
static const char *const samples[] = {
    PTX_SAMPLE_80,
#ifdef PTX_SAMPLE_90
    PTX_SAMPLE_90,
#endif
};
static const char *const wires[] = {
    PTX_WIRE_80,
#ifdef PTX_WIRE_90
    PTX_WIRE_90,
#endif
};

static uint32_t in[COUNT], out[2 * COUNT];

static char *read_text(const char *path)
{
    char *text = ptx_file_read(path);
    if (!text) {
        fail_msg("%s can not be read", path);
    }
    return text;
}

static int launch(ptx_program *program, const char *kernel, unsigned blocks,
                  unsigned threads, bool has_in)
{
    const void *from = in, *to = out;
    ptx_range ranges[] = {{in, sizeof(in), false}, {out, sizeof(out), true}};
    ptx_config config = {.grid = {blocks, 1, 1},
                         .block = {threads, 1, 1},
                         .shared_bytes = threads * sizeof(uint32_t),
                         .ranges = ranges,
                         .range_count = 2,
                         .step_limit = 100000};
    int where = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        in[i] = i * 2654435761U;
    }
    memset(out, 0, sizeof(out));
    void *both[] = {(void *)&from, (void *)&to};
    void *one[] = {(void *)&to, &where};
    return ptx_launch(program, kernel, &config, has_in ? both : one);
}

/* Each runs its kernel, and says whether the result is right. */
static bool turn_is_right(ptx_program *program)
{
    int rc = launch(program, "sample_turn", BLOCKS, BLOCK, true);
    for (unsigned i = 0; i < COUNT; i++) {
        rc |= out[i] != in[i / BLOCK * BLOCK + BLOCK - 1 - i % BLOCK];
    }
    return rc == 0;
}

static bool sum_is_right(ptx_program *program)
{
    int rc = launch(program, "sample_sum", BLOCKS, BLOCK, true);
    for (unsigned b = 0; b < BLOCKS; b++) {
        uint32_t sum = 0;
        for (unsigned i = 0; i < BLOCK; i++) {
            sum += in[b * BLOCK + i];
        }
        rc |= out[b] != sum;
    }
    return rc == 0;
}

static bool warp_is_right(ptx_program *program)
{
    int rc = launch(program, "sample_warp", BLOCKS, BLOCK, true);
    uint32_t all = 0, most = 0;
    for (unsigned warp = 0; warp < COUNT / 32; warp++) {
        uint32_t sum = 0;
        for (unsigned i = 0; i < 32; i++) {
            sum += in[warp * 32 + i];
        }
        all += sum;
        most = sum > most ? sum : most;
    }
    return rc == 0 && out[0] == all && out[1] == most && out[2] == COUNT / 32 &&
           out[3] == COUNT && out[4] == COUNT;
}

static bool where_is_right(ptx_program *program)
{
    void *to = out;
    ptx_range range = {out, sizeof(out), true};
    ptx_config config = {.grid = {2, 3, 2},
                         .block = {2, 7, 3},
                         .ranges = &range,
                         .range_count = 1};
    memset(out, 0, sizeof(out));
    int rc = ptx_launch(program, "sample_where", &config, (void *[]){&to});
    for (unsigned i = 0; i < 12 * 42; i++) {
        rc |= out[i] != 1 + i / 42;
    }
    return rc == 0;
}

static void test_samples_run_to_the_right_result(void **state)
{
    (void)state;
    for (unsigned a = 0; a < WEFTI_COUNT_OF(samples); a++) {
        char *text = read_text(samples[a]);
        ptx_program *program = ptx_program_create("simt_sample.ptx", text);
        if (!program) {
            fail_msg("%s", ptx_fault());
        }
        if (!turn_is_right(program) || !sum_is_right(program) ||
            !warp_is_right(program) || !where_is_right(program)) {
            fail_msg("%s: wrong; %s", samples[a], ptx_fault());
        }
        ptx_program_destroy(program);
        free(text);
    }
}

static void assert_fault(ptx_program *program, const char *kernel,
                         unsigned threads, bool has_in, const char *rule)
{
    int rc = launch(program, kernel, 1, threads, has_in);
    if (rc == 0 || strncmp(ptx_fault(), kernel, strlen(kernel)) != 0 ||
        !strstr(ptx_fault(), "simt_sample.ptx:") ||
        !strstr(ptx_fault(), rule)) {
        fail_msg("%s: wanted \"%s\", got \"%s\"", kernel, rule,
                 rc ? ptx_fault() : "no fault");
    }
}

static void check_bounds(ptx_program *program)
{
    static const char *const spaces[] = {"", "shared memory", "shared memory",
                                         "outside of what the launch"};
    void *to = out;
    ptx_range range = {out, BLOCK * sizeof(*out), true};
    ptx_config config = {.grid = {1, 1, 1},
                         .block = {BLOCK, 1, 1},
                         .shared_bytes = BLOCK * sizeof(uint32_t),
                         .ranges = &range,
                         .range_count = 1};
    for (int where = 0; where < 4; where++) {
        int rc = ptx_launch(program, "wrong_bounds", &config,
                            (void *[]){&to, &where});
        /* In shared memory the race with the neighbour comes first. */
        if (rc != (where == 0 ? 0 : -1) ||
            (where != 0 && !strstr(ptx_fault(), spaces[where]))) {
            fail_msg("wrong_bounds %d: \"%s\"", where,
                     rc ? ptx_fault() : "no fault");
        }
    }
}

static void test_wrong_samples_stop_where_they_are_wrong(void **state)
{
    (void)state;
    for (unsigned a = 0; a < WEFTI_COUNT_OF(samples); a++) {
        char *text = read_text(samples[a]);
        ptx_program *program = ptx_program_create("simt_sample.ptx", text);
        assert_non_null(program);
        assert_fault(program, "wrong_turn_without_barrier", BLOCK, true,
                     "nothing has set");
        assert_fault(program, "wrong_ended_lane", BLOCK, false,
                     "lane 31, which has ended");
        assert_fault(program, "wrong_absent_lanes", BLOCK, false,
                     "waits for ever");
        assert_fault(program, "wrong_mask", BLOCK, false, "0xffff0000");
        assert_fault(program, "wrong_meeting", BLOCK, false,
                     "which waits at line");
        assert_fault(program, "wrong_own_lane", BLOCK, false, "its own lane");
        assert_fault(program, "wrong_two_barriers", BLOCK, false,
                     "barrier divergence");
        assert_fault(program, "wrong_unwritten", BLOCK, false,
                     "nothing has set");
        assert_int_equal(launch(program, "wrong_plain_add", 1, 32, false), 0);
        assert_int_equal(out[0], 1); /* 32 lanes, 31 of whose sums are lost */
        check_bounds(program);
        ptx_program_destroy(program);
        free(text);
    }
}

/* One instruction for another; nothing: left out, to its end. */
typedef struct change {
    const char *from, *to;
} change;

/* The text with the n-th of `from` within the kernel replaced, for free(), or
 * NULL where there are not so many. */
static char *mutant(const char *text, const char *kernel, const change *now,
                    unsigned n)
{
    char head[64];
    snprintf(head, sizeof(head), ".entry %s(", kernel);
    const char *begin = strstr(text, head);
    assert_non_null(begin);
    const char *end = strstr(begin, "\n}\n"), *at = begin;
    for (unsigned i = 0; i <= n; i++) {
        at = strstr(at + 1, now->from);
        if (!at || at > end) {
            return NULL;
        }
    }
    const char *after = at + strlen(now->from);
    if (now->to[0] == '\0') {
        after = strchr(at, ';') + 1;
    }
    size_t bytes = strlen(text) + strlen(now->to) + 1;
    char *made = malloc(bytes);
    snprintf(made, bytes, "%.*s%s%s", (int)(at - text), text, now->to, after);
    return made;
}

/* Every place of every change must show; returns how many there were. */
static unsigned check_mutants(const char *path, const char *kernel,
                              bool (*is_right)(ptx_program *program),
                              const change *changes, size_t change_count)
{
    char *text = read_text(path);
    unsigned made = 0;
    for (size_t c = 0; c < change_count; c++) {
        char *changed;
        for (unsigned n = 0;
             (changed = mutant(text, kernel, &changes[c], n)) != NULL; n++) {
            ptx_program *program = ptx_program_create("mutant", changed);
            if (!program) {
                fail_msg("%s to %s: %s", changes[c].from, changes[c].to,
                         ptx_fault());
            }
            if (is_right(program)) {
                fail_msg("%s: number %u of \"%s\" as \"%s\" does not show",
                         kernel, n, changes[c].from, changes[c].to);
            }
            made++;
            ptx_program_destroy(program);
            free(changed);
        }
    }
    free(text);
    return made;
}

static void test_a_changed_instruction_shows_in_the_samples(void **state)
{
    (void)state;
    static const change changes[] = {
        {"add.s32", "sub.s32"},
        {"add.s64", "sub.s64"},
        {"sub.s32", "add.s32"},
        {"shl.b32", "shr.u32"},
        {"shr.u32", "shl.b32"},
        {"ld.global.u32", "ld.global.u16"},
        {"st.shared.u32", "st.shared.u16"},
        {"bar.sync", ""},
        {"setp.ge.u32", "setp.gt.u32"},
        {"setp.eq.s32", "setp.ne.s32"},
        {"%tid.x", "%laneid"},
        {"%ctaid.x", "%ctaid.y"},
        {"st.global.u32", ""},
        {"ld.shared.u32", ""},
    };
    for (unsigned a = 0; a < WEFTI_COUNT_OF(samples); a++) {
        assert_in_range(check_mutants(samples[a], "sample_turn", turn_is_right,
                                      changes, WEFTI_COUNT_OF(changes)),
                        12, 100);
        assert_in_range(check_mutants(samples[a], "sample_sum", sum_is_right,
                                      changes, WEFTI_COUNT_OF(changes)),
                        15, 100);
    }
    static const change of_warps[] = {
        {"shfl.sync.down", "shfl.sync.up"},
        {"shfl.sync.bfly", "shfl.sync.idx"},
        {"atom.global.add", "atom.global.max"},
        {"atom.global.max", "atom.global.min"},
        {"bar.red.popc", "bar.red.popc.u32 %r50, 0, !%p1; //"},
    };
    for (unsigned a = 0; a < WEFTI_COUNT_OF(samples); a++) {
        assert_in_range(check_mutants(samples[a], "sample_warp", warp_is_right,
                                      of_warps, WEFTI_COUNT_OF(of_warps)),
                        11, 100);
    }
}

/* 301 elements, aligned and by bytes, against the host's functions. */
enum { ELEMS = 301 };
static unsigned char given[4 * ELEMS + 4], got[4 * ELEMS + 4];
static unsigned char expected[4 * ELEMS];

static bool cast_is_right(ptx_program *program, const char *kernel, void *args,
                          size_t bytes, size_t offset)
{
    static float factor = 1.1F;
    ptx_range ranges[] = {{given, sizeof(given), false},
                          {got + offset, bytes, true},
                          {&factor, sizeof(factor), false}};
    ptx_config config = {.grid = {2, 1, 1},
                         .block = {64, 1, 1},
                         .ranges = ranges,
                         .range_count = 3};
    if (strcmp(kernel, "wefti_scale_f32") == 0) {
        ((wefti_scale_args *)args)->scalar = &factor;
        wefti_scale(expected, given + offset, &factor, ELEMS, WEFT_DTYPE_F32);
    } else {
        wefti_narrow(expected, given + offset, 1, ELEMS, WEFT_DTYPE_BF16,
                     WEFT_REDOP_SUM);
    }
    memset(got, 0xa5, sizeof(got));
    return ptx_launch(program, kernel, &config, (void *[]){args}) == 0 &&
           memcmp(got + offset, expected, bytes) == 0;
}

static void fill_given(void)
{
    uint64_t seed = 20;
    for (size_t offset = 0; offset < 2; offset++) {
        reference_fill(given + offset, ELEMS, WEFT_DTYPE_F32, &seed);
    }
}

static bool scale_is_right(ptx_program *program)
{
    bool right = true;
    fill_given();
    for (size_t offset = 0; offset < 2; offset++) {
        wefti_scale_args args = {got + offset, given + offset, NULL, ELEMS};
        right = right && cast_is_right(program, "wefti_scale_f32", &args,
                                       4 * ELEMS, offset);
    }
    return right;
}

static bool narrow_is_right(ptx_program *program)
{
    bool right = true;
    fill_given();
    for (size_t offset = 0; offset < 2; offset++) {
        wefti_cast_args args = {got + offset, given + offset, ELEMS, 0};
        right = right && cast_is_right(program, "wefti_narrow_bf16", &args,
                                       2 * ELEMS, offset);
    }
    return right;
}

static void test_a_changed_instruction_shows_in_wire_kernels(void **state)
{
    (void)state;
    static const change of_scale[] = {
        {"mul.rn.f32", "mul.rz.f32"},
        {"mul.rn.f32", "mul.rn.ftz.f32"},
        {"setp.nan.f32", "setp.num.f32"},
    };
    static const change of_narrow[] = {
        {"cvt.rn.bf16.f32", "cvt.rz.bf16.f32"},
        {"setp.nan.f32", "setp.num.f32"},
    };
    for (unsigned a = 0; a < WEFTI_COUNT_OF(wires); a++) {
        char *text = read_text(wires[a]);
        ptx_program *program = ptx_program_create("wire.ptx", text);
        assert_non_null(program);
        if (!scale_is_right(program) || !narrow_is_right(program)) {
            fail_msg("%s", ptx_fault());
        }
        ptx_program_destroy(program);
        free(text);
        assert_in_range(check_mutants(wires[a], "wefti_scale_f32",
                                      scale_is_right, of_scale,
                                      WEFTI_COUNT_OF(of_scale)),
                        3, 100);
        assert_in_range(check_mutants(wires[a], "wefti_narrow_bf16",
                                      narrow_is_right, of_narrow,
                                      WEFTI_COUNT_OF(of_narrow)),
                        2, 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_run_to_the_right_result),
        cmocka_unit_test(test_wrong_samples_stop_where_they_are_wrong),
        cmocka_unit_test(test_a_changed_instruction_shows_in_the_samples),
        cmocka_unit_test(test_a_changed_instruction_shows_in_wire_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
