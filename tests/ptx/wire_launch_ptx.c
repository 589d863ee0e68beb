/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/wire_launch_ptx.c - the PTX that nvcc made of kernels/wire, which
 * lies in the folder PTX_FOLDER, interpreted.
 *
 * WEFT_TEST_LONG: twenty rounds, else one.
 */
#include "tests/simt/wire_launch.h"

#include "base/check.h"
#include "tests/ptx/ptx.h"
#include "tests/ptx/ptx_file.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const files[] = {"wire_reduce.ptx", "wire_cast.ptx",
                                    "wire_move.ptx"};
enum { FILES = WEFTI_COUNT_OF(files) };

static ptx_program *programs[FILES];

static void destroy_programs(void)
{
    for (size_t i = 0; i < FILES; i++) {
        ptx_program_destroy(programs[i]);
    }
}

static void read_programs(void)
{
    for (size_t i = 0; i < FILES; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", PTX_FOLDER, files[i]);
        char *text = ptx_file_read(path);
        if (!text) {
            fail_msg("%s can not be read", path);
        }
        programs[i] = ptx_program_create(files[i], text);
        free(text);
        if (!programs[i]) {
            fail_msg("%s: %s", PTX_FOLDER, ptx_fault());
        }
    }
    atexit(destroy_programs);
}

static ptx_program *program_with(const char *kernel)
{
    for (size_t i = 0; i < FILES; i++) {
        const char *name;
        for (size_t k = 0; (name = ptx_program_kernel(programs[i], k)); k++) {
            if (strcmp(name, kernel) == 0) {
                return programs[i];
            }
        }
    }
    fail_msg("%s: no PTX has it", kernel);
    return NULL;
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
    if (!programs[0]) {
        read_programs();
    }
    for (size_t i = 0; i < range_count; i++) {
        given[i] =
            (ptx_range){ranges[i].at, ranges[i].bytes, ranges[i].writable};
    }
    int rc =
        ptx_launch(program_with(kernel), kernel, &config, (void *[]){args});
    free(given);
    if (rc != 0) {
        fail_msg("%s", ptx_fault());
    }
}

unsigned wire_launch_rounds(void)
{
    return getenv("WEFT_TEST_LONG") ? 20 : 1;
}
