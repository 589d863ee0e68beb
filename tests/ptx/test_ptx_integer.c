/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: instructions on integers and bits, comparisons and moves do what the
 * PTX ISA's document says.
 *
 * Method: one instruction at a time, on inputs at the edges of its type; the
 * results are worked out by hand from that document. Divisions without a
 * result are faults.
 */
#include "base/check.h"
#include "tests/ptx/ptx_case.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define M1 UINT64_MAX

static void test_arithmetic_by_hand(void **state)
{
    (void)state;
    static const ptx_case cases[] = {
        {"add.u16 %h0, %h1, %h2;", 16, {0xffff, 2}, 1},
        {"add.s32 %r0, %r1, -1;", 32, {0}, 0xffffffff},
        {"add.s64 %d0, %d1, %d2;", 64, {M1, 2}, 1},
        {"add.sat.s32 %r0, %r1, %r2;", 32, {0x7fffffff, 1}, 0x7fffffff},
        {"sub.sat.s32 %r0, %r1, %r2;", 32, {0x80000000, 1}, 0x80000000},
        {"sub.s32 %r0, %r1, %r2;", 32, {1, 2}, 0xffffffff},
        {"mul.lo.s16 %h0, %h1, %h2;", 16, {0x7fff, 2}, 0xfffe},
        {"mul.lo.u64 %d0, %d1, %d2;", 64, {M1, M1}, 1},
        {"mul.hi.u32 %r0, %r1, %r2;", 32, {0xffffffff, 0xffffffff}, 0xfffffffe},
        {"mul.hi.s32 %r0, %r1, %r2;", 32, {0xffffffff, 2}, 0xffffffff},
        {"mul.hi.u64 %d0, %d1, %d2;", 64, {M1, M1}, M1 - 1},
        {"mul.hi.s64 %d0, %d1, %d2;", 64, {M1, 3}, M1},
        {"mul.hi.s64 %d0, %d1, %d2;", 64, {M1, M1}, 0},
        {"mul.wide.s16 %r0, %h1, %h2;", 32, {0xffff, 2}, 0xfffffffe},
        {"mul.wide.u16 %r0, %h1, %h2;", 32, {0xffff, 2}, 0x1fffe},
        {"mul.wide.s32 %d0, %r1, %r2;", 64, {0xffffffff, 5}, M1 - 4},
        {"mul.wide.u32 %d0, %r1, 4;", 64, {0xffffffff}, 0x3fffffffc},
        {"mad.lo.s32 %r0, %r1, %r2, %r3;", 32, {3, 5, 7}, 22},
        {"mad.hi.u32 %r0, %r1, %r2, %r3;", 32, {0x80000000, 4, 7}, 9},
        {"mad.wide.u32 %d0, %r1, %r2, %d3;",
         64,
         {0xffffffff, 2, M1},
         0x1fffffffd},
        {"mad.wide.s16 %r0, %h1, %h2, %r3;", 32, {0xffff, 3, 1}, 0xfffffffe},
        {"div.s32 %r0, %r1, %r2;", 32, {0xfffffff9, 2}, 0xfffffffd},
        {"rem.s32 %r0, %r1, %r2;", 32, {0xfffffff9, 2}, 0xffffffff},
        {"div.u32 %r0, %r1, %r2;", 32, {0xfffffff9, 2}, 0x7ffffffc},
        {"rem.u64 %d0, %d1, %d2;", 64, {M1, 10}, 5},
        {"div.s64 %d0, %d1, %d2;", 64, {M1 - 8, 3}, M1 - 2},
        {"div.u16 %h0, %h1, %h2;", 16, {0xffff, 7}, 9362},
        {"min.s32 %r0, %r1, %r2;", 32, {0xffffffff, 1}, 0xffffffff},
        {"min.u32 %r0, %r1, %r2;", 32, {0xffffffff, 1}, 1},
        {"max.s16 %h0, %h1, %h2;", 16, {0x8000, 0x7fff}, 0x7fff},
        {"max.u64 %d0, %d1, %d2;", 64, {M1, 1}, M1},
        {"abs.s32 %r0, %r1;", 32, {0xffffff85}, 0x7b},
        {"abs.s16 %h0, %h1;", 16, {0x8000}, 0x8000},
        {"neg.s64 %d0, %d1;", 64, {1}, M1},
    };
    ptx_case_check(cases, WEFTI_COUNT_OF(cases));
}

