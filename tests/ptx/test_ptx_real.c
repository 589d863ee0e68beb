/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: instructions on floats, and conversions, give the results that IEEE 754
 * and the PTX ISA's document ask for, rounded once.
 *
 * Method: ties, subnormals, overflows, zeros and NaNs by hand, in each rounding
 * mode; for small floats all codes there are, and random floats, against
 * base/small_float.h; a fused product whose double rounding would show.
 */
#include "base/check.h"
#include "base/small_float.h"
#include "tests/ptx/ptx_case.h"
#include "tests/ptx/ptx_format.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define ONE   0x3f800000
#define TINY  0x33800000 /* 2^-24: half a unit of one's last place, below */
#define NAN32 0x7fffffff

static void test_arithmetic_by_hand(void **state)
{
    (void)state;
    static const ptx_case cases[] = {
        {"add.f32 %r0, %r1, %r2;", 32, {ONE, TINY}, ONE},
        {"add.rn.f32 %r0, %r1, %r2;", 32, {ONE + 1, TINY}, ONE + 2},
        {"add.rz.f32 %r0, %r1, %r2;", 32, {ONE + 1, TINY}, ONE + 1},
        {"add.rp.f32 %r0, %r1, %r2;", 32, {ONE, TINY}, ONE + 1},
        {"add.rm.f32 %r0, %r1, %r2;", 32, {0xbf800000, 0xb3800000}, 0xbf800001},
        {"add.rm.f32 %r0, %r1, %r2;", 32, {ONE, 0xbf800000}, 0x80000000},
        {"add.rn.f32 %r0, %r1, %r2;", 32, {ONE, 0xbf800000}, 0},
        {"add.f32 %r0, %r1, %r2;", 32, {0x7f800000, 0xff800000}, NAN32},
        {"add.f32 %r0, %r1, %r2;", 32, {0xffc12345, ONE}, NAN32},
        {"add.sat.f32 %r0, %r1, %r2;", 32, {ONE, ONE}, ONE},
        {"add.sat.f32 %r0, %r1, %r2;", 32, {0x7fc00000, ONE}, 0},
        {"add.f32 %r0, %r1, %r2;", 32, {1, 1}, 2},
        {"add.ftz.f32 %r0, %r1, %r2;", 32, {1, 0x80000001}, 0},
        {"sub.rn.f64 %d0, %d1, %d2;",
         64,
         {UINT64_C(0x3ff0000000000000), UINT64_C(0x3fe0000000000000)},
         UINT64_C(0x3fe0000000000000)},
        {"mul.rn.f32 %r0, %r1, %r2;", 32, {0x7f000000, 0x40000000}, 0x7f800000},
        {"mul.rz.f32 %r0, %r1, %r2;", 32, {0x7f000000, 0x40000000}, 0x7f7fffff},
        {"mul.ftz.f32 %r0, %r1, %r2;",
         32,
         {0x80800000, 0x3f000000},
         0x80000000},
        {"div.rn.f32 %r0, %r1, %r2;", 32, {ONE, 0x40400000}, 0x3eaaaaab},
        {"div.rz.f32 %r0, %r1, %r2;", 32, {ONE, 0x40400000}, 0x3eaaaaaa},
        {"div.rn.f32 %r0, %r1, %r2;", 32, {0xbf800000, 0}, 0xff800000},
        {"div.rn.f64 %d0, %d1, %d2;",
         64,
         {UINT64_C(0x3ff0000000000000), UINT64_C(0x4008000000000000)},
         UINT64_C(0x3fd5555555555555)},
        {"rcp.rn.f32 %r0, %r1;", 32, {0x40400000}, 0x3eaaaaab},
        {"sqrt.rn.f32 %r0, %r1;", 32, {0x40000000}, 0x3fb504f3},
        {"sqrt.rp.f32 %r0, %r1;", 32, {0x40000000}, 0x3fb504f4},
        {"sqrt.rn.f32 %r0, %r1;", 32, {0xbf800000}, NAN32},
        {"sqrt.rn.f64 %d0, %d1;",
         64,
         {UINT64_C(0x4010000000000000)},
         UINT64_C(0x4000000000000000)},
        /* (1 + 2^-23)^2 - (1 + 2^-22) is 2^-46, and 0 if rounded twice. */
        {"fma.rn.f32 %r0, %r1, %r2, %r3;",
         32,
         {ONE + 1, ONE + 1, 0xbf800002},
         0x28800000},
        {"mad.rn.f32 %r0, %r1, %r2, %r3;",
         32,
         {ONE + 1, ONE + 1, 0xbf800002},
         0x28800000},
        {"fma.rp.f32 %r0, %r1, %r2, %r3;", 32, {ONE, TINY, ONE}, ONE + 1},
        {"min.f32 %r0, %r1, %r2;", 32, {0x7fc00000, ONE}, ONE},
        {"min.NaN.f32 %r0, %r1, %r2;", 32, {0x7fc00000, ONE}, NAN32},
        {"min.f32 %r0, %r1, %r2;", 32, {0, 0x80000000}, 0x80000000},
        {"max.f32 %r0, %r1, %r2;", 32, {0x80000000, 0}, 0},
        {"max.f32 %r0, %r1, %r2;", 32, {0x7fc00000, 0xffc00000}, NAN32},
        {"abs.f32 %r0, %r1;", 32, {0xbf800000}, ONE},
        {"neg.f32 %r0, %r1;", 32, {0}, 0x80000000},
        {"neg.ftz.f32 %r0, %r1;", 32, {1}, 0x80000000},
        {"copysign.f32 %r0, %r1, %r2;", 32, {0x80000000, ONE}, 0xbf800000},
        {"ex2.approx.f32 %r0, %r1;", 32, {0x40400000}, 0x41000000},
        {"lg2.approx.f32 %r0, %r1;", 32, {0x41000000}, 0x40400000},
        {"rsqrt.approx.f32 %r0, %r1;", 32, {0x40800000}, 0x3f000000},
        {"testp.subnormal.f32 %p0, %r1;", 1, {1}, 1},
        {"testp.infinite.f64 %p0, %d1;", 1, {UINT64_C(0xfff0000000000000)}, 1},
        {"setp.lt.f32 %p0, %r1, %r2;", 1, {0x7fc00000, ONE}, 0},
        {"setp.ltu.f32 %p0, %r1, %r2;", 1, {0x7fc00000, ONE}, 1},
        {"setp.neu.f32 %p0, %r1, %r2;", 1, {0x7fc00000, ONE}, 1},
        {"setp.ne.f32 %p0, %r1, %r2;", 1, {0x7fc00000, ONE}, 0},
        {"setp.nan.f32 %p0, %r1, %r2;", 1, {0x7fc00000, ONE}, 1},
        {"setp.num.f32 %p0, %r1, %r2;", 1, {ONE, ONE}, 1},
        {"setp.eq.f32 %p0, %r1, %r2;", 1, {0, 0x80000000}, 1},
        {"setp.eq.ftz.f32 %p0, %r1, %r2;", 1, {1, 0}, 1},
        {"setp.gt.f64 %p0, %d1, %d2;",
         1,
         {UINT64_C(0x3ff0000000000000), UINT64_C(0xbff0000000000000)},
         1},
    };
    ptx_case_check(cases, WEFTI_COUNT_OF(cases));
}

