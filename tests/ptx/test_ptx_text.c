/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what is not PTX, or not known, is refused, with its line and what is
 * wrong; nothing is ignored. What nvcc writes around code is read.
 *
 * Method: a right module of one kernel, in which one thing is replaced.
 */
#include "base/check.h"
#include "tests/ptx/ptx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The kernel's text is line 5 of it. */
static const char around[] = "%s\n.target sm_90\n.address_size 64\n"
                             ".visible .entry k(.param .u64 a)\n"
                             "{ .reg .pred %%p<3>; .reg .b16 %%h<3>; .reg .b32 "
                             "%%r<3>; .reg .b64 %%d<3>; %s\n}\n";

static ptx_program *read_text(const char *version, const char *body)
{
    char text[2048];
    snprintf(text, sizeof(text), around, version, body);
    return ptx_program_create("text", text);
}

static void assert_refused(ptx_program *program, const char *body,
                           const char *line, const char *why)
{
    if (program) {
        fail_msg("\"%s\" is not refused", body);
    }
    if (strncmp(ptx_fault(), line, strlen(line)) != 0 ||
        !strstr(ptx_fault(), why)) {
        fail_msg("\"%s\": wanted \"%s ... %s\", got \"%s\"", body, line, why,
                 ptx_fault());
    }
}

static void test_bad_instructions_are_refused_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *body, *why;
    } bad[] = {
        {"frobnicate.u32 %r0, %r1;", "frobnicate.u32: no such instruction"},
        {"add.u33 %r0, %r1, %r2;", "not known with '.u33'"},
        {"add.rn.s32 %r0, %r1, %r2;", "not known with '.s32'"},
        {"add.ftz.f64 %d0, %d1, %d2;", "not known with '.f64'"},
        {"add.s32.s32 %r0, %r1, %r2;", "not known with '.s32'"},
        {"add %r0, %r1, %r2;", "something is missing"},
        {"add.s32. %r0, %r1, %r2;", "add.s32."},
        {"setp.lt.b32 %p0, %r0, %r1;", "not known with '.b32'"},
        {"mul.u32 %r0, %r1, %r2;", "not known with '.u32'"},
        {"mul.wide.u64 %d0, %d1, %d2;", "not known with '.u64'"},
        {"min.NaN.f64 %d0, %d1, %d2;", "not known with '.f64'"},
        {"wgmma.fence.sync.aligned;", "no such instruction"},
        {"shfl.down.b32 %r0, %r1, 1, 31;", "not known with '.down'"},
        {"ld.global.foo.u32 %r0, [%d0];", "not known with '.foo'"},
        {"ld.relaxed.global.u32 %r0, [%d0];", "not known with '.global'"},
        {"ld.shared::cluster.u32 %r0, [%d0];", "shared::cluster"},
        {"cvt.rn.e4m3x2.f32 %h0, %r0, %r1;", "not known with '.e4m3x2'"},
        {"add.s32 %r0, %r1;", "expected ','"},
        {"add.s32 %r0, %r1, %r2, %r2;", "expected ';'"},
        {"add.s32 %r0, %r1, %r9;", "expected a register, not '%r9'"},
        {"add.s32 %r0, %r1, %r02;", "expected a register, not '%r02'"},
        {"add.s32 %r0, %r1, %h2;", "%h2 has 16 bits where 32"},
        {"add.s32 %d0, %r1, %r2;", "%d0 has 64 bits where 32"},
        {"add.s32 %p0, %r1, %r2;", "%p0 has 1 bits"},
        {"add.s32 1, %r1, %r2;", "expected a register, not '1'"},
        {"and.pred %p0, %r1, %p1;", "%r1 has 32 bits where 1"},
        {"cvt.u32.u64 %r0, %r1;", "where at least 64"},
        {"st.global.u32 [%d0], %h1;", "where at least 32"},
        {"ld.global.u32 %r0, [%r1];", "where at least 64"},
        {"add.s16 %h0, %h1, 65536;", "more than 16 bits"},
        {"add.s16 %h0, %h1, -32769;", "more than 16 bits"},
        {"add.f32 %r0, %r1, 1;", "a real number"},
        {"add.f32 %r0, %r1, 0d3ff0000000000000;", "has not 32 bits"},
        {"add.s32 %r0, %r1, 1.5;", "no real is allowed"},
        {"add.s32 %r0, %r1, %tid.x;", "expected a register"},
        {"mov.u32 %r0, %frobnicate;", "expected a register"},
        {"mov.u32 %r0, %clock64;", "has 64 bits"},
        {"mov.u16 %h0, %tid.x;", "has 32 bits"},
        {"mov.b64 %d0, {%r0, %r1, %r2};", "two or four registers"},
        {"mov.b32 %r0, {%r1, %r2};", "has 32 bits where 16"},
        {"ld.global.v2.u32 %r0, [%d0];", "expected '{'"},
        {"ld.global.v2.u32 {%r0}, [%d0];", "expected ','"},
        {"bra nowhere;", "'nowhere': no such label"},
        {"brx.idx %r0, nowhere;", "'nowhere': no such table"},
        {"x: y: x: ret;", "label 'x' is there twice"},
        {"call foo, (a);", "a function that is declared"},
        {".frob .b32 x;", "a directive that is known"},
        {".pragma \"frob\";", "nounroll"},
        {".reg .b32 %r<3>;", "'%r' is declared twice"},
        {".reg .b33 %x;", "a register's type"},
        {".reg .f16x2 %x;", "a register's type"},
        {".shared .align 3 .b8 x[4];", "a power of 2"},
        {".shared .b8 x[];", "has no size"},
        {".shared .b8 x[0];", "an array of 1 to"},
        {"@%r0 ret;", "%r0 has 32 bits where 1"},
        {"ret", "expected ';'"},
        {"ret; ?", "expected an instruction, not '?'"},
        {"mov.f32 %r0, 0f3F80;", "0"},
    };
    for (size_t i = 0; i < WEFTI_COUNT_OF(bad); i++) {
        assert_refused(read_text(".version 9.0", bad[i].body), bad[i].body,
                       "text:5:", bad[i].why);
    }
}