static void test_bits_by_hand(void **state)
{
    (void)state;
    static const ptx_case cases[] = {
        {"and.b32 %r0, %r1, %r2;", 32, {0xff00ff00, 0x0ff00ff0}, 0x0f000f00},
        {"or.b16 %h0, %h1, %h2;", 16, {0xf0f0, 0x0ff0}, 0xfff0},
        {"xor.b64 %d0, %d1, %d2;", 64, {M1, 0xff}, M1 - 0xff},
        {"not.b32 %r0, %r1;", 32, {0x0f0f0f0f}, 0xf0f0f0f0},
        {"and.pred %p0, %p1, !%p2;", 1, {1, 0}, 1},
        {"xor.pred %p0, %p1, %p2;", 1, {1, 1}, 0},
        {"not.pred %p0, %p1;", 1, {0}, 1},
        {"or.pred %p0, %p1, %p2;", 1, {0, 1}, 1},
        {"lop3.b32 %r0, %r1, %r2, %r3, 0x96;", 32, {0xff, 0x0f, 0x3c}, 0xcc},
        {"lop3.b32 %r0, %r1, %r2, %r3, 0xe8;", 32, {0xff, 0x0f, 0x3c}, 0x3f},
        {"lop3.b32 %r0, %r1, %r2, %r3, 0x01;", 32, {0xff, 0, 0}, 0xffffff00},
        {"shl.b32 %r0, %r1, %r2;", 32, {1, 31}, 0x80000000},
        {"shl.b32 %r0, %r1, %r2;", 32, {1, 32}, 0},
        {"shl.b64 %d0, %d1, %r2;", 64, {3, 63}, UINT64_C(1) << 63},
        {"shl.b16 %h0, %h1, 8;", 16, {0x1234}, 0x3400},
        {"shr.s32 %r0, %r1, %r2;", 32, {0x80000000, 40}, 0xffffffff},
        {"shr.s16 %h0, %h1, 1;", 16, {0x8000}, 0xc000},
        {"shr.u32 %r0, %r1, %r2;", 32, {0x80000000, 40}, 0},
        {"shr.u64 %d0, %d1, 63;", 64, {M1}, 1},
        {"shr.b32 %r0, %r1, 4;", 32, {0x80000000}, 0x08000000},
        {"shf.l.wrap.b32 %r0, %r1, %r2, %r3;",
         32,
         {0x80000001, 0x12345678, 36},
         0x23456788},
        {"shf.l.clamp.b32 %r0, %r1, %r2, %r3;",
         32,
         {0x80000001, 0x12345678, 36},
         0x80000001},
        {"shf.r.wrap.b32 %r0, %r1, %r2, %r3;",
         32,
         {0x80000001, 0x12345678, 4},
         0x88000000},
        {"shf.r.clamp.b32 %r0, %r1, %r2, %r3;",
         32,
         {0x80000001, 0x12345678, 99},
         0x12345678},
        {"prmt.b32 %r0, %r1, %r2, 0x3340;",
         32,
         {0x44332211, 0x88776655},
         0x44445511},
        {"prmt.b32 %r0, %r1, %r2, 0x7531;",
         32,
         {0x44332211, 0x88776655},
         0x88664422},
        {"prmt.b32 %r0, %r1, %r2, 0xf0b8;",
         32,
         {0x44332211, 0x88776655},
         0xff110000},
        {"bfe.u32 %r0, %r1, %r2, %r3;", 32, {0x12345678, 8, 8}, 0x56},
        {"bfe.s32 %r0, %r1, %r2, %r3;", 32, {0x0000f000, 8, 8}, 0xfffffff0},
        {"bfe.s32 %r0, %r1, %r2, %r3;", 32, {0x80000000, 40, 4}, 0xffffffff},
        {"bfe.u32 %r0, %r1, %r2, %r3;", 32, {0xffffffff, 28, 8}, 0xf},
        {"bfe.s32 %r0, %r1, %r2, %r3;", 32, {0xffffffff, 3, 0}, 0},
        {"bfe.u64 %d0, %d1, %r2, %r3;", 64, {M1, 60, 8}, 0xf},
        {"bfi.b32 %r0, %r1, %r2, 8, 8;", 32, {0xabcd, 0x11111111}, 0x1111cd11},
        {"bfi.b64 %d0, %d1, %d2, 8, 8;",
         64,
         {0xabcd, M1},
         UINT64_C(0xffffffffffffcdff)},
        {"bfi.b32 %r0, %r1, %r2, 32, 8;", 32, {0xabcd, 0x11111111}, 0x11111111},
        {"popc.b64 %r0, %d1;", 32, {M1}, 64},
        {"popc.b32 %r0, %r1;", 32, {0xf0f0}, 8},
        {"clz.b32 %r0, %r1;", 32, {1}, 31},
        {"clz.b32 %r0, %r1;", 32, {0}, 32},
        {"clz.b64 %r0, %d1;", 32, {1}, 63},
        {"bfind.u32 %r0, %r1;", 32, {0x00010000}, 16},
        {"bfind.s32 %r0, %r1;", 32, {0xfffffffe}, 0},
        {"bfind.u32 %r0, %r1;", 32, {0}, 0xffffffff},
        {"bfind.shiftamt.u32 %r0, %r1;", 32, {0x00010000}, 15},
        {"brev.b32 %r0, %r1;", 32, {0x80000001 - 1}, 1},
        {"brev.b64 %d0, %d1;", 64, {1}, UINT64_C(1) << 63},
    };
    ptx_case_check(cases, WEFTI_COUNT_OF(cases));
}