#define D(high) (UINT64_C(high) << 32) /* of a double whose low half is 0 */

static void test_doubles_and_approximations_by_hand(void **state)
{
    (void)state;
    static const ptx_case cases[] = {
        {"add.f64 %d0, %d1, %d2;",
         64,
         {D(0x3ff00000), D(0x3ca00000)},
         D(0x3ff00000)},
        {"add.rp.f64 %d0, %d1, %d2;",
         64,
         {D(0x3ff00000), D(0x3ca00000)},
         D(0x3ff00000) + 1},
        {"mul.rn.f64 %d0, %d1, %d2;",
         64,
         {D(0x40080000), D(0xbff80000)},
         D(0xc0120000)},
        {"fma.rn.f64 %d0, %d1, %d2, %d3;",
         64,
         {D(0x3ff00000) + 1, D(0x3ff00000) + 1, D(0xbff00000) + 2},
         D(0x39700000)},
        {"mad.rz.f64 %d0, %d1, %d2, %d3;",
         64,
         {D(0x40000000), D(0x40000000), D(0x3ff00000)},
         D(0x40140000)},
        {"add.f64 %d0, %d1, %d2;",
         64,
         {D(0x7ff00000), D(0xfff00000)},
         D(0xfff80000)},
        {"add.f64 %d0, %d1, %d2;",
         64,
         {D(0x3ff00000), D(0x7ff00000) + 5},
         D(0x7ff80000) + 5},
        {"min.f64 %d0, %d1, %d2;",
         64,
         {D(0x7ff80000), D(0x3ff00000)},
         D(0x3ff00000)},
        {"max.f64 %d0, %d1, %d2;", 64, {D(0x80000000), 0}, 0},
        {"abs.f64 %d0, %d1;", 64, {D(0xbff00000)}, D(0x3ff00000)},
        {"neg.f64 %d0, %d1;", 64, {D(0xbff00000)}, D(0x3ff00000)},
        {"rcp.rn.f64 %d0, %d1;", 64, {D(0x40100000)}, D(0x3fd00000)},
        {"rsqrt.approx.f64 %d0, %d1;", 64, {D(0x40100000)}, D(0x3fe00000)},
        {"sub.f32 %r0, %r1, %r2;", 32, {ONE, 0x40000000}, 0xbf800000},
        {"rcp.approx.f32 %r0, %r1;", 32, {0}, 0x7f800000},
        {"rcp.approx.ftz.f32 %r0, %r1;", 32, {1}, 0x7f800000},
        {"sqrt.approx.f32 %r0, %r1;", 32, {0x40800000}, 0x40000000},
        {"div.approx.f32 %r0, %r1, %r2;",
         32,
         {0x40c00000, 0x40000000},
         0x40400000},
        {"div.full.ftz.f32 %r0, %r1, %r2;",
         32,
         {0x40c00000, 0x40000000},
         0x40400000},
        {"sin.approx.f32 %r0, %r1;", 32, {0x80000000}, 0x80000000},
        {"cos.approx.f32 %r0, %r1;", 32, {0}, ONE},
        {"tanh.approx.f32 %r0, %r1;", 32, {0x7f800000}, ONE},
        {"setp.gt.and.f32 %p0, %r1, %r2, %p3;", 1, {0x40000000, ONE, 1}, 1},
        {"setp.gt.or.f64 %p0, %d1, %d2, %p3;", 1, {0, D(0x3ff00000), 0}, 0},
        {"setp.ge.f16 %p0, %h1, %h2;", 1, {0x8000, 0}, 1},
    };
    ptx_case_check(cases, WEFTI_COUNT_OF(cases));
}