static void test_bad_modules_are_refused_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line, *why;
    } bad[] = {
        {".version 5.0", "m:1:", "6.0 to 9.9"},
        {".version 9.0\n.target compute_90", "m:2:", "sm_"},
        {".address_size 32", "m:1:", "expected 64"},
        {"\n.frob", "m:2:", "'.frob'"},
        {".visible .entry k(.param .u64 a", "m:1:", "')'"},
        {".visible .entry k() {\nret;\n", "m:3:", "'}', not the end"},
        {".visible .entry k() {}\n.visible .entry k() {}", "m:2:", "twice"},
        {".entry k() .frob 3 {}", "m:1:", "'{'"},
        {".global .align 4 .b32 x[2] = {1, 2, 3};", "m:1:", "more values"},
        {".extern .global .b8 x[4];", "m:1:", "only .extern .shared"},
        {".const .b32 x;\n.const .b32 x;", "m:2:", "declared twice"},
        {".func f();\n.entry k() { call f; }", "m:2:", "only declared"},
        {".func f(.param .b32 a) {}\n"
         ".entry k() { .param .b64 b; call f, (b); }",
         "m:2:", "are not those"},
        {".entry f() {}\n.entry k() { call f; }", "m:2:", "a function"},
        {".section .debug_line {}", "m:1:", "'.section'"},
    };
    for (size_t i = 0; i < WEFTI_COUNT_OF(bad); i++) {
        assert_refused(ptx_program_create("m", bad[i].text), bad[i].text,
                       bad[i].line, bad[i].why);
    }
}

static void test_right_text_is_read(void **state)
{
    (void)state;
    static const char *const good[] = {
        "",
        "ret;",
        "{ .reg .pred %p1; .reg .b32 %r1; mov.u32 %r1, 1; } ret;",
        "/* more\n lines */ mov.u32 %r0, 0x10U; // and so on",
        ".pragma \"nounroll\"; x: bra.uni y; y: ret;",
        "{cvt.u32.u16 %r0, %h1;}",
        "@!%p1 bra x; add.s16 %h0, %h1, -32768; x: exit;",
    };
    for (size_t i = 0; i < WEFTI_COUNT_OF(good); i++) {
        ptx_program *program = read_text(".version 8.4", good[i]);
        if (!program) {
            fail_msg("%s: %s", good[i], ptx_fault());
        }
        assert_string_equal(ptx_program_kernel(program, 0), "k");
        assert_null(ptx_program_kernel(program, 1));
        ptx_program_destroy(program);
    }
}

/* No text, cut off anywhere, does more than be refused. */
static void test_every_beginning_of_a_module_is_read_or_refused(void **state)
{
    (void)state;
    static const char module[] =
        ".version 9.0\n.target sm_90\n.address_size 64\n"
        ".extern .shared .align 16 .b8 dyn[];\n"
        ".const .align 4 .b32 table[3] = {1, -2, 0x3U};\n"
        ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %r<2>; ret; }\n"
        ".visible .entry k(.param .u64 p) .maxntid 32, 1, 1 {\n"
        "  .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<2>;\n"
        "  ld.param.u64 %d1, [p+0];\n  mov.u32 %r1, %tid.x;\n"
        "  T: .branchtargets A, B;\n  @!%p1 brx.idx %r1, T;\n"
        "A:\n  shfl.sync.idx.b32 %r2|%p1, %r1, 0, 31, -1;\n"
        "B:\n  st.global.v2.u32 [%d1+8], {%r1, %r2};\n"
        "  atom.global.add.f32 %r3, [%d1], 0f3f800000;\n  ret;\n}\n";
    char cut[sizeof(module)];
    for (size_t bytes = 0; bytes < sizeof(module); bytes++) {
        memcpy(cut, module, bytes);
        cut[bytes] = '\0';
        ptx_program *program = ptx_program_create("cut", cut);
        assert_true(program || strncmp(ptx_fault(), "cut:", 4) == 0);
        ptx_program_destroy(program);
    }
    ptx_program *whole = ptx_program_create("cut", module);
    if (!whole) {
        fail_msg("%s", ptx_fault());
    }
    ptx_program_destroy(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_instructions_are_refused_by_line),
        cmocka_unit_test(test_bad_modules_are_refused_by_line),
        cmocka_unit_test(test_right_text_is_read),
        cmocka_unit_test(test_every_beginning_of_a_module_is_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
