/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: threads, warps and memory behave as the PTX ISA's document says, and
 * each rule that a kernel can break stops the launch, by line.
 *
 * Method: short kernels that write what they see to a checked array of 64
 * words; the same with one mistake.
 */
#include "base/check.h"
#include "tests/ptx/ptx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 64 };

static uint32_t out[WORDS];

/* Line 1 holds what stands before the body, which begins in line 2. It finds
 * its thread's number in %t, its address in out in %o, out itself in %d0. */
static int run_in(const char *before, const char *body, unsigned threads,
                  size_t shared_bytes)
{
    char text[8192];
    uint32_t *at = out;
    snprintf(text, sizeof(text),
             ".version 9.0 .target sm_90 .address_size 64 %s "
             ".visible .entry k(.param .u64 a, .param .u32 b) { "
             ".reg .pred %%p<5>; .reg .b16 %%h<5>; .reg .b32 %%r<10>, %%t; "
             ".reg .b64 %%d<10>, %%o; .shared .align 16 .b8 tile[256]; "
             "ld.param.u64 %%d0, [a]; mov.u32 %%t, %%tid.x; "
             "mul.wide.u32 %%o, %%t, 4; add.s64 %%o, %%o, %%d0;\n%s\nret; }",
             before, body);
    ptx_program *program = ptx_program_create("text", text);
    if (!program) {
        return -1;
    }
    uint32_t second = 7;
    ptx_range range = {out, sizeof(out), true};
    ptx_config config = {.grid = {1, 1, 1},
                         .block = {threads, 1, 1},
                         .shared_bytes = shared_bytes,
                         .ranges = &range,
                         .range_count = 1,
                         .step_limit = 100000};
    memset(out, 0, sizeof(out));
    int rc = ptx_launch(program, "k", &config,
                        (void *[]){(void *)&at, (void *)&second});
    ptx_program_destroy(program);
    return rc;
}

static void run_well(const char *body, unsigned threads)
{
    if (run_in(".extern .shared .align 16 .b8 dyn[];", body, threads, 64) !=
        0) {
        fail_msg("%s\n%s", body, ptx_fault());
    }
}

static void assert_stops(const char *body, unsigned threads, const char *first,
                         const char *second)
{
    int rc = run_in(".extern .shared .align 16 .b8 dyn[];", body, threads, 64);
    if (rc == 0 || !strstr(ptx_fault(), first) ||
        !strstr(ptx_fault(), second)) {
        fail_msg("%s\nwanted \"%s\" and \"%s\", got \"%s\"", body, first,
                 second, rc ? ptx_fault() : "no fault");
    }
}

static void test_diverged_lanes_come_together_again(void **state)
{
    (void)state;
    run_well("setp.lt.u32 %p1, %t, 10; @%p1 bra A;\n"
             "mov.u32 %r1, 1; bra.uni B;\n"
             "A: mov.u32 %r1, 2;\n"
             "L: add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, %t;\n"
             "@%p2 bra L;\n"
             "B: activemask.b32 %r2; popc.b32 %r2, %r2;\n"
             "shl.b32 %r2, %r2, 8; or.b32 %r1, %r1, %r2;\n"
             "st.global.u32 [%o], %r1;",
             32);
    for (unsigned i = 0; i < 32; i++) {
        unsigned want = i >= 10 ? 1 : i > 3 ? i : 3;
        assert_int_equal(out[i], want | 32 << 8);
    }
    run_well("setp.ge.u32 %p1, %t, 10; mov.u32 %r1, 1; @%p1 bra A;\n"
             "mov.u32 %r1, 2;\n"
             "A: activemask.b32 %r2; st.global.u32 [%o], %r2;",
             32);
    assert_int_equal(out[0], UINT32_MAX);
}

static void test_branch_tables_and_special_registers(void **state)
{
    (void)state;
    run_well("T: .branchtargets A, B, C;\n"
             "and.b32 %r1, %t, 1; brx.idx %r1, T;\n"
             "A: mov.u32 %r2, 100; bra D;\n"
             "B: mov.u32 %r2, 200; bra D;\n"
             "C: trap;\n"
             "D: mov.u32 %r3, %laneid; add.u32 %r2, %r2, %r3;\n"
             "mov.u32 %r3, %lanemask_lt; popc.b32 %r3, %r3;\n"
             "setp.ne.u32 %p1, %r3, %t; @%p1 trap;\n"
             "mov.u32 %r3, %ntid.x; add.u32 %r2, %r2, %r3;\n"
             "st.global.u32 [%o], %r2;",
             32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], (i % 2 ? 200 : 100) + i + 32);
    }
    assert_stops("T: .branchtargets A;\nA: brx.idx %t, T;", 2, "text:3: brx",
                 "index 1 of 1");
    assert_stops("trap;", 1, "text:2: trap", "a trap");
}