static void test_comparisons_and_moves_by_hand(void **state)
{
    (void)state;
    static const ptx_case cases[] = {
        {"setp.lt.s32 %p0, %r1, %r2;", 1, {0xffffffff, 0}, 1},
        {"setp.lt.u32 %p0, %r1, %r2;", 1, {0xffffffff, 0}, 0},
        {"setp.lo.s32 %p0, %r1, %r2;", 1, {0xffffffff, 0}, 0},
        {"setp.hs.u32 %p0, %r1, %r2;", 1, {7, 7}, 1},
        {"setp.gt.s16 %p0, %h1, -5;", 1, {0xfffc}, 1},
        {"setp.ge.u64 %p0, %d1, %d2;", 1, {M1, 1}, 1},
        {"setp.ne.b64 %p0, %d1, %d2;", 1, {M1, 1}, 1},
        {"setp.eq.and.s32 %p0, %r1, %r2, %p3;", 1, {4, 4, 0}, 0},
        {"setp.eq.or.s32 %p0, %r1, %r2, !%p3;", 1, {4, 5, 0}, 1},
        {"setp.eq.xor.s32 %p0, %r1, %r2, %p3;", 1, {4, 4, 1}, 0},
        {"setp.ne.and.b64 %p0, %d1, %d2, %p3;", 1, {1, 0, 1}, 1},
        {"setp.ls.or.u32 %p0, %r1, %r2, %p3;", 1, {8, 7, 0}, 0},
        {"setp.eq.s32 %p4|%p0, %r1, %r2;", 1, {4, 5}, 1},
        {"setp.eq.and.s32 %p4|%p0, %r1, %r2, %p3;", 1, {4, 5, 1}, 1},
        {"selp.b32 %r0, %r1, %r2, %p3;", 32, {5, 6, 1}, 5},
        {"selp.s16 %h0, -1, %h2, %p3;", 16, {5, 6, 1}, 0xffff},
        {"selp.f64 %d0, %d1, 0d3ff0000000000000, %p3;",
         64,
         {5, 6, 0},
         UINT64_C(0x3ff0000000000000)},
        {"slct.b32.s32 %r0, %r1, %r2, %r3;", 32, {5, 6, 0}, 5},
        {"slct.u64.s32 %d0, %d1, %d2, %r3;", 64, {5, 6, 0x80000000}, 6},
        {"slct.b32.f32 %r0, %r1, %r2, %r3;", 32, {5, 6, 0x80000000}, 5},
        {"slct.b32.f32 %r0, %r1, %r2, %r3;", 32, {5, 6, 0x7fc00000}, 6},
        {"mov.b32 %r0, {%h1, %h2};", 32, {0x1234, 0x5678}, 0x56781234},
        {"mov.b32 {%h4, %h0}, %r1;", 16, {0x56781234}, 0x5678},
        {"mov.b32 {%h0, _}, %r1;", 16, {0x56781234}, 0x1234},
        {"mov.b64 %d0, {%r1, %r2};", 64, {1, 2}, UINT64_C(0x200000001)},
        {"mov.b64 %d0, {%h1, %h2, %h3, %h1};",
         64,
         {1, 2, 3},
         UINT64_C(0x0001000300020001)},
        {"mov.b64 {%r4, %r0}, %d1;", 32, {UINT64_C(0x200000001)}, 2},
        {"mov.u32 %r0, WARP_SZ;", 32, {0}, 32},
        {"mov.f32 %r0, 0f3F800000;", 32, {0}, 0x3f800000},
        {"mov.f32 %r0, 1.5;", 32, {0}, 0x3fc00000},
        {"mov.u32 %r0, 0b101;", 32, {0}, 5},
        {"mov.u32 %r0, 010;", 32, {0}, 8},
        {"mov.pred %p0, -1;", 1, {0}, 1},
        {"cvt.u32.u16 %r0, %h1;", 32, {0xffff}, 0xffff},
        {"cvt.s32.s16 %r0, %h1;", 32, {0xffff}, 0xffffffff},
        {"cvt.s16.s8 %h0, %h1;", 16, {0x0180}, 0xff80},
        {"cvt.u32.s8 %r0, %r1;", 32, {0x80}, 0xffffff80},
        {"cvt.s32.s8 %r0, %r1;", 32, {0x17f}, 0x7f},
        {"cvt.u16.u64 %h0, %d1;", 16, {0x12345}, 0x2345},
        {"cvt.s64.s32 %d0, %r1;",
         64,
         {0x80000000},
         UINT64_C(0xffffffff80000000)},
        {"cvt.u64.u32 %d0, %r1;", 64, {0x80000000}, 0x80000000},
        {"cvt.sat.u8.s32 %r0, %r1;", 32, {300}, 255},
        {"cvt.sat.u8.s32 %r0, %r1;", 32, {0xffffffff}, 0},
        {"cvt.sat.s8.s32 %r0, %r1;", 32, {0xffffff00}, 0xffffff80},
    };
    ptx_case_check(cases, WEFTI_COUNT_OF(cases));
}

static void test_divisions_without_a_result_are_faults(void **state)
{
    (void)state;
    ptx_case_stops("mov.u32 %r4, 0; div.u32 %r0, %r1, %r4;", "div.u32",
                   "by zero");
    ptx_case_stops("rem.s32 %r0, %r1, %r2;", "rem.s32", "by zero");
    ptx_case_stops("mov.u32 %r4, 0x80000000; div.s32 %r0, %r4, -1;", "div.s32",
                   "no room");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic_by_hand),
        cmocka_unit_test(test_bits_by_hand),
        cmocka_unit_test(test_comparisons_and_moves_by_hand),
        cmocka_unit_test(test_divisions_without_a_result_are_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