static void test_small_floats_by_hand(void **state)
{
    (void)state;
    static const ptx_case cases[] = {
        {"add.f16 %h0, %h1, %h2;", 16, {0x3c00, 0x1000}, 0x3c00},
        {"add.rn.f16 %h0, %h1, %h2;", 16, {0x3c01, 0x1000}, 0x3c02},
        {"mul.f16 %h0, %h1, %h2;", 16, {0x7bff, 0x4000}, 0x7c00},
        {"mul.sat.f16 %h0, %h1, %h2;", 16, {0x7bff, 0x4000}, 0x3c00},
        {"sub.f16x2 %r0, %r1, %r2;", 32, {0x40003c00, 0x3c003c00}, 0x3c000000},
        {"add.bf16 %h0, %h1, %h2;", 16, {0x3f81, 0x3b80}, 0x3f82},
        {"mul.bf16x2 %r0, %r1, %r2;", 32, {0x40003f80, 0x40004000}, 0x40804000},
        /* 1 + 2^-10 squared is 1 + 2^-9 + 2^-20; less 1 + 2^-9: 2^-20. */
        {"fma.rn.f16 %h0, %h1, %h2, %h3;",
         16,
         {0x3c01, 0x3c01, 0xbc02},
         0x0010},
        {"fma.rn.bf16 %h0, %h1, %h2, %h3;",
         16,
         {0x3f81, 0x3f81, 0xbf82},
         0x3880},
        {"fma.rn.relu.bf16 %h0, %h1, %h2, %h3;",
         16,
         {0x3f80, 0x3f80, 0xc000},
         0},
        /* The product lies between two; 2^-40 less makes it the lower one,
         * and 2^-100 more, for which a double has no room, the upper one. */
        {"fma.rn.bf16 %h0, %h1, %h2, %h3;",
         16,
         {0x3f81, 0x3fc0, 0xab80},
         0x3fc1},
        {"fma.rn.bf16 %h0, %h1, %h2, %h3;",
         16,
         {0x3f83, 0x3fc0, 0x0d80},
         0x3fc5},
        {"min.f16 %h0, %h1, %h2;", 16, {0x7e00, 0x3c00}, 0x3c00},
        {"max.NaN.bf16 %h0, %h1, %h2;", 16, {0x7fc0, 0x3f80}, 0x7fff},
        {"neg.f16x2 %r0, %r1;", 32, {0x3c00bc00}, 0xbc003c00},
        {"abs.bf16 %h0, %h1;", 16, {0xbf80}, 0x3f80},
        {"sub.bf16 %h0, %h1, %h2;", 16, {0x3f80, 0x4000}, 0xbf80},
        {"neg.bf16x2 %r0, %r1;", 32, {0x3f80bf80}, 0xbf803f80},
        {"abs.f16x2 %r0, %r1;", 32, {0xbc00bc00}, 0x3c003c00},
        {"min.bf16 %h0, %h1, %h2;", 16, {0x0000, 0x8000}, 0x8000},
        {"max.f16 %h0, %h1, %h2;", 16, {0x3c00, 0xfc00}, 0x3c00},
        {"add.ftz.f16 %h0, %h1, %h2;", 16, {0x0001, 0x0001}, 0},
        {"fma.rn.relu.f16 %h0, %h1, %h2, %h3;",
         16,
         {0x3c00, 0x3c00, 0xc000},
         0},
        {"setp.lt.bf16 %p0, %h1, %h2;", 1, {0xbf80, 0x3f80}, 1},
    };
    ptx_case_check(cases, WEFTI_COUNT_OF(cases));
}