static void test_functions_get_and_give_values(void **state)
{
    (void)state;
    static const char function[] =
        ".func (.param .b32 r) twice(.param .b32 x, .param .b64 y) { "
        ".reg .b32 %r<3>; .reg .b64 %d1; .reg .pred %p1; "
        "ld.param.b32 %r1, [x]; ld.param.b64 %d1, [y]; "
        "cvt.u32.u64 %r2, %d1; add.u32 %r1, %r1, %r1; "
        "setp.gt.u32 %p1, %r1, 20; @%p1 bra E; add.u32 %r1, %r1, %r2; "
        "E: st.param.b32 [r], %r1; ret; }";
    static const char body[] =
        "{ .param .b32 p0; .param .b64 p1; .param .b32 q;\n"
        "st.param.b32 [p0+0], %t; mov.u64 %d1, 1000; st.param.b64 [p1], %d1;\n"
        "call.uni (q), twice, (p0, p1);\n"
        "ld.param.b32 %r1, [q+0]; }\n"
        "st.global.u32 [%o], %r1;";
    if (run_in(function, body, 32, 0) != 0) {
        fail_msg("%s", ptx_fault());
    }
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], i > 10 ? 2 * i : 2 * i + 1000);
    }
    static const char itself[] = ".func f(); .func f() { call f; ret; }";
    assert_int_equal(run_in(itself, "call f;", 1, 0), -1);
    assert_non_null(strstr(ptx_fault(), "'f' within itself"));
}

static void test_memory_of_all_spaces(void **state)
{
    (void)state;
    static const char before[] =
        ".const .align 4 .b32 table[3] = {11, -2, 0x3U}; "
        ".global .align 4 .u32 count = 5; "
        ".extern .shared .align 16 .b8 dyn[];";
    static const char body[] =
        ".local .align 8 .b8 depot[16];\n"
        "mov.u64 %d1, table; cvta.const.u64 %d2, %d1; ld.u32 %r1, [%d2];\n"
        "ld.const.s32 %r2, [table+4]; add.s32 %r1, %r1, %r2;\n" /* 9 */
        "ld.param.u32 %r2, [b]; add.s32 %r1, %r1, %r2;\n"       /* 16 */
        "mov.u64 %d1, depot; cvta.local.u64 %d2, %d1;\n"
        "st.v2.u32 [%d2+8], {%t, %r1};\n"
        "ld.local.u64 %d3, [depot+8]; mov.b64 {%r3, %r4}, %d3;\n"
        "mov.u32 %r5, dyn; shl.b32 %r6, %t, 1; add.s32 %r5, %r5, %r6;\n"
        "cvt.u16.u32 %h1, %r4; st.shared.u16 [%r5], %h1;\n"
        "ld.shared.s16 %r7, [%r5]; add.s32 %r3, %r3, %r7;\n"
        "atom.global.add.u32 %r8, [count], 1;\n"
        "mov.u64 %d4, count; ld.volatile.global.u32 %r9, [%d4];\n"
        "isspacep.local %p1, %d2; @!%p1 trap;\n"
        "isspacep.global %p1, %d2; @%p1 trap;\n"
        "isspacep.global %p1, %o; @!%p1 trap;\n"
        "st.global.u32 [%o], %r3; st.global.u32 [%d0+128], %r9;";
    if (run_in(before, body, 32, 64) != 0) {
        fail_msg("%s", ptx_fault());
    }
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], i + 16);
    }
    assert_int_equal(out[32], 5 + 32);
}

