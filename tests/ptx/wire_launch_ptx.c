/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/wire_launch_ptx.c - the PTX that nvcc made of kernels/wire,
 * PTX_FILE, interpreted.
 *
 * WEFT_TEST_LONG: twenty rounds, else one.
 */
#include "tests/simt/wire_launch.h"

#include "tests/ptx/ptx.h"
#include "tests/ptx/ptx_file.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ptx_program *program;

static void destroy_program(void)
{
    ptx_program_destroy(program);
}

static void read_program(void)
{
    char *text = ptx_file_read(PTX_FILE);
    if (!text) {
        fail_msg("%s can not be read", PTX_FILE);
    }
    program = ptx_program_create("wire.ptx", text);
    free(text);
    if (!program) {
        fail_msg("%s: %s", PTX_FILE, ptx_fault());
    }
    atexit(destroy_program);
}

void wire_launch(const char *kernel, void *args, const wire_range *ranges,
                 size_t range_count, uint64_t *seed)
{
    static const unsigned threads[] = {32, 64, 96};
    ptx_range *given = calloc(range_count + 1, sizeof(*given));
    ptx_config config = {.grid = {1 + (unsigned)(random_next(seed) % 3), 1, 1},
                         .block = {threads[random_next(seed) % 3], 1, 1},
                         .ranges = given,
                         .range_count = range_count};
    if (!program) {
        read_program();
    }
    for (size_t i = 0; i < range_count; i++) {
        given[i] =
            (ptx_range){ranges[i].at, ranges[i].bytes, ranges[i].writable};
    }
    int rc = ptx_launch(program, kernel, &config, (void *[]){args});
    free(given);
    if (rc != 0) {
        fail_msg("%s", ptx_fault());
    }
}

unsigned wire_launch_rounds(void)
{
    return getenv("WEFT_TEST_LONG") ? 20 : 1;
}