static void test_conversions_by_hand(void **state)
{
    (void)state;
    static const ptx_case cases[] = {
        {"cvt.rn.f32.u32 %r0, %r1;", 32, {0x01000001}, 0x4b800000},
        {"cvt.rp.f32.u32 %r0, %r1;", 32, {0x01000001}, 0x4b800001},
        {"cvt.rn.f32.s32 %r0, %r1;", 32, {0xffffffff}, 0xbf800000},
        {"cvt.rz.f32.u64 %r0, %d1;", 32, {UINT64_MAX}, 0x5f7fffff},
        {"cvt.rn.f32.u64 %r0, %d1;", 32, {UINT64_MAX}, 0x5f800000},
        {"cvt.rn.f64.u32 %d0, %r1;", 64, {3}, UINT64_C(0x4008000000000000)},
        {"cvt.rn.f16.u32 %h0, %r1;", 16, {70000}, 0x7c00},
        {"cvt.rni.s32.f32 %r0, %r1;", 32, {0x40200000}, 2},
        {"cvt.rni.s32.f32 %r0, %r1;", 32, {0x40600000}, 4},
        {"cvt.rzi.s32.f32 %r0, %r1;", 32, {0xc0200000}, 0xfffffffe},
        {"cvt.rmi.s32.f32 %r0, %r1;", 32, {0xc0200000}, 0xfffffffd},
        {"cvt.rpi.s32.f32 %r0, %r1;", 32, {0x40200000}, 3},
        {"cvt.rzi.u32.f32 %r0, %r1;", 32, {0xbf800000}, 0},
        {"cvt.rzi.u8.f32 %r0, %r1;", 32, {0x43960000}, 255},
        {"cvt.rzi.s32.f32 %r0, %r1;", 32, {0x7f800000}, 0x7fffffff},
        {"cvt.rzi.s32.f32 %r0, %r1;", 32, {0x7fc00000}, 0},
        {"cvt.rzi.s64.f32 %d0, %r1;", 64, {0x7fc00000}, UINT64_C(1) << 63},
        {"cvt.rzi.u32.f64 %r0, %d1;",
         32,
         {UINT64_C(0x7ff8000000000000)},
         0x80000000},
        {"cvt.rzi.u64.f64 %d0, %d1;",
         64,
         {UINT64_C(0x43efffffffffffff)},
         UINT64_C(0xfffffffffffff800)},
        {"cvt.rni.f32.f32 %r0, %r1;", 32, {0x40200000}, 0x40000000},
        {"cvt.rmi.f32.f32 %r0, %r1;", 32, {0xbe800000}, 0xbf800000},
        {"cvt.rzi.f32.f32 %r0, %r1;", 32, {0xbe800000}, 0x80000000},
        {"cvt.rpi.f64.f64 %d0, %d1;",
         64,
         {UINT64_C(0x3fd0000000000000)},
         UINT64_C(0x3ff0000000000000)},
        {"cvt.sat.f32.f32 %r0, %r1;", 32, {0x40200000}, ONE},
        {"cvt.rn.f32.f64 %r0, %d1;", 32, {UINT64_C(0x3ff0000010000000)}, ONE},
        {"cvt.rn.f32.f64 %r0, %d1;",
         32,
         {UINT64_C(0x3ff0000010000001)},
         ONE + 1},
        {"cvt.rz.f32.f64 %r0, %d1;",
         32,
         {UINT64_C(0x47f0000000000000)},
         0x7f7fffff},
        /* To f16 from f64 by way of f32 would be a tie, and go down. */
        {"cvt.rn.f16.f64 %h0, %d1;",
         16,
         {UINT64_C(0x3ff0020000000001)},
         0x3c01},
        {"cvt.rz.f16.f32 %h0, %r1;", 16, {0x7f7fffff}, 0x7bff},
        {"cvt.rmi.f16.f16 %h0, %h1;", 16, {0xb800}, 0xbc00},
        {"cvt.rz.relu.f16.f32 %h0, %r1;", 16, {0xbf800000}, 0},
        {"cvt.rz.bf16.f64 %h0, %d1;",
         16,
         {UINT64_C(0x3ff0ffffffffffff)},
         0x3f87},
        {"cvt.sat.f64.f64 %d0, %d1;", 64, {UINT64_C(0xbff0000000000000)}, 0},
        {"cvt.f64.f64 %d0, %d1;",
         64,
         {UINT64_C(0x7ff0000000000005)},
         UINT64_C(0x7ff8000000000005)},
        {"cvt.ftz.f64.f32 %d0, %r1;",
         64,
         {0x80000001},
         UINT64_C(0x8000000000000000)},
        {"cvt.f64.f32 %d0, %r1;", 64, {1}, UINT64_C(0x36a0000000000000)},
        {"cvt.f32.f16 %r0, %h1;", 32, {0x0001}, 0x33800000},
        {"cvt.f32.bf16 %r0, %h1;", 32, {0x3f81}, 0x3f810000},
        {"cvt.rn.relu.bf16.f32 %h0, %r1;", 16, {0xbf800000}, 0},
        {"cvt.rna.tf32.f32 %r0, %r1;", 32, {0x3f801000}, 0x3f802000},
        {"cvt.rn.bf16x2.f32 %r0, %r1, %r2;", 32, {ONE, 0x40000000}, 0x3f804000},
        {"cvt.rz.f16x2.f32 %r0, %r1, %r2;", 32, {ONE, 0x7f7fffff}, 0x3c007bff},
        {"cvt.rn.f16x2.e4m3x2 %r0, %h1;", 32, {0x7e38}, 0x5f003c00},
        {"cvt.rn.f16x2.e5m2x2 %r0, %h1;", 32, {0x7c3c}, 0x7c003c00},
        {"cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2;",
         16,
         {0x7f800000, 0x3f800000},
         0x7e38},
        {"cvt.rn.satfinite.e5m2x2.f32 %h0, %r1, %r2;",
         16,
         {0x7f800000, 0x7fc00000},
         0x7b7f},
        {"cvt.rn.satfinite.e4m3x2.f16x2 %h0, %r1;", 16, {0x3c008000}, 0x3880},
    };
    ptx_case_check(cases, WEFTI_COUNT_OF(cases));
}