static void test_atomics_do_what_they_are_called(void **state)
{
    (void)state;
    run_well("atom.global.add.f32 %r1, [%d0], 0f3f800000;\n"
             "red.global.add.u64 [%d0+8], 3;\n"
             "red.global.max.s32 [%d0+16], %t;\n"
             "atom.global.inc.u32 %r1, [%d0+20], 9;\n"
             "atom.relaxed.gpu.global.exch.b32 %r1, [%d0+24], %t;\n"
             "atom.cas.b32 %r1, [%d0+28], %t, 31;\n"
             "red.or.b32 [%d0+32], 6; red.global.dec.u32 [%d0+36], 4;\n"
             "red.global.add.u32 [%d0+44], 9; red.global.dec.u32 [%d0+44], "
             "7;\n"
             "st.shared.u32 [tile], 5; atom.shared.add.u32 %r2, [tile], %t;\n"
             "bar.warp.sync 0xf;\n"
             "ld.shared.u32 %r3, [tile]; st.global.u32 [%d0+40], %r3;",
             4);
    static const uint32_t want[] = {0x40800000, 0,  12, 0, 3,  4,
                                    3,          31, 6,  1, 11, 4};
    for (unsigned i = 0; i < WEFTI_COUNT_OF(want); i++) {
        assert_int_equal(out[i], want[i]);
    }
}

/* What says when others see a value, or where it is kept, changes no value. */
static void test_ordered_and_cached_accesses_are_accesses(void **state)
{
    (void)state;
    run_well("st.global.wt.u32 [%o], %t; ld.global.cg.u32 %r1, [%o];\n"
             "st.release.gpu.global.u32 [%o+4], %r1;\n"
             "ld.acquire.gpu.global.u32 %r2, [%o+4]; membar.gl;\n"
             "fence.acq_rel.gpu; st.volatile.global.u32 [%o+8], %r2;\n"
             "ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%r3, %r4}, [%o];\n"
             "ldu.global.u32 %r5, [%o+8]; add.u32 %r3, %r3, %r4;\n"
             "add.u32 %r3, %r3, %r5; st.weak.global.u32 [%o], %r3;\n"
             "atom.acq_rel.sys.global.min.s32 %r6, [%o], -1; exit;",
             1);
    assert_int_equal(out[0], UINT32_MAX);
    assert_int_equal(out[1], 0);
    run_well("st.release.cta.shared.u32 [tile], 8; bar.cta.sync 0;\n"
             "barrier.cta.sync.aligned 1; setp.lt.u32 %p1, %t, 9;\n"
             "bar.cta.red.popc.u32 %r1, 2, %p1;\n"
             "barrier.red.and.aligned.pred %p2, 3, %p1; @%p2 trap;\n"
             "bar.cta.red.or.pred %p2, 3, %p1; @!%p2 trap;\n"
             "barrier.red.popc.u32 %r2, 4, !%p1;\n"
             "setp.lt.u32 %p3, %t, 32;\n"
             "@%p3 bar.cta.arrive 5, 64; @!%p3 bar.sync 5, 64;\n"
             "@%p3 barrier.sync 6, 64; @!%p3 barrier.arrive 6, 64;\n"
             "mad.lo.u32 %r1, %r1, 100, %r2; st.global.u32 [%o], %r1;",
             64);
    assert_int_equal(out[0], 955);
    assert_int_equal(out[63], 955);
    assert_stops("ld.global.nc.u32 %r1, [%d0]; ldu.u32 %r2, [%d0];\n"
                 "mov.u64 %d1, tile; cvta.shared.u64 %d2, %d1;\n"
                 "st.u32 [%d2], 1; ldu.u32 %r3, [%d2];",
                 1, "text:4: ldu.u32", "not an address of global");
}

