/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_case.c - a kernel around the text; line 1 is the text's.
 */
#include "tests/ptx/ptx_case.h"

#include "tests/ptx/ptx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char head[] =
    ".version 9.0 .target sm_90 .address_size 64 "
    ".visible .entry one(.param .u64 in_, .param .u64 out_) { "
    ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<10>; .reg .b64 %d<10>; "
    ".reg .b64 %in, %out; "
    "ld.param.u64 %in, [in_]; ld.param.u64 %out, [out_]; ";

static const char *const tails[] = {
    "selp.u32 %r0, 1, 0, %p0; st.global.u32 [%out], %r0; }",
    "st.global.u16 [%out], %h0; }",
    "st.global.u32 [%out], %r0; }",
    "st.global.u64 [%out], %d0; }",
};

static int run(const char *text, unsigned bits, const uint64_t *in,
               uint64_t *out)
{
    char module[4096];
    int used = snprintf(module, sizeof(module), "%s", head);
    for (int i = 1; i <= 3; i++) {
        int at = 8 * (i - 1);
        used += snprintf(module + used, sizeof(module) - (size_t)used,
                         "ld.global.u16 %%h%d, [%%in+%d]; "
                         "ld.global.u32 %%r%d, [%%in+%d]; "
                         "ld.global.u64 %%d%d, [%%in+%d]; "
                         "and.b32 %%r4, %%r%d, 1; setp.ne.u32 %%p%d, %%r4, 0; ",
                         i, at, i, at, i, at, i, i);
    }
    snprintf(module + used, sizeof(module) - (size_t)used, "%s\n%s", text,
             tails[bits == 1    ? 0
                   : bits == 16 ? 1
                   : bits == 32 ? 2
                                : 3]);
    ptx_program *program = ptx_program_create("case", module);
    if (!program) {
        return -1;
    }
    *out = 0;
    void *params[2] = {&in, &out};
    ptx_range ranges[2] = {{in, 24, false}, {out, 8, true}};
    ptx_config config = {.grid = {1, 1, 1},
                         .block = {1, 1, 1},
                         .ranges = ranges,
                         .range_count = 2,
                         .step_limit = 10000};
    int rc = ptx_launch(program, "one", &config, params);
    ptx_program_destroy(program);
    return rc;
}

uint64_t ptx_case_run(const char *text, unsigned bits, const uint64_t *in)
{
    uint64_t out;
    if (run(text, bits, in, &out) != 0) {
        fail_msg("%s: %s", text, ptx_fault());
    }
    return out;
}

void ptx_case_check(const ptx_case *cases, size_t count)
{
    unsigned wrong = 0;
    for (size_t i = 0; i < count; i++) {
        const ptx_case *now = &cases[i];
        uint64_t out;
        if (run(now->text, now->bits, now->in, &out) != 0) {
            print_error("%s: %s\n", now->text, ptx_fault());
            wrong++;
        } else if (out != now->expected) {
            print_error("%s of 0x%llx, 0x%llx, 0x%llx: 0x%llx, not 0x%llx\n",
                        now->text, (unsigned long long)now->in[0],
                        (unsigned long long)now->in[1],
                        (unsigned long long)now->in[2], (unsigned long long)out,
                        (unsigned long long)now->expected);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

void ptx_case_stops(const char *text, const char *first, const char *second)
{
    const uint64_t in[3] = {0};
    uint64_t out;
    assert_int_equal(run(text, 32, in, &out), -1);
    const char *fault = ptx_fault();
    if (!strstr(fault, "case:1:") || !strstr(fault, first) ||
        !strstr(fault, second)) {
        fail_msg("%s: wanted \"%s\" and \"%s\", got \"%s\"", text, first,
                 second, fault);
    }
}