static void test_formats_of_every_code_equal_small_float(void **state)
{
    (void)state;
    static const struct {
        ptx_format format;
        float (*widen)(uint16_t code);
    } wide[] = {{PTX_FORMAT_F16, wefti_f16_widen},
                {PTX_FORMAT_BF16, wefti_bf16_widen}};
    for (unsigned i = 0; i < WEFTI_COUNT_OF(wide); i++) {
        for (unsigned code = 0; code < 65536; code++) {
            double got = ptx_to_double(wide[i].format, code);
            float want = wide[i].widen((uint16_t)code);
            assert_true(got != got ? want != want
                                   : ptx_double_bits(got) ==
                                         ptx_double_bits((double)want));
        }
    }
    for (unsigned code = 0; code < 256; code++) {
        double e4m3 = ptx_to_double(PTX_FORMAT_E4M3, code);
        double e5m2 = ptx_to_double(PTX_FORMAT_E5M2, code);
        float want4 = wefti_f8e4m3_widen((uint8_t)code);
        float want5 = wefti_f8e5m2_widen((uint8_t)code);
        assert_true(e4m3 != e4m3 ? want4 != want4 : e4m3 == (double)want4);
        assert_true(e5m2 != e5m2 ? want5 != want5 : e5m2 == (double)want5);
    }
}