static void test_accesses_out_of_bounds_stop(void **state)
{
    (void)state;
    assert_stops("st.global.u32 [%d0+256], 1;", 1, "text:2: st.global.u32",
                 "outside of what the launch was given");
    assert_stops("ld.global.u32 %r1, [%d0+-4];", 1, "a read of 4 bytes",
                 "outside");
    assert_stops("ld.global.v2.u32 {%r1, %r2}, [%d0+252];", 1, "8 bytes",
                 "not aligned");
    assert_stops("ld.global.u32 %r1, [%d0+2];", 1, "text:2:", "not aligned");
    assert_stops("mov.u64 %d1, 0; ld.u32 %r1, [%d1];", 1, "global", "outside");
    assert_stops("st.shared.u8 [tile+256], 1;", 1, "shared", "out of bounds");
    assert_stops("mov.u32 %r1, 0; st.shared.u8 [%r1], 1;", 1, "shared",
                 "out of bounds");
    assert_stops(".shared .b8 x[4]; .shared .b8 y[4]; st.shared.u8 [x+4], 1;",
                 1, "st.shared.u8", "out of bounds");
    assert_stops("st.shared.u8 [dyn+64], 1;", 1, "shared", "out of bounds");
    assert_stops(".local .b8 x[4]; st.local.u8 [x+4], 1;", 1, "local",
                 "out of bounds");
    assert_stops("ld.param.u64 %d1, [b];", 1, "param", "out of bounds");
    assert_stops("ld.param.u32 %r1, [b+4];", 1, "param", "out of bounds");
    assert_stops("st.param.u32 [b], 1;", 1, "param", "only be read");
    assert_stops("cvta.to.shared.u64 %d1, %o;", 1, "cvta.to.shared",
                 "not in shared");
    assert_stops("atom.global.add.u32 %r1, [%d0+256], 1;", 1, "a write of 4",
                 "outside");
    assert_int_equal(
        run_in(".entry other() { .shared .align 16 .b8 its[64]; ret; }",
               "st.shared.u8 [tile+-96], 1;", 1, 0),
        -1);
    assert_non_null(strstr(ptx_fault(), "shared memory, out of bounds"));
    assert_stops("L: bra L;", 1, "text:2: bra L", "still runs after 100000");
}

static void test_what_nothing_has_set_decides_nothing(void **state)
{
    (void)state;
    assert_stops("st.global.u32 [%o], %r1;", 1,
                 "text:2:", "what nothing has set");
    assert_stops("add.s32 %r2, %r1, 1; setp.eq.s32 %p1, %r2, 0;\n@%p1 ret;", 1,
                 "text:3:", "the guard rests");
    assert_stops("ld.global.u32 %r1, [%d1];", 1, "ld.global",
                 "the address rests");
    assert_stops("ld.shared.u32 %r1, [tile]; st.global.u32 [%o], %r1;", 1,
                 "st.global", "what nothing has set");
    assert_stops("ld.shared.u32 %r1, [dyn]; mov.b32 {%h1, %h2}, %r1;\n"
                 "st.global.u16 [%o], %h2;",
                 1, "text:3", "what nothing has set");
    assert_stops("setp.eq.u32 %p1, %t, 0; @%p1 mov.u32 %r1, 3;\n"
                 "st.global.u32 [%o], %r1;",
                 2, "thread (1, 0, 0)", "what nothing has set");
    assert_stops("setp.eq.u32 %p1, %t, 0; selp.b32 %r2, %r1, 4, %p1;\n"
                 "st.global.u32 [%o], %r2;",
                 1, "text:3:", "what nothing has set");
    assert_stops("atom.shared.add.u32 %r1, [tile], 1;", 1, "atom.shared",
                 "nothing has written");
    run_well("setp.eq.u32 %p1, %t, 0; setp.eq.u32 %p2, %r1, 0;\n"
             "and.pred %p3, %p2, !%p1; selp.b32 %r2, %r1, 4, %p3;\n"
             "st.global.u32 [%o], %r2;",
             1); /* %p1 alone decides */
    assert_int_equal(out[0], 4);
}

static void test_barriers_and_their_reductions(void **state)
{
    (void)state;
    run_well("shl.b32 %r1, %t, 2; mov.u32 %r2, tile; add.u32 %r1, %r1, %r2;\n"
             "st.shared.u32 [%r1], %t; bar.sync 0;\n"
             "sub.u32 %r3, 63, %t; shl.b32 %r3, %r3, 2;\n"
             "add.u32 %r3, %r3, %r2; ld.shared.u32 %r4, [%r3];\n"
             "setp.lt.u32 %p1, %t, 5; bar.red.popc.u32 %r5, 0, %p1;\n"
             "bar.red.or.pred %p2, 1, %p1; bar.red.and.pred %p3, 0, 64, %p1;\n"
             "@!%p2 trap;\n@%p3 trap;\n"
             "mad.lo.u32 %r4, %r5, 1000, %r4; st.global.u32 [%o], %r4;",
             64);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(out[i], 5000 + 63 - i);
    }
    run_well("setp.lt.u32 %p1, %t, 32; @%p1 bra A;\n"
             "st.shared.u32 [tile], 9; bar.arrive 1, 64; bra.uni B;\n"
             "A: bar.sync 1, 64; ld.shared.u32 %r1, [tile];\n"
             "st.global.u32 [%o], %r1;\nB:",
             64);
    assert_int_equal(out[31], 9);
    run_well("setp.gt.u32 %p1, %t, 40; @%p1 ret; bar.sync 0;", 64);
}

