/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/wire_launch_simt.c - kernels of kernels/wire on the emulated
 * machine, with threads in any order. What they access the sanitizers check.
 */
#include "tests/simt/wire_launch.h"

#include "tests/seed.h"
#include "tests/simt/simt_launch.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

void wire_launch(const char *kernel, void *args, const wire_range *ranges,
                 size_t range_count, uint64_t *seed)
{
    static const unsigned threads[] = {32, 64, 96};
    simt_config config = {
        .grid = {1 + (unsigned)(random_next(seed) % 3), 1, 1},
        .block = {threads[random_next(seed) % 3], 1, 1},
        .order = (simt_order)(random_next(seed) % SIMT_ORDER_COUNT),
        .seed = random_next(seed)};
    (void)ranges, (void)range_count;
    if (simt_launch(kernel, &config, (void *[]){args}) != 0) {
        fail_msg("%s", simt_fault());
    }
}

unsigned wire_launch_rounds(void)
{
    return 1;
}