static uint64_t narrow(ptx_format format, float value)
{
    uint32_t code;
    memcpy(&code, &value, sizeof(code));
    return ptx_format_write(format, ptx_format_read(PTX_FORMAT_F32, code),
                            PTX_NEAREST, false);
}

static void test_random_floats_narrow_as_small_float(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (unsigned i = 0; i < 200000; i++) {
        uint32_t code = (uint32_t)random_next(&seed);
        float value;
        if (i % 2 == 0) { /* near the middle of the small formats' range */
            code = (code & 0x807fffff) | (100 + code % 50) << 23;
        }
        memcpy(&value, &code, sizeof(value));
        if (value != value) {
            continue;
        }
        assert_int_equal(narrow(PTX_FORMAT_F16, value),
                         wefti_f16_narrow(value));
        assert_int_equal(narrow(PTX_FORMAT_BF16, value),
                         wefti_bf16_narrow(value));
        uint64_t e4m3 = narrow(PTX_FORMAT_E4M3, value);
        assert_int_equal((e4m3 & 0x7f) == 0x7f ? 0x7f : e4m3,
                         wefti_f8e4m3_narrow(value));
        assert_int_equal(narrow(PTX_FORMAT_E5M2, value),
                         wefti_f8e5m2_narrow(value));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic_by_hand),
        cmocka_unit_test(test_doubles_and_approximations_by_hand),
        cmocka_unit_test(test_small_floats_by_hand),
        cmocka_unit_test(test_conversions_by_hand),
        cmocka_unit_test(test_formats_of_every_code_equal_small_float),
        cmocka_unit_test(test_random_floats_narrow_as_small_float),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