static void test_diverged_barriers_stop(void **state)
{
    (void)state;
    static const char two[] = "setp.lt.u32 %p1, %t, 16; @%p1 bra A;\n"
                              "bar.sync 0;\nbra.uni B;\nA: bar.sync 0;\nB:";
    assert_stops(two, 32, "barrier divergence", "at another barrier");
    assert_stops("setp.lt.u32 %p1, %t, 32; @%p1 bra A;\nbar.sync 0;\n"
                 "bra.uni B;\nA: bar.sync 1;\nB:",
                 64, "waits for ever", "barrier divergence");
    assert_stops("bar.sync 0, 64;", 32, "waits for ever", "fewer than 64");
    assert_stops("bar.sync 0, 33;", 64, "bar.sync", "multiple of 32");
    assert_stops("bar.sync 16;", 32, "bar.sync 16", "barrier 16 of 16");
}

static void test_shuffles_and_votes(void **state)
{
    (void)state;
    run_well("shfl.sync.up.b32 %r1|%p1, %t, 3, 0x1800, -1;\n"
             "selp.u32 %r2, 256, 0, %p1; or.b32 %r1, %r1, %r2;\n"
             "shfl.sync.bfly.b32 %r3, %t, 1, 31, -1;\n"
             "shl.b32 %r3, %r3, 16; or.b32 %r1, %r1, %r3;\n"
             "st.global.u32 [%o], %r1;",
             32);
    for (unsigned i = 0; i < 32; i++) {
        unsigned up = i % 8 < 3 ? i : (i - 3) | 256;
        assert_int_equal(out[i], up | (i ^ 1) << 16);
    }
    run_well("shfl.sync.down.b32 %r1|%p1, %t, 16, 31, -1;\n"
             "shfl.sync.idx.b32 %r2, %t, 5, 0x181f, -1;\n"
             "mad.lo.u32 %r1, %r1, 100, %r2; st.global.u32 [%o], %r1;",
             32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], (i < 16 ? i + 16 : i) * 100 + i / 8 * 8 + 5);
    }
    run_well("setp.lt.u32 %p1, %t, 4; vote.sync.ballot.b32 %r1, %p1, -1;\n"
             "vote.sync.any.pred %p2, %p1, -1; @!%p2 trap;\n"
             "vote.sync.all.pred %p2, %p1, -1; @%p2 trap;\n"
             "vote.sync.uni.pred %p2, !%p1, -1; @%p2 trap;\n"
             "redux.sync.add.u32 %r2, %t, -1; redux.sync.min.s32 %r3, -3, -1;\n"
             "redux.sync.xor.b32 %r4, %t, -1;\n"
             "add.u32 %r2, %r2, %r3; shl.b32 %r2, %r2, 16;\n"
             "or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r4;\n"
             "st.global.u32 [%o], %r1;",
             32);
    assert_int_equal(out[17], 15 | (496 - 3) << 16);
    run_well("setp.lt.u32 %p1, %t, 16; @%p1 bra A;\n"
             "redux.sync.add.u32 %r1, 1, 0xffff0000; bra.uni B;\n"
             "A: redux.sync.add.u32 %r1, 2, 0xffff;\n"
             "B: st.global.u32 [%o], %r1;",
             32);
    assert_int_equal(out[0], 32);
    assert_int_equal(out[31], 16);
}

static void test_wrong_member_masks_stop(void **state)
{
    (void)state;
    assert_stops("setp.eq.u32 %p1, %t, 31; @%p1 ret;\nbar.warp.sync -1;", 32,
                 "text:3: bar.warp.sync", "lane 31, which has ended");
    assert_stops("setp.eq.u32 %p1, %t, 31; @!%p1 bra A;\nL: ret;\n"
                 "A: bar.warp.sync -1;",
                 32, "bar.warp.sync", "lane 31, which has ended");
    assert_stops("shfl.sync.idx.b32 %r1, %t, 0, 31, 1;", 32, "0x00000001",
                 "its own lane 1");
    assert_stops("setp.lt.u32 %p1, %t, 16; selp.b32 %r1, -1, 0xffff0000, %p1;\n"
                 "bar.warp.sync %r1;",
                 32, "member mask 0xffffffff", "which has mask 0xffff0000");
    assert_stops("setp.lt.u32 %p1, %t, 16; @%p1 bra A;\n"
                 "vote.sync.ballot.b32 %r1, %p1, -1;\nbra B;\n"
                 "A: shfl.sync.idx.b32 %r1, %t, 0, 31, -1;\nB:",
                 32, "which waits at line", "vote.sync");
    assert_stops("setp.lt.u32 %p1, %t, 16; @%p1 bra A;\nbar.sync 0;\nA:\n"
                 "bar.warp.sync -1;",
                 32, "waits for ever", "which waits at line 3");
    assert_stops("shfl.sync.idx.b32 %r1, %t, 31, 31, 1;\n"
                 "st.global.u32 [%o], %r1;",
                 1, "text:3", "what nothing has set");
}

static void test_races_in_shared_memory_stop(void **state)
{
    (void)state;
    static const char own[] =
        "shl.b32 %r1, %t, 2; mov.u32 %r2, tile; add.u32 %r1, %r1, %r2;\n"
        "st.shared.u32 [%r1], %t;\n";
    char text[512];
    snprintf(text, sizeof(text), "%sld.shared.u32 %%r3, [tile];", own);
    assert_stops(text, 64, "a race: reads", "thread 0 has written");
    assert_stops(text, 32, "text:4: ld.shared", "thread 0 has written");
    snprintf(text, sizeof(text),
             "%sbar.warp.sync -1; ld.shared.u32 %%r3, "
             "[tile];",
             own);
    run_well(text, 32);
    assert_stops(text, 64, "a race: reads", "thread 0 has written");
    snprintf(text, sizeof(text), "%sbar.sync 0; ld.shared.u32 %%r3, [tile];",
             own);
    run_well(text, 64);
    snprintf(text, sizeof(text),
             "%sbar.sync 0; ld.shared.u32 %%r3, [tile];\n"
             "st.shared.u32 [%%r1], 77;",
             own);
    assert_stops(text, 64, "a race: writes", "has read");
    assert_stops("st.shared.u32 [tile], %t;", 32, "a race: writes",
                 "has written");
    run_well("st.shared.u32 [tile], 4;", 64); /* all the same value */
}

static void test_bad_launches_are_refused(void **state)
{
    (void)state;
    uint32_t *at = out, one = 1;
    void *params[] = {&at, &one};
    ptx_program *program = ptx_program_create(
        "m", ".entry k(.param .u64 a, .param .u32 b) .maxntid 64 { ret; } "
             ".entry e() .reqntid 32, 2 { ret; }");
    ptx_range twice[2] = {{out, 8, true}, {out + 1, 8, true}};
    ptx_config config = {.grid = {1, 1, 1}, .block = {65, 1, 1}};
    assert_non_null(program);
    assert_int_equal(ptx_launch(program, "k", &config, params), -1);
    assert_non_null(strstr(ptx_fault(), ".maxntid allows 64"));
    config.block[0] = 64;
    assert_int_equal(ptx_launch(program, "k", &config, params), 0);
    assert_int_equal(ptx_launch(program, "e", &config, NULL), -1);
    assert_int_equal(ptx_launch(program, "absent", &config, NULL), -1);
    assert_string_equal(ptx_fault(), "absent: no such kernel in m");
    config.ranges = twice;
    config.range_count = 2;
    assert_int_equal(ptx_launch(program, "k", &config, params), -1);
    assert_non_null(strstr(ptx_fault(), "overlap"));
    config.grid[1] = 0;
    assert_int_equal(ptx_launch(program, "k", &config, params), -1);
    ptx_program_destroy(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diverged_lanes_come_together_again),
        cmocka_unit_test(test_branch_tables_and_special_registers),
        cmocka_unit_test(test_functions_get_and_give_values),
        cmocka_unit_test(test_memory_of_all_spaces),
        cmocka_unit_test(test_atomics_do_what_they_are_called),
        cmocka_unit_test(test_ordered_and_cached_accesses_are_accesses),
        cmocka_unit_test(test_accesses_out_of_bounds_stop),
        cmocka_unit_test(test_what_nothing_has_set_decides_nothing),
        cmocka_unit_test(test_barriers_and_their_reductions),
        cmocka_unit_test(test_diverged_barriers_stop),
        cmocka_unit_test(test_shuffles_and_votes),
        cmocka_unit_test(test_wrong_member_masks_stop),
        cmocka_unit_test(test_races_in_shared_memory_stop),
        cmocka_unit_test(test_bad_launches_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
